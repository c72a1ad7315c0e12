"""On systems without fcntl, SIGHUP, affinities and /proc commands and runs are the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

PROGRAM = """
import sys
from pathlib import Path
from actsafe.cli.main import main
from actsafe.data.memory import free_host_bytes
from actsafe.training.run import RunFolder
from actsafe.training.runner import resume, train
from actsafe.training.presets import PRESETS
from actsafe.training.storage import StorageError

folder = RunFolder.open(train(Path(sys.argv[1]), PRESETS["tiny"]()).path)
assert main(["doctor", "--no-plan"]) == 0
assert main(["demo", "--help"]) == 0
assert free_host_bytes() > 2**20
with folder.locked():
    try:
        resume(folder.path)
    except StorageError as error:
        print(error)
resume(folder.path)
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A run that was made on such a system, and what was printed."""
    path = tmp_path_factory.mktemp("desk") / "run"
    command = [sys.executable, str(HERE / "other_desk.py"), PROGRAM, str(path)]
    done = subprocess.run(command, env=os.environ | {"COLUMNS": "200"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return path, done.stdout


def test_commands_and_runs_work_on_another_system(elsewhere):
    path, output = elsewhere
    assert "Everything that is needed is there." in output
    assert "usage: actsafe demo" in output
    assert f"another process is working on {path}" in output
    assert not (path / ".config.json.lock").exists()
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    (session,) = json.loads((path / "provenance.json").read_text())
    assert session["machine"]["cores"] >= 1
    assert session["machine"]["memory_gib"] > 0


def test_what_is_hidden_is_hidden(tmp_path):
    """Otherwise the test above would show nothing."""
    program = """
import importlib, os, signal
from pathlib import Path
for name in ("fcntl", "pwd"):
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
print(hasattr(signal, "SIGHUP"), hasattr(os, "sched_getaffinity"), Path("/proc/meminfo").exists())
"""
    done = subprocess.run(
        [sys.executable, str(HERE / "other_desk.py"), program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "fcntl\npwd\nFalse False False\n", done.stderr
