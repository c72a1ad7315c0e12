"""Who keeps the budget while learning, over many seeds: the vision agent from state, dozens of runs as one batch.

No benchmark: it makes `results/vision_cartpole_study.json`. A run is the sparse cartpole, seen as its state by small
networks. The agent's own functions act and learn; runs differ by their seed and by the numbers of their variant, which
are an axis of the program. Ten environments, epochs of 20 episodes, as in the runs from pixels.
"""

import argparse
import copy
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from timing import arguments, emit, machine, progress
from vision_workloads import command, use_single_precision

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.phases import Phase
from actsafe.agents.recipes import VISION_RECIPES, Policy
from actsafe.agents.vision import EnvSpec, Mind, VisionAgent, VisionSettings, VisionState
from actsafe.data.device_replay import Replay
from actsafe.data.rows import Rows
from actsafe.envs.make import ProblemBatch
from actsafe.models.rssm.world_model import WorldModelSettings
from actsafe.objectives.uncertainty import UncertaintySettings
from actsafe.training.learning import compiler_options
from actsafe.training.settings import plain

SCALE = (0.05, 0.1, 0.1, 0.2, 0.5)
"""What is seen is the state over this: likelihoods have unit variance, to which a position of 0.3 m is nothing."""
EPISODES, CYCLES, TICKS = 2, 10, 50
"""An epoch: episodes of every environment, cycles of each, and the ticks after which updates follow. An episode's
beginning is one tick more."""

NUMBERS = {
    "pessimism": "uncertainty.pessimism",
    "recovery_step": "step.barrier.recovery_step",
    "barrier": "step.barrier.initial_weight",
    "critic_rate": "actor_critic.critic_rate",
    "safety_critic_rate": "actor_critic.safety_critic_rate",
    "saturation_penalty": "actor_critic.saturation_penalty",
}
"""What variants may choose, and which settings of the agent these are."""
FIRST = {"pessimism": 5.0, "recovery_step": 1.0, "barrier": 0.1, "critic_rate": 2e-4, "safety_critic_rate": 2e-4}
CAREFUL = FIRST | {"barrier": 2.0, "critic_rate": 8e-4, "safety_critic_rate": 8e-4}
VARIANTS = {
    "steady": FIRST,
    "careful": CAREFUL,
    "unwound": CAREFUL | {"saturation_penalty": 0.01},
    "unwound_more": CAREFUL | {"saturation_penalty": 0.1},
    "unwound_slow": CAREFUL | {"saturation_penalty": 0.01, "critic_rate": 2e-4},
    "unwound_greedy": CAREFUL | {"saturation_penalty": 0.01, "is_greedy": True},
}
METHOD = {
    "variants": "steady: dreams that begin in the last epoch's rows count, steps of recovery as long as others; "
    "careful: also a barrier 20 times as heavy and critics that learn 4 times as fast; unwound: also charged for "
    "saturation, ten times as much in unwound_more; unwound_slow: the reward's critic at the first rate; "
    "unwound_greedy: the task acts in the expansion as well",
    "runs": "entries by epoch. cost and return are means over its 20 episodes, of whoever acted, cost_return what the "
    "acting policy's dreams held against planner_budget, saturation the acting policy's",
    "summary": "epochs whose mean cost is over the budget, of all after the warm-up, by seed; late_return is the mean "
    "over the last tenth of epochs. A run is stuck where the last five epochs each cost more than five budgets",
}


class Run(NamedTuple):
    """What one run of the batch differs by."""

    seed: Any
    is_greedy: Any
    numbers: Mapping[str, Any]


