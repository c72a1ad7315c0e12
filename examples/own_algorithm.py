"""A row of one's own: another constrained step, and another objective.

python examples/own_algorithm.py runs/switching
PYTHONPATH=examples actsafe train --preset own-state --algorithm own_algorithm:SWITCHING
"""

import dataclasses
import sys

import jax.numpy as jnp

import actsafe
from actsafe.constrained.slope import report, scaled, slope
from actsafe.constrained.unconstrained import Unconstrained


class Switching(Unconstrained):
    """Descends the loss while every margin is positive, and else the cost whose margin is smallest."""

    def direction(self, state, linearisation):
        margins = linearisation.margins
        is_feasible = jnp.all(margins > 0.0)
        worst = jnp.arange(len(margins)) == jnp.argmin(margins)
        multipliers = jnp.where(is_feasible, 0.0, worst.astype(margins.dtype))
        descended = slope(linearisation, jnp.where(is_feasible, 1.0, 0.0), multipliers)
        info = report(descended, is_feasible=is_feasible, step_size=1.0, multipliers=multipliers)
        return scaled(descended, 1.0), state, info


@dataclasses.dataclass(frozen=True)
class Curious(actsafe.Objective):
    """The task's policy also earns a tenth of the intrinsic reward."""

    def weights(self, role, uncertainty):
        usual = super().weights(role, uncertainty)
        return usual._replace(uncertainty=0.1 * uncertainty.intrinsic) if role is actsafe.Role.TASK else usual


def switching(settings, learning_rate):
    """The step that the row names."""
    return Switching()


SWITCHING = actsafe.Algorithm("switching", "Switching", objective=Curious(), step=switching, models=("rssm",))


def main(folder: str, *options: str) -> None:
    """Train with the row, and print its ledger and what its last epoch measured."""
    config = actsafe.Config(env="cartpole_swingup", algorithm="own_algorithm:SWITCHING")
    if "--quick" in options:
        tiny = dataclasses.replace(actsafe.presets.vision_tiny(), schedule=actsafe.Schedule(warm_up=1, expansion=1))
        config = dataclasses.replace(tiny, observation="state", evaluate_every=0, algorithm=config.algorithm)
    run = actsafe.train(config, folder)
    print(run.ledger.violations, run.metrics[-1]["learning"], sep="\n")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/example-switching"]))
