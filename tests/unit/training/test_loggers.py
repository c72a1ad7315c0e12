"""Metrics reach the loggers that were asked for, as flat numbers."""

import numpy as np
import pytest

from actsafe.envs.spec import EnvSpec
from actsafe.training import loggers
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError


class Remembered:
    package = "json"

    def __init__(self, folder):
        self.logged, self.is_closed = [], False
        Remembered.last = self

    def log(self, step, values):
        self.logged.append((step, values))

    def close(self):
        self.is_closed = True


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", tiny(), EnvSpec("pendulum", (2,), 1, ("cost",), (0.0,), 50))


def test_rows_become_numbers_with_paths(folder, monkeypatch):
    monkeypatch.setattr(loggers, "LOGGERS", {"memory": Remembered})
    row = {"epoch": 1, "seed": 0, "phase": "expansion", "steps": 50, "return": None, "costs": {"cost": np.float64(2.0)}}
    with loggers.logging(["memory"], folder) as note:
        note([row])
    assert Remembered.last.logged == [(50, {"epoch": 1.0, "seed": 0.0, "steps": 50.0, "costs/cost": 2.0})]
    assert Remembered.last.is_closed


def test_seeds_are_told_apart(folder, monkeypatch):
    monkeypatch.setattr(loggers, "LOGGERS", {"memory": Remembered})
    with loggers.logging(["memory"], folder) as note:
        note([{"steps": 100, "seed": seed, "cost": 1.0 * seed} for seed in (3, 4)])
    assert [
        values.get(f"seed_{seed}/cost") for (_, values), seed in zip(Remembered.last.logged, (3, 4), strict=True)
    ] == [
        3.0,
        4.0,
    ]


def test_an_unknown_logger_and_a_missing_package_are_explained(folder, monkeypatch):
    with pytest.raises(ConfigError, match="Did you mean 'tensorboard'"), loggers.logging(["tensorbord"], folder):
        pass

    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(loggers.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'actsafe\[wandb\]'"), loggers.logging(["wandb"], folder):
        pass
    with pytest.raises(ConfigError, match=r"pip install 'actsafe\[tensorboard\]'"):
        loggers.require_loggers(["tensorboard"])


def test_tensorboard_files_are_written(folder):
    pytest.importorskip("tensorboardX")
    with loggers.logging(["tensorboard"], folder) as note:
        note([{"steps": 50, "seed": 0, "cost": 1.5}])
    (file,) = (folder.path / "tensorboard").iterdir()
    assert b"cost" in file.read_bytes()
