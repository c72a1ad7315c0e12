"""Rollouts, some ticks of all environments at a time: a policy's compiled decisions, and what they lead to."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped

from actsafe.agents.base import Percept, Policy
from actsafe.agents.seeds import over_seeds
from actsafe.data.rows import Rows
from actsafe.envs.base import EnvBatch
from actsafe.envs.problem import ProblemBatch
from actsafe.envs.sharing import Sharing
from actsafe.envs.spec import TimeStep
from actsafe.fast.device import is_for_cpu
from actsafe.problems.cores import num_cores


@dataclasses.dataclass(frozen=True)
class Block:
    """Some ticks of every environment of every seed. What is small is on the host, observations are where they were
    drawn."""

    observations: Callable[[], Shaped[Array | np.ndarray, "seed environment time *observation"]]
    view: Callable[[int], Any]
    """What the observations of a tick were drawn from, of all environments of all seeds."""
    action: Float[np.ndarray, "seed environment time action"]
    """What led to the row."""
    reward: Float[np.ndarray, "seed environment time"]
    costs: Float[np.ndarray, "seed environment time constraint"]
    is_first: Bool[np.ndarray, "seed environment time"]
    is_last: Bool[np.ndarray, "seed environment time"]
    info: Mapping[str, np.ndarray]
    """Further arrays (seed, environment, time, ...) of the time steps."""
    decisions: Mapping[str, np.ndarray]
    """Arrays (seed, environment, time) of what was said of the decisions that followed the rows: `value`,
    `predicted_cost`, `is_certified`, `is_fallback`. A last row without a decision has none."""

    @property
    def num_decisions(self) -> int:
        """Of all environments of a seed: rows that are not the beginning of an episode."""
        return int(np.sum(~self.is_first)) // len(self.is_first)

    def rows(self) -> Rows:
        """To be learned from: (seed, environment, time)."""
        return Rows(self.observations(), self.action, self.reward, self.costs, self.is_first)


@runtime_checkable
class Collector(Protocol):
    """Lets policies act on environments."""

    def begin(self, policy: Policy, seeds: list[int], keys: Key[Array, " seed"]) -> None:
        """From now on, new episodes of all environments: `seeds` determine them, `keys` the policies' draws."""

    def collect(self, policy: Policy, num_ticks: int) -> Block:
        """Collects `num_ticks` ticks: each is a row, a decision, and the step it leads to."""
        ...

    def last_row(self) -> Block:
        """The row that no decision has followed yet, as a block of one tick."""
        ...


def make_collector(envs: EnvBatch, num_seeds: int) -> Collector:
    """Decides where the learner is; simulates there too where the environments are pure, else on the host.

    A pure batch has the environments of one seed, any other those of all seeds.
    """
    return DeviceCollector(envs, num_seeds) if isinstance(envs, ProblemBatch) else HostCollector(envs, num_seeds)


def _percept(time_step: TimeStep) -> Percept:
    return Percept(*map(jnp.asarray, (time_step.reward, time_step.costs, time_step.is_first)))


def _said(decision: Any) -> dict[str, Array]:
    """What is recorded of a decision beside its action."""
    return {name: value for name, value in decision._asdict().items() if name != "action" and value is not None}


def _to_time_axis(tree: Any) -> Any:
    """Arrays (time, seed, environment, ...) as (seed, environment, time, ...), on the host."""
    return jax.tree.map(lambda leaf: np.moveaxis(np.asarray(leaf), 0, 2), tree)


