"""The table of algorithms: each row names who acts when, what is maximised, and how budgets are kept."""

import dataclasses
import enum
import importlib
from collections.abc import Callable, Mapping

from actsafe.agents.phases import Phase
from actsafe.agents.safe_set.settings import ALL_PARTS, NO_PART, SafeSetSettings
from actsafe.constrained.base import ConstrainedStep
from actsafe.constrained.settings import StepSettings, augmented_lagrangian, lbsgd, strict_lbsgd, unconstrained
from actsafe.objectives.uncertainty import UncertaintySettings
from actsafe.objectives.weights import ObjectiveWeights

StepMaker = Callable[[StepSettings, float], ConstrainedStep]
"""A constrained step, given the settings of all of them and the actors' learning rate."""


class Role(enum.Enum):
    """Who acts."""

    SEED = "seed"
    """The safe seed policy S_0: zero input."""
    UNIFORM = "uniform"
    """Actions uniform in [-1, 1]."""
    EXPLORATION = "exploration"
    """The policy that maximises the intrinsic reward."""
    TASK = "task"
    """The policy that maximises the task's reward."""


@dataclasses.dataclass(frozen=True)
class Objective:
    """What a policy maximises and what it is charged. A row of one's own may override `weights`."""

    is_pessimistic: bool = True
    """Whether costs are judged by the worst of the plausible models, or charged for uncertainty; else by the mean."""
    is_optimistic: bool = False
    """Whether uncertainty is a bonus on the task's reward."""

    def weights(self, role: Role, uncertainty: UncertaintySettings) -> ObjectiveWeights:
        """The weights of the policy with this role: r + optimism · u, or intrinsic · u; costs are c + pessimism · u."""
        pessimism = uncertainty.pessimism if self.is_pessimistic else 0.0
        if role is Role.EXPLORATION:
            return ObjectiveWeights(0.0, uncertainty.intrinsic, pessimism)
        return ObjectiveWeights(1.0, uncertainty.optimism if self.is_optimistic else 0.0, pessimism)


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One algorithm. Model and search are those of the agent's settings: a row runs with any that can take it."""

    name: str
    label: str
    """For people."""
    expansion: Role = Role.EXPLORATION
    """Who acts in the expansion phase."""
    objective: Objective = Objective()
    step: StepMaker = lbsgd
    """How gradient-based search keeps to the budgets. A planner keeps to them by its penalty, unless this is
    `unconstrained`."""
    safe_set: SafeSetSettings = NO_PART
    """What learned policies are deployed from, unless the config says otherwise."""
    models: tuple[str, ...] | None = None
    """The kinds of agents, by their `kind`, that the row makes sense with; None for any."""

    def role(self, phase: Phase) -> Role:
        roles = {Phase.SEED: Role.SEED, Phase.WARM_UP: Role.UNIFORM, Phase.EXPANSION: self.expansion}
        return roles.get(phase, Role.TASK)

    def takes(self, kind: str) -> bool:
        """Whether the row makes sense with an agent of this kind."""
        return self.models is None or kind in self.models

    @property
    def explores(self) -> bool:
        """Whether there is a policy for the intrinsic reward."""
        return self.expansion is Role.EXPLORATION

    @property
    def is_constrained(self) -> bool:
        """Whether the policies keep to budgets."""
        return self.step is not unconstrained


_MEAN, _BONUS = Objective(is_pessimistic=False), Objective(is_optimistic=True)
_RSSM = ("rssm",)

ROWS = (
    Algorithm("actsafe", "ActSafe", safe_set=ALL_PARTS),
    Algorithm("actsafe_released", "ActSafe, as released", models=_RSSM),
    Algorithm("actsafe_strict", "ActSafe, strict LBSGD", step=strict_lbsgd, models=_RSSM),
    Algorithm("actsafe_lagrangian", "ActSafe[Lagrangian]", step=augmented_lagrangian, models=_RSSM),
    Algorithm("no_pessimism", "No pessimism", objective=_MEAN),
    Algorithm("opax", "OPAX", step=unconstrained),
    Algorithm("greedy", "Greedy", Role.TASK),
    Algorithm("greedy_unconstrained", "Greedy, unconstrained", Role.TASK, step=unconstrained),
    Algorithm("uniform", "Uniform", Role.UNIFORM, models=_RSSM),
    Algorithm("optimistic", "Optimistic", Role.TASK, objective=_BONUS, models=_RSSM),
)

ALGORITHMS: dict[str, Algorithm] = {row.name: row for row in ROWS}
"""By name; rows of one's own are named "module:NAME" and need not be here."""


def algorithm(name: str) -> Algorithm:
    """The row of this name. "module:NAME" is the row NAME of a module that can be imported."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise KeyError(name)
    try:
        row = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"algorithm: {name!r} cannot be imported ({error}); expected module:NAME, with the module on PYTHONPATH"
        ) from error
    if not isinstance(row, Algorithm):
        raise ValueError(f"algorithm: {name!r} is a {type(row).__name__}, expected an actsafe.Algorithm")
    return row


def label(name: str) -> str:
    """The name of a row for people; a row that cannot be imported here keeps its own."""
    try:
        return algorithm(name).label
    except (KeyError, ValueError):
        return name.rpartition(":")[2]


def order(names: Mapping[str, object] | set[str] | list[str]) -> list[str]:
    """These names in the order of the table, others after them."""
    known = list(ALGORITHMS)
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))
