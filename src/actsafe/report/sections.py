"""How a run went: returns and costs as it learned, and what was predicted of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.evidence.ledger import LedgerRow
from actsafe.figures import panels, style
from actsafe.report.findings import Axis, Findings
from actsafe.report.markup import Child, count, folded, number, percent, table, tag
from actsafe.report.sheet import Sheet, note, side_by_side
from actsafe.report.statistics import by_seed, together

LOOKS = ((style.BLUE, "o"), (style.GREEN, "s"), (style.PURPLE, "^"), (style.ORANGE, "D"), (style.SKY, "v"))
Row = Mapping[str, Any]


def learning_section(sheet: Sheet, findings: Findings) -> Child:
    """Returns of every task and costs of every constraint as the run learned."""
    tables = [_phase_table(findings), _seed_table(findings) if len(findings.seeds) > 1 else None]
    costs = [_cost_figure(sheet, findings, name) for name in findings.folder.spec.cost_names]
    return [side_by_side(_return_figure(sheet, findings), *costs), *tables]


def places(findings: Findings, epochs: np.ndarray) -> np.ndarray:
    """Where epochs are on the axis."""
    at = {row["epoch"]: row[findings.axis.entry] for row in findings.metrics}
    return np.array([at.get(epoch, np.nan) for epoch in epochs.tolist()], float)


def phase_spans(rows: Sequence[Row], axis: Axis) -> list[panels.Span]:
    """Where each phase begins and ends on the axis."""
    found: dict[str, panels.Span] = {}
    begins = 0
    for row in rows:
        before = found.get(row["phase"], panels.Span(row["phase"], begins, 0))
        found[row["phase"]] = before._replace(ends=max(row[axis.entry], before.ends))
        begins = max(row[axis.entry], begins)
    return list(found.values())


def curve(
    findings: Findings, label: str, of: Callable[[Row], float | None], *, place: int = 0, **look: Any
) -> panels.Curve | None:
    """The interquartile mean over seeds of what `of` reads off rows of the metrics; None where it is never known."""
    epochs, values = by_seed((row["seed"], row["epoch"], of(row)) for row in findings.metrics)
    known = np.any(np.isfinite(values), axis=0)
    if not np.any(known):
        return None
    value, low, high = together(values[:, known])
    colour, marker = LOOKS[place % len(LOOKS)]
    return panels.Curve(
        label, places(findings, epochs[known]), value, low, high, **{"colour": colour, "marker": marker, **look}
    )


def panel(sheet: Sheet, findings: Findings, title: str, lines: Iterable[panels.Curve | None], **rest: Any) -> Child:
    """Lines along the run; None where there is none. `caption` and `alt` are of the figure, the rest of its axes."""
    drawn = [line for line in lines if line is not None]
    if not drawn:
        return None
    caption, alt = rest.pop("caption", None), rest.pop("alt", f"{title} along the run")
    spans = phase_spans(findings.metrics, findings.axis)
    return sheet.figure(panels.curves(title, drawn, xlabel=findings.axis.label, spans=spans, **rest), alt, caption)


def _return_figure(sheet: Sheet, findings: Findings) -> Child:
    tasks = list(dict.fromkeys(task for row in findings.metrics for task in row["evaluation"]))
    evaluated = [
        curve(findings, task.replace("_", " "), lambda row, task=task: evaluation(row, task).get("return"), place=place)
        for place, task in enumerate(tasks)
    ]
    training = curve(findings, "while learning", lambda row: row["return"], colour=style.GREY, marker=None)
    several = " Interquartile mean over seeds; band: its 95 % bootstrap interval." if len(findings.seeds) > 1 else ""
    return panel(
        sheet,
        findings,
        "Return of an episode",
        [*evaluated, training],
        caption=f"By task in evaluations, from which nothing is learned, and of the task {findings.folder.spec.task} "
        f"in the episodes that the run learned from.{several}",
    )


def evaluation(row: Row, task: str) -> Mapping[str, Any]:
    """What a row says of a task's evaluation; empty where there was none."""
    return row["evaluation"].get(task, {})


