"""What the safe set costs: its parts in a deployment, as a share of what the deployment takes without them.

python benchmarks/safe_set_overhead.py --preset cartpole-state
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from timing import arguments, command, emit, machine, progress

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.safe_set.settings import ALL_PARTS
from actsafe.agents.seeds import over_seeds
from actsafe.training.collecting import make_collector
from actsafe.training.loop import make_loop
from actsafe.training.presets import PRESETS, vision_tiny

CLAIM = "All five parts together add at most a tenth to a deployment."
METHOD = {
    "deployment": "one episode of every environment, and the updates that are due meanwhile, while the agent explores",
    "screen": "whole-episode dreams of one candidate, first observations and uncertainty on recorded data included",
    "decisions": "all ticks of the deployment by the guarded policy, and by the agent's own, environments included",
    "updates": "those that are due in a deployment, from one compiled call",
    "overhead": "(screen + guarded decisions - own decisions) / (own decisions + updates); medians, cases in turn, "
    "after a first call of each that compiles",
}


def main() -> None:
    parser = arguments(__doc__, repeats=5)
    parser.add_argument("--preset", choices=tuple(PRESETS), default="cartpole-state")
    options = parser.parse_args()
    with jax.enable_x64(False):
        emit(measured(options), options.out)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the parts, and the overhead."""
    preset = dataclasses.replace(vision_tiny(), observation="state") if options.quick else PRESETS[options.preset]()
    config = dataclasses.replace(
        preset, safe_set=ALL_PARTS, schedule=Schedule(warm_up=1, expansion=1), seeds=(0,), evaluate_every=0
    )
    loop = make_loop(config)
    epoch = loop.epoch(1, loop.begin(), loop.make_buffer())
    learner, state, keys = loop.learner, epoch.train_state.agent, epoch.train_state.keys
    num_ticks = loop.agent.ticks_per_deployment or loop.num_ticks
    num_updates = learner.inner.num_due(num_ticks * loop.steps_per_tick)
    safe_set = learner.put_forward(
        state, Role.EXPLORATION, learner.forecast(state, epoch.buffer, Role.EXPLORATION, keys)
    )
    policies = {
        "guarded_decisions": learner.guarded(safe_set, learner.newest(safe_set), np.zeros((1, config.num_envs), int)),
        "own_decisions": learner.inner.policy(state.inner, ActMode(Role.EXPLORATION)),
    }
    copied = jax.jit(over_seeds(lambda tree: jax.tree.map(lambda leaf: leaf + 0, tree), 1))

    def updates() -> float:
        inner = jax.block_until_ready(copied(state.inner))  # Given up by the call.
        started = time.perf_counter()
        learned, _ = learner.inner.learn(inner, epoch.buffer, keys, Phase.EXPANSION)
        jax.block_until_ready(learned)
        return (time.perf_counter() - started) * num_updates / learner.inner.num_updates

    def decisions(policy: Any) -> Callable[[], float]:
        collector = make_collector(loop.envs, 1)

        def run() -> float:
            collector.begin(policy, [0], keys)
            started = time.perf_counter()
            for collect in range(0, num_ticks - 1, loop.agent.num_ticks_at_once):
                collector.collect(policy, min(loop.agent.num_ticks_at_once, num_ticks - 1 - collect))
            return time.perf_counter() - started

        return run

    def screen() -> float:
        started = time.perf_counter()
        jax.block_until_ready(learner.forecast(state, epoch.buffer, Role.EXPLORATION, keys))
        return time.perf_counter() - started

    cases = {"screen": screen, "updates": updates, **{name: decisions(policy) for name, policy in policies.items()}}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(options.repeats + 1):
        progress(f"round {repeat} of {options.repeats}")
        for name, case in cases.items():
            seconds = case()
            times[name] += [seconds] if repeat else []
    medians = {name: statistics.median(found) for name, found in times.items()}
    added = medians["screen"] + medians["guarded_decisions"] - medians["own_decisions"]
    return {
        "benchmark": "safe_set_overhead",
        "is_quick": options.quick,
        "claim": CLAIM,
        "command": command(),
        "machine": machine(),
        "method": METHOD,
        "preset": options.preset,
        "num_updates": num_updates,
        "num_decisions": num_ticks - 1,
        "seconds": medians,
        "spread_seconds": {name: max(found) - min(found) for name, found in times.items()},
        "overhead": added / (medians["own_decisions"] + medians["updates"]),
    }


if __name__ == "__main__":
    main()
