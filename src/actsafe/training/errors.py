"""Errors with advice. Light to import: the command line reports these without having loaded anything else."""


class UserError(Exception):
    """Something that is not a fault of the program: the message says what was got, what was expected, what to do."""


class ProblemError(UserError, RuntimeError):
    """An environment returned something that no constrained MDP may return."""


class NoNumberError(UserError):
    """A word that is not the number which an option takes. No ValueError, of which more would be said than this."""

    def __init__(self, word: str, expected: str) -> None:
        super().__init__(f"got {word!r}; expected {expected}")
        self.word = word
