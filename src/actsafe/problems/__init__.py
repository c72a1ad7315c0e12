"""The problems that ship with ActSafe, by name."""

from collections.abc import Callable, Mapping

from actsafe.problems.base import Action, Coordinate, Plane, Problem, Reward, State, Step
from actsafe.problems.cartpole import Cartpole, CartpoleParams
from actsafe.problems.cartpole_swingup import CartpoleSwingup, CartpoleSwingupParams
from actsafe.problems.pendulum import Pendulum, PendulumParams

PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "pendulum": Pendulum,
    "cartpole": Cartpole,
    "cartpole_swingup": CartpoleSwingup,
}

__all__ = [
    "PROBLEMS",
    "Action",
    "Cartpole",
    "CartpoleParams",
    "CartpoleSwingup",
    "CartpoleSwingupParams",
    "Coordinate",
    "Pendulum",
    "PendulumParams",
    "Plane",
    "Problem",
    "Reward",
    "State",
    "Step",
]
