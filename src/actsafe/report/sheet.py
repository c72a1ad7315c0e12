"""What sections share: figures with identities of their own, notes, and what to say where a record cannot be read."""

import itertools
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from actsafe.report import svg
from actsafe.report.markup import Child, Html, tag
from actsafe.training.storage import StorageError

DAMAGED = (StorageError, KeyError)
"""What files of a run raise that are damaged, or not there."""
FOREIGN = (*DAMAGED, ArithmeticError, AttributeError, IndexError, TypeError, ValueError)
"""What else JSON raises that anybody may have written."""


class Sheet:
    """One page in the making."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def identity(self) -> str:
        """One that no other part of the page has."""
        return f"f{next(self._numbers)}"

    def figure(self, drawing: Figure, title: str, caption: Child = None, *, is_wide: bool = False) -> Html:
        """A drawing with its caption; a wide one scrolls by itself where there is no room for it."""
        drawn = svg.inline(drawing, self.identity(), title)
        if is_wide:
            drawn = tag("div", drawn, class_="wide", tabindex="0", role="group", aria_label="figure")
        return tag(
            "figure",
            drawn,
            tag("figcaption", caption) if caption is not None else None,
            class_="broad" if is_wide else None,
        )


def note(*children: Child) -> Html:
    """A remark that stands out."""
    return tag("p", *children, class_="note")


def command(text: str) -> Html:
    """What to type."""
    return tag("code", text)


def side_by_side(*figures: Child) -> Html:
    """Figures in as many columns as there is room for."""
    return tag("div", *figures, class_="panels")


def shortened(text: Any, most: int = 1000) -> str:
    """Its beginning, where it is long: what others wrote must not make the page large."""
    said = str(text)
    return said if len(said) <= most else f"{said[:most]} … ({len(said):,} characters)"


def if_readable(make: Callable[[], Child], what: str, unreadable: tuple[type[Exception], ...] = DAMAGED) -> Child:
    """What `make` makes, or a note that the records of `what` cannot be read."""
    try:
        return make()
    except unreadable as error:
        said = shortened(error if isinstance(error, StorageError) else repr(error))
        return note(f"The records of {what} cannot be read, and this part of the page is missing: {said}")
