"""What a run rests on: calibration, certificate, settings, provenance."""

import functools
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from actsafe.evidence.certificate import CONDITIONAL, HELD, REFUSED
from actsafe.figures.reliability import BAND, coverage_by_step, reliability_diagram
from actsafe.report.findings import Evidence, Findings
from actsafe.report.markup import Child, Html, count, folded, number, percent, table, tag
from actsafe.report.sheet import FOREIGN, Sheet, command, if_readable, note, shortened, side_by_side
from actsafe.training.settings import by_path

VERDICTS = {
    "calibrated": "The model knows how wrong it is: no interval's coverage could be told from what it claims.",
    "underconfident": "The model claims less than it knows: no interval holds less than it claims, some hold more. "
    "Whether its policies are safe is another question, which the counts above answer.",
    "overconfident": "The model claims more than it knows: what it calls safe may not be.",
    "not known": "There were too few predictions to tell.",
}
STANDINGS = {
    HELD: "The promise is held: nothing that was measured or recorded speaks against it.",
    CONDITIONAL: "The promise is conditional: something that it rests on is not known, or was not always so.",
    REFUSED: "The promise is refused: something that was measured or recorded speaks against it.",
}


def again(findings: Findings, what: str) -> Html:
    """The command that calibrates or certifies the run."""
    return command(f"actsafe {what} {shlex.quote(str(findings.folder.path))}")


def calibration_section(sheet: Sheet, findings: Findings) -> Child:
    """Whether the model's intervals hold what they claim, or how to find out."""
    return _shown(findings, findings.calibration, "calibrate", "calibration", functools.partial(_measured, sheet))


def certificate_section(findings: Findings) -> Child:
    """What the policy promises, what that rests on and what it does not promise, or how to have it written down."""
    return _shown(findings, findings.certificate, "certify", "certificate", _certified)


def _shown(
    findings: Findings, evidence: Evidence, verb: str, name: str, make: Callable[[Mapping[str, Any]], Child]
) -> Child:
    """What a file beside the run holds, or how to have it written."""
    retry = again(findings, verb)
    if evidence.problem:
        is_advised = f"actsafe {verb}" in evidence.problem
        return note(f"{name}.json cannot be used: ", evidence.problem, None if is_advised else [". Again: ", retry])
    content = evidence.content
    if content is None:
        return note(f"There is no {name}. Every guarantee rests on it; to have one: ", retry)
    aged = note("The run has changed since: this is not about it as it is now. To do it again: ", retry)
    return [None if evidence.is_current else aged, if_readable(lambda: make(content), f"the {name}", FOREIGN)]


def _measured(sheet: Sheet, content: Mapping[str, Any]) -> Child:
    name = content["deciding_claim"]
    claim = content["claims"][name]
    steps, coordinates = claim["steps"], content["coordinates"]
    chosen = steps[:1] if len(steps) == 1 else [steps[0], steps[-1]]
    verdict, factor = content["verdict"], claim["multiplier"]
    caption = (
        f"Claim “{name}”: {claim['meaning']}. Below the grey band, where a calibrated model's shares lie "
        f"({100 * BAND:.0f} % of the time at each level), the model is overconfident."
    )
    figures = [
        sheet.figure(
            reliability_diagram(step, content["grid"], coordinates),
            f"Reliability diagram, {count(step['step'], 'step')} ahead",
            caption if step is steps[0] else None,
        )
        for step in chosen
    ]
    figures.append(
        sheet.figure(
            coverage_by_step(steps, content["levels"]),
            "Coverage of central intervals by steps ahead",
            "Solid: the share held; dashed: the share claimed.",
        )
    )
    said = number(factor) if factor is not None else "not known: too few predictions vouch for one"
    relied = [name for name, counts in zip(coordinates, content["is_safety"], strict=True) if counts]
    rows = [
        [
            coordinate,
            step["step"],
            *(percent(share) for share in step["coverage"][index]),
            number(step["calibration_error"][index]),
        ]
        for step in chosen
        for index, coordinate in enumerate(coordinates)
    ]
    heads = ["of", "steps ahead", *(f"{100 * level:.0f} %" for level in content["levels"]), "calibration error"]
    return [
        tag("p", tag("strong", f"{verdict.capitalize()}. "), VERDICTS[verdict]),
        None if content["has_power"] else note("This has no power: the model could hardly have failed."),
        tag(
            "p",
            f"Measured on {count(content['episodes'], 'held-out episode')} of the task's policy. ",
            "" if len(relied) == len(coordinates) else f"The verdict is about {', '.join(relied)}. ",
            f"Factor on every standard deviation that restores coverage (split-conformal): {said}.",
        ),
        side_by_side(*figures),
        folded("Coverage in numbers", table(heads, rows, caption=f"Shares of truths inside, claim “{name}”")),
    ]


