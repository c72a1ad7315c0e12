"""The problems that ship with ActSafe, by name."""

from collections.abc import Callable, Mapping

from actsafe.problems.base import Action, Problem, Reward, State, Step
from actsafe.problems.cartpole import Cartpole, CartpoleParams
from actsafe.problems.pendulum import Pendulum, PendulumParams

PROBLEMS: Mapping[str, Callable[[], Problem]] = {"pendulum": Pendulum, "cartpole": Cartpole}

__all__ = [
    "PROBLEMS",
    "Action",
    "Cartpole",
    "CartpoleParams",
    "Pendulum",
    "PendulumParams",
    "Problem",
    "Reward",
    "State",
    "Step",
]
