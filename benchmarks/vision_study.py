"""Who keeps the budget while learning, over many seeds: world-model agents from state, all seeds as one program.

No benchmark: it makes `results/vision_cartpole_study.json`. A run is the sparse cartpole, seen as its state by small
networks, in the loop that `actsafe train` runs, with seeds as an axis of the program. Ten environments, epochs of 20
episodes, as in the runs from pixels.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from timing import arguments, command, emit, machine, progress

from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.envs.problem import ProblemBatch
from actsafe.evidence.ledger import is_over
from actsafe.training.config import Config
from actsafe.training.loop import Epoch, Loop
from actsafe.training.settings import build

SCALE = (0.05, 0.1, 0.1, 0.2, 0.5)
"""What is seen is the state over this: likelihoods have unit variance, to which a position of 0.3 m is nothing."""
NUM_ENVS, EPISODES = 10, 2
"""Environments, and episodes of each in an epoch."""

FIRST = {
    "pessimism": 5.0,
    "recovery_step": 1.0,
    "initial_weight": 0.1,
    "critic_rate": 2e-4,
    "safety_critic_rate": 2e-4,
    "saturation_penalty": 0.0,
}
CAREFUL = FIRST | {"initial_weight": 2.0, "critic_rate": 8e-4, "safety_critic_rate": 8e-4}
VARIANTS: dict[str, dict[str, Any]] = {
    "steady": FIRST,
    "careful": CAREFUL,
    "unwound": CAREFUL | {"saturation_penalty": 0.01},
    "unwound_more": CAREFUL | {"saturation_penalty": 0.1},
    "unwound_slow": CAREFUL | {"saturation_penalty": 0.01, "critic_rate": 2e-4},
    "unwound_greedy": CAREFUL | {"saturation_penalty": 0.01, "algorithm": "greedy"},
}
METHOD = {
    "variants": "steady: dreams that begin in the last epoch's rows count, steps of recovery as long as others; "
    "careful: also a barrier 20 times as heavy and critics that learn 4 times as fast; unwound: also charged for "
    "saturation, ten times as much in unwound_more; unwound_slow: the reward's critic at the first rate; "
    "unwound_greedy: the row greedy, whose task acts in the expansion as well",
    "runs": "entries by epoch. cost and return are means over its 20 episodes, of whoever acted, cost_return what the "
    "acting policy's dreams held against planner_budget, saturation the acting policy's",
    "summary": "epochs whose mean cost is over the budget, of all after the warm-up, by seed; late_return is the mean "
    "over the last tenth of epochs. A run is stuck where the last five epochs each cost more than five budgets",
}
MEASURED = ("is_feasible", "uncertainty", "saturation", "cost_return_0")


class ScaledBatch(ProblemBatch):
    """The problem's states over `SCALE`."""

    def observe(self, view: Any) -> Any:
        return super().observe(view) / jnp.asarray(SCALE, jnp.float32)


