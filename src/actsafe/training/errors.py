"""Errors with advice. Light to import: the command line reports these without having loaded anything else."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something that is not a fault of the program: the message says what was got, what was expected, what to do."""


class ProblemError(UserError, RuntimeError):
    """An environment returned something that no constrained MDP may return."""


class NoNumberError(UserError):
    """A word that is not the number which an option takes. No ValueError: tyro would print more than this message."""

    def __init__(self, word: str, expected: str) -> None:
        super().__init__(f"got {word!r}; expected {expected}")
        self.word = word


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """A sentence with the nearest of the known names, after a blank; empty where none is near."""
    nearest = difflib.get_close_matches(got, list(known), n=1, cutoff=0.3)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""
