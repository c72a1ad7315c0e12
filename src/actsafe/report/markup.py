"""HTML from Python, escaped wherever it is not markup already."""

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

VOID = frozenset({"br", "img", "input", "meta"})
"""Elements without an end."""
MOST_COLUMNS = 3
"""The most that a phone has room for."""


class Html(str):
    """Text that is markup. Any other string is escaped before it becomes a part of it."""

    __slots__ = ()


Child = Any
"""Markup, text, a number, None for nothing, or several of these."""


def tag(name: str, /, *children: Child, **attributes: Any) -> Html:
    """An element. `class_` is its class, `data_x` its data-x; attributes that are None or False are left away."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Child) -> Html:
    """All of `children`, one after the other."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, Iterable) and not isinstance(children, str):
        return Html("".join(join(child) for child in children))
    return Html(html.escape(str(children)))


def table(
    heads: Sequence[str], rows: Iterable[Iterable[Child]], *, caption: Child = None, is_text: bool = False
) -> Html:
    """A table; the first cell of a row is its heading. A wide one becomes a list where there is no room for columns.

    The roles are those that its elements have anyway, until a style sheet turns them into a list.
    """
    body = [
        [
            tag("th", first, scope="row", role="rowheader"),
            *(tag("td", cell, role="cell", data_label=head) for cell, head in zip(rest, heads[1:], strict=True)),
        ]
        for first, *rest in map(list, rows)
    ]
    kinds = ["stack"] * (len(heads) > MOST_COLUMNS) + ["keys"] * is_text
    content = tag(
        "table",
        tag("caption", caption) if caption is not None else None,
        tag("thead", tag("tr", (tag("th", head, scope="col", role="columnheader") for head in heads), role="row")),
        tag("tbody", (tag("tr", row, role="row") for row in body)),
        class_=" ".join(kinds) or None,
        role="table",
    )
    return tag("div", content, class_="wide", tabindex="0", role="group", aria_label="table")


def folded(summary: Child, *children: Child) -> Html:
    """What opens when it is asked for."""
    return tag("details", tag("summary", summary), *children)


def number(value: float | int | None) -> str:
    """A number for people, with three digits; a dash for one that is not known."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "unbounded"
    return format(value, ",.0f" if abs(value) >= 1000 else ".3g").replace("-", "−")


def percent(share: float | None) -> str:
    """A share in per cent, with a digit more where it is small or nearly all."""
    if share is None:
        return "–"
    return f"{100 * share:.0f} %" if share in (0.0, 1.0) else f"{100 * share:.1f} %"


def count(amount: int, noun: str) -> str:
    """How many of what: 1 episode, 2 episodes."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
