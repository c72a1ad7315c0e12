"""From run folders to one small results file, for every agent alike: all numbers that a claim rests on, and where they
were made."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from actsafe.agents.algorithms import order
from actsafe.agents.phases import Phase
from actsafe.evidence.ledger import WHO_ACTED, LedgerRow, violations
from actsafe.evidence.screening import tally
from actsafe.training import provenance
from actsafe.training.episodes import mean_of_known
from actsafe.training.run import RunFolder
from actsafe.training.settings import by_path
from actsafe.training.storage import StorageError, finite, read_json, write_text

RESULTS_SCHEMA = 2
SUBJECT = ("env", "task", "agent")
"""What all runs of a file have in common."""

NOTES = (
    "epochs has an entry per epoch; what comes before the first (zero input, where there is any) is left out. null: "
    "not known, not evaluated, or not finite. steps are simulator steps of all environments of the seed so far.",
    "episodes_over, mean_cost, max_cost and what was predicted are by constraint. An episode is over the budget where "
    "its cost is larger or not known; episodes cut off by the epoch's end count, and mean_cost leaves them out.",
    "inner_cost is the largest cost at any simulator step, between decisions included.",
    "num_fallbacks counts decisions in which something else than the search's choice was executed, num_uncertified "
    "those executed although no check found them within the budget (null: nothing is checked before it is taken).",
    "fallback_episodes counts episodes in which a fallback acted at any time, num_by_candidate, num_by_certified and "
    "num_by_seed_policy those that each began, num_taken_over those that a fallback took over (null: there is no safe "
    "set, or its policies did not act). deployments says of each who acted and why, what was forecast and what came.",
    "multiplier is the confidence multiplier that an epoch was planned with, coverage the share of its predictions "
    "that the multiplier after it covers, by state coordinate. is_feasible is the share of updates of the acting "
    "policy in which all margins were positive. predicted_return is what was held against planner_budget.",
    "The summary counts the epochs that an algorithm answers for, neither zero input nor the random warm-up; intervals "
    "are exact (Clopper and Pearson, 95 %). A total cost takes an epoch's mean for each of its episodes. 'late' is the "
    "last tenth of epochs, random_return the mean over the warm-up.",
    "seconds are those of a run's epochs, compilation and evaluations included; of seeds that were computed in one "
    "program they are divided by seeds_in_batch. wall_seconds are those of the processes, from their start to their "
    "last epoch's end.",
)
_PREDICTED = ("predicted_cost", "predicted_pessimistic_cost", "predicted_return", "planner_budget")
_BY_CONSTRAINT = {"episodes_over": "num_over", **{name: name for name in ("mean_cost", "max_cost", *_PREDICTED)}}
"""Entries of an epoch that have a value for each constraint, and what the ledger calls them."""
_COUNTED = ("episodes", "over", "goals", "fallbacks", "uncertified")
"""Of an evaluation."""
_OF_DECISIONS = ("num_decisions", "num_fallbacks", "num_uncertified", "inner_cost")
_WHO_ACTED = {"fallback_episodes" if name == "num_fallback_episodes" else name: name for name in WHO_ACTED}
"""Entries of an epoch about who acted, and what the ledger calls them; older files have none."""


def entries(folder: RunFolder) -> list[dict[str, Any]]:
    """One entry per seed of a run, as far as it is committed."""
    config, spec = folder.config, folder.spec
    metrics, ledger = folder.rows("metrics"), folder.ledger()
    timing, num_seeds = folder.timing(), len(config.seeds)
    shared = {
        "env": config.env,
        "task": spec.task,
        "algorithm": config.algorithm,
        "agent": config.agent.kind,
        "budgets": dict(zip(spec.cost_names, spec.budgets, strict=True)),
        "settings": config.to_json(),
        **_computed_where(folder),
        "seconds": sum(each["seconds"] for each in timing) / num_seeds,
        "seeds_in_batch": num_seeds,
        "wall_seconds": _wall_seconds([each.get("process_seconds") for each in timing[1:]]),
    }
    runs = []
    for seed in config.seeds:
        own = [row for row in metrics if row["seed"] == seed]
        promised = [[row for row in ledger if (row.seed, row.epoch) == (seed, entry["epoch"])] for entry in own]
        planned_with = [None, *(row["learning"].get("confidence_multiplier") for row in own)]
        epochs = [
            _epoch(*of_epoch) for of_epoch in zip(own, promised, planned_with, strict=False) if of_epoch[0]["epoch"]
        ]
        runs.append({"seed": seed, **shared, "steps": epochs[-1]["steps"] if epochs else 0, "epochs": epochs})
    return runs


def _epoch(metrics: Mapping[str, Any], ledger: Sequence[LedgerRow], multiplier: Any) -> dict[str, Any]:
    """One epoch of one seed."""
    learned, first = metrics["learning"], ledger[0]
    return {
        **{name: metrics[name] for name in ("epoch", "phase", "role", "steps", "updates")},
        "episodes": first.num_episodes,
        "mean_return": metrics["return"],
        **{name: {row.constraint: getattr(row, entry) for row in ledger} for name, entry in _BY_CONSTRAINT.items()},
        **{name: getattr(first, name) for name in _OF_DECISIONS},
        **{name: getattr(first, entry) for name, entry in _WHO_ACTED.items()},
        "multiplier": multiplier,
        "coverage": learned.get("coverage"),
        "is_feasible": learned.get(f"{metrics['role']}/is_feasible"),
        "evaluation": metrics["evaluation"],
        "deployments": metrics.get("deployments", []),
    }


def ledger(run: Mapping[str, Any]) -> list[LedgerRow]:
    """The safety ledger of an entry of `runs`: a row per epoch and constraint."""
    return [
        LedgerRow(
            **{name: epoch[name] for name in ("epoch", "phase", "role", *_OF_DECISIONS)},
            seed=run["seed"],
            constraint=constraint,
            budget=float(budget),
            num_episodes=epoch["episodes"],
            **{entry: epoch[name][constraint] for name, entry in _BY_CONSTRAINT.items()},
            **{entry: epoch.get(name) for name, entry in _WHO_ACTED.items()},
        )
        for epoch in run["epochs"]
        for constraint, budget in run["budgets"].items()
    ]


def deployments(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All of an entry of `runs`, one after the other; none where there is no safe set."""
    return [each for epoch in run["epochs"] for each in epoch.get("deployments", ())]


