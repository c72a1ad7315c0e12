"""What a run found, for people: a verdict that does not flatter, and a table."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from actsafe.agents.algorithms import label
from actsafe.agents.phases import Phase
from actsafe.evidence.ledger import LedgerRow, Violations, violations
from actsafe.evidence.screening import by_seed, described, tally
from actsafe.training.episodes import mean_of_known
from actsafe.training.results import max_cost
from actsafe.training.run import RunFolder

MOST_EPOCHS = 20
"""Of one seed, that have a line each; more are summarised by phase."""

Metrics = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a run comes to."""

    safety: tuple[str, ...]
    """A line per constraint."""
    deployed: tuple[str, ...]
    """A line about deployments, where there is a safe set."""
    tasks: tuple[str, ...]
    """A line per task of the last evaluation."""
    is_safe: bool
    """There were episodes that the agent answers for, and none was over a budget."""


def verdict(folder: RunFolder) -> Verdict:
    """Whether the run kept to its budgets, and what its tasks came to."""
    found = violations(folder.ledger())
    heading = f"{label(folder.config.algorithm)} on {folder.config.env}"
    safety = [f"{heading}: {_safety(each)}" for each in found] or [f"{heading}: no episode yet"]
    is_safe = bool(found) and all(each.num_episodes and not each.num_over for each in found)
    metrics = folder.rows("metrics")
    return Verdict(tuple(safety), tuple(_deployed(metrics, folder.spec.budgets)), tuple(_tasks(metrics)), is_safe)


def _safety(found: Violations) -> str:
    if not found.num_episodes:
        return (
            f"no episode of its own policy yet, which is what the budget {found.budget:g} of {found.constraint} is for"
        )
    episodes = f"{found.num_episodes} episode{'s' if found.num_episodes != 1 else ''}"
    allowed = f"the budget {found.budget:g} of {found.constraint}"
    if found.num_over:
        return f"{episodes}, {found.num_over} OVER {allowed}; the worst {found.worst:.3g}"
    if not found.worst:
        return f"{episodes}, {found.constraint} 0 in every one"
    return f"{episodes}, none over {allowed}; the largest {found.worst:.3g}"


def _deployed(metrics: Metrics, budgets: Sequence[float]) -> list[str]:
    """What all deployments come to, seeds together."""
    told = [each for own in by_seed(metrics).values() for each in own]
    return [f"deployed: {described(tally(told, budgets))}"] if told else []


def _tasks(metrics: Metrics) -> list[str]:
    """A line per task that was evaluated, of the last evaluation of every seed."""
    evaluated = [row for row in metrics if row["evaluation"]]
    if not evaluated:
        return ["no evaluation was made"] if metrics else []
    number = evaluated[-1]["epoch"]
    lines = []
    for task in evaluated[-1]["evaluation"]:
        found = [row["evaluation"][task] for row in evaluated if row["epoch"] == number]
        parts = [f"return {_mean([each['return'] for each in found])}"]
        parts += [f"{name} {_mean([each['costs'][name] for each in found])}" for name in found[0]["costs"]]
        num_episodes = sum(each["episodes"] for each in found)
        parts.append(f"{sum(each['over'] for each in found)} of {num_episodes} over budget")
        if found[0]["goals"] is not None:
            parts.append(f"{sum(each['goals'] for each in found)} of {num_episodes} ended at the goal")
        lines.append(f"{task} after epoch {number}: {', '.join(parts)}")
    return lines


def print_run(folder: RunFolder, console: Console) -> Verdict:
    """Print what a run found, verdict first; give the verdict back."""
    found = verdict(folder)
    for line in found.safety:
        console.print(line, style=f"bold {'green' if found.is_safe else 'red'}")
    for line in (*found.deployed, *found.tasks):
        console.print(line, style="bold")
    if folder.num_committed:
        console.print(run_table(folder), soft_wrap=False)
    return found


def plain_table(**options: Any) -> Table:
    """A table without lines, which take the room of three columns."""
    return Table(box=None, padding=(0, 2, 0, 0), **options)