def _certified(content: Mapping[str, Any]) -> Child:
    standing, promise = content["standing"], content["promise"]
    because = f" Because: {'; '.join(content['reasons'])}." if content["reasons"] else ""
    rows = [
        [
            ", ".join(f"{name} {value}" for name, value in estimate.items() if name not in ("what", "cost", "bound")),
            estimate["what"],
            number(estimate["cost"]),
            number(estimate["bound"]),
        ]
        for estimate in promise["estimates"]
    ]
    ahead = f"{count(promise['horizon'], 'decision')} ahead. {promise['afterwards']}"
    estimates = table(["of", "estimate", "cost", "bound"], rows, caption=f"{promise['basis']} {ahead}")
    return [
        tag("p", tag("strong", f"{str(standing).capitalize()}. "), STANDINGS.get(standing, ""), because),
        estimates if len(rows) <= 6 else folded(count(len(rows), "estimate"), estimates),
        tag("ul", (tag("li", _deployed(each)) for each in promise["deployed"])) if "deployed" in promise else None,
        tag("h4", "What it does not promise"),
        tag("ul", (tag("li", each) for each in content["does_not_promise"])),
    ]


def _deployed(counted: Mapping[str, Any]) -> str:
    """Whose episodes a promise rests on, and the attempts that led there."""
    tried, over, taken = counted["attempts"], counted["over_budget"], counted["taken_over"]
    return (
        f"Seed {counted['seed']}: {counted['policy']}, {count(counted['episodes'], 'episode')} of its own, {over} over "
        f"a budget, {taken} taken over. Attempts: {tried['screened']} screened, {tried['refused']} refused, "
        f"{tried['candidates']} tried, {tried['recalled']} recalled, {tried['certified']} certified; the bound is made "
        f"at {100 * counted['confidence']:.4g} %, so that those of all attempts hold together."
    )


def provenance_section(findings: Findings) -> Child:
    """Where, by which command and from what the run was made."""
    folder = findings.folder
    hashes = {**findings.fingerprints, "settings, in short": folder.config.digest}
    settings = by_path(folder.config.to_json()).items()
    written = ([tag("code", path), shortened(json.dumps(value))] for path, value in settings)
    return [
        if_readable(lambda: tag("p", _computed(findings)), "the timing", FOREIGN),
        if_readable(lambda: _sessions(findings), "the provenance", FOREIGN),
        table(["SHA-256 of", "is"], ([name, tag("code", value)] for name, value in hashes.items()), is_text=True),
        folded("Every setting", table(["setting", "value"], written, is_text=True)),
    ]


def _computed(findings: Findings) -> str:
    seconds = sum(entry["seconds"] for entry in findings.folder.timing())
    minutes = f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
    return f"Computed in {f'{seconds:.0f} seconds' if seconds < 120 else minutes}, checkpoints not included."


def _sessions(findings: Findings) -> Child:
    sessions = findings.folder.sessions()
    if not sessions:
        return note("provenance.json is missing: which command on which machine made the run is not known.")
    rows = []
    for session in sessions:
        machine = session["machine"]
        versions = ", ".join(f"{name} {machine[name]}" for name in ("actsafe", "jax", "python") if name in machine)
        hardware = [f"{machine['cpu']}, {machine['cores']} cores", machine.get("accelerator"), machine.get("os")]
        texts = map(shortened, (session["first_epoch"], versions, ", ".join(filter(None, hardware))))
        rows.append([command(shortened(session["command"])), *texts])
    return table(["command", "from epoch", "versions", "machine"], rows, is_text=True)
