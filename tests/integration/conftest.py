"""What the tests of whole commands share: one tiny run, made once, and ways to run, copy and compare.

Compiled programs are kept in one cache for all processes, those that run tests side by side among them, and in this
process also as traced functions: a test then pays for what it tests, not for the same compilation again.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from actsafe.cli.main import main
from actsafe.problems import PROBLEMS
from actsafe.training import runner
from actsafe.training.run import RunFolder

Tree = dict[str, str]


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is the same in all processes which run these tests side by side."""
    own = tmp_path_factory.getbasetemp()
    path = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "common"
    path.mkdir(exist_ok=True)
    return path


@contextlib.contextmanager
def one_at_a_time(path: Path):
    """A context that only one process is in; the others wait."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="package")
def shared_programs(common: Path):
    """The same settings use the same compiled programs, here and in processes that a test starts."""
    original = runner.Programs

    @functools.cache
    def keep(config, problem_factory):
        return original(config.make_agent(), config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACTSAFE_CACHE", str(common / "cache"))
        patch.setenv("COLUMNS", "120")
        patch.setattr(runner, "Programs", lambda agent, config: keep(config, PROBLEMS[config.problem]))
        yield


@pytest.fixture(scope="package")
def start(shared_programs) -> Callable[..., subprocess.Popen]:
    """Start a process of its own, by default of the `actsafe` command."""

    def _start(*arguments: object, program: tuple[str, ...] = ("-m", "actsafe"), **options) -> subprocess.Popen:
        command = [sys.executable, *program, *map(str, arguments)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        return subprocess.Popen(command, env=os.environ | {"PYTHONUNBUFFERED": "1"}, **options)

    return _start


@pytest.fixture(scope="package")
def tiny_run(start, common: Path) -> Path:
    """A finished run that was never interrupted. Copy it before changing anything."""
    path = common / "tiny"
    with one_at_a_time(common / "tiny.lock"):
        if not path.exists():
            process = start("train", "--preset", "tiny", "--out", path)
            output, errors = process.communicate(timeout=600)
            assert process.returncode == 0, output + errors
    return path


@pytest.fixture
def finished(tiny_run: Path, tmp_path: Path) -> Path:
    """A finished run of the test's own."""
    return Path(shutil.copytree(tiny_run, tmp_path / "finished"))


@pytest.fixture
def unfinished(tiny_run: Path, tmp_path: Path) -> Path:
    """A run of the test's own that was stopped before its last episode."""
    path = Path(shutil.copytree(tiny_run, tmp_path / "unfinished"))
    shutil.rmtree(path / "episodes" / "0002")
    RunFolder.open(path).refresh()
    return path


@pytest.fixture(scope="session")
def tree_of() -> Callable[[Path], Tree]:
    """What a folder holds: the hash of every file, and every folder."""

    def _tree_of(path: Path) -> Tree:
        return {
            str(entry.relative_to(path)): hashlib.sha256(entry.read_bytes()).hexdigest()
            if entry.is_file()
            else "folder"
            for entry in sorted(path.rglob("*"))
        }

    return _tree_of


@pytest.fixture(scope="session")
def assert_same_run() -> Callable[[Path, Path], None]:
    """Check that two run folders hold the same metrics, ledger, trajectories and newest state, bit for bit."""

    def _assert_same_run(got: Path, expected: Path) -> None:
        for name in ("metrics.jsonl", "ledger.jsonl"):
            assert (got / name).read_bytes() == (expected / name).read_bytes(), name
        left, right = RunFolder.open(got), RunFolder.open(expected)
        assert left.num_committed == right.num_committed
        for number in range(right.num_committed):
            ours, theirs = left.trajectory(number), right.trajectory(number)
            assert ours.keys() == theirs.keys()
            for name, array in theirs.items():
                assert ours[name].dtype == array.dtype
                np.testing.assert_array_equal(ours[name], array, err_msg=f"{name} of episode {number}")
        newest = f"episodes/{right.num_committed - 1:04d}/checkpoint.npz"
        assert (got / newest).read_bytes() == (expected / newest).read_bytes()

    return _assert_same_run


@pytest.fixture
def actsafe(shared_programs, capsys: pytest.CaptureFixture[str]):
    """Run a command in this process: its exit code, and what it wrote to stdout and to stderr."""

    def _actsafe(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        written = capsys.readouterr()
        return code, written.out, written.err

    return _actsafe
