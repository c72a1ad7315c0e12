"""The top of the page, and of each run: the verdict, the numbers behind it, and what is not known."""

from collections.abc import Sequence

from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.certificate import CONFIDENCE
from actsafe.report.deployments import deployed_fact
from actsafe.report.evidence import again
from actsafe.report.findings import RULE, Evidence, Findings, Safety, progress, rate_sentence, sentence
from actsafe.report.markup import Child, Html, count, number, percent, table, tag
from actsafe.report.sections import task_facts

MOST_NAMED = 3
WORST_FIRST = (Safety.UNSAFE, Safety.UNKNOWN, Safety.UNPROVEN, Safety.SAFE)


def of_run(findings: Findings, *, is_alone: bool) -> Child:
    """What a run came to. Identities are those of a page's only run, or none."""
    return [
        _verdict(findings.safety, sentence(findings), is_first=is_alone),
        _facts(_run_facts(findings, is_first=is_alone)),
        _not_known(findings),
    ]


def of_all(runs: Sequence[Findings]) -> Html:
    """The verdict on all runs."""
    safe = sum(findings.safety is Safety.SAFE for findings in runs)
    unsafe = [f"{each.title} ({each.folder.path.name})" for each in runs if each.safety is Safety.UNSAFE]
    named = ", ".join(unsafe[:MOST_NAMED]) + (f" and {len(unsafe) - MOST_NAMED} more" if unsafe[MOST_NAMED:] else "")
    state = next(each for each in WORST_FIRST if any(findings.safety is each for findings in runs))
    said = {
        Safety.SAFE: f"Safe: all {len(runs)} runs kept every budget in every episode they answer for.",
        Safety.UNSAFE: f"Not safe: {len(unsafe)} of {len(runs)} runs broke a budget: {named}.",
        Safety.UNPROVEN: f"Not known to be safe: no run broke a budget, and {safe} of {len(runs)} can be called safe.",
        Safety.UNKNOWN: f"Not known yet: {safe} of {len(runs)} runs kept every budget, and the others have no episode "
        "to answer for.",
    }[state]
    judged = [findings.worst for findings in runs if findings.worst is not None]
    over, episodes = sum(found.num_over for found in judged), sum(found.num_episodes for found in judged)
    rows = [_overview(findings, place) for place, findings in enumerate(runs, start=1)]
    heads = ["run", "folder", "verdict", "over budget", "violation rate", "calibration"]
    return tag(
        "section",
        tag("h2", "Summary"),
        _verdict(state, said, is_first=True),
        _facts(
            [
                ("Episodes answered for", tag("span", f"{episodes:,}", id="episodes", data_count=episodes)),
                ("Violation rate, all runs together", _interval(over, episodes, is_first=True)),
            ]
        ),
        table(heads, rows),
        class_="run",
        aria_label="Summary",
    )


def _overview(findings: Findings, place: int) -> list[Child]:
    """A row of the summary of several runs."""
    found, measured = findings.worst, findings.calibration
    return [
        tag("a", findings.title, href=f"#run-{place}"),
        findings.folder.path.name,
        findings.safety.value,
        f"{found.num_over:,} of {found.num_episodes:,}" if found else "–",
        rate_sentence(found) if found else "–",
        measured.verdict or ("damaged" if measured.problem else "not measured"),
    ]


def _verdict(state: Safety, said: str, *, is_first: bool) -> Html:
    return tag("p", said, class_="verdict", id="verdict" if is_first else None, data_verdict=state.value)


def _interval(over: int, episodes: int, *, is_first: bool) -> Child:
    low, high = clopper_pearson(over, episodes)
    exact = {"data_low": repr(low), "data_high": repr(high), "data_over": over, "data_episodes": episodes}
    name = "violation-interval" if is_first else None
    bounds = tag("span", f"{percent(low)} to {percent(high)}", id=name, **exact, data_confidence=CONFIDENCE)
    counted = f"{over:,} of {episodes:,} episodes over budget; {100 * CONFIDENCE:.0f} %, Clopper-Pearson"
    return [bounds, tag("small", counted)]


