"""Several runs side by side: interquartile means over seeds, and how far to trust them."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from actsafe.agents.algorithms import label
from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.ledger import LedgerRow
from actsafe.figures import panels, style
from actsafe.report.findings import STEPS, Findings
from actsafe.report.markup import Child, count, number, percent, table, tag
from actsafe.report.sections import evaluation
from actsafe.report.sheet import Sheet, note, side_by_side
from actsafe.report.statistics import by_seed, stratified_bootstrap, together

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.BLACK)
MOST_POINTS = 120
MEAN_COST = "mean cost after the warm-up"
Entry = tuple[int, int, float | None]
"""Seed, place on the axis, value."""


class Group(NamedTuple):
    """Runs of the same settings but for their seeds."""

    label: str
    runs: Sequence[Findings]
    colour: str

    @property
    def seeds(self) -> list[tuple[Findings, int]]:
        """Every seed and the run that has it."""
        return [(findings, seed) for findings in self.runs for seed in findings.seeds]


def section(sheet: Sheet, runs: Sequence[Findings]) -> Child:
    """A comparison for every environment of which more than one run has recorded anything: of runs whose tasks and
    constraints have the same names."""
    subjects: dict[tuple[str, ...], list[Findings]] = {}
    for findings in runs:
        spec = findings.folder.spec
        if findings.metrics:
            names = (findings.folder.config.subject, spec.task, *spec.tasks, "", *spec.cost_names)
            subjects.setdefault(names, []).append(findings)
    parts: list[Child] = [
        [tag("h3", f"{names[0]}: {names[1].replace('_', ' ')}"), _compare(sheet, found)]
        for names, found in subjects.items()
        if len(found) > 1
    ]
    alone = ", ".join(dict.fromkeys(names[0] for names, found in subjects.items() if len(found) == 1))
    if alone:
        parts.append(note(f"Nothing to compare with: {alone}. Only runs of the same tasks and costs are compared."))
    if not subjects:
        parts.append(note("Nothing to compare: no run has recorded anything yet."))
    return tag("section", tag("h2", "Side by side"), *parts, class_="run", aria_label="Comparison")


def _compare(sheet: Sheet, runs: Sequence[Findings]) -> Child:
    groups, spec = grouped(runs), runs[0].folder.spec
    axis = runs[0].axis if len({findings.axis for findings in runs}) == 1 else STEPS
    rows = [_row(group, name) for group in groups for name in spec.cost_names]
    heads = ["", "seeds", "constraint", "over budget", "violation rate", MEAN_COST, f"last return of {spec.task}"]
    drawn: list[tuple[str, str, float | None, Callable[[Findings], list[Entry]]]] = [
        ("Return", "Return of an episode while learning", None, lambda run: _returns(run, axis.entry))
    ]
    for place, name in enumerate(spec.cost_names):
        budget = min(findings.folder.spec.budgets[place] for findings in runs)
        title = f"{name.replace('_', ' ').capitalize()} of an episode"
        drawn.append(
            (title, f"{title} against the budget", budget, lambda run, name=name: _costs(run, name, axis.entry))
        )
    figures = [
        sheet.figure(
            panels.curves(
                title,
                [_curve(group, of) for group in groups],
                xlabel=axis.label,
                budget=budget,
                is_cost=budget is not None,
            ),
            f"{alt}, every algorithm",
            "Interquartile mean over seeds; band: its 95 % bootstrap interval."
            if budget is None
            else "The same of costs. An interquartile mean leaves the worst quarter of seeds out: violations are "
            "counted in the table.",
        )
        for title, alt, budget, of in drawn
    ]
    few = min(len(group.seeds) for group in groups)
    return [
        table(heads, rows, caption="Interquartile mean over seeds [95 % stratified bootstrap interval]"),
        note(f"With {count(few, 'seed')} an interval says little.") if few < 5 else None,
        side_by_side(*figures),
    ]


def grouped(runs: Sequence[Findings]) -> list[Group]:
    """Runs of the same settings but for their seeds together; those of an algorithm with others are told apart."""
    found: dict[str, list[Findings]] = {}
    for findings in runs:
        settings = {name: value for name, value in findings.folder.config.to_json().items() if name != "seeds"}
        found.setdefault(repr(settings), []).append(findings)
    names = [label(own[0].folder.config.algorithm) for own in found.values()]
    return [
        Group(name if names.count(name) == 1 else f"{name}, {own[0].folder.path.name}", own, colour)
        for own, name, colour in zip(found.values(), names, itertools.cycle(COLOURS))
    ]


def _row(group: Group, name: str) -> list[Child]:
    found = [each for findings in group.runs for each in findings.violations if each.constraint == name]
    over, episodes = sum(each.num_over for each in found), sum(each.num_episodes for each in found)
    low, high = clopper_pearson(over, episodes)
    return [
        group.label,
        len(group.seeds),
        name,
        f"{over:,} of {episodes:,}",
        f"{percent(low)} to {percent(high)}",
        _estimated([_mean_cost(*seed, name) for seed in group.seeds]),
        _estimated([_last_return(*seed) for seed in group.seeds]),
    ]


def _mean_cost(findings: Findings, seed: int, name: str) -> float | None:
    """Of the epochs that a seed answers for."""
    rows = [row for row in findings.judged if (row.seed, row.constraint) == (seed, name)]
    known = [_cost(row) for row in rows]
    costs = [cost for cost in known if cost is not None]
    return float(np.mean(costs)) if costs else None


def _cost(row: LedgerRow) -> float | None:
    """The mean of an epoch; unbounded where there were episodes and no cost is known."""
    return float("inf") if row.num_episodes and row.max_cost is None else row.mean_cost


def _last_return(findings: Findings, seed: int) -> float | None:
    task = findings.folder.spec.task
    known = [evaluation(row, task).get("return") for row in findings.metrics if row["seed"] == seed]
    return next((value for value in reversed(known) if value is not None), None)


def _estimated(values: Sequence[float | None]) -> str:
    known = np.array([value for value in values if value is not None], float)
    if not known.size:
        return "–"
    if not np.all(np.isfinite(known)):
        return "unbounded in some seed"
    found = stratified_bootstrap([known])
    interval = f" [{number(found.low)}, {number(found.high)}]" if known.size > 1 else ""
    return f"{number(found.value)}{interval}"


def _returns(findings: Findings, entry: str) -> list[Entry]:
    return [(row["seed"], row[entry], row["return"]) for row in findings.metrics]


def _costs(findings: Findings, name: str, entry: str) -> list[Entry]:
    at = {row["epoch"]: row[entry] for row in findings.metrics}
    rows = [row for row in findings.ledger if row.constraint == name and row.epoch in at]
    return [(row.seed, at[row.epoch], _cost(row)) for row in rows]


def _curve(group: Group, entries: Callable[[Findings], list[Entry]]) -> panels.Curve:
    """The interquartile mean at every place that all seeds have reached."""
    # Runs may have a seed in common: it is another one here.
    numbered = enumerate(map(entries, group.runs))
    x, values = by_seed(((run << 32) + seed, at, value) for run, found in numbered for seed, at, value in found)
    farthest = [np.flatnonzero(np.isfinite(row)) for row in values]
    reached = min((int(known[-1]) + 1 if len(known) else 0 for known in farthest), default=0)
    kept = np.flatnonzero(np.any(np.isfinite(values[:, :reached]), axis=0))
    kept = kept[panels.thinned(len(kept), MOST_POINTS)] if len(kept) else kept
    value, low, high = together(values[:, kept])
    return panels.Curve(group.label, x[kept].astype(float), value, low, high, colour=group.colour, marker="o")