def _computed_where(folder: RunFolder) -> dict[str, Any]:
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


def _wall_seconds(since_start: Sequence[float | None]) -> float | None:
    """Of all processes, each of which counts from its own start; not known where one did not say."""
    known = [now for now in since_start if now is not None]
    if len(known) < len(since_start):
        return None
    return float(sum(now for now, following in zip(known, [*known[1:], 0.0], strict=True) if following < now))


def summarise(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the runs of each algorithm come to, in the order of the table of algorithms."""
    names = order({run["algorithm"] for run in runs})
    return {name: _summary([run for run in runs if run["algorithm"] == name]) for name in names}


def _summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [[row for row in ledger(run) if row.is_judged] for run in runs]
    first = next(iter(runs[0]["budgets"]))
    decided = [row for own in rows for row in own if row.constraint == first]
    num_decisions = sum(row.num_decisions for row in decided)
    unchecked = [row.num_uncertified for row in decided]
    warm_up = [epoch for run in runs for epoch in run["epochs"] if epoch["phase"] == Phase.WARM_UP.value]
    return {
        "seeds": len(runs),
        "steps": [run["steps"] for run in runs],
        "costs": _costs(rows),
        "random_return": mean_of_known(epoch["mean_return"] for epoch in warm_up),
        "late_return": mean_of_known(epoch["mean_return"] for run in runs for epoch in late(run["epochs"])),
        "evaluation": _evaluations(runs),
        "deployed": _deployed(runs),
        "num_decisions": num_decisions,
        "share_fallbacks": sum(row.num_fallbacks for row in decided) / max(1, num_decisions),
        "share_uncertified": None if None in unchecked else sum(n or 0 for n in unchecked) / max(1, num_decisions),
        "seconds_median": float(np.median([run["seconds"] for run in runs])),
        "minutes": [None if run["wall_seconds"] is None else run["wall_seconds"] / 60.0 for run in runs],
        # 1 where results may be taken together.
        "different_settings": len({json.dumps({**run["settings"], "seeds": None}, sort_keys=True) for run in runs}),
    }


def _costs(by_run: Sequence[Sequence[LedgerRow]]) -> dict[str, dict[str, Any]]:
    """By constraint, episodes over the budget and costs, of the judged rows of each run."""
    found = {}
    for each in violations(row for rows in by_run for row in rows):
        own = [[row for row in rows if row.constraint == each.constraint] for rows in by_run]
        totals = [sum(total_cost(row) for row in rows) for rows in own]
        late_costs = [cost for rows in own for row in late(rows) if (cost := row.mean_cost) is not None]
        found[each.constraint] = {
            "budget": each.budget,
            "episodes": each.num_episodes,
            "episodes_over": each.num_over,
            "interval": each.interval,
            "seeds_over": sum(any(row.num_over for row in rows) for rows in own),
            "epochs": each.num_epochs,
            "epochs_over": each.num_epochs_over,
            "worst_cost": each.worst,
            "total_cost_median": float(np.median(totals)),
            "total_cost_max": max(totals),
            "late_cost": mean_of_known(late_costs),
        }
    return found


def max_cost(row: LedgerRow) -> float | None:
    """Of an epoch's episodes, infinite where it is not known; None where there were none."""
    return np.inf if row.max_cost is None and row.num_episodes else row.max_cost


def mean_cost(row: LedgerRow) -> float | None:
    """Of an epoch; infinite where there were episodes and no cost of them is known, None where none ended."""
    return np.inf if row.mean_cost is None and max_cost(row) == np.inf else row.mean_cost


def _deployed(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The tally of all deployments, seeds together; None where there are none."""
    found = [each for run in runs for each in deployments(run)]
    return tally(found, list(runs[0]["budgets"].values())).to_json() if found else None


def total_cost(row: LedgerRow) -> float:
    """What the episodes of an epoch cost together; infinite where that is not known."""
    cost = max_cost(row) if row.mean_cost is None else row.mean_cost
    return row.num_episodes * (cost or 0.0)


def _evaluations(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By task, what the last evaluation of every run came to."""
    last = [last_known([epoch["evaluation"] or None for epoch in run["epochs"]]) or {} for run in runs]
    found = {}
    for task in dict.fromkeys(task for evaluation in last for task in evaluation):
        own = [evaluation[task] for evaluation in last if task in evaluation]
        returns = [each["return"] for each in own if each["return"] is not None]
        low, median, high = np.quantile(returns, [0.25, 0.5, 0.75]).tolist() if returns else [None] * 3
        found[task] = {
            "return_median": median,
            "return_quartiles": [low, high],
            "costs": {name: mean_of_known(each["costs"][name] for each in own) for name in own[0]["costs"]},
            **{name: _sum(each[name] for each in own) for name in _COUNTED},
        }
    return found


def late(values: Sequence[Any]) -> Sequence[Any]:
    """The last tenth, at least one."""
    return values[-max(1, len(values) // 10) :]


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def last_known(values: Sequence[Any]) -> Any:
    """The last value that is not None: an evaluation is not made after every epoch."""
    return next((value for value in reversed(values) if value is not None), None)


def read(path: Path) -> dict[str, Any]:
    """A results file, checked."""
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise StorageError(f"{path} is not a results file: it lacks a list of runs. Name another file")
    schema = content.get("schema")
    if not isinstance(schema, int) or schema > RESULTS_SCHEMA:
        raise StorageError(
            f"{path} has results schema {schema!r}, and this actsafe writes {RESULTS_SCHEMA}. It is left as it is; "
            "install a newer actsafe, or name another file"
        )
    if schema < RESULTS_SCHEMA:
        raise StorageError(
            f"{path} has results schema {schema}, of actsafe 0.1, whose entries mean something else. It is left as it "
            "is: name another file with --results, and `actsafe reproduce` makes it anew"
        )
    try:
        summarise(content["runs"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error!r}); restore it from a copy, or make it anew") from error
    return content


def merge(
    path: Path, runs: Sequence[Mapping[str, Any]], *, command: str, reference: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The content that `path` has now: `runs` replace those of the same algorithm and seed; others stay."""
    before = read(path) if path.exists() else {"runs": [], "reference": None}
    is_new = {(run["algorithm"], run["seed"]) for run in runs}
    kept = [run for run in before["runs"] if (run["algorithm"], run["seed"]) not in is_new]
    require_one_subject([*before["runs"], *runs], f"Name another file than {path}")
    names = order({run["algorithm"] for run in [*kept, *runs]})
    merged = sorted([*kept, *runs], key=lambda run: (names.index(run["algorithm"]), run["seed"]))
    content = {
        "schema": RESULTS_SCHEMA,
        "command": command,
        "machine": _machine_of(merged),
        "notes": list(NOTES),
        "summary": summarise(merged),
        "reference": reference if reference is not None else before.get("reference"),
        "runs": merged,
    }
    write_text(path, _text(content))
    return finite(content)


def require_one_subject(runs: Sequence[Mapping[str, Any]], advice: str) -> None:
    """Raise `StorageError` unless all runs are of one environment, task and kind of agent."""
    subjects = list(dict.fromkeys(tuple(run[name] for name in SUBJECT) for run in runs))
    if len(subjects) > 1:
        got = " and ".join(f"{env} (task {task}, agent {agent})" for env, task, agent in subjects)
        raise StorageError(f"got runs of {got}; expected one environment, task and agent. {advice}")


def _text(content: dict[str, Any]) -> str:
    """As JSON, with a line per epoch: indented, epochs would be most of a file that nobody reads."""
    epochs = [json.dumps(finite(epoch)) for run in content["runs"] for epoch in run["epochs"]]
    runs = [{**run, "epochs": ["epoch" for _ in run["epochs"]]} for run in content["runs"]]
    *parts, end = json.dumps(finite({**content, "runs": runs}), indent=1).split('    "epoch"')
    return "".join(f"{part}    {epoch}" for part, epoch in zip(parts, epochs, strict=True)) + end + "\n"


def _machine_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where all runs were computed, if that was one machine; else the one that writes.

    They need not see the same: a process that only watches runs leaves the accelerator to them.
    """
    first = runs[0].get("machine") if runs else None
    return first if first and all(run.get("machine") == first for run in runs) else provenance.machine()


def rows(path: Path) -> list[dict[str, Any]]:
    """A results file as tidy rows: a flat dictionary per run and epoch, for instance for a data frame.

    Entries by constraint, task or coordinate have its name or place behind a slash: `mean_cost/cost`. Deployments, of
    which an epoch has several, are left out.
    """
    heading = (*SUBJECT, "algorithm", "seed", "budgets")
    runs = read(path)["runs"]
    nested = [
        {**{name: run[name] for name in heading}, **epoch, "deployments": []} for run in runs for epoch in run["epochs"]
    ]
    return [{name: value for name, value in by_path(_numbered(row), "/").items() if value != {}} for row in nested]


def _numbered(value: Any) -> Any:
    """With objects instead of lists, whose entries are named by their number."""
    named = dict(enumerate(value)) if isinstance(value, list) else value
    return {name: _numbered(each) for name, each in named.items()} if isinstance(named, Mapping) else value
