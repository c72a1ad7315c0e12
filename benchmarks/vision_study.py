"""Who keeps the budget while learning, over many seeds: the vision agent's learning with several settings at once.

Runs from state are small enough that dozens fit on one accelerator as one batch: settings and seeds are an axis of the
program. The agent's own functions act, remember and learn here; what differs between the runs of a batch is a number
(`Knobs`). The sparse cartpole is seen as its state, scaled (`SCALE`), by small networks.
"""

import argparse
import dataclasses
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from actsafe.actor_critic.aims import Aim, aims
from actsafe.actor_critic.judging import Judge
from actsafe.actor_critic.learning import Learner
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.adapters.fleet import ProblemFleet
from actsafe.agents.phases import Phase
from actsafe.agents.recipes import VISION_RECIPES, Policy
from actsafe.agents.vision import Filter, Surroundings, VisionAgent, VisionSettings
from actsafe.constrained.lbsgd import LBSGD
from actsafe.constrained.optimisers import clipped_adam
from actsafe.data.device_replay import Replay
from actsafe.data.rows import Rows
from actsafe.experiments.learning import compiler_options
from actsafe.models.networks import cast
from actsafe.models.rssm.world_model import WorldModelSettings
from actsafe.objectives.doubt import DoubtSettings

SCALE = (0.05, 0.1, 0.1, 0.2, 0.5)


class Knobs(NamedTuple):
    seed: Any = 0
    explores: Any = True
    pessimism: Any = 5.0
    budget: Any = 20.0
    recent: Any = 1000
    recovery: Any = 1.0
    weight: Any = 0.1
    critic_rate: Any = 2e-4
    watched: Any = 0
    """Newest rows of an environment whose realised cost, if over budget, makes the acting policy recover; 0: none."""
    rate_too: Any = 0.0


class TracedBarrier(NamedTuple):
    initial_weight: Any
    recovery_step: Any
    weight_decay: float = 8e-6
    loss_smoothness: float = 1.2e4
    cost_smoothness: float = 1.2e4


@dataclasses.dataclass(frozen=True)
class TracedLearner(Learner):
    knobs: Any = None
    realised: Any = None
    """cost return of what was realised, for each policy... set by vmapped aim"""

    @property
    def _critic_optimiser(self):
        return clipped_adam(self.knobs.critic_rate)

    def learn(self, learned, recalled, noise, lessons, wishes, aim):
        im = lessons.imagined
        rate = (im.costs + aim.pessimism * im.doubt) / (1.0 - self.settings.cost_discount)
        held = jnp.maximum(im.cost_returns, self.knobs.rate_too * rate)
        # aim.task is 1 for the task, 0 for exploration
        acting_is_task = self.realised[1]
        mine = jnp.where(acting_is_task > 0, aim.task, 1.0 - aim.task)
        held = jnp.maximum(held, mine * self.realised[0])
        lessons = lessons._replace(imagined=im._replace(cost_returns=held))
        return super().learn(learned, recalled, noise, lessons, wishes, aim)