def config_of(variant: Mapping[str, Any], options: argparse.Namespace) -> Config:
    """The settings of all seeds of a variant."""
    width = 8 if options.quick else 48
    head = {"head_width": width + 16, "head_depth": 2}
    widths = {f"{name}_{kind}": head[f"head_{kind}"] for name in ("actor", "critic") for kind in ("width", "depth")}
    agent = {
        "model": {"deterministic": width, "stochastic": width // 4, "hidden": width, **head},
        "actor_critic": {"actor_rate": 2e-4, "initial_std": 0.025, **widths}
        | {name: variant[name] for name in ("critic_rate", "safety_critic_rate", "saturation_penalty")},
        "uncertainty": {"form": "log_ratio", "pessimism": variant["pessimism"]},
        "step": {"barrier": {name: variant[name] for name in ("recovery_step", "initial_weight")}},
        "batch_size": 8,
        "sequence_length": 16,
        "recent_rows": min(10_000, options.capacity),
        "model_rate": 6e-4,
        "precision": "float32",
        "unroll": options.unroll,
        "decisions_per_cycle": 50,
        "updates_per_1000_steps": options.updates,
        "replay_capacity": options.capacity,
        "is_handover_checked": False,
    }
    warm_up, expansion = options.warm_up, options.expansion - options.warm_up
    return Config(
        env="cartpole_swingup",
        task="swing_up_sparse",
        num_envs=NUM_ENVS,
        algorithm=variant.get("algorithm", "actsafe_released"),
        seeds=tuple(range(options.seeds)),
        schedule=Schedule(
            warm_up=EPISODES * warm_up,
            expansion=EPISODES * expansion,
            exploitation=EPISODES * (options.epochs - options.expansion),
            episodes_per_epoch=EPISODES,
        ),
        evaluate_every=0,
        evaluation_episodes=1,
        agent=build(WorldModelAgentSettings, agent),
    )


def runs_of(name: str, options: argparse.Namespace) -> tuple[list[dict[str, Any]], Loop]:
    """A row for every seed of a variant, with entries by epoch, and the loop that it ran in."""
    config = config_of(VARIANTS[name], options)
    envs = ScaledBatch(config.env, NUM_ENVS, task=config.task, observation="state")
    loop = Loop(config, envs, config.make_agent(envs))
    started, epochs = time.perf_counter(), []
    state, buffer = loop.begin(), loop.make_buffer()
    for number in range(1, config.num_units + 1):
        epoch = loop.epoch(number, state, buffer)
        state, buffer = epoch.train_state, epoch.buffer
        epochs.append([told(epoch, place) for place in range(loop.num_seeds)])
        num_over = sum(is_over(each["cost"], envs.spec.budgets[0]) for each in epochs[-1])
        seconds = time.perf_counter() - started
        progress(f"{name}, epoch {number}  {seconds:.0f} s  over budget: {num_over} of {loop.num_seeds}")
        if seconds > options.seconds:
            break
    by_seed = [
        {"variant": name, "seed": seed, **{key: [epoch[place][key] for epoch in epochs] for key in epochs[0][place]}}
        for place, seed in enumerate(config.seeds)
    ]
    return by_seed, loop


def told(epoch: Epoch, place: int) -> dict[str, float | None]:
    """What one epoch of one seed came to."""
    outcomes, role = epoch.episodes[place], "task" if epoch.phase is Phase.WARM_UP else epoch.role.value
    measured = {name: epoch.learned[place].get(f"{role}/{name}") for name in MEASURED}
    means = {
        "return": float(np.mean([next(iter(each.returns.values())) for each in outcomes])),
        "cost": float(np.mean([each.costs[0] for each in outcomes])),
    }
    rounded = {name: None if value is None else round(value, 4) for name, value in (measured | means).items()}
    return {"cost_return": rounded.pop("cost_return_0"), **rounded}


def study(options: argparse.Namespace) -> dict[str, Any]:
    """All variants, one after the other."""
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for name in options.variants:
        found, loop = runs_of(name, options)
        rows += found
    agent: Any = loop.agent
    (budget,) = agent.spec.budgets
    return {
        "benchmark": "vision_study",
        "is_quick": options.quick,
        "claim": "The careful settings keep the budget more often, and charging for saturation keeps policies alive.",
        "command": command(),
        "machine": machine() | {"precision": "float32"},
        "method": METHOD,
        "config": loop.config.to_json(),
        "variants": {name: VARIANTS[name] for name in options.variants},
        "schedule": {key: getattr(options, key) for key in ("warm_up", "expansion", "epochs", "updates", "capacity")},
        "budget": budget,
        "planner_budget": agent.planner_budgets[0],
        "seconds": time.perf_counter() - started,
        "summary": {
            name: summary([row for row in rows if row["variant"] == name], budget, options) for name in options.variants
        },
        "runs": rows,
    }


def summary(rows: Sequence[Mapping[str, Any]], budget: float, options: argparse.Namespace) -> dict[str, Any]:
    """What the runs of a variant come to."""
    costs = np.array([row["cost"] for row in rows])
    late = max(1, costs.shape[1] // 10)
    over = np.array([[is_over(cost, budget) for cost in row["cost"]] for row in rows])
    return {
        "epochs_after_warm_up": costs[:, options.warm_up :].size,
        "over_in_expansion": np.sum(over[:, options.warm_up : options.expansion], axis=1).tolist(),
        "over_in_exploitation": np.sum(over[:, options.expansion :], axis=1).tolist(),
        "share_within_budget": float(1.0 - np.mean(over[:, options.warm_up :])),
        "late_return": [float(np.mean(row["return"][-late:])) for row in rows],
        "num_stuck": int(np.sum(np.all(costs[:, -5:] > 5 * budget, axis=1))),
    }


def main() -> None:
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=8, help="of each variant, from 0 on")
    parser.add_argument("--warm-up", type=int, default=2, help="its last epoch")
    parser.add_argument("--expansion", type=int, default=26, help="its last epoch")
    parser.add_argument("--epochs", type=int, default=42)
    parser.add_argument("--updates", type=int, default=30, help="per 1000 steps")
    parser.add_argument("--capacity", type=int, default=500_000, help="rows of the replay")
    parser.add_argument("--unroll", type=int, default=4)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no epoch of a variant later than this"
    )
    options = parser.parse_args()
    if options.quick:
        quick = {"variants": ["careful", "unwound_greedy"], "seeds": 1, "warm_up": 1, "expansion": 2, "epochs": 2}
        for name, value in (quick | {"updates": 1, "capacity": 5000, "unroll": 1}).items():
            setattr(options, name, value)
    with jax.enable_x64(False):
        emit(study(options), options.out)


if __name__ == "__main__":
    main()
