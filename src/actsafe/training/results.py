"""From run folders to one small results file: every number that a claim rests on, and where it was made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from actsafe.agents.recipes import RECIPES
from actsafe.training import provenance
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError, read_json, write_json

RESULTS_SCHEMA = 1

NOTES = (
    "Lists have an entry per planned episode, 1 to N; the seed episode (zero input) is left out. null: not evaluated.",
    "exploration_cost is the sum of costs at decision states, which counts against the budget; exploration_inner_cost "
    "the largest cost at any simulator step between them.",
    "confidence_multiplier is the one an episode was planned with, per state coordinate.",
    "Seeds of an algorithm are computed side by side in one program: seconds is the wall time of that batch, "
    "compilation and evaluations included, divided by its seeds; seconds_batch is the undivided time.",
)


class Kind(NamedTuple):
    """How the runs of one half of ActSafe are put together."""

    notes: tuple[str, ...]
    """What the entries mean."""
    algorithms: tuple[str, ...]
    """In their order."""
    summarise: Callable[[Sequence[Mapping[str, Any]]], dict[str, dict[str, Any]]]
    """What the runs of each algorithm come to."""


_FROM_METRICS = (
    "exploration_cost",
    "exploration_inner_cost",
    "swing_up_return",
    "swing_up_cost",
    "keep_down_return",
    "keep_down_cost",
    "upright",
)
_FROM_LEDGER = ("predicted_pessimistic_cost", "confidence_multiplier", "fallbacks", "uncertified")


def entries(folder: RunFolder) -> list[dict[str, Any]]:
    """One entry per seed of a run, as far as it is committed."""
    config = folder.config
    rows = {"metrics": _by_seed(folder.rows("metrics")), "ledger": _by_seed(folder.rows("ledger"))}
    seconds = sum(timing["seconds"] for timing in folder.timing())
    shared = {
        "algorithm": config.algorithm,
        "problem": config.problem,
        "budget": config.make_problem().budget,
        "settings": config.to_json(),
        **computed_where(folder),
        "seconds": seconds / len(config.seeds),
        "seconds_batch": seconds,
        "seeds_in_batch": len(config.seeds),
    }
    return [
        {
            "seed": seed,
            **shared,
            **{key: [row.get(key) for row in rows["metrics"].get(seed, ())] for key in _FROM_METRICS},
            **{key: [row.get(key) for row in rows["ledger"].get(seed, ())] for key in _FROM_LEDGER},
        }
        for seed in config.seeds
    ]


def computed_where(folder: RunFolder) -> dict[str, Any]:
    """The command that began a run, and the machines that did it."""
    sessions = folder.sessions()
    machines = [session["machine"] for session in sessions]
    first = machines[0] if machines else None
    others = [machine for n, machine in enumerate(machines) if machine != first and machine not in machines[:n]]
    return {
        "command": sessions[0]["command"] if sessions else None,
        "machine": first,
        **({"also_computed_on": others} if others else {}),
    }


def _by_seed(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """The rows of planned episodes, by seed."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["episode"] > 0:
            found.setdefault(row["seed"], []).append(row)
    return found


def summarise(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the runs of each algorithm come to, in the order of the recipe table."""
    names = [name for name in RECIPES if any(run["algorithm"] == name for run in runs)]
    return {name: _summary([run for run in runs if run["algorithm"] == name]) for name in names}


def _summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # A cost that is not known counts as infinite, hence as over any budget.
    costs = [[np.inf if cost is None else cost for cost in run["exploration_cost"]] for run in runs]
    over = [sum(cost > run["budget"] for cost in paid) for paid, run in zip(costs, runs, strict=True)]
    totals = [sum(paid) for paid in costs]
    returns = [value for run in runs if (value := last_known(run["swing_up_return"])) is not None]
    quartiles = np.quantile(returns, [0.25, 0.5, 0.75]).tolist() if returns else [None] * 3
    return {
        "seeds": len(runs),
        "episodes": sum(len(paid) for paid in costs),
        "episodes_over_budget": sum(over),
        "seeds_with_violation": sum(count > 0 for count in over),
        "episodes_with_cost": sum(cost > 0 for paid in costs for cost in paid),
        "total_cost_median": float(np.median(totals)),
        "total_cost_max": float(np.max(totals)),
        "swing_up_return_median": quartiles[1],
        "swing_up_return_quartiles": [quartiles[0], quartiles[2]],
        "upright": sum(bool(last_known(run["upright"])) for run in runs),
        "seconds_median": float(np.median([run["seconds"] for run in runs])),
        "different_settings": num_different_settings(runs),
    }


def last_known(values: Sequence[Any]) -> Any:
    """The last value that is not None: an evaluation is not made after every episode."""
    return next((value for value in reversed(values) if value is not None), None)


def num_different_settings(runs: Sequence[Mapping[str, Any]]) -> int:
    """With how many settings, seeds aside, the runs were made: 1 where results may be taken together."""
    different: list[dict[str, Any]] = []
    for run in runs:
        settings = {key: value for key, value in run["settings"].items() if key not in ("seed", "seeds")}
        if settings not in different:
            different.append(settings)
    return len(different)


def read(path: Path) -> dict[str, Any]:
    """A results file, checked."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise StorageError(f"{path} is not a results file: it lacks a list of runs. Name another file")
    if not isinstance(content.get("schema"), int) or content["schema"] > RESULTS_SCHEMA:
        raise StorageError(
            f"{path} has results schema {content.get('schema')!r}, and this actsafe writes {RESULTS_SCHEMA}. "
            "It is left as it is; install a newer actsafe, or name another file"
        )
    return content


def merge(
    path: Path,
    runs: Sequence[Mapping[str, Any]],
    *,
    command: str,
    kind: Kind,
    reference: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content that `path` has now: `runs` replace those of the same problem, algorithm and seed; others stay."""
    before = read(path) if path.exists() else {"runs": [], "reference": None}
    is_new = {_identity(run) for run in runs}
    kept = [run for run in before["runs"] if _identity(run) not in is_new]
    order = {name: n for n, name in enumerate(kind.algorithms)}
    merged = sorted([*kept, *runs], key=lambda run: (run["problem"], order.get(run["algorithm"], 99), run["seed"]))
    content = {
        "schema": RESULTS_SCHEMA,
        "command": command,
        "machine": _machine_of(merged),
        "notes": list(kind.notes),
        "summary": kind.summarise(merged),
        "reference": reference if reference is not None else before.get("reference"),
        "runs": merged,
    }
    write_json(path, content)
    return content


def _machine_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where all runs were computed, if that was one machine; else the one that writes.

    They need not see the same: whoever only watches runs leaves the accelerator to them.
    """
    first = runs[0].get("machine") if runs else None
    return first if first and all(run.get("machine") == first for run in runs) else provenance.machine()


def _identity(run: Mapping[str, Any]) -> tuple[str, str, int]:
    return run["problem"], run["algorithm"], run["seed"]


GP = Kind(NOTES, tuple(RECIPES), summarise)
