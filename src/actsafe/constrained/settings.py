"""What can be set about constrained steps, and how each is made from it."""

import dataclasses

from actsafe.constrained.augmented_lagrangian import AugmentedLagrangian
from actsafe.constrained.lbsgd import LBSGD, Barrier, StrictLBSGD
from actsafe.constrained.unconstrained import Unconstrained


@dataclasses.dataclass(frozen=True)
class Multipliers:
    """The numbers of the augmented Lagrangian."""

    initial: float = 1e-4
    """Multiplier of every constraint at the start."""
    initial_penalty: float = 5e-8
    """Penalty at the start, at most 1."""
    penalty_growth: float = 8e-6
    """Relative growth of the penalty with every step."""

    def __post_init__(self) -> None:
        self.make()

    def make(self) -> AugmentedLagrangian:
        return AugmentedLagrangian(self.initial, self.initial_penalty, self.penalty_growth)


@dataclasses.dataclass(frozen=True)
class StepSettings:
    """The numbers of all constrained steps; a recipe uses those of the one that it names."""

    barrier: Barrier = dataclasses.field(default_factory=Barrier)
    multipliers: Multipliers = dataclasses.field(default_factory=Multipliers)


def lbsgd(settings: StepSettings, learning_rate: float) -> LBSGD:
    """LBSGD as released: a step size is weighed against the learning rate of the Adam that it is handed to."""
    return LBSGD(settings.barrier, unit_step=learning_rate)


def strict_lbsgd(settings: StepSettings, learning_rate: float) -> StrictLBSGD:
    """LBSGD as published; it has no use for a learning rate."""
    return StrictLBSGD(settings.barrier)


def augmented_lagrangian(settings: StepSettings, learning_rate: float) -> AugmentedLagrangian:
    """The augmented Lagrangian; its optimiser is told the learning rate."""
    return settings.multipliers.make()


def unconstrained(settings: StepSettings, learning_rate: float) -> Unconstrained:
    return Unconstrained()
