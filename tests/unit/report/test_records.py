"""Records are checked before anything is concluded from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import LedgerRow
from actsafe.report.records import metrics_of
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError
from actsafe.training.trajectories import episodes_of

EVALUATION = {"episodes": 1, "return": 2.0, "costs": {"cost": 0.0}, "goals": None}
METRICS = {
    "epoch": 1,
    "seed": 0,
    "phase": "expansion",
    "steps": 50,
    "return": -1.5,
    "costs": {"cost": 0.0},
    "evaluation": {"juggle": EVALUATION},
    "learning": {"coverage": [1.0, None], "loss": 0.1},
}
LEDGER = LedgerRow(1, 0, "expansion", "task", "cost", 5.0, 2, 1, 3.5, 6.0, None, None).to_json()


class Folder(RunFolder):
    """A run folder without files."""

    def __init__(self, metrics: Any = (), ledger: Any = (), **arrays: np.ndarray) -> None:
        super().__init__(Path("run"), tiny(), EnvSpec("own", (3,), 1, ("cost",), (5.0,), 50))
        self._given, self._arrays = {"metrics": metrics, "ledger": ledger}, arrays

    def rows(self, what: str) -> Any:
        return self._given[what]

    def trajectory(self, number: int) -> dict[str, np.ndarray]:
        return self._arrays


def test_sound_rows_are_what_was_written():
    before = METRICS | {"epoch": 0}
    assert metrics_of(Folder([before, METRICS])) == [METRICS]
    assert [row.to_json() for row in Folder(ledger=[LEDGER]).ledger()] == [LEDGER]


@pytest.mark.parametrize("name", list(METRICS))
def test_metrics_without_an_entry_are_refused(name):
    with pytest.raises(StorageError, match=f"the metrics of run cannot be used.*{name}"):
        metrics_of(Folder([{key: value for key, value in METRICS.items() if key != name}]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", -1),
        ("epoch", True),
        ("epoch", 10**30),
        ("phase", "holiday"),
        ("phase", []),
        ("steps", 1.5),
        ("return", "high"),
        ("return", 10**400),
        ("return", float("inf")),
        ("costs", [0.0]),
        ("costs", {"cost": "none"}),
        ("evaluation", {"juggle": []}),
        ("evaluation", {"juggle": EVALUATION | {"goals": "many"}}),
        ("learning", [1.0]),
    ],
)
def test_metrics_of_another_kind_are_refused_in_one_line(name, value):
    with pytest.raises(StorageError, match=f"{name} = .*Restore the run from a copy") as refused:
        metrics_of(Folder([METRICS, METRICS | {name: value}]))
    assert len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("row", [None, 5, [], "row", [[]]])
def test_rows_that_are_none_are_refused(row):
    with pytest.raises(StorageError, match="the metrics of run cannot be used"):
        metrics_of(Folder([row]))


def arrays(task: str = "") -> dict[str, np.ndarray]:
    """Two seeds, one environment each; the second one begins anew after three rows."""
    is_first = np.zeros((2, 1, 5), bool)
    is_first[:, :, 0], is_first[1, 0, 3] = True, True
    numbered = np.arange(10.0).reshape(2, 1, 5)
    found = {
        "is_first": is_first,
        "observation": np.repeat(numbered[..., None], 3, axis=-1),
        "costs": numbered[..., None],
        "reward": numbered,
        "other": np.array("text"),
    }
    return {f"{task}{name}": array for name, array in found.items()}


def test_episodes_begin_where_they_did():
    for task in ("", "juggle"):
        prefix = f"{task}/" if task else ""
        first, second = episodes_of(Folder(**arrays(prefix)), 1, task)
        assert [episode.rewards.tolist() for episode in first] == [[0, 1, 2, 3, 4]]
        assert [episode.rewards.tolist() for episode in second] == [[5, 6, 7], [8, 9]]
        assert second[1].observations.shape == (2, 3)
        assert second[1].costs.tolist() == [[8], [9]]


@pytest.mark.parametrize("name", ["observation", "costs", "reward", "is_first"])
def test_trajectories_without_what_is_expected_are_refused(name):
    sound = arrays()
    text = np.full(sound[name].shape, "text")
    for array in (None, text, sound[name][:, :, :3], sound[name][0, 0], np.array(1.0)):
        changed = {key: value for key, value in sound.items() if key != name} | ({} if array is None else {name: array})
        with pytest.raises(StorageError, match="restore it from a copy"):
            episodes_of(Folder(**changed), 1)
