"""The page: what is known of each run, the verdict first, and of several runs a comparison before that."""

import shlex
from collections.abc import Callable, Sequence

import actsafe
from actsafe.report import comparison, summary
from actsafe.report.deployments import deployments_section
from actsafe.report.episode import episode_section
from actsafe.report.evidence import calibration_section, certificate_section, provenance_section
from actsafe.report.findings import RULE, Findings
from actsafe.report.markup import Child, Html, tag
from actsafe.report.sections import learning_section, ledger_section
from actsafe.report.sheet import Sheet, command, if_readable, note
from actsafe.report.stylesheet import stylesheet
from actsafe.report.uncertainty import uncertainty_section

MOST_IN_FULL = 6
"""Runs beyond this number have no slices and no film, so that the page stays small."""
LEFT_OUT = ("Where the model is uncertain", "An episode")
BEFORE_RECORDS = ("Calibration", "Certificate", "Settings and provenance")


def page(runs: Sequence[Findings]) -> str:
    """The whole page, as text of an HTML file."""
    sheet = Sheet()
    if len(runs) == 1:
        title, body = f"{runs[0].title}: report", [_run(sheet, runs[0], 1, is_alone=True)]
    else:
        title = f"{len(runs)} runs: report"
        body = [summary.of_all(runs), comparison.section(sheet, runs)]
        body += [_run(sheet, findings, place, is_alone=False) for place, findings in enumerate(runs, start=1)]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"actsafe {actsafe.__version__}"),
        tag("title", title),
        tag("style", Html(stylesheet())),
    )
    footer = tag(
        "footer",
        f"Written by actsafe {actsafe.__version__} from the files of the run alone. ",
        RULE,
        " Intervals of violation rates are exact (Clopper-Pearson, 95 %), and take episodes as independent "
        "and alike, which they are not while a policy learns.",
    )
    content = tag("body", _top(runs), tag("main", *body), footer)
    return "<!doctype html>\n" + tag("html", head, content, lang="en") + "\n"


def _top(runs: Sequence[Findings]) -> Html:
    heading = runs[0].title if len(runs) == 1 else f"{len(runs)} runs"
    names = ", ".join(findings.folder.path.name for findings in runs)
    return tag("header", tag("p", "ActSafe report · ", names, class_="eyebrow"), tag("h1", heading), class_="top")


def _run(sheet: Sheet, findings: Findings, place: int, *, is_alone: bool) -> Html:
    anchor, sections = f"run-{place}", _sections(sheet, findings)
    if place > MOST_IN_FULL:
        alone = command(f"actsafe report {shlex.quote(str(findings.folder.path))}")
        said = note("Left out, as there are many runs on this page. For all of this one: ", alone)
        sections |= {title: (lambda: said) for title in LEFT_OUT if title in sections}
    links = [tag("li", tag("a", title, href=f"#{anchor}-{n}")) for n, title in enumerate(sections, start=1)]
    body = [
        [tag("h3", title, id=f"{anchor}-{n}"), if_readable(make, "the epochs")]
        for n, (title, make) in enumerate(sections.items(), start=1)
    ]
    return tag(
        "section",
        tag("h2", "Summary") if is_alone else tag("h2", findings.title, id=anchor),
        None if is_alone else tag("p", tag("code", findings.folder.path), class_="eyebrow"),
        summary.of_run(findings, is_alone=is_alone),
        tag("nav", tag("ul", *links), aria_label=f"Sections of {findings.title}"),
        *body,
        class_="run",
        data_run=findings.folder.path.name,
    )


def _sections(sheet: Sheet, findings: Findings) -> dict[str, Callable[[], Child]]:
    """What makes each section, by its title; a run that has recorded nothing has few."""
    sections: dict[str, Callable[[], Child]] = {
        "Learning": lambda: learning_section(sheet, findings),
        "Promised and realised cost": lambda: ledger_section(sheet, findings),
        **({"Deployments": lambda: deployments_section(sheet, findings)} if findings.is_guarded else {}),
        "Calibration": lambda: calibration_section(sheet, findings),
        "Where the model is uncertain": lambda: uncertainty_section(sheet, findings),
        "An episode": lambda: episode_section(sheet, findings),
        "Certificate": lambda: certificate_section(findings),
        "Settings and provenance": lambda: provenance_section(findings),
    }
    return sections if findings.metrics else {title: sections[title] for title in BEFORE_RECORDS}
