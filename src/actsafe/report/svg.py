"""Figures as a part of the page: vector graphics whose text is text and whose colours follow the page's."""

import io
import re
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure

from actsafe.figures import style
from actsafe.report.markup import Child, Html, tag

DARK: Mapping[str, str] = {
    "#ffffff": "#1b1f24",
    style.BLACK: "#f2f4f5",
    style.INK: "#d5d9dd",
    style.GREY: "#979ea6",
    style.GRID: "#2e343b",
    "#f0f0f0": "#252b31",
    style.ORANGE: "#f0b429",
    style.SKY: "#7cc7f2",
    style.GREEN: "#2fc69a",
    style.BLUE: "#4da8e0",
    style.VERMILION: "#ff8a4c",
    style.PURPLE: "#e39bc4",
}
"""What the colours of figures become where the page is dark; any other colour stays as it is."""

_NAMES = {light.lower(): f"--fig-{light[1:].lower()}" for light in DARK}
_COLOUR = re.compile(r"(?<!\()#[0-9a-fA-F]{6}\b")
_FONT_FAMILY = re.compile(r"(font(?:-family)?:[^;\"]*?)'DejaVu Sans'[^;\"]*")
_MENTION = re.compile(r"(url\(#|href=\"#)([^)\"]+)")
_PLACES = re.compile(r' (?:d|x|y)="[^"]*"')
_DROPPED = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", re.DOTALL)


def variables(*, is_dark: bool) -> str:
    """The declarations that give every colour of a figure its value."""
    values = DARK.values() if is_dark else DARK
    return "".join(f"{name}:{value};" for name, value in zip(_NAMES.values(), values, strict=True))


def variable(colour: str) -> str:
    """The value that a colour of figures has on the page; another colour as it is."""
    name = _NAMES.get(colour.lower())
    return f"var({name})" if name else colour


def inline(figure: Figure, identity: str, title: str) -> Html:
    """A figure as an element of the page. `identity` is told from that of any other figure; `title` says what is seen.

    Identities inside the drawing begin with it, as those of two drawings must not meet on one page.
    """
    written = io.StringIO()
    # Both are to be had as global settings alone; they are put back at once.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": identity}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    drawing = _DROPPED.sub("", written.getvalue().partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0])
    drawing = drawing.replace("xlink:href", "href")
    drawing = _with_identities(drawing, identity)
    drawing = _FONT_FAMILY.sub(r"\1inherit", drawing)
    drawing = _COLOUR.sub(lambda found: variable(found.group()), drawing)
    drawing = _PLACES.sub(lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found.group()), drawing)
    drawing = re.sub(r">\s+<", "><", drawing)
    return svg(f"{identity}-title", title, Html(drawing), box=(0, 0, *(72.0 * figure.get_size_inches())))


def svg(identity: str, title: str, *content: Child, box: Sequence[float | int], class_: str | None = None) -> Html:
    """A drawing within left, top, width and height, whose title has this identity."""
    view = " ".join(f"{number:g}" for number in box)
    heading = tag("title", title, id=identity)
    return tag("svg", heading, *content, viewBox=view, class_=class_, role="img", aria_labelledby=identity)


def _with_identities(drawing: str, identity: str) -> str:
    """The drawing with identities that only it has; those that nothing mentions are left away."""
    mentioned = {found[1] for found in _MENTION.findall(drawing)}
    drawing = _MENTION.sub(rf"\g<1>{identity}-\g<2>", drawing)

    def renamed(found: re.Match[str]) -> str:
        return f' id="{identity}-{found.group(1)}"' if found.group(1) in mentioned else ""

    return re.sub(r'\sid="([^"]*)"', renamed, drawing)
