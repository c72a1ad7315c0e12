"""Train both agents on a Gymnasium environment of one's own, which is in arm.py.

    python examples/own_environment.py runs/arm            minutes on two cores
    python examples/own_environment.py runs/arm --quick    to see that it works

The environment is found as a module: this folder is on the path of Python here, as it is of a script.
"""

import dataclasses
import sys

import actsafe


def main(folder: str, *options: str) -> None:
    """A world model keeps to a budget for each cost, and a Gaussian process to one."""
    both = {"cost_names": ["cost_speed", "cost_torque"]}
    one = {"cost_names": ["cost_speed"]}
    world_model = actsafe.Config(env="arm:Arm-v0", budget=(5.0, 10.0), options=both)
    planner = dataclasses.replace(actsafe.presets.own_gp(), env="arm:Arm-v0", budget=5.0, options=one)
    if "--quick" in options:
        small, smaller = actsafe.presets.vision_tiny(), actsafe.presets.tiny()
        phases = actsafe.Schedule(warm_up=2, expansion=2, episodes_per_epoch=2)
        world_model = dataclasses.replace(
            world_model, agent=small.agent, schedule=phases, num_envs=2, evaluation_episodes=2
        )
        planner = dataclasses.replace(planner, agent=smaller.agent, schedule=actsafe.Schedule(1, expansion=1))
    for name, config in (("world-model", world_model), ("planner", planner)):
        run = actsafe.train(config, f"{folder}/{name}")
        for found in run.ledger.violations:
            print(
                f"{name}: {found.constraint} over {found.budget} in {found.num_over} of {found.num_episodes} episodes"
            )
        print(f"{name}: {run.metrics[-1]['evaluation']}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/example-arm"]))
