"""Algorithms as rows of a table: each names what it is after, whom it believes and what it keeps to."""

import dataclasses
from collections.abc import Mapping

from actsafe.agents.phases import Phase


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One algorithm. All rows share the model (a Gaussian process) and the search (iCEM)."""

    name: str
    label: str
    """For people."""
    expands: bool
    """Whether the expansion phase follows the intrinsic reward; else the task's from the start."""
    is_pessimistic: bool
    """Whether plans are judged by particles of the whole model set; else by the mean model alone."""
    is_constrained: bool
    """Whether the cost is kept under its budget."""

    def is_intrinsic(self, phase: Phase) -> bool:
        """Whether this phase is driven by the intrinsic reward."""
        return self.expands and phase is Phase.EXPANSION


ROWS = (
    Recipe("actsafe", "ActSafe", expands=True, is_pessimistic=True, is_constrained=True),
    Recipe("no_pessimism", "No pessimism", expands=True, is_pessimistic=False, is_constrained=True),
    Recipe("opax", "OPAX", expands=True, is_pessimistic=True, is_constrained=False),
    Recipe("greedy_safe", "Greedy, constrained", expands=False, is_pessimistic=True, is_constrained=True),
    Recipe("greedy", "Greedy", expands=False, is_pessimistic=True, is_constrained=False),
)

RECIPES: Mapping[str, Recipe] = {row.name: row for row in ROWS}
