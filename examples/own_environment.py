"""Train both agents on a Gymnasium environment of one's own, which is in arm.py.

    python examples/own_environment.py runs/arm            minutes on two cores
    python examples/own_environment.py runs/arm --quick    to see that it works

The environment is found as a module: this folder is on the path of Python here, as it is of a script.
"""

import dataclasses
import sys

import actsafe

QUICK = {
    actsafe.WorldModelAgentSettings: actsafe.Schedule(warm_up=2, expansion=2, episodes_per_epoch=2),
    actsafe.GPAgentSettings: actsafe.Schedule(seed_decisions=1, expansion=1),
}
"""Of each agent, phases of an epoch."""


def main(folder: str, *options: str) -> None:
    """A world model keeps to a budget for each cost, and a Gaussian process to one."""
    both = {"cost_names": ["cost_speed", "cost_torque"]}
    one = {"cost_names": ["cost_speed"]}
    world_model = actsafe.Config(env="arm:Arm-v0", budget=(5.0, 10.0), options=both)
    planner = dataclasses.replace(actsafe.presets.own_gp(), env="arm:Arm-v0", budget=5.0, options=one)
    for name, full in (("world-model", world_model), ("planner", planner)):
        short = dataclasses.replace(full, schedule=QUICK[type(full.agent)], evaluation_episodes=1)
        run = actsafe.train(short if "--quick" in options else full, f"{folder}/{name}")
        for found in run.ledger.violations:
            print(
                f"{name}: {found.constraint} over {found.budget} in {found.num_over} of {found.num_episodes} episodes"
            )
        print(f"{name}: {run.metrics[-1]['evaluation']}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/example-arm"]))