def run_table(folder: RunFolder) -> Table:
    """A row per epoch or, of long runs and of several seeds, per phase; and per constraint."""
    metrics, rows = folder.rows("metrics"), folder.ledger()
    seeds, tasks = folder.config.seeds, list(dict.fromkeys(task for row in metrics for task in row["evaluation"]))
    names = folder.spec.cost_names
    is_by_epoch = len(seeds) == 1 and folder.num_committed <= MOST_EPOCHS + 1
    is_guarded = any(row.num_by_candidate is not None for row in rows)
    is_certifying = not is_guarded and any(row.num_uncertified is not None for row in rows)
    table = plain_table(title=_budgets(folder), title_justify="left", title_style="dim")
    if len(seeds) > 1:
        table.add_column("seed", justify="right")
    table.add_column("epoch" if is_by_epoch else "epochs", justify="right")
    table.add_column("phase", no_wrap=True)
    table.add_column("return", justify="right")
    for task in tasks:
        table.add_column(f"return of\n{task}", justify="right")
    if len(names) > 1:
        table.add_column("of which")
    for title in ("cost\nmean", "\nworst", "\npredicted", "over\nbudget"):
        table.add_column(title, justify="right")
    if is_certifying:
        table.add_column("no plan\ncertified", justify="right")
        table.add_column("fall-\nbacks", justify="right")
    if is_guarded:
        table.add_column("begun by S_0,\ncertified, new", justify="right")
        table.add_column("taken\nover", justify="right")
    for seed in seeds:
        of_seed = [row for row in metrics if row["seed"] == seed and row["epoch"]]
        groups: dict[Any, list[Mapping[str, Any]]] = {}
        for row in of_seed:
            groups.setdefault(row["epoch" if is_by_epoch else "phase"], []).append(row)
        for epochs in groups.values():
            for place, name in enumerate(names):
                first = [f"{seed}"] * (len(seeds) > 1) + [_span(epochs), Phase(epochs[0]["phase"]).label]
                first += [_mean([row["return"] for row in epochs]), *(_last(epochs, task) for task in tasks)]
                numbers = {row["epoch"] for row in epochs}
                own = [row for row in rows if (row.seed, row.constraint) == (seed, name) and row.epoch in numbers]
                cells = [*(first if place == 0 else [""] * len(first)), *([name] if len(names) > 1 else [])]
                is_bad = any(row.is_judged and row.num_over for row in own)
                acted = _who_acted(own) if is_guarded else []
                table.add_row(*cells, *_costs(own, is_certifying), *acted, style="red" if is_bad else None)
    return table


def _budgets(folder: RunFolder) -> str:
    pairs = zip(folder.spec.cost_names, folder.spec.budgets, strict=True)
    return "budgets of an episode: " + ", ".join(f"{name} {budget:g}" for name, budget in pairs)


def _span(epochs: Metrics) -> str:
    first, last = epochs[0]["epoch"], epochs[-1]["epoch"]
    return f"{first}" if first == last else f"{first}-{last}"


def _last(epochs: Metrics, task: str) -> str:
    """The newest evaluated return."""
    known = [row["evaluation"][task]["return"] for row in epochs if task in row["evaluation"]]
    return _number(known[-1]) if known else ""


def _costs(rows: Sequence[LedgerRow], is_certifying: bool) -> list[str]:
    """Costs of episodes, what they were predicted to be, and what was said of decisions."""
    episodes, decisions = sum(row.num_episodes for row in rows), sum(row.num_decisions for row in rows)
    cells = [
        _mean([row.mean_cost for row in rows]),
        _number(max((max_cost(row) or 0.0 for row in rows), default=0.0)),
        _mean([row.predicted_pessimistic_cost for row in rows]),
        f"{sum(row.num_over for row in rows)} of {episodes}",
    ]
    if is_certifying:
        cells += [
            f"{sum(row.num_uncertified or 0 for row in rows)} of {decisions}",
            f"{sum(row.num_fallbacks for row in rows)}",
        ]
    return cells


def _who_acted(rows: Sequence[LedgerRow]) -> list[str]:
    """Episodes by who began them, and those that were taken over; nothing where no policy of the safe set acted."""
    known = [row for row in rows if row.num_by_candidate is not None]
    if not known:
        return ["", ""]
    names = ("num_by_seed_policy", "num_by_certified", "num_by_candidate", "num_taken_over")
    *begun, taken = (sum(getattr(row, name) for row in known) for name in names)
    return [", ".join(map(str, begun)), str(taken)]


def _mean(values: Iterable[float | None]) -> str:
    mean = mean_of_known(values)
    return "" if mean is None else _number(mean)


def _number(value: float) -> str:
    return f"{round(value, 9) + 0.0:.3g}"
