"""A problem of one's own, as pure functions of JAX: own_problem:Boat wherever this file can be imported.

python examples/own_problem.py runs/boat
PYTHONPATH=examples actsafe train --preset own-gp --env own_problem:Boat
"""

import dataclasses
import sys
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

import actsafe


class Boat(actsafe.Problem):
    """A boat on a river, with position and speed; beyond 1 m downstream every metre costs."""

    name: ClassVar[str] = "boat"
    state_names: ClassVar[tuple[str, ...]] = ("position", "speed")
    action_names: ClassVar[tuple[str, ...]] = ("rudder",)
    state_scale: ClassVar[tuple[float, ...]] = (1.0, 0.5)
    change_scale: ClassVar[tuple[float, ...]] = (0.1, 0.1)

    num_decisions: int = eqx.field(default=20, static=True)
    budget: float = eqx.field(default=0.5, static=True)
    action_repeat: ClassVar[int] = 1
    process_noise_std: ClassVar[float] = 0.0

    def reset(self, key):
        return jnp.zeros(2)

    def simulate(self, state, action):
        speed = 0.9 * state[1] + 0.2 * action[0]
        return jnp.stack([state[0] + 0.2 * speed, speed])

    def cost(self, state, margin=0.0):
        return jnp.maximum(state[0] - (1.0 - margin), 0.0)

    def project(self, state):
        return state

    @property
    def tasks(self):
        return {"moor_at_the_jetty": lambda state, action: -jnp.abs(state[0] - 0.9)}

    def is_goal(self, state):
        return jnp.abs(state[0] - 0.9) < 0.1


def main(folder: str, *options: str) -> None:
    config = actsafe.presets.tiny() if "--quick" in options else actsafe.presets.own_gp()
    run = actsafe.train(dataclasses.replace(config, env="own_problem:Boat"), folder)
    print(run.ledger.violations, run.metrics[-1]["evaluation"], sep="\n")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/example-boat"]))