def _cost_figure(sheet: Sheet, findings: Findings, name: str) -> Child:
    """The median of seeds in a band of all, as the safety of most must not hide the one that was unsafe."""
    rows = [row for row in findings.ledger if row.constraint == name and row.epoch > 0]
    if not rows:
        return None
    epochs, means = by_seed((row.seed, row.epoch, np.inf if _is_lost(row) else row.mean_cost) for row in rows)
    _, most = by_seed((row.seed, row.epoch, np.inf if _is_lost(row) else row.max_cost) for row in rows)
    x, worst = places(findings, epochs), np.max(most, axis=0, initial=-np.inf, where=~np.isnan(most))
    middle = np.array(
        [np.median(column[~np.isnan(column)]) if np.any(~np.isnan(column)) else np.nan for column in means.T]
    )
    low, high = (
        pick(means, axis=0, initial=end, where=~np.isnan(means)) for pick, end in ((np.min, np.inf), (np.max, -np.inf))
    )
    is_several = len(findings.seeds) > 1
    lines: list[panels.Curve | None] = [panels.Curve("median of seeds" if is_several else "mean", x, middle, low, high)]
    if not np.array_equal(worst, middle):
        lines.append(panels.Curve("worst episode", x, worst, colour=style.BLACK, is_dotted=True))
    look = {"colour": style.ORANGE, "marker": "D", "has_line": False}
    lines.append(curve(findings, "evaluated, worst task", lambda row: _evaluated_cost(row, name), **look))
    return panel(
        sheet,
        findings,
        f"{name.replace('_', ' ').capitalize()} of an episode",
        lines,
        budget=rows[-1].budget,
        is_cost=True,
        caption=f"Budget {number(rows[-1].budget)}.{' Band: all seeds.' if is_several else ''}"
        f"{' The run does not answer for the warm-up, where actions are random.' if findings.num_warm_up else ''}",
        alt=f"{name} of an episode along the run, against its budget",
    )


def _is_lost(row: LedgerRow) -> bool:
    """Whether there were episodes and no cost is known, which counts as unbounded."""
    return row.num_episodes > 0 and row.max_cost is None


def _evaluated_cost(row: Row, name: str) -> float | None:
    paid = [found["costs"].get(name) for found in row["evaluation"].values()]
    return max((cost for cost in paid if cost is not None), default=None)


def _phase_table(findings: Findings) -> Child:
    rows = []
    for span in phase_spans(findings.metrics, findings.axis):
        own = [row for row in findings.metrics if row["phase"] == span.phase]
        for name in findings.folder.spec.cost_names:
            paid = [row for row in findings.ledger if (row.phase, row.constraint) == (span.phase, name)]
            rows.append([span.phase.replace("_", "-"), name, f"{span.ends:,}", _mean(own, "return"), *_paid(paid)])
    heads = ["phase", "constraint", f"until {findings.axis.label.removesuffix('s')}", "mean return", *PAID]
    return table(heads, rows, caption="Phases")


PAID = ("mean cost", "worst cost", "over budget")


def _paid(rows: Sequence[LedgerRow]) -> list[str]:
    """What episodes cost, in the columns `PAID`."""
    means = [row.mean_cost for row in rows if row.mean_cost is not None]
    costs = [np.inf if _is_lost(row) else row.max_cost for row in rows if row.num_episodes]
    episodes = sum(row.num_episodes for row in rows)
    worst = max((cost for cost in costs if cost is not None), default=None)
    mean = float(np.mean(means)) if means else None
    return [number(mean), number(worst), f"{sum(row.num_over for row in rows)} of {episodes}"]


def _mean(rows: Sequence[Row], name: str) -> str:
    known = [row[name] for row in rows if row[name] is not None]
    return number(float(np.mean(known))) if known else "–"


def _seed_table(findings: Findings) -> Child:
    task = findings.folder.spec.task
    rows = []
    for seed in findings.seeds:
        own = [row for row in findings.metrics if row["seed"] == seed]
        last = next((found for row in reversed(own) if (found := evaluation(row, task))), {})
        goals = "–" if last.get("goals") is None else f"{last['goals']} of {last['episodes']}"
        for name in findings.folder.spec.cost_names:
            paid = [row for row in findings.judged if (row.seed, row.constraint) == (seed, name)]
            rows.append([seed, name, *_paid(paid), number(last.get("return")), goals])
    drawn = table(["seed", "constraint", *PAID, f"last return of {task}", "goal reached"], rows, caption="Seeds")
    return folded("Seed by seed", drawn)


def ledger_section(sheet: Sheet, findings: Findings) -> Child:
    """What was predicted of every epoch's cost and what it was, and how many decisions had no certified plan."""
    predicted = [row for row in findings.judged if row.predicted_pessimistic_cost is not None]
    kept = sum(row.mean_cost is not None and _is_kept(row) for row in predicted)
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
        side_by_side(
            *(_promise_figure(sheet, findings, name) for name in findings.folder.spec.cost_names),
            _decision_figure(sheet, findings),
        ),
    ]


def _is_kept(row: LedgerRow) -> bool:
    return row.mean_cost is not None and row.mean_cost <= (row.predicted_pessimistic_cost or 0.0) + 1e-9


