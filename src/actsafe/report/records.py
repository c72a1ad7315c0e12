"""The records of a run as the report reads them: checked, so that what is damaged is said in one line."""

import sys
from collections.abc import Mapping
from typing import Any

from actsafe.agents.phases import Phase
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
