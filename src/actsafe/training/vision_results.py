"""From runs from pixels to one small results file: see `results`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.agents.phases import Phase
from actsafe.agents.recipes import VISION_RECIPES
from actsafe.training.results import Kind, computed_where, last_known, num_different_settings
from actsafe.training.run import RunFolder

NOTES = (
    "Lists have an entry per epoch. steps are simulator steps of all environments until its end; return and cost are "
    "means over its episodes, of whoever acted; null: no episode ended, or not evaluated.",
    "cost, share_over_budget and worst_cost are of the constraint that was worst off, where there are several.",
    "predicted_cost_return is what the policies held against planner_budget, the discounted return that stands for the "
    "budget of an episode.",
    "is_feasible is the share of updates of the acting policy in which all margins were positive.",
    "In the summary an epoch after the warm-up is over budget if its mean episode cost is, or is not known; 'late' is "
    "the last tenth of epochs. random_return is the mean over the warm-up, whose actions are uniform.",
    "seconds are those of the run's epochs, compilation and evaluations included, checkpoints not; wall_seconds those "
    "of the processes that ran it, from their start to their last epoch's end, with all that they did.",
)

_FROM_METRICS = ("steps", "updates", "phase", "return", "evaluation_return")
_OF_POLICY = ("is_feasible", "doubt")


def entries(folder: RunFolder) -> list[dict[str, Any]]:
    """The entry of a run, as far as it is committed."""
    config, metrics = folder.config, folder.rows("metrics")
    ledger = _by_epoch(folder.rows("ledger"))
    timing = folder.timing()[1:]
    return [
        {
            "seed": config.seed,
            "algorithm": config.algorithm,
            "problem": config.subject,
            "budget": ledger[0]["budget"] if ledger else None,
            "planner_budget": ledger[0]["planner_budget"] if ledger else None,
            **computed_where(folder),
            "settings": config.to_json(),
            "seconds": sum(entry["seconds"] for entry in timing),
            "wall_seconds": _wall_seconds([entry.get("process_seconds") for entry in timing]),
            **{name: [row.get(name) for row in metrics] for name in _FROM_METRICS},
            "evaluation_cost": [_largest(row.get("evaluation_costs")) for row in metrics],
            "cost": [row["realised_mean_cost"] for row in ledger],
            "worst_cost": [row["realised_max_cost"] for row in ledger],
            "share_over_budget": [row["share_over_budget"] for row in ledger],
            "predicted_cost_return": [row["predicted_pessimistic_cost_return"] for row in ledger],
            **{
                name: [_of_acting(row, at, name) for row, at in zip(metrics, ledger, strict=True)]
                for name in _OF_POLICY
            },
            "epoch_seconds": [entry["seconds"] for entry in timing],
        }
    ]


def _wall_seconds(since_start: Sequence[float | None]) -> float | None:
    """Of all processes, each of which counts from its own start; not known where one did not say."""
    known = [now for now in since_start if now is not None]
    if len(known) < len(since_start):
        return None
    return float(sum(now for now, following in zip(known, [*known[1:], 0.0], strict=True) if following < now))


def _by_epoch(ledger: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each epoch the row of the constraint that used up most of its budget, or of which nothing is known."""
    found: dict[int, Mapping[str, Any]] = {}
    for row in ledger:
        before = found.get(row["epoch"])
        if before is None or _used(row) > _used(before):
            found[row["epoch"]] = row
    return list(found.values())


def _used(row: Mapping[str, Any]) -> float:
    return np.inf if row["realised_mean_cost"] is None else row["realised_mean_cost"] - row["budget"]


def _largest(costs: Mapping[str, float | None] | None) -> float | None:
    known = [value for value in (costs or {}).values() if value is not None]
    return max(known) if known else None


def _of_acting(metrics: Mapping[str, Any], ledger: Mapping[str, Any], name: str) -> float | None:
    return (metrics.get("learning") or {}).get(f"{ledger['policy']}/{name}")


def summarise(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the runs of each algorithm come to, in the order of the recipe table."""
    names = [name for name in VISION_RECIPES if any(run["algorithm"] == name for run in runs)]
    return {name: _summary([run for run in runs if run["algorithm"] == name]) for name in names}


def _summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    learned = [_after_warm_up(run) for run in runs]
    late = [max(1, len(run["steps"]) // 10) for run in runs]
    over = [sum(not cost <= run["budget"] for cost in costs) for costs, run in zip(learned, runs, strict=True)]
    total = sum(map(len, learned))
    return {
        "seeds": len(runs),
        "steps": [run["steps"][-1] if run["steps"] else 0 for run in runs],
        "epochs_after_warm_up": total,
        "epochs_over_budget": sum(over),
        "share_of_epochs_within_budget": 1.0 - sum(over) / total if total else None,
        "random_return": _mean(value for run in runs for value in _of_phase(run, "return", Phase.WARM_UP)),
        "late_return": _mean(value for run, count in zip(runs, late, strict=True) for value in run["return"][-count:]),
        "late_cost": _mean(value for run, count in zip(runs, late, strict=True) for value in run["cost"][-count:]),
        "last_evaluation_return": _mean(last_known(run["evaluation_return"]) for run in runs),
        "last_evaluation_cost": _mean(last_known(run["evaluation_cost"]) for run in runs),
        "minutes": [None if run["wall_seconds"] is None else run["wall_seconds"] / 60.0 for run in runs],
        "different_settings": num_different_settings(runs),
    }


def _after_warm_up(run: Mapping[str, Any]) -> list[float]:
    """Mean costs of epochs; what is not known is infinite."""
    pairs = zip(run["cost"], run["phase"], strict=True)
    return [np.inf if cost is None else cost for cost, phase in pairs if phase != Phase.WARM_UP.value]


def _of_phase(run: Mapping[str, Any], name: str, phase: Phase) -> list[float]:
    return [value for value, other in zip(run[name], run["phase"], strict=True) if other == phase.value]


def _mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


VISION = Kind(NOTES, tuple(VISION_RECIPES), summarise)
