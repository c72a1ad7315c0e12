"""Several runs side by side: interquartile means over seeds, and how far to trust them."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from actsafe.agents.phases import Phase
from actsafe.evidence.binomial import clopper_pearson
from actsafe.figures import panels, style
from actsafe.report.findings import LABELS, Findings
from actsafe.report.markup import Child, count, number, percent, table, tag
from actsafe.report.sheet import Sheet, if_readable, note, side_by_side
from actsafe.report.statistics import Estimate, stratified_bootstrap
from actsafe.training import results, vision_results
from actsafe.training.results import last_known

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.BLACK)
Entry = Mapping[str, Any]
"""What one seed of a run came to."""


class Kind(NamedTuple):
    """What is compared of runs of one kind."""

    entries: Callable[[Any], list[dict[str, Any]]]
    x: Callable[[Entry], Sequence[float]]
    xlabel: str
    returns: Callable[[Entry], Sequence[float | None]]
    costs: Callable[[Entry], Sequence[float | None]]
    final_name: str
    final: Callable[[Entry], float | None]
    cost_name: str
    cost: Callable[[Entry], float | None]
    """What a seed's costs come to, as one number."""


def _late_cost(entry: Entry) -> float | None:
    """The mean cost of the epochs after the warm-up."""
    pairs = zip(entry["cost"], entry["phase"], strict=True)
    known = [cost for cost, phase in pairs if phase != Phase.WARM_UP.value and cost is not None]
    return float(np.mean(known)) if known else None


KINDS: Mapping[str, Kind] = {
    "gp": Kind(
        results.entries,
        lambda entry: range(1, len(entry["exploration_cost"]) + 1),
        "episode",
        lambda entry: entry["swing_up_return"],
        lambda entry: entry["exploration_cost"],
        "last swing-up return",
        lambda entry: last_known(entry["swing_up_return"]),
        "total cost",
        lambda entry: float(sum(np.inf if cost is None else cost for cost in entry["exploration_cost"])),
    ),
    "vision": Kind(
        vision_results.entries,
        lambda entry: entry["steps"],
        "simulator steps",
        lambda entry: entry["return"],
        lambda entry: entry["cost"],
        "last evaluation return",
        lambda entry: last_known(entry["evaluation_return"]),
        "mean cost after the warm-up",
        _late_cost,
    ),
}


class Group(NamedTuple):
    """Runs of the same settings but for their seeds."""

    label: str
    runs: Sequence[Findings]
    entries: Sequence[Entry]
    colour: str


def section(sheet: Sheet, runs: Sequence[Findings]) -> Child:
    """A comparison for every problem of which more than one run has recorded anything; runs are not compared across."""
    subjects: dict[tuple[str, str], list[Findings]] = {}
    for findings in runs:
        if findings.num_units:
            subjects.setdefault((findings.folder.kind, findings.folder.config.subject), []).append(findings)
    parts, alone = [], []
    for (kind, subject), found in subjects.items():
        if len(found) == 1:
            alone.append(subject)
            continue
        compared = if_readable(lambda kind=kind, found=found: _compare(sheet, KINDS[kind], found), "the runs")
        parts.append([tag("h3", subject), compared])
    if alone:
        parts.append(note(f"Nothing to compare with: {', '.join(alone)}. Only runs of one problem are compared."))
    if not subjects:
        parts.append(note("Nothing to compare: no run has recorded anything yet."))
    return tag("section", tag("h2", "Side by side"), *parts, class_="run", aria_label="Comparison")


def _compare(sheet: Sheet, kind: Kind, runs: Sequence[Findings]) -> Child:
    groups = grouped(kind, runs)
    budgets = {entry["budget"] for group in groups for entry in group.entries if entry["budget"] is not None}
    rows = [_row(kind, group) for group in groups]
    heads = ["", "seeds", "over budget", "violation rate", kind.cost_name, kind.final_name]
    figures = [
        sheet.figure(
            panels.curves("Return", [_curve(kind, group, kind.returns) for group in groups], xlabel=kind.xlabel),
            "Return of every algorithm",
            "Interquartile mean over seeds; band: its 95 % bootstrap interval.",
        ),
        sheet.figure(
            panels.curves(
                "Cost of an episode",
                [_curve(kind, group, kind.costs) for group in groups],
                xlabel=kind.xlabel,
                budget=min(budgets) if budgets else None,
                is_cost=True,
            ),
            "Cost of every algorithm against the budget",
            "The same of costs. An interquartile mean leaves the worst quarter of seeds out: violations are counted in "
            "the table.",
        ),
    ]
    few = min(len(group.entries) for group in groups)
    return [
        table(heads, rows, caption="Interquartile mean over seeds [95 % stratified bootstrap interval]"),
        note(f"With {count(few, 'seed')} an interval says little.") if few < 5 else None,
        side_by_side(*figures),
    ]


def grouped(kind: Kind, runs: Sequence[Findings]) -> list[Group]:
    """Runs of the same settings but for their seeds together; those of an algorithm with others are told apart."""
    found: dict[str, list[Findings]] = {}
    for findings in runs:
        settings = {k: v for k, v in findings.folder.config.to_json().items() if k not in ("seed", "seeds")}
        found.setdefault(repr(settings), []).append(findings)
    names = [LABELS[own[0].folder.kind][own[0].folder.config.algorithm].label for own in found.values()]
    groups = []
    for own, name, colour in zip(found.values(), names, itertools.cycle(COLOURS)):
        label = name if names.count(name) == 1 else f"{name}, {own[0].folder.path.name}"
        groups.append(Group(label, own, [entry for each in own for entry in kind.entries(each.folder)], colour))
    return groups


def _row(kind: Kind, group: Group) -> list[Child]:
    judged = [findings.worst for findings in group.runs if findings.worst is not None]
    over, episodes = sum(found.num_over for found in judged), sum(found.num_episodes for found in judged)
    low, high = clopper_pearson(over, episodes)
    return [
        group.label,
        len(group.entries),
        f"{over:,} of {episodes:,}",
        f"{percent(low)} to {percent(high)}",
        _estimated([kind.cost(entry) for entry in group.entries]),
        _estimated([kind.final(entry) for entry in group.entries]),
    ]


def _estimated(values: Sequence[float | None]) -> str:
    known = np.array([value for value in values if value is not None], float)
    if not known.size:
        return "–"
    if not np.all(np.isfinite(known)):
        return "unbounded in some seed"
    found = stratified_bootstrap([known])
    interval = f" [{number(found.low)}, {number(found.high)}]" if known.size > 1 else ""
    return f"{number(found.value)}{interval}"


def _curve(kind: Kind, group: Group, values: Callable[[Entry], Sequence[float | None]]) -> panels.Curve:
    """The interquartile mean at every place that all seeds have reached."""
    length = min(len(values(entry)) for entry in group.entries)
    x = np.array(list(kind.x(group.entries[0]))[:length], float)
    rows = np.array([[np.nan if v is None else v for v in list(values(entry))[:length]] for entry in group.entries])
    kept = np.flatnonzero(np.any(np.isfinite(rows), axis=0))
    kept = kept[panels.thinned(len(kept), 120)] if len(kept) else kept
    found = [_estimate(rows[:, place]) for place in kept]
    value, low, high = np.array(found).T if found else np.zeros((3, 0))
    return panels.Curve(group.label, x[kept], value, low, high, colour=group.colour, marker="o")


def _estimate(column: np.ndarray) -> Estimate:
    return stratified_bootstrap([column[np.isfinite(column)]], num_draws=1000)
