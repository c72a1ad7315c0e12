"""Commit three epochs to a run folder, killed at every touch of a file and resumed; prints how many there were.

    python killed_commits.py FOLDER

JAX is imported but never computes before a fork, so that forking is sound. A checkpoint is one file here: whatever
Orbax writes is in the same folder, which has no name before it is whole.
"""

import hashlib
import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
from killed import kill_at

from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import LedgerRow
from actsafe.training import epochs
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder, UnitRecord
from actsafe.training.storage import write_new

NUM_EPOCHS = 3
SPEC = EnvSpec("pendulum", (2,), 1, ("cost",), (0.0,), 50)


def write_arrays(path: Path, tree: dict[str, np.ndarray]) -> None:
    path.mkdir()
    write_new(path / "weights", tree["weights"].tobytes())


epochs.write_arrays = write_arrays


def work(path: Path) -> None:
    """Do what is left: create the folder, commit the episodes that are missing."""
    folder = RunFolder.open(path) if (path / "config.json").is_file() else RunFolder.create(path, tiny(), SPEC)
    folder.refresh()
    for number in range(folder.num_committed, NUM_EPOCHS):
        metrics = [{"epoch": number, "seed": 0, "value": number / 3}]
        ledger = [LedgerRow(number, 0, "expansion", "exploration", "cost", 0.0, 1, 0, 0.0, 0.0, None, None).to_json()]
        record = UnitRecord(metrics, ledger, {"states": np.ones((1, 5)) * number}, {"seconds": 1.0})
        folder.commit(number, record, {"weights": np.arange(1000.0) * number})


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
            epochs = [row["epoch"] for row in RunFolder.open(path).rows("ledger")]
            assert epochs == list(range(len(epochs))), (number, epochs)
        assert in_child(path, None) == 0, number
        assert content(path) == expected, (number, content(path).keys() ^ expected.keys())
    print(number - 1)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    main()
