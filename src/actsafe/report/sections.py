"""How a run went: returns and costs as it learned, and what was predicted of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.evidence.ledger import LedgerRow
from actsafe.figures import panels, style
from actsafe.figures.drawing import problem_names
from actsafe.figures.ledger import ledger_figure
from actsafe.report.findings import Axis, Findings
from actsafe.report.markup import Child, count, folded, number, percent, table, tag
from actsafe.report.sheet import FOREIGN, Sheet, if_readable, note, side_by_side
from actsafe.report.statistics import by_seed, together
from actsafe.training.results import entries, max_cost, mean_cost

MOST_POINTS = 120
Row = Mapping[str, Any]
Values = Iterable[tuple[int, int, float | None]]
"""Seed, place on the axis, value."""


def learning_section(sheet: Sheet, findings: Findings) -> Child:
    """Returns of every task and costs of every constraint as the run learned."""
    costs = [_cost_figure(sheet, findings, name) for name in findings.folder.spec.cost_names]
    seeds = folded("Seed by seed", _table(findings, "seed")) if len(findings.seeds) > 1 else None
    return [side_by_side(_return_figure(sheet, findings), *costs), _table(findings, "phase"), seeds]


def band(label: str, values: Values, *, place: int = 0, **look: Any) -> panels.Curve | None:
    """The interquartile mean and its interval at every place that all seeds have reached; None where none is known."""
    x, found = by_seed(values)
    reached = min((np.max(x, where=np.isfinite(row), initial=-1) for row in found), default=-1)
    kept = np.flatnonzero(np.any(np.isfinite(found), axis=0) & (x <= reached))
    if not kept.size:
        return None
    kept = kept[panels.thinned(len(kept), MOST_POINTS)]
    colour, marker = style.SERIES[place % len(style.SERIES)]
    look = {"colour": colour, "marker": marker, **look}
    return panels.Curve(label, x[kept].astype(float), *together(found[:, kept]), **look)


def along(findings: Findings, of: Callable[[Row], float | None], axis: Axis | None = None) -> Values:
    """What `of` reads off the metrics of every epoch, on the run's axis or another."""
    return [(row["seed"], row[(axis or findings.axis).entry], of(row)) for row in findings.metrics]


def costs_along(
    findings: Findings, name: str, of: Callable[[LedgerRow], float | None], axis: Axis | None = None
) -> Values:
    """What `of` reads off a constraint's rows."""
    at = {row["epoch"]: row[(axis or findings.axis).entry] for row in findings.metrics}
    rows = [row for row in findings.ledger if row.constraint == name and row.epoch > 0]
    return [(row.seed, at[row.epoch], of(row)) for row in rows]


def panel(sheet: Sheet, findings: Findings, title: str, lines: Iterable[panels.Curve | None], **rest: Any) -> Child:
    """Lines along the run; None where there is none. `caption` and `alt` are of the figure, the rest of its axes."""
    drawn = [line for line in lines if line is not None]
    caption, alt = rest.pop("caption", None), rest.pop("alt", f"{title} along the run")
    along_run = {"xlabel": findings.axis.label, "spans": panels.phase_spans(findings.metrics, findings.axis.entry)}
    return sheet.figure(panels.curves(title, drawn, **{**along_run, **rest}), alt, caption) if drawn else None


def tasks_of(findings: Findings) -> list[str]:
    """The tasks that were evaluated."""
    return list(dict.fromkeys(task for row in findings.metrics for task in row["evaluation"]))


def last_evaluation(rows: Sequence[Row], task: str) -> Row:
    """Of a task, all seeds together: mean return, episodes, and how many of them reached the goal."""
    evaluated = [row for row in rows if task in row["evaluation"]]
    epoch = max((row["epoch"] for row in evaluated), default=None)
    found = [row["evaluation"][task] for row in evaluated if row["epoch"] == epoch]
    known, goals = ([each[name] for each in found if each[name] is not None] for name in ("return", "goals"))
    return {
        "epoch": epoch,
        "return": float(np.mean(known)) if known else None,
        "goals": sum(goals) if goals else None,
        "episodes": sum(each["episodes"] for each in found),
    }