def _facts(facts: Sequence[tuple[str, Child]]) -> Html:
    return tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def _run_facts(findings: Findings, *, is_first: bool) -> list[tuple[str, Child]]:
    worst = findings.worst
    over, episodes = (worst.num_over, worst.num_episodes) if worst else (0, 0)
    warm_up = f"and {count(findings.num_warm_up, 'episode')} of the warm-up" if findings.num_warm_up else None
    seeds = f"{count(len(findings.seeds), 'seed')}; {progress(findings)}"
    what = "Episodes after the warm-up" if findings.num_warm_up else "Episodes"
    names = findings.folder.spec.cost_names
    of = f" of {worst.constraint}, the most often broken" if worst and len(names) > 1 else ""
    facts: list[tuple[str, Child]] = [
        (
            what,
            [
                tag("span", f"{episodes:,}", id="episodes" if is_first else None, data_count=episodes),
                tag("small", warm_up, " · " if warm_up else None, seeds),
            ],
        ),
        (f"Violation rate{of}", _interval(over, episodes, is_first=is_first)),
    ]
    for found in findings.violations if worst else ():
        name = f" of {found.constraint}" if len(names) > 1 else ""
        largest = [number(found.worst), tag("small", f"budget {number(found.budget)}")]
        facts.append((f"Largest cost{name} of an episode", largest))
        if found.num_epochs < found.num_episodes:
            kept = f"{found.num_epochs - found.num_epochs_over:,} of {found.num_epochs:,}"
            meant = tag("small", "the paper's constraint with a world model is on the mean")
            facts.append((f"Epochs whose mean cost{name} kept the budget", [kept, meant]))
    total, fallbacks, uncertified = findings.decisions
    if findings.is_guarded:
        facts.append(deployed_fact(findings))
    elif uncertified is not None and total:
        said = f"{fallbacks:,} of {total:,} were fallbacks ({percent(fallbacks / total)})"
        facts.append(("Decisions with no certified plan", [f"{uncertified:,} of {total:,}", tag("small", said)]))
    calibration = _evidence_fact(findings, findings.calibration, "of an earlier model", "not measured", "calibrate")
    standing = _evidence_fact(findings, findings.certificate, "of the run as it was before", "none", "certify")
    return [*facts, ("Calibration of the model", calibration), ("Certificate", standing), *task_facts(findings)]


def _evidence_fact(findings: Findings, found: Evidence, aged: str, missing: str, verb: str) -> Child:
    """What calibration or certificate comes to, and whether it is about the run as it is."""
    if found.problem:
        return ["damaged", tag("small", "it cannot be used; see below")]
    if found.content is None:
        return [missing, tag("small", again(findings, verb))]
    return [found.verdict, None if found.is_current else tag("small", aged)]


def _not_known(findings: Findings) -> Child:
    """What the page cannot say, in plain words."""
    folder = findings.folder
    said: list[Child] = []
    if not folder.is_finished:
        said.append(["The run is not at its end. To go on: ", again(findings, "resume")])
    if not folder.config.row.is_constrained:
        said.append("The algorithm is asked to keep no budget: whatever it kept, it kept by chance.")
    if findings.safety in (Safety.SAFE, Safety.UNPROVEN):
        high = percent(max(each.interval.high for each in findings.violations))
        said.append(f"None over budget is not never: rates up to {high} would be no surprise after so few episodes.")
    if findings.safety is Safety.UNPROVEN:
        said.append(RULE)
    if findings.calibration.verdict is None:
        said.append("Whether the model knows how wrong it is was not measured, and every guarantee rests on that.")
    if len(findings.seeds) == 1:
        said.append("One seed: how much results vary from seed to seed is not known.")
    if findings.metrics and not findings.judged:
        said.append("Only random actions so far: nothing of what was learned has acted yet.")
    said.append("How a system outside the simulator behaves was not tested.")
    return tag("div", tag("h4", "What is not known"), tag("ul", (tag("li", each) for each in said)))
