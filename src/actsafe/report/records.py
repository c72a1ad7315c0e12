"""The records of a run as the report reads them: checked, so that what is damaged is said in one line."""

import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from actsafe.agents.phases import Phase
from actsafe.evidence.ledger import LedgerRow
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError

Check = Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _is_number(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) <= sys.float_info.max)


def _are_numbers(value: Any) -> bool:
    """Whether it is an object of numbers, or of lists of them."""
    lists = [each if isinstance(each, list) else [each] for each in value.values()] if isinstance(value, dict) else []
    return isinstance(value, dict) and all(_is_number(number) for each in lists for number in each)


def _are_evaluations(value: Any) -> bool:
    return isinstance(value, dict) and all(_misfit(each, _EVALUATION) is None for each in value.values())


_EVALUATION: Mapping[str, Check] = {
    "episodes": _is_count,
    "return": _is_number,
    "costs": _are_numbers,
    "goals": lambda value: value is None or _is_count(value),
}
_METRICS: Mapping[str, Check] = {
    "epoch": _is_count,
    "seed": _is_count,
    "phase": lambda value: value in [phase.value for phase in Phase],
    "steps": _is_count,
    "return": _is_number,
    "costs": _are_numbers,
    "evaluation": _are_evaluations,
    "learning": _are_numbers,
}
"""What is read of a row of the metrics, as training/recording.py writes it."""


def _misfit(row: Any, checks: Mapping[str, Check]) -> str | None:
    """What is wrong with a row, if anything is."""
    if not isinstance(row, dict):
        return f"a row is {str(row)[:40]!r}"
    wrong = next((name for name, check in checks.items() if name not in row or not check(row[name])), None)
    return None if wrong is None else f"a row has {wrong} = {str(row.get(wrong))[:40]!r}"


def metrics_of(folder: RunFolder) -> list[Mapping[str, Any]]:
    """Rows of all epochs and seeds but for what comes before the first; `StorageError` where one is not as written."""
    rows = folder.rows("metrics")
    wrong = next(filter(None, (_misfit(row, _METRICS) for row in rows)), None)
    if wrong is not None:
        raise StorageError(
            f"the metrics of {folder.path} cannot be used: {wrong}. Restore the run from a copy, or train anew"
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