def _return_figure(sheet: Sheet, findings: Findings) -> Child:
    lines = [
        band(
            task.replace("_", " "),
            along(findings, lambda row, task=task: last_evaluation([row], task)["return"]),
            place=place,
        )
        for place, task in enumerate(tasks_of(findings))
    ]
    training = band("while learning", along(findings, lambda row: row["return"]), colour=style.GREY, marker=None)
    several = " Interquartile mean over seeds; band: its 95 % bootstrap interval." if len(findings.seeds) > 1 else ""
    return panel(
        sheet,
        findings,
        "Return of an episode",
        [*lines, training],
        caption=f"By task in evaluations, from which nothing is learned, and of the task {findings.folder.spec.task} "
        f"in the episodes that the run learned from.{several}",
    )


def _cost_figure(sheet: Sheet, findings: Findings, name: str) -> Child:
    """The median of seeds in a band of all, as the safety of most must not hide the one that was unsafe."""
    label = "median of seeds" if len(findings.seeds) > 1 else "mean"
    mean = _spread(label, costs_along(findings, name, mean_cost))
    most = _spread("worst episode", costs_along(findings, name, max_cost))
    worst = most._replace(y=most.high, low=None, high=None, colour=style.BLACK, is_dotted=True)
    look = {"colour": style.ORANGE, "marker": "D", "has_line": False}
    evaluated = band("evaluated, worst task", along(findings, lambda row: _evaluated_cost(row, name)), **look)
    budget = findings.folder.spec.budgets[findings.folder.spec.cost_names.index(name)]
    return panel(
        sheet,
        findings,
        f"{name.replace('_', ' ').capitalize()} of an episode",
        [mean, None if np.array_equal(mean.y, worst.y) else worst, evaluated],
        budget=budget,
        is_cost=True,
        caption=f"Budget {number(budget)}.{' Band: all seeds.' if len(findings.seeds) > 1 else ''}"
        f"{' The run does not answer for the warm-up, where actions are random.' if findings.num_warm_up else ''}",
        alt=f"{name} of an episode along the run, against its budget",
    )


def _spread(label: str, values: Values) -> panels.Curve:
    """Median and range over seeds."""
    x, found = by_seed(values)
    known = ~np.all(np.isnan(found), axis=0)
    middle, low, high = (pick(found[:, known], axis=0) for pick in (np.nanmedian, np.nanmin, np.nanmax))
    return panels.Curve(label, x[known].astype(float), middle, low, high)


def _evaluated_cost(row: Row, name: str) -> float | None:
    paid = [found["costs"].get(name) for found in row["evaluation"].values()]
    return max((cost for cost in paid if cost is not None), default=None)


def _table(findings: Findings, entry: str) -> Child:
    """What every phase or every seed came to, by constraint. Seeds answer for what comes after the warm-up."""
    task, rows = findings.folder.spec.task, []
    for value in dict.fromkeys(row[entry] for row in findings.metrics):
        own = [row for row in findings.metrics if row[entry] == value]
        last, returns = last_evaluation(own, task), [row["return"] for row in own if row["return"] is not None]
        goals = "–" if last["goals"] is None else f"{last['goals']} of {last['episodes']}"
        ledger = findings.ledger if entry == "phase" else findings.judged
        for name in findings.folder.spec.cost_names:
            paid = [row for row in ledger if (getattr(row, entry), row.constraint) == (value, name)]
            means, most = ([cost for cost in map(of, paid) if cost is not None] for of in (mean_cost, max_cost))
            over, episodes = (sum(getattr(row, count) for row in paid) for count in ("num_over", "num_episodes"))
            mean, head = [float(np.mean(each)) if each else None for each in (returns, means)], str(value)
            numbers = [number(each) for each in (*mean, max(most, default=None))]
            cells = [*numbers, f"{over:,} of {episodes:,}", number(last["return"]), goals]
            rows.append([head.replace("_", "-"), name, *cells])
    heads = ["mean return", "mean cost", "worst cost", "over budget", f"last evaluation of {task}", "goal reached"]
    return table([entry, "constraint", *heads], rows, caption=f"{entry.capitalize()}s")