class World:
    """The environments, and agents in them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.fleet = ProblemBatch("cartpole_swingup", 10, task="swing_up_sparse", observation="state")
        width = 8 if options.quick else 48
        self.settings = VisionSettings(
            model=WorldModelSettings(
                deterministic=width, stochastic=width // 4, hidden=width, head_width=width + 16, head_depth=2
            ),
            actor_critic=ActorCriticSettings(
                actor_width=width + 16,
                actor_depth=2,
                actor_rate=2e-4,
                initial_std=0.025,
                critic_width=width + 16,
                critic_depth=2,
            ),
            uncertainty=UncertaintySettings(form="log_ratio"),
            batch_size=8,
            sequence_length=16,
            recent_rows=10_000,
            model_rate=6e-4,
            precision="float32",
            unroll=options.unroll,
        )
        self.num_updates = options.updates
        self.capacity = options.capacity

    def agent(self, run: Run) -> VisionAgent:
        """Of one run; its numbers may be traced, so they are not checked."""
        settings = self.settings
        for name, value in run.numbers.items():
            settings = replaced(settings, NUMBERS[name].split("."), value)
        fleet = self.fleet
        here = EnvSpec(
            fleet.spec.observation_shape, 1, fleet.spec.budgets, fleet.spec.num_decisions, fleet.spec.action_repeat
        )
        return VisionAgent(here, VISION_RECIPES["actsafe"], settings)

    def begin(self, run: Run) -> tuple[VisionState, Replay]:
        """An agent that has learned nothing, and an empty replay."""
        fleet = self.fleet
        shapes = (fleet.spec.observation_shape, fleet.observation_dtype, 1, 1)
        return self.agent(run).init(jax.random.key(run.seed)), Replay.empty(10, self.capacity // 10, *shapes)

    def epoch(
        self, run: Run, state: VisionState, replay: Replay, number: Any, is_warm_up: Any, phase: Phase
    ) -> tuple[tuple[VisionState, Replay], dict[str, Any]]:
        """One epoch, and what it came to."""
        agent, fleet = self.agent(run), self.fleet
        acts_task = jnp.asarray(phase is Phase.EXPLOITATION) | run.is_greedy
        act_key, learn_key, begin_key = jax.random.split(jax.random.fold_in(jax.random.key(run.seed), number), 3)

        def tick(mind: Mind, under_way: Any, key: Any) -> tuple[Any, Rows]:
            course, arrival, memory, led_here = under_way
            act_key, uniform_key = jax.random.split(key)
            seen = fleet.observe(arrival.view) / jnp.asarray(SCALE, jnp.float32)
            actions, memory = agent.act(
                mind, memory, agent.see(mind, seen), arrival.is_first, act_key, policy=Policy.TASK
            )
            uniform = jax.random.uniform(uniform_key, actions.shape, jnp.float32, -1.0, 1.0)
            actions = jnp.where(is_warm_up, uniform, actions)
            led_here = jnp.where(arrival.is_first[:, None], 0.0, led_here)
            course, following = fleet.advance(course, actions)
            row = Rows(seen, led_here, arrival.reward, arrival.costs, arrival.is_first)
            return (course, following, memory._replace(action=actions), actions), row

        def play(state: VisionState, replay: Replay, under_way: Any, key: Any, num_ticks: int) -> Any:
            # Whoever acts is in the task's place.
            mind = state.mind._replace(
                actors=jax.tree.map(lambda leaf: jnp.roll(leaf, jnp.where(acts_task, 0, 1), 0), state.mind.actors)
            )
            under_way, rows = jax.lax.scan(
                lambda under_way, key: tick(mind, under_way, key), under_way, jax.random.split(key, num_ticks)
            )
            rows = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), rows)
            sums = jnp.stack([jnp.sum(rows.reward, axis=1), jnp.sum(rows.costs[..., 0], axis=1)])
            return replay.append(rows), under_way, sums

        def cycle(carry: Any, keys: Any) -> Any:
            state, replay, under_way = carry
            replay, under_way, sums = play(state, replay, under_way, keys[0], TICKS)
            sample_keys, update_keys = (jax.random.split(key, self.num_updates) for key in jax.random.split(keys[1]))
            state, measures = agent.learn(
                state, lambda key: sample(agent, replay, key), sample_keys, update_keys, phase
            )
            return (state, replay, under_way), (sums, jax.tree.map(jnp.mean, measures))

        course, arrival = fleet.begin(jax.random.split(begin_key, 10))
        under_way = (course, arrival, agent.begin(10), jnp.zeros((10, 1), jnp.float32))
        outcomes, measured = [], []
        for episode in range(EPISODES):
            keys = jnp.stack([jax.random.fold_in(key, episode) for key in (act_key, learn_key)])
            keys = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, CYCLES + 1))(keys), 0, 1)
            (state, replay, under_way), (sums, measures) = jax.lax.scan(
                cycle, (state, replay, under_way), keys[:CYCLES]
            )
            replay, under_way, last = play(state, replay, under_way, keys[CYCLES, 0], 1)
            outcomes.append(jnp.sum(sums, axis=0) + last)
            measured.append(measures)
        returns, costs = jnp.concatenate(outcomes, axis=1)
        found = jax.tree.map(lambda *means: jnp.mean(jnp.stack(means)), *measured)

        def of_acting(name: str) -> Any:
            task = found[f"task/{name}"]
            return jnp.where(acts_task, task, found.get(f"exploration/{name}", task))

        told = {name: of_acting(name) for name in ("is_feasible", "uncertainty", "saturation")}
        told |= {"return": jnp.mean(returns), "cost": jnp.mean(costs), "cost_return": of_acting("cost_return_0")}
        return (state, replay), told


def sample(agent: VisionAgent, replay: Replay, key: Any) -> Rows:
    """A batch, as `Replay.sample` draws it."""
    settings = agent.settings
    recent = settings.recent_rows // replay.num_envs
    return replay.sample(key, settings.batch_size, settings.sequence_length, recent)


def replaced(settings: Any, path: Sequence[str], value: Any) -> Any:
    """Settings with another value at `path`, unchecked."""
    changed = copy.copy(settings)
    inner = value if len(path) == 1 else replaced(getattr(settings, path[0]), path[1:], value)
    object.__setattr__(changed, path[0], inner)
    return changed


def batch_of(names: Sequence[str], seeds: Sequence[int]) -> tuple[list[tuple[str, int]], Run]:
    """Variants and seeds in turn, and the same as one batch."""
    listed = [(name, seed) for name in names for seed in seeds]
    chosen = [VARIANTS[name] for name, _ in listed]
    numbers = {key: jnp.asarray([variant.get(key, 0.0) for variant in chosen], jnp.float32) for key in NUMBERS}
    greedy = jnp.asarray([variant.get("is_greedy", False) for variant in chosen])
    return listed, Run(jnp.asarray([seed for _, seed in listed]), greedy, numbers)


def study(options: argparse.Namespace) -> dict[str, Any]:
    """All runs, epoch by epoch."""
    world = World(options)
    (budget,) = world.fleet.spec.budgets
    listed, runs = batch_of(options.variants, range(options.seeds))
    started = time.perf_counter()
    states = jax.jit(jax.vmap(world.begin))(runs)

    def program(phase: Phase) -> Any:
        def all_runs(runs: Run, states: Any, number: Any, is_warm_up: Any) -> Any:
            return jax.vmap(lambda run, state: world.epoch(run, *state, number, is_warm_up, phase))(runs, states)

        jitted = jax.jit(all_runs, donate_argnums=1, compiler_options=compiler_options())
        return jitted.lower(runs, states, jnp.int32(0), jnp.asarray(True))

    phases = [Phase.EXPANSION if n <= options.expansion else Phase.EXPLOITATION for n in range(1, options.epochs + 1)]
    lowered = {phase: program(phase) for phase in dict.fromkeys(phases)}
    with ThreadPoolExecutor(2) as pool:
        programs = dict(zip(lowered, pool.map(lambda each: each.compile(), lowered.values()), strict=True))
    compile_seconds = time.perf_counter() - started
    progress(f"{len(listed)} runs, compiled in {compile_seconds:.0f} s")
    told: list[dict[str, np.ndarray]] = []
    for number, phase in enumerate(phases, start=1):
        states, found = programs[phase](runs, states, jnp.int32(number), jnp.asarray(number <= options.warm_up))
        told.append({name: np.asarray(value, float) for name, value in found.items()})
        over = [name for (name, _), cost in zip(listed, told[-1]["cost"], strict=True) if not cost <= budget]
        counts = ", ".join(f"{name} {over.count(name)}" for name in options.variants)
        progress(f"epoch {number}  {time.perf_counter() - started:.0f} s  over budget: {counts}")
        if time.perf_counter() - started > options.seconds:
            break
    rows = [
        {"variant": name, "seed": seed, **{key: [round(float(epoch[key][i]), 4) for epoch in told] for key in told[0]}}
        for i, (name, seed) in enumerate(listed)
    ]
    return {
        "benchmark": "vision_study",
        "is_quick": options.quick,
        "claim": "The careful settings keep the budget more often, and charging for saturation keeps policies alive.",
        "command": command(),
        "machine": machine() | {"precision": "float32"},
        "method": METHOD,
        "settings": plain(world.settings),
        "variants": {name: VARIANTS[name] for name in options.variants},
        "schedule": {key: getattr(options, key) for key in ("warm_up", "expansion", "epochs", "updates", "capacity")},
        "budget": budget,
        "planner_budget": world.agent(Run(0, False, {})).planner_budgets[0],
        "compile_seconds": compile_seconds,
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
    is_over = ~(costs <= budget)
    return {
        "epochs_after_warm_up": costs[:, options.warm_up :].size,
        "over_in_expansion": np.sum(is_over[:, options.warm_up : options.expansion], axis=1).tolist(),
        "over_in_exploitation": np.sum(is_over[:, options.expansion :], axis=1).tolist(),
        "share_within_budget": float(1.0 - np.mean(is_over[:, options.warm_up :])),
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
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no epoch after so many")
    options = parser.parse_args()
    if options.quick:
        quick = {"variants": ["careful", "unwound_greedy"], "seeds": 1, "warm_up": 1, "expansion": 2, "epochs": 2}
        for name, value in (quick | {"updates": 1, "capacity": 5000, "unroll": 1}).items():
            setattr(options, name, value)
    use_single_precision()
    emit(study(options), options.out)


if __name__ == "__main__":
    main()
