"""Deployments from a safe set: who acted, what the screen had said, and what came."""

from collections.abc import Sequence
from typing import Any

from actsafe.evidence.screening import Deployment, Tally, calibration, candidates_of, tally
from actsafe.figures.screening import score_against_outcome
from actsafe.report.findings import Findings
from actsafe.report.markup import Child, count, folded, number, percent, table, tag
from actsafe.report.sheet import FOREIGN, Sheet, if_readable, note, side_by_side

MOST_LINES = 300
"""Deployments, the newest, that have a line each: the page is to stay small."""
OPEN_LINES = 12
"""So few are shown unfolded."""
COLUMNS = ("certified", "candidate", "seed")
"""Who begins episodes."""
HEADS = ("deployment", "role", "candidate", "score", "upper quantile", "margin", *(f"by {name}" for name in COLUMNS))


def deployments_section(sheet: Sheet, findings: Findings) -> Child:
    """A line per deployment, the counts of all, and the screen's score beside what came."""
    return if_readable(lambda: _section(sheet, findings), "deployments", FOREIGN)


def deployed_fact(findings: Findings) -> tuple[str, Child]:
    """For the summary: episodes of learned policies over a budget, and how often a fallback acted."""
    return "Learned policies over a budget", if_readable(lambda: _fact(_tally(findings)), "deployments", FOREIGN)


def _fact(found: Tally) -> Child:
    low, high = found.learned.interval
    counted = f"{found.learned.over:,} of {count(found.learned.episodes, 'episode')}"
    acted = f"; a fallback acted in {count(found.fallback_episodes, 'episode')}"
    return [f"{percent(low)} to {percent(high)}", tag("small", counted, acted, "; 95 %, Clopper-Pearson")]


def _section(sheet: Sheet, findings: Findings) -> Child:
    by_seed = findings.deployments
    if not by_seed:
        return note("No policy that was learned has been deployed yet.")
    told = [(seed, n, each) for seed, own in by_seed.items() for n, each in enumerate(own, start=1)]
    rows = [_line(*each, is_alone=len(findings.seeds) == 1) for each in told[-MOST_LINES:]]
    left_out = f", the newest {MOST_LINES} of {len(told)}" if len(told) > MOST_LINES else ""
    lines = table(HEADS, rows, caption=f"Deployments{left_out}; episodes over a budget, and taken over (t)")
    everything, spec = [each for _, _, each in told], findings.folder.spec
    figures = [
        sheet.figure(
            score_against_outcome(everything, place, spec.budgets[place], name),
            f"Score of the screen and {name} of every deployment of a candidate",
            _calibrated(everything, place),
        )
        for place, name in enumerate(spec.cost_names)
        if candidates_of(everything)
    ]
    return [
        tag("p", _said(_tally(findings))),
        side_by_side(*figures) if figures else None,
        lines if len(rows) <= OPEN_LINES else folded("Every deployment", lines),
    ]


def _tally(findings: Findings) -> Tally:
    return tally([each for own in findings.deployments.values() for each in own], findings.folder.spec.budgets)


def _said(found: Tally) -> str:
    """The counts in sentences."""
    learned, seeded = found.learned, found.by_level["seed"].episodes
    low, high = learned.interval
    return (
        f"Learned policies were over a budget in {learned.over:,} of {count(learned.episodes, 'episode')} (rate "
        f"between {percent(low)} and {percent(high)}), and a fallback took over in {learned.taken_over:,}. "
        f"The screen was asked {found.screened:,} times and refused {found.refused:,}. "
        f"{count(found.candidates, 'candidate')} acted: {found.certified:,} certified, "
        f"{found.recalled:,} recalled. S_0 began {count(seeded, 'episode')}."
    )


def _calibrated(deployments: Sequence[Deployment], place: int) -> str:
    """What the screen's scores were worth, in a sentence."""
    found = calibration(deployments, place)
    if found.mean_residual is None:
        return "No score of a candidate that acted is known."
    return (
        f"Of {count(len(found.pairs), 'deployment')} with a score {percent(found.share_above)} cost more than it; on "
        f"average they cost {number(abs(found.mean_residual))} {'more' if found.mean_residual > 0 else 'less'}."
    )


def _line(seed: int, place: int, told: Deployment, *, is_alone: bool) -> list[Child]:
    begun = [_begun(told["came"].get(name)) for name in COLUMNS]
    said = [", ".join(map(number, told[name])) for name in ("score", "upper", "margin")]
    heading = str(place) if is_alone else f"{place}, seed {seed}"
    return [heading, str(told["role"]), str(told["candidate"]), *said, *begun]


def _begun(came: Any) -> str:
    """Episodes that one of those who act began."""
    if came is None:
        return "–"
    taken = f", {came['taken_over']} t" if came["taken_over"] else ""
    return f"{came['over']} of {came['episodes']}{taken}"
