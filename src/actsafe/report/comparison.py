"""Several runs side by side: interquartile means over seeds, and how far to trust them."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from actsafe.agents.algorithms import label
from actsafe.evidence.binomial import clopper_pearson
from actsafe.figures import panels, style
from actsafe.report.findings import STEPS, Findings
from actsafe.report.markup import Child, count, number, percent, table, tag
from actsafe.report.sections import Values, along, band, costs_along, last_evaluation, panel
from actsafe.report.sheet import Sheet, note, side_by_side
from actsafe.report.statistics import stratified_bootstrap
from actsafe.training.results import mean_cost

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.BLACK)
MEAN_COST = "mean cost after the warm-up"
INTERQUARTILE = "Interquartile mean over seeds while learning; band: its 95 % bootstrap interval."
OF_COSTS = (
    "The same of costs. An interquartile mean leaves the worst quarter of seeds out: the table counts violations."
)


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
    rows = [_row(group, name) for group in groups for name in spec.cost_names]
    heads = ["", "seeds", "constraint", "over budget", "violation rate", MEAN_COST, f"last return of {spec.task}"]
    # Epochs of one run may be episodes, and those of another not: then both are drawn against steps.
    axis = runs[0].axis if len({findings.axis for findings in runs}) == 1 else STEPS
    returns = [_curve(group, lambda run: along(run, lambda row: row["return"], axis)) for group in groups]
    look = {"xlabel": axis.label, "spans": (), "alt": "Return of an episode of every algorithm"}
    figures = [panel(sheet, runs[0], "Return of an episode", returns, caption=INTERQUARTILE, **look)]
    for place, name in enumerate(spec.cost_names):
        costs = [_curve(group, lambda run, name=name: costs_along(run, name, mean_cost, axis)) for group in groups]
        budget = min(findings.folder.spec.budgets[place] for findings in runs)
        title = f"{name.replace('_', ' ').capitalize()} of an episode"
        look |= {"alt": f"{title} of every algorithm", "budget": budget, "is_cost": True}
        figures.append(panel(sheet, runs[0], title, costs, caption=OF_COSTS, **look))
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
    costs = [cost for cost in map(mean_cost, rows) if cost is not None]
    return float(np.mean(costs)) if costs else None


def _last_return(findings: Findings, seed: int) -> float | None:
    rows = [row for row in findings.metrics if row["seed"] == seed]
    return last_evaluation(rows, findings.folder.spec.task)["return"]


def _estimated(values: Sequence[float | None]) -> str:
    known = np.array([value for value in values if value is not None], float)
    if not known.size:
        return "–"
    if not np.all(np.isfinite(known)):
        return "unbounded in some seed"
    found = stratified_bootstrap([known])
    interval = f" [{number(found.low)}, {number(found.high)}]" if known.size > 1 else ""
    return f"{number(found.value)}{interval}"


def _curve(group: Group, values: Callable[[Findings], Values]) -> panels.Curve | None:
    """Of all seeds of a group; runs may have a seed in common, which is another one here."""
    numbered = enumerate(map(values, group.runs))
    told_apart = [((run << 32) + seed, at, value) for run, own in numbered for seed, at, value in own]
    return band(group.label, told_apart, colour=group.colour, marker="o")