class Decider:
    """Compiled decisions about what is seen on the host, by a policy of every seed."""

    def __init__(
        self, observe: Callable[[Any], Array], num_envs: int, num_seeds: int, *, is_shared: bool = True
    ) -> None:
        """`num_envs` are those of a seed. `observe` makes observations of a view, and is compiled. With `is_shared`
        threads share the observations where that pays, and encode them in parts."""
        self._observe, self._num_envs, self._num_seeds = observe, num_envs, num_seeds
        self._whole = eqx.filter_jit(self._decided)
        self._act = eqx.filter_jit(self._acted)
        self._begin = eqx.filter_jit(
            over_seeds(lambda policy, key: policy.begin(num_envs, key), num_seeds), donate="none"
        )
        self._encode = eqx.filter_jit(self._encoded)
        # A compiled call draws its frames one after the other on a CPU: there, threads share them.
        num_threads = min(num_cores(), num_envs) if is_shared and is_for_cpu() and num_seeds == 1 else 1
        self._sharing = Sharing(num_threads, "encoding") if num_threads > 1 else None

    def begin(self, policy: Policy, keys: Key[Array, " seed"]) -> Any:
        """The memory before the first decision."""
        return self._begin(policy, keys)

    def decide(self, policy: Policy, memory: Any, time_step: TimeStep) -> tuple[Any, Any, Any]:
        """The observations, a decision (seed, environment) about each, and the memory after it."""
        percept = jax.tree.map(self.by_seed, _percept(time_step))
        if self._sharing is None:
            return self._whole(policy, memory, time_step.view, percept)
        shared = self._sharing(lambda own: jax.tree.map(np.asarray, self._encode(policy, own)), time_step.view)
        observation, encoded = shared
        return observation, *self._act(policy, memory, encoded[None], percept)

    def by_seed(self, leaf: Any) -> Any:
        """Environments of all seeds, in the order of seeds, as (seed, environment)."""
        return leaf.reshape(self._num_seeds, self._num_envs, *leaf.shape[1:])

    def _encoded(self, policy: Policy, view: Any) -> tuple[Array, Array]:
        """Observations of one seed, and what the policy makes of them."""
        observation = self._observe(view)
        return observation, over_seeds(lambda own, seen: own.encode(seen), 1)(policy, observation[None])[0]

    def _decided(self, policy: Policy, memory: Any, view: Any, percept: Percept) -> tuple[Array, Any, Any]:
        observation = self._observe(view)

        def one(policy: Policy, memory: Any, seen: Array, percept: Percept) -> Any:
            return policy.act(memory, policy.encode(seen), percept)

        of_all = over_seeds(one, self._num_seeds)
        return observation, *of_all(policy, memory, self.by_seed(observation), percept)

    def _acted(self, policy: Policy, memory: Any, encoded: Array, percept: Percept) -> tuple[Any, Any]:
        return over_seeds(lambda own, *rest: own.act(*rest), self._num_seeds)(policy, memory, encoded, percept)


