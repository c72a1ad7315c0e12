"""How options look that several commands have."""

import re
from typing import Annotated, Any

from tyro.conf import FlagCreatePairsOff, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from actsafe.training.errors import NoNumberError

LARGEST = 2**32 - 1
"""Of whole numbers that an option takes."""


def _number(kind: type, form: str, expected: str) -> PrimitiveConstructorSpec[Any]:
    """A number as people write it: Python's own reading allows underscores, blanks and digits of every script."""

    def read(words: list[str]) -> Any:
        value = kind(words[0]) if re.fullmatch(form, words[0], re.ASCII | re.IGNORECASE) else None
        if value is None or (kind is int and abs(value) > LARGEST):
            raise NoNumberError(words[0], expected)
        return value

    return PrimitiveConstructorSpec(1, "N", read, lambda value: isinstance(value, kind), lambda value: [str(value)])


Whole = Annotated[int, _number(int, r"[+-]?\d+", f"a whole number of at most {LARGEST}, in digits")]
"""The type of an option that is a whole number."""
Number = Annotated[float, _number(float, r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan)", "a number")]
"""The type of an option that is any number; whether it may be infinite is for the settings to say."""

Flag = Annotated[FlagCreatePairsOff[bool], arg(help_behavior_hint="")]
"""An option without a value: off unless it is named."""

Log = Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]", help_behavior_hint="(default: nowhere)")]
"""Where metrics go beside the run folder."""

Jobs = Annotated[Whole | None, arg(metavar="N", help_behavior_hint="(default: all)")]
"""How many processes run at once."""

Changes = Annotated[tuple[tuple[str, ...], ...], UseAppendAction, arg(name="set", metavar="KEY.PATH=VALUE [...]")]
"""Entries of settings, each as often as one likes."""


def given(metavar: str, default: str, **options: Any) -> Any:
    """How an option is shown that may be left out: its default in words."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})", **options)