def ledger_section(sheet: Sheet, findings: Findings) -> Child:
    """What was predicted of every epoch's cost and what it was, and how many decisions had no certified plan."""
    predicted = [row for row in findings.judged if row.predicted_pessimistic_cost is not None]
    kept = sum(row.mean_cost is not None and row.mean_cost <= _promised(row) for row in predicted)
    unpredicted = len(findings.judged) - len(predicted)
    between = max((row.inner_cost or 0.0 for row in findings.ledger if row.max_cost == 0), default=0.0)
    return [
        tag(
            "p",
            f"In {kept:,} of {len(predicted):,} epochs with a prediction the mean cost was no more than predicted.",
            f" Of {unpredicted:,} no finite cost was predicted." if unpredicted else "",
            " Seeds and constraints count by themselves." if len(findings.judged) > findings.num_epochs else "",
        ),
        decisions_note(findings),
        note(
            f"In episodes that cost nothing the limit was exceeded by up to {number(between)} between decisions. That "
            "counts against no budget, as costs are read where decisions are made."
        )
        if between > 0
        else None,
        if_readable(lambda: _ledger_figure(sheet, findings), "the ledger", FOREIGN),
    ]


def _promised(row: LedgerRow) -> float:
    """The prediction, but for what rounding may do."""
    return (row.predicted_pessimistic_cost or 0.0) + 1e-9


def _ledger_figure(sheet: Sheet, findings: Findings) -> Child:
    what = (
        "Predictions are means over imagined decisions of the policy that acted, times the decisions of an episode: "
        "without pessimism, and with the charge for uncertainty."
        if findings.decisions[2] is None or findings.is_guarded
        else "The prediction is the largest pessimistic cost of any plan in the epoch, over particles of the model "
        "set, with what the episode had cost so far. Below: shares of decisions that fell back on another plan or had "
        "no certified one, and the confidence multiplier that plans were judged with."
    )
    if findings.is_guarded:
        what += " Below: the share of episodes that each of those who act began, and that a fallback took over."
    figure = ledger_figure(entries(findings.folder), coordinate_names=problem_names(findings.folder))
    return sheet.figure(figure, "Predicted and realised cost of every epoch", what, is_wide=True)


def decisions_note(findings: Findings) -> Child:
    """How many decisions were not certified, where decisions are."""
    total, fallbacks, uncertified = findings.decisions
    if findings.is_guarded:
        return tag(
            "p",
            f"{count(total, 'decision')}: {uncertified or 0:,} by candidates that no episode of their own vouched for "
            f"yet, {fallbacks:,} ({percent(fallbacks / total if total else None)}) by a fallback. See Deployments.",
        )
    if uncertified is None:
        return note("Nothing checks an action of this agent before it is taken: its predictions are means over epochs.")
    if not total:
        return None
    said = (
        f"{uncertified:,} of {total:,} decisions ({percent(uncertified / total)}) ran with no certified plan: "
        "none that was looked at kept the budget in the model, and the cheapest was executed. "
        f"{fallbacks:,} ({percent(fallbacks / total)}) were fallbacks: the plan that the search chose did not pass its "
        "check, and another was executed."
    )
    return note(said) if uncertified else tag("p", said)


def task_facts(findings: Findings) -> list[tuple[str, Child]]:
    """Of every task, the last evaluation's mean return over seeds, and how often the goal was reached."""
    facts: list[tuple[str, Child]] = []
    for task in tasks_of(findings):
        last = last_evaluation(findings.metrics, task)
        tried = count(last["episodes"], "episode")
        reached = "" if last["goals"] is None else f", goal reached in {last['goals']} of {tried}"
        said = [number(last["return"]), tag("small", f"after epoch {last['epoch']}{reached}")]
        facts.append((f"Return of {task.replace('_', ' ')}", said))
    return facts or [("Return of the task", "not evaluated")]
