"""Algorithms as rows of a table: each names what it is after, whom it believes and what it keeps to."""

import dataclasses
import enum
from collections.abc import Callable, Mapping

from actsafe.agents.phases import Phase
from actsafe.constrained.base import ConstrainedStep
from actsafe.constrained.settings import (
    StepSettings,
    augmented_lagrangian,
    lbsgd,
    strict_lbsgd,
    unconstrained,
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One algorithm from state. All rows share the model (a Gaussian process) and the search (iCEM)."""

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


class Policy(enum.Enum):
    """Who acts."""

    UNIFORM = "uniform"
    """Actions uniform in [-1, 1]."""
    EXPLORATION = "exploration"
    """The actor that is after the intrinsic reward."""
    TASK = "task"
    """The actor that is after the task's reward."""


@dataclasses.dataclass(frozen=True)
class VisionRecipe:
    """One algorithm with a world model. All rows share the model (an RSSM with an ensemble of priors) and the search
    (an actor-critic in imagination)."""

    name: str
    label: str
    """For people."""
    expansion: Policy
    """Who acts in the expansion phase."""
    step: Callable[[StepSettings, float], ConstrainedStep]
    """How the actors keep to the budgets, given the settings of all ways to and the actors' learning rate."""
    is_pessimistic: bool = True
    """Whether doubt is charged as a cost."""
    is_optimistic: bool = False
    """Whether doubt is a bonus on the task's reward."""

    def policy(self, phase: Phase) -> Policy:
        """Who acts in this phase."""
        return {Phase.WARM_UP: Policy.UNIFORM, Phase.EXPANSION: self.expansion}.get(phase, Policy.TASK)

    @property
    def explores(self) -> bool:
        """Whether there is an actor for the intrinsic reward."""
        return self.expansion is Policy.EXPLORATION

    @property
    def is_constrained(self) -> bool:
        """Whether the actors keep to budgets."""
        return self.step is not unconstrained


VISION_ROWS = (
    VisionRecipe("actsafe", "ActSafe", Policy.EXPLORATION, lbsgd),
    VisionRecipe("actsafe_strict", "ActSafe, strict LBSGD", Policy.EXPLORATION, strict_lbsgd),
    VisionRecipe("actsafe_lagrangian", "ActSafe[Lagrangian]", Policy.EXPLORATION, augmented_lagrangian),
    VisionRecipe("no_pessimism", "No pessimism", Policy.EXPLORATION, lbsgd, is_pessimistic=False),
    VisionRecipe("opax", "OPAX", Policy.EXPLORATION, unconstrained),
    VisionRecipe("greedy", "Greedy", Policy.TASK, lbsgd),
    VisionRecipe("uniform", "Uniform", Policy.UNIFORM, lbsgd),
    VisionRecipe("optimistic", "Optimistic", Policy.TASK, lbsgd, is_optimistic=True),
)

VISION_RECIPES: Mapping[str, VisionRecipe] = {row.name: row for row in VISION_ROWS}
