"""What the tests of whole commands share: one tiny run, made once, and ways to run, copy and compare.

Compiled programs are kept in one cache for all processes, those that run tests side by side among them, and in this
process also as traced functions: a test then pays for what it tests, not for the same compilation again.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.cli.main import main
from actsafe.envs.make import is_pure
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
    original, kept = runner.make_loop, {}

    def shared(config):
        if not is_pure(config.env):
            return original(config)
        key = config.digest, PROBLEMS.get(config.env)
        if key not in kept:
            kept[key] = original(config)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACTSAFE_CACHE", str(common / "cache"))
        patch.setenv("COLUMNS", "120")
        patch.setattr(runner, "make_loop", shared)
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
    """A run of the test's own that was stopped before its last epoch."""
    path = Path(shutil.copytree(tiny_run, tmp_path / "unfinished"))
    shutil.rmtree(path / "epochs" / "0002")
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


def newest_state(path: Path) -> dict[str, np.ndarray]:
    """The train state after a run's newest epoch, whose checkpoint must be sound."""
    folder = RunFolder.open(path)
    trainer = runner.Trainer(folder)
    number, state = trainer.newest()
    trainer.loop.envs.close()
    assert number == folder.num_committed - 1
    return arrays_of(state)


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their places in it."""
    named = {jax.tree_util.keystr(place): leaf for place, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    is_key = {name: jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key) for name, leaf in named.items()}
    return {name: np.asarray(jax.random.key_data(leaf) if is_key[name] else leaf) for name, leaf in named.items()}


def assert_same_arrays(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], of: str) -> None:
    """Check that arrays by name are the same, bit for bit."""
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert ours[name].dtype == array.dtype
        np.testing.assert_array_equal(ours[name], array, err_msg=f"{name} of {of}")


@pytest.fixture(scope="session")
def assert_same_run() -> Callable[[Path, Path], None]:
    """Check that two run folders hold the same metrics, ledger, trajectories and newest state, bit for bit."""

    def _assert_same_run(got: Path, expected: Path) -> None:
        for name in ("metrics.jsonl", "ledger.jsonl"):
            assert (got / name).read_bytes() == (expected / name).read_bytes(), name
        left, right = RunFolder.open(got), RunFolder.open(expected)
        assert left.num_committed == right.num_committed
        for number in range(right.num_committed):
            assert_same_arrays(left.trajectory(number), right.trajectory(number), f"epoch {number}")
        assert_same_arrays(newest_state(got), newest_state(expected), "the newest state")

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
