"""The records of a run as the report reads them: checked, so that what is damaged is said in one line."""

import itertools
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from actsafe.agents.phases import Phase
from actsafe.evidence.ledger import LedgerRow
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError

PHASES = [phase.value for phase in Phase]
_COSTS = {str: float}
_EVALUATION = {"episodes": int, "return": float, "costs": _COSTS, "goals": float}
_METRICS = {
    "epoch": int,
    "seed": int,
    "phase": str,
    "steps": int,
    "return": float,
    "costs": _COSTS,
    "evaluation": {str: _EVALUATION},
    "learning": {},
}
"""What is read of a row of the metrics, as training/recording.py writes it: a count where this says int, a number or
null where it says float."""


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON is of a kind; the one of `str` in an object is that of all its entries."""
    if isinstance(kind, dict):
        kinds = dict.fromkeys(value, kind[str]) if isinstance(value, dict) and str in kind else kind
        return isinstance(value, dict) and all(each in value and _fits(value[each], kinds[each]) for each in kinds)
    if kind is str:
        return value in PHASES
    if kind is int:
        return type(value) is int and 0 <= value < 2**62
    return value is None or (type(value) in (int, float) and abs(value) <= sys.float_info.max)


def metrics_of(folder: RunFolder) -> list[Mapping[str, Any]]:
    """Rows of all epochs and seeds but for what comes before the first; `StorageError` where one is not as written."""
    rows = folder.rows("metrics")
    for row in rows:
        wrong = next((name for name in _METRICS if not _fits(row, {name: _METRICS[name]})), None)
        if wrong is not None:
            got = str(row.get(wrong) if isinstance(row, dict) else row)[:40]
            raise StorageError(
                f"the metrics of {folder.path} cannot be used: a row has {wrong} = {got!r}. Restore the run from a "
                "copy, or train anew"
            )
    return [row for row in rows if row["epoch"] > 0]


def ledger_of(folder: RunFolder) -> list[LedgerRow]:
    """Rows of all epochs, seeds and constraints."""
    return [LedgerRow.from_json(row) for row in folder.rows("ledger")]


class Episode(NamedTuple):
    """One recorded episode of one environment; the first row is what it began with."""

    observations: np.ndarray
    """[time, ...]."""
    costs: np.ndarray
    """[time, constraint]."""
    rewards: np.ndarray
    """[time]."""


def has_trajectories(folder: RunFolder) -> bool:
    """Whether the rows of every epoch are kept; else those of the newest are, for the agent to learn from."""
    return not folder.config.agent.replay_rows


def episodes_of(folder: RunFolder, number: int, task: str = "") -> list[list[Episode]]:
    """By environment, those of all seeds one after the other: the episodes of an epoch, or of a task's evaluation after
    it. `StorageError` where they are not recorded as they should be."""
    prefix = f"{task}/" if task else ""
    if has_trajectories(folder):
        arrays = folder.trajectory(number)
        found = {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}
        found = {name: each.reshape(-1, *each.shape[2:]) for name, each in found.items() if each.ndim >= 3}
    else:
        found = folder.read_rows(number)._asdict()
    first = found.get("is_first", np.zeros((0, 0)))
    shapes = {"observation": folder.spec.observation_shape, "costs": (len(folder.spec.cost_names),), "reward": ()}
    for name, shape in {**shapes, "is_first": ()}.items():
        got = found.get(name)
        if got is None or got.shape != (*first.shape[:2], *shape) or got.dtype.kind not in "fiub" or not got.size:
            said = "nothing" if got is None else f"{got.dtype}{list(got.shape)}"
            raise StorageError(
                f"epoch {number} of {folder.path} has {said} for {prefix}{name}, expected numbers [environment, time, "
                f"{', '.join(map(str, shape))}]; restore it from a copy, or train anew"
            )
    return [_split(*(found[name][env] for name in ("is_first", *shapes))) for env in range(len(first))]


def _split(is_first: np.ndarray, observations: np.ndarray, costs: np.ndarray, rewards: np.ndarray) -> list[Episode]:
    edges = [*map(int, np.flatnonzero(is_first)), len(is_first)]
    spans = [slice(start, end) for start, end in itertools.pairwise(edges) if end - start > 1]
    return [Episode(observations[span], costs[span], rewards[span]) for span in spans]