class HostCollector:
    """Environments on the host. A tick waits for its actions alone: what was seen is fetched later."""

    def __init__(self, envs: EnvBatch, num_seeds: int) -> None:
        self._envs = envs
        self._decider = Decider(envs.observe, envs.num_envs // num_seeds, num_seeds)
        self._seed: int | None = None
        self._memory: Any = None
        self._actions = np.zeros((envs.num_envs, envs.spec.action_dim), np.float32)

    def begin(self, policy: Policy, seeds: list[int], keys: Key[Array, " seed"]) -> None:
        # The batch draws the seeds of its environments from one number.
        self._seed = seeds[0] if len(seeds) == 1 else int(np.random.SeedSequence(seeds).generate_state(1)[0])
        self._memory = self._decider.begin(policy, keys)
        self._actions = np.zeros_like(self._actions)

    def collect(self, policy: Policy, num_ticks: int) -> Block:
        steps, observations, led_here, said = [], [], [], []
        for _ in range(num_ticks):
            time_step, before = self._advance()
            led_here.append(before)
            observation, decision, self._memory = self._decider.decide(policy, self._memory, time_step)
            if isinstance(observation, jax.Array):
                observation.copy_to_host_async()
            self._actions = np.asarray(decision.action).reshape(self._actions.shape)
            steps.append(time_step)
            observations.append(observation)
            said.append(_said(decision))
        return self._block(steps, observations, led_here, said)

    def last_row(self) -> Block:
        time_step, led_here = self._advance()
        return self._block([time_step], [self._envs.observe(time_step.view)], [led_here], [])

    def _block(self, steps: list[TimeStep], observations: list[Any], led_here: list[Any], said: list[Any]) -> Block:
        def stacked(values: list[Any]) -> np.ndarray:
            return self._decider.by_seed(np.stack(values, axis=1))

        info = {name: stacked([step.info[name] for step in steps]) for name in steps[0].info}
        return Block(
            lambda: stacked([np.asarray(each) for each in observations]),
            lambda tick: steps[tick].view,
            action=stacked(led_here),
            reward=stacked([step.reward for step in steps]),
            costs=stacked([step.costs for step in steps]),
            is_first=stacked([step.is_first for step in steps]),
            is_last=stacked([step.is_last for step in steps]),
            info=info,
            decisions=_to_time_axis(jax.tree.map(lambda *leaves: np.stack(leaves), *said)) if said else {},
        )

    def _advance(self) -> tuple[TimeStep, np.ndarray]:
        """The next time step, and what led to it."""
        seed, self._seed = self._seed, None
        time_step = self._envs.step(self._actions) if seed is None else self._envs.reset(seed)
        return time_step, np.where(time_step.is_first[:, None], np.float32(0.0), self._actions)


class DeviceCollector:
    """Environments and decisions on the device: a block is one compiled call."""

    def __init__(self, envs: ProblemBatch, num_seeds: int) -> None:
        self._envs, self._num_seeds = envs, num_seeds
        self._under_way: Any = None
        self._begin = eqx.filter_jit(over_seeds(self._begun, num_seeds))
        self._play = eqx.filter_jit(self._played)
        self._observe = eqx.filter_jit(over_seeds(self._envs.observe, num_seeds))

    def begin(self, policy: Policy, seeds: list[int], keys: Key[Array, " seed"]) -> None:
        streams = jnp.stack([self._envs.streams(seed) for seed in seeds])
        self._under_way = self._begin(policy, streams, keys)

    def collect(self, policy: Policy, num_ticks: int) -> Block:
        self._under_way, played = self._play(policy, self._under_way, num_ticks)
        return self._block(*played)

    def last_row(self) -> Block:
        _, time_step, _, actions = self._under_way
        led_here = jnp.where(time_step.is_first[..., None], 0.0, actions)
        one_tick = (self._observe(time_step.view), time_step, led_here)
        observations, steps, led_here = jax.tree.map(lambda leaf: leaf[None], one_tick)
        return self._block(observations, steps, led_here, {})

    def _block(self, observations: Any, steps: TimeStep, led_here: Any, said: Mapping[str, Any]) -> Block:
        """Of arrays (time, seed, environment, ...)."""
        rest = _to_time_axis((led_here, steps.reward, steps.costs, steps.is_first, steps.is_last, dict(steps.info)))
        return Block(
            lambda: jnp.moveaxis(observations, 0, 2),
            lambda tick: jax.tree.map(lambda leaf: leaf[tick].reshape(-1, *leaf.shape[3:]), steps.view),
            *rest,
            decisions=_to_time_axis(dict(said)),
        )

    def _begun(self, policy: Policy, streams: Any, key: PRNGKeyArray) -> Any:
        course, time_step = self._envs.begin(streams)
        num_envs = self._envs.num_envs
        actions = jnp.zeros((num_envs, self._envs.spec.action_dim), jnp.result_type(float))
        return course, time_step, policy.begin(num_envs, key), actions

    def _played(self, policy: Policy, under_way: Any, num_ticks: int) -> Any:
        """What is under way after the ticks, and what they brought, time first.

        Between ticks there is a time step that no decision has followed: each tick decides, and goes on to the next.
        """

        def tick(policy: Policy, under_way: Any) -> Any:
            course, time_step, memory, led_here = under_way
            observation = self._envs.observe(time_step.view)
            decision, memory = policy.act(memory, policy.encode(observation), _percept(time_step))
            action = decision.action.astype(led_here.dtype)
            led_here = jnp.where(time_step.is_first[:, None], 0.0, led_here)
            course, following = self._envs.advance(course, action)
            return (course, following, memory, action), (observation, time_step, led_here, _said(decision))

        def advance(under_way: Any, _: Int[Array, ""]) -> Any:
            return over_seeds(tick, self._num_seeds)(policy, under_way)

        return jax.lax.scan(advance, under_way, jnp.arange(num_ticks, dtype=jnp.int32))
