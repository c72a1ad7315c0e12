"""Commit three episodes to a run folder, killed at every touch of a file and resumed; prints how many there were.

    python killed_commits.py FOLDER

JAX is imported but never computes before a fork, so that forking is sound.
"""

import hashlib
import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
from killed import kill_at

from actsafe.training.presets import tiny
from actsafe.training.run import Episode, RunFolder

NUM_EPISODES = 3


def work(path: Path) -> None:
    """Do what is left: create the folder, commit the episodes that are missing."""
    folder = RunFolder.open(path) if (path / "config.json").is_file() else RunFolder.create(path, tiny())
    folder.refresh()
    for number in range(folder.num_committed, NUM_EPISODES):
        rows = [{"episode": number, "seed": 0, "value": number / 3}]
        state = {"weights": np.arange(1000.0) * number}
        folder.commit(number, Episode(rows, rows, {"states": np.ones((1, 5)) * number}, {"seconds": 1.0}), state)


def in_child(path: Path, number: int | None) -> int:
    """The exit code of a process that works on `path`, killed at its `number`-th touch; negative for a signal."""
    child = os.fork()
    if child == 0:
        if number is not None:
            kill_at(str(path), number)
        work(path)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(path: Path) -> dict[str, str]:
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main() -> None:
    base = Path(sys.argv[1])
    assert in_child(base / "whole", None) == 0
    expected = content(base / "whole")
    number = 0
    while True:
        number += 1
        path = base / f"killed-{number}"
        code = in_child(path, number)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        if (path / "config.json").is_file():
            episodes = [row["episode"] for row in RunFolder.open(path).rows("ledger")]
            assert episodes == list(range(len(episodes))), (number, episodes)
        assert in_child(path, None) == 0, number
        assert content(path) == expected, (number, content(path).keys() ^ expected.keys())
    print(number - 1)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    main()