def decisions_note(findings: Findings) -> Child:
    """How many decisions were not certified, where decisions are."""
    total, fallbacks, uncertified = findings.decisions
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


def _promise_figure(sheet: Sheet, findings: Findings, name: str) -> Child:
    rows = [row for row in findings.ledger if row.constraint == name and row.epoch > 0]
    looks: dict[str, tuple[Callable[[LedgerRow], float | None], dict[str, Any]]] = {
        "worst episode": (lambda row: row.max_cost, {"colour": style.BLACK, "is_dotted": True}),
        "mean": (lambda row: row.mean_cost, {"colour": style.BLACK, "marker": "o"}),
        "predicted, pessimistic": (lambda row: row.predicted_pessimistic_cost, {"colour": style.BLUE, "marker": "D"}),
        "predicted, mean": (lambda row: row.predicted_cost, {"colour": style.SKY, "marker": "s"}),
    }
    lines = []
    for label, (of, look) in looks.items():
        epochs, values = by_seed((row.seed, row.epoch, of(row)) for row in rows)
        if np.any(np.isfinite(values)):
            largest = np.max(values, axis=0, initial=-np.inf, where=np.isfinite(values))
            lines.append(
                panels.Curve(label, places(findings, epochs), np.where(np.isfinite(largest), largest, np.nan), **look)
            )
    return panel(
        sheet,
        findings,
        f"{name.replace('_', ' ').capitalize()}: predicted and realised",
        lines,
        budget=findings.folder.spec.budgets[findings.folder.spec.cost_names.index(name)],
        is_cost=True,
        caption=_prediction(findings),
        alt=f"Predicted and realised {name} of every epoch",
    )


def _prediction(findings: Findings) -> str:
    """What the predictions are."""
    seeds = " Of all seeds the largest." if len(findings.seeds) > 1 else ""
    if findings.decisions[2] is None:
        return (
            "Predictions are means over imagined decisions of the policy that acted, times the decisions of an "
            f"episode: without pessimism, and with the charge for uncertainty.{seeds}"
        )
    return (
        "The prediction is the largest pessimistic cost of any plan in the epoch, over particles of the model set, "
        f"with what the episode had cost so far.{seeds}"
    )


def _decision_figure(sheet: Sheet, findings: Findings) -> Child:
    if findings.decisions[2] is None:
        return None
    once = [row for row in findings.ledger if row.epoch > 0 and row.constraint == findings.folder.spec.cost_names[0]]
    counts: dict[str, tuple[Callable[[LedgerRow], int], dict[str, Any]]] = {
        "no certified plan": (lambda row: row.num_uncertified or 0, {"colour": style.VERMILION, "marker": "v"}),
        "fallback": (lambda row: row.num_fallbacks, {"colour": style.BLUE, "marker": "o"}),
    }
    lines = []
    for label, (of, look) in counts.items():
        epochs, values = by_seed((row.seed, row.epoch, of(row)) for row in once)
        _, decisions = by_seed((row.seed, row.epoch, row.num_decisions) for row in once)
        share = 100.0 * np.nansum(values, axis=0) / np.maximum(np.nansum(decisions, axis=0), 1)
        lines.append(panels.Curve(label, places(findings, epochs), share, **look))
    return panel(
        sheet, findings, "Decisions, % of an epoch's", lines, is_cost=True, largest=9.9, caption=_several(findings)
    )


def _several(findings: Findings) -> str | None:
    return f"{count(len(findings.seeds), 'seed')} together." if len(findings.seeds) > 1 else None


def task_facts(findings: Findings) -> list[tuple[str, Child]]:
    """Of every task, the last evaluation's mean return over seeds, and how often the goal was reached."""
    facts: list[tuple[str, Child]] = []
    for task in dict.fromkeys(task for row in findings.metrics for task in row["evaluation"]):
        evaluated = [row for row in findings.metrics if task in row["evaluation"]]
        epoch = max(row["epoch"] for row in evaluated)
        last = [row["evaluation"][task] for row in evaluated if row["epoch"] == epoch]
        known = [found["return"] for found in last if found["return"] is not None]
        goals = [found["goals"] for found in last if found["goals"] is not None]
        tried = sum(found["episodes"] for found in last)
        reached = f", goal reached in {sum(goals)} of {count(tried, 'episode')}" if goals else ""
        mean = number(float(np.mean(known)) if known else None)
        facts.append((f"Return of {task.replace('_', ' ')}", [mean, tag("small", f"after epoch {epoch}{reached}")]))
    return facts or [("Return of the task", "not evaluated")]
