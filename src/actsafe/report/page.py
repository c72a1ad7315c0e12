"""The page: what is known of each run, the verdict first, and of several runs a comparison before that."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import actsafe
from actsafe.report import comparison, evidence, gp_doubt, gp_sections, summary, vision_episode, vision_sections
from actsafe.report.findings import Findings
from actsafe.report.markup import Child, Html, tag
from actsafe.report.sheet import Sheet, command, if_readable, note
from actsafe.report.stylesheet import stylesheet

MOST_IN_FULL = 6
"""Of more runs, those after the first so many have no slices and no film: the page is to stay small."""
LEFT_OUT = ("Where the model is unsure", "An episode")
Section = Callable[[Sheet, Findings], Child]


class Half(NamedTuple):
    """The sections of runs of one kind."""

    learning: Section
    ledger: Section
    unsure: Section
    episode: Section
    task: Callable[[Findings], str]
    """What the task came to, in a few words."""


HALVES: Mapping[str, Half] = {
    "gp": Half(
        gp_sections.learning_section,
        gp_sections.ledger_section,
        gp_doubt.unsure_section,
        gp_sections.episode_section,
        gp_sections.task_sentence,
    ),
    "vision": Half(
        vision_sections.learning_section,
        vision_sections.ledger_section,
        vision_sections.unsure_section,
        vision_episode.episode_section,
        vision_sections.task_sentence,
    ),
}


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
        "Intervals of violation rates are exact (Clopper-Pearson, 95 %), and take episodes as independent "
        "and alike, which they are not while a policy learns.",
    )
    content = tag("body", _top(runs), tag("main", *body), footer)
    return "<!doctype html>\n" + tag("html", head, content, lang="en") + "\n"


def _top(runs: Sequence[Findings]) -> Html:
    if len(runs) == 1:
        heading, names = runs[0].title, [runs[0].folder.path.name]
    else:
        heading, names = f"{len(runs)} runs", [findings.folder.path.name for findings in runs]
    return tag(
        "header", tag("p", "ActSafe report · ", ", ".join(names), class_="eyebrow"), tag("h1", heading), class_="top"
    )


def _run(sheet: Sheet, findings: Findings, place: int, *, is_alone: bool) -> Html:
    """All that is known of one run."""
    half, anchor = HALVES[findings.folder.kind], f"run-{place}"
    sections = _sections(sheet, findings, half)
    if place > MOST_IN_FULL:
        alone = command(f"actsafe report {shlex.quote(str(findings.folder.path))}")
        said = note("Left out, as there are many runs on this page. For all of this one: ", alone)
        sections |= {title: (lambda: said) for title in LEFT_OUT if title in sections}
    links = [tag("li", tag("a", title, href=f"#{anchor}-{n}")) for n, title in enumerate(sections, start=1)]
    what = f"the {findings.folder.config.unit}s"
    body = [
        [tag("h3", title, id=f"{anchor}-{n}"), if_readable(make, what)]
        for n, (title, make) in enumerate(sections.items(), start=1)
    ]
    return tag(
        "section",
        tag("h2", "Summary") if is_alone else tag("h2", findings.title, id=anchor),
        None if is_alone else tag("p", tag("code", findings.folder.path), class_="eyebrow"),
        summary.of_run(findings, half.task(findings), is_alone=is_alone),
        tag("nav", tag("ul", *links), aria_label=f"Sections of {findings.title}"),
        *body,
        class_="run",
        data_run=findings.folder.path.name,
    )


def _sections(sheet: Sheet, findings: Findings, half: Half) -> dict[str, Callable[[], Child]]:
    """What makes each section, by its title; a run that has recorded nothing has few."""
    sections: dict[str, Callable[[], Child]] = {
        "Learning": lambda: half.learning(sheet, findings),
        "Promised and realised cost": lambda: half.ledger(sheet, findings),
        "Calibration": lambda: evidence.calibration_section(sheet, findings),
        "Where the model is unsure": lambda: half.unsure(sheet, findings),
        "An episode": lambda: half.episode(sheet, findings),
        "Certificate": lambda: evidence.certificate_section(findings),
        "Settings and provenance": lambda: evidence.provenance_section(findings),
    }
    always = ("Calibration", "Certificate", "Settings and provenance")
    return {title: make for title, make in sections.items() if findings.num_units or title in always}
