"""Names and numbers that users give, and what is said where they cannot be used."""

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any


def known(kind: str, name: str, names: Iterable[str]) -> str:
    """`name`, or ValueError that names the nearest known one."""
    choices = list(names)
    if name in choices:
        return name
    folded = {choice.lower(): choice for choice in choices}
    nearest = difflib.get_close_matches(str(name).lower(), list(folded), n=1, cutoff=0.0)
    advice = f"did you mean {folded[nearest[0]]!r}?" if nearest else "leave it out."
    raise ValueError(f"{kind}: got {name!r}, expected one of {choices}; {advice}")


def checked_number(name: str, value: Any, *, at_least: float = -math.inf, is_whole: bool = False) -> Any:
    """`value` as a Python number (None stays None), or ValueError where it is outside its range."""
    if value is None:
        return None
    kind = numbers.Integral if is_whole else numbers.Real
    is_number = issubclass(type(value), kind) and type(value) is not bool
    if not (is_number and at_least <= float(value) < math.inf):
        expected = "a whole number" if is_whole else "a finite number"
        expected += "" if at_least == -math.inf else f" of at least {at_least:g}"
        raise ValueError(f"{name}: got {value!r}, expected {expected}; change it or leave it out for the default.")
    return int(value) if is_whole else float(value)