@dataclasses.dataclass(frozen=True)
class TracedJudge(Judge):
    knobs: Any = None

    def _counted(self, values):
        num_times, rows, *entry = values.shape
        place = jnp.arange(rows) % len(self.is_counted)
        counts = (place >= len(self.is_counted) // 2) | (self.knobs.recent == 0)
        w = (counts / jnp.mean(counts.astype(jnp.float32))).reshape(1, -1, *(1 for _ in entry))
        return jnp.mean(w * values, axis=(0, 1))


@dataclasses.dataclass(frozen=True)
class StudyAgent(VisionAgent):
    knobs: Any = None
    realised: Any = None

    @property
    def learner(self):
        base = VisionAgent(self.surroundings, self.recipe, self.settings).learner
        judge = TracedJudge(**{f.name: getattr(base.judge, f.name) for f in dataclasses.fields(Judge)}, knobs=self.knobs)
        step = LBSGD(unit_step=self.settings.actor_critic.actor_rate)
        object.__setattr__(step, "barrier", TracedBarrier(self.knobs.weight, self.knobs.recovery))
        realised = (jnp.zeros(()), jnp.zeros(())) if self.realised is None else self.realised
        return TracedLearner(judge, step, (self.knobs.budget,), base.unroll, knobs=self.knobs, realised=realised)

    @property
    def aims(self):
        d, k = self.settings.doubt, self.knobs
        return aims([Aim(1.0, 0.0, k.pessimism), Aim(0.0, d.intrinsic, k.pessimism)])

    def act_as(self, mind, memory, seen, is_first, key, place, is_uniform, is_greedy=False):
        filter_key, action_key = jax.random.split(key)
        model = mind.model.tree
        latent = model.step(memory.state, memory.action, seen, is_first, filter_key)
        packed = jax.tree.map(lambda leaf: leaf[place], mind.actors)
        distribution = packed.tree(latent.features)
        k1, k2 = jax.random.split(action_key)
        action = distribution.sample(jax.random.normal(k1, memory.action.shape, jnp.float32))
        uniform = jax.random.uniform(k2, memory.action.shape, jnp.float32, -1.0, 1.0)
        action = jnp.where(is_uniform, uniform, jnp.where(is_greedy, distribution.middle, action))
        return action, Filter(latent, action)


class Standing(NamedTuple):
    agent: Any
    replay: Any
    course: Any


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--first-seed", type=int, default=0)
    p.add_argument("--variants", nargs="+", default=["steady"])
    p.add_argument("--total", type=int, default=50)
    p.add_argument("--expansion", type=int, default=35)
    p.add_argument("--warm-up", type=int, default=2)
    p.add_argument("--updates", type=int, default=30, help="a cycle of 50 decisions of 10 environments, 1000 steps")
    p.add_argument("--capacity", type=int, default=500_000)
    p.add_argument("--out", default=None)
    p.add_argument("--width", type=int, default=48)
    p.add_argument("--unroll", type=int, default=0)
    p.add_argument("--intrinsic", type=float, default=10.0)
    p.add_argument("--rate", type=float, default=2e-4)
    p.add_argument("--seconds", type=float, default=1e9)
    args = p.parse_args()

    fleet = ProblemFleet("cartpole_swingup", 10, task="swing_up_sparse", observation="state")
    w = args.width
    settings = VisionSettings(
        model=WorldModelSettings(deterministic=w, stochastic=max(8, w // 4), hidden=w, head_width=w + 16, head_depth=2),
        actor_critic=ActorCriticSettings(
            actor_width=w + 16, actor_depth=2, critic_width=w + 16, critic_depth=2, initial_std=0.025, actor_rate=args.rate
        ),
        doubt=DoubtSettings(form="log_ratio", intrinsic=args.intrinsic),
        batch_size=8, sequence_length=16, recent_rows=10_000, model_rate=6e-4, precision="float32", unroll=args.unroll,
    )
    surroundings = Surroundings(fleet.observation_shape, 1, fleet.budgets, fleet.num_decisions, fleet.action_repeat)
    recipe = VISION_RECIPES["actsafe"]
    knobs = [variant._replace(seed=seed) for name in args.variants for variant in [eval(f"V({VARIANTS[name]})", {"V": Knobs})]
             for seed in range(args.first_seed, args.first_seed + args.seeds)]
    names = [name for name in args.variants for _ in range(args.seeds)]
    batch = Knobs(*(jnp.asarray(np.array(column)) for column in zip(*knobs, strict=True)))
    scale = jnp.asarray(SCALE, jnp.float32)

    def agent_of(knobs, realised=None):
        return StudyAgent(surroundings, recipe, settings, knobs, realised)

    def observe(sight):
        return fleet.observe(sight) / scale

    def begin(knobs):
        key = jax.random.key(knobs.seed)
        replay = Replay.empty(10, args.capacity // 10, fleet.observation_shape, fleet.observation_dtype, 1, 1)
        return agent_of(knobs).init(key), replay

    def collect(knobs, mind, under_way, key, num_ticks, place, is_uniform):
        agent = agent_of(knobs)

        def tick(under_way, number):
            course, arrival, memory, led_here = under_way
            observation = observe(arrival.sight)
            actions, memory = agent.act_as(mind, memory, agent.see(mind, observation), arrival.is_first,
                                           jax.random.fold_in(key, number), place, is_uniform)
            led_here = jnp.where(arrival.is_first[:, None], 0.0, led_here)
            course, following = fleet.advance(course, actions)
            return (course, following, memory, actions), Rows(observation, led_here, arrival.reward, arrival.costs, arrival.is_first)

        under_way, rows = jax.lax.scan(tick, under_way, jnp.arange(num_ticks))
        return under_way, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), rows)

    def windows(replay, key, recent):
        batch, length = settings.batch_size, settings.sequence_length
        num_starts = jnp.broadcast_to(replay.count - length + 1, (batch,))
        is_recent = (jnp.arange(batch) >= batch // 2) & (recent > 0)
        num_drawn = jnp.where(is_recent, jnp.minimum(num_starts, jnp.maximum(1, recent - length + 1)), num_starts)
        drawn = jax.random.randint(key, (batch,), 0, 10 * num_drawn, jnp.int32)
        envs, starts = drawn // num_drawn, num_starts - num_drawn + drawn % num_drawn
        ticks = replay.position - replay.count + starts[:, None] + jnp.arange(length, dtype=jnp.int32)[None]
        places = (envs[:, None], ticks % replay.capacity)
        return jax.tree.map(lambda store: store.at[places].get(mode="promise_in_bounds"), replay.rows)

    def realised(knobs, replay, since):
        """Discounted return that realised costs of the newest rows stand for, of this acting policy alone."""
        num = jnp.minimum(knobs.watched, since)
        ticks = jnp.arange(replay.capacity)
        age = (replay.position - 1 - ticks) % replay.capacity
        counts = (age < num).astype(jnp.float32)
        rate = jnp.sum(replay.rows.costs[..., 0] * counts[None]) / jnp.maximum(1.0, 10.0 * num)
        value = rate / (1.0 - settings.actor_critic.cost_discount)
        return jnp.where(value > knobs.budget, value, 0.0)

    def epoch(knobs, state, key, is_warm, is_expanding, epochs_of_phase, phase):
        agent_state, replay = state
        act_key, learn_key, env_key = jax.random.split(jax.random.fold_in(jax.random.key(knobs.seed), key), 3)
        acts_task = ~(is_expanding & knobs.explores)
        place = jnp.where(acts_task, 0, 1)
        course, arrival = fleet.begin(jax.random.split(env_key, 10))
        agent = agent_of(knobs)
        under_way = (course, arrival, agent.begin(10), jnp.zeros((10, 1), jnp.float32))
        since0 = epochs_of_phase * 1002

        def cycle(carry, number, count, learns=True):
            agent_state, replay, under_way = carry
            under_way, rows = collect(knobs, agent_state.mind, under_way, jax.random.fold_in(act_key, number), count, place, is_warm)
            replay = replay.append(rows)
            tally = (jnp.sum(rows.reward, axis=1), jnp.sum(rows.costs[..., 0], axis=1))
            if not learns:
                return (agent_state, replay, under_way), (tally, None)
            real = realised(knobs, replay, since0 + number * 50)
            real = jnp.where(is_warm, 0.0, real)
            teacher = agent_of(knobs, (real, acts_task.astype(jnp.float32)))
            keys = jax.random.split(jax.random.fold_in(learn_key, number), 2 * args.updates)
            agent_state, measures = teacher.learn(
                agent_state, lambda k: windows(replay, k, knobs.recent), keys[: args.updates], keys[args.updates :], phase)
            return (agent_state, replay, under_way), (tally, {k: jnp.mean(v) for k, v in measures.items()})

        tallies, measured = [], []
        carry = (agent_state, replay, under_way)
        for episode in range(2):
            carry, ((r, c), m) = jax.lax.scan(lambda carry, n: cycle(carry, n, 50), carry, 10 * episode + jnp.arange(10))
            carry, ((r1, c1), _) = cycle(carry, 100 + episode, 1, learns=False)
            tallies.append((jnp.sum(r, axis=0) + r1, jnp.sum(c, axis=0) + c1))
            measured.append(m)
        returns, costs = (jnp.concatenate(parts) for parts in zip(*tallies, strict=True))
        m = jax.tree.map(lambda *v: jnp.mean(jnp.stack(v)), *measured)
        which = lambda name: jnp.where(acts_task | is_warm, m[f"task/{name}"], m.get(f"exploration/{name}", m[f"task/{name}"]))
        report = {"return": jnp.mean(returns), "cost": jnp.mean(costs), "worst_cost": jnp.max(costs),
                  "cost_return": which("cost_return_0"), "is_feasible": which("is_feasible"), "doubt": which("doubt"),
                  "rate": which("pessimistic_cost_0") * 100, "task_feasible": m["task/is_feasible"], "reward": m["task/reward"],
                  "observation_loss": m["model/observation_loss"], "kl": m["model/kl"]}
        return carry[:2], report

    started = time.perf_counter()
    state = jax.jit(jax.vmap(begin))(batch)
    state = jax.tree.map(lambda leaf: leaf, state)

    def program(phase):
        def run(batch, state, key, is_warm, is_expanding, since):
            return jax.vmap(lambda k, s: epoch(k, s, key, is_warm, is_expanding, since, phase))(batch, state)
        sample = (batch, state, jnp.int32(0), jnp.asarray(True), jnp.asarray(True), jnp.int32(0))
        return jax.jit(run, donate_argnums=1, compiler_options=compiler_options()).lower(*sample)

    lowered = {phase: program(phase) for phase in (Phase.EXPANSION, Phase.EXPLOITATION)}
    with ThreadPoolExecutor(2) as pool:
        compiled = dict(zip(lowered, pool.map(lambda each: each.compile(), lowered.values()), strict=True))
    print(f"compiled after {time.perf_counter() - started:.1f} s, {len(knobs)} runs", file=sys.stderr, flush=True)
    history = []
    started = time.perf_counter()
    for number in range(1, args.total + 1):
        is_warm, is_expanding = number <= args.warm_up, number <= args.expansion
        since = (number - 1 - args.warm_up) if is_expanding else number - 1 - args.expansion
        phase = Phase.EXPANSION if is_expanding else Phase.EXPLOITATION
        state, report = compiled[phase](batch, state, jnp.int32(number), jnp.asarray(is_warm), jnp.asarray(is_expanding), jnp.int32(max(0, since)))
        history.append({k: np.asarray(v).astype(float).round(4).tolist() for k, v in report.items()})
        r, c = history[-1]["return"], history[-1]["cost"]
        print(f"{number:3d} {time.perf_counter() - started:6.1f} s  " + " ".join(f"{a:.0f}/{b:.0f}" for a, b in zip(r, c)), file=sys.stderr, flush=True)
        if args.out:
            with open(args.out, "w") as f:
                json.dump({"args": vars(args), "names": names, "seeds": [int(k.seed) for k in knobs], "history": history}, f)
        if time.perf_counter() - started > args.seconds:
            break


VARIANTS = {
    "released": "recent=0, recovery=0.01",
    "recent": "recovery=0.01",
    "steady": "",
    "greedy": "explores=False",
    "unsure": "pessimism=0.0",
    "pess20": "pessimism=20.0",
    "pess50": "pessimism=50.0",
    "strict": "budget=10.0",
    "fast": "critic_rate=8e-4",
    "barrier": "weight=2.0",
    "barrier5": "weight=5.0",
    "watched": "watched=1000",
    "watched_short": "watched=250",
    "rate": "rate_too=1.0",
    "all": "critic_rate=8e-4, weight=2.0, watched=500",
    "all_greedy": "critic_rate=8e-4, weight=2.0, watched=500, explores=False",
}

if __name__ == "__main__":
    main()
