"""Experience, some ticks of all environments at a time: the agent's compiled decisions, and what they lead to."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from actsafe.agents.recipes import Policy
from actsafe.agents.vision import Filter, Mind, VisionAgent
from actsafe.data.replay import Rows
from actsafe.envs.make import EnvBatch, ProblemBatch
from actsafe.envs.sharing import Sharing
from actsafe.envs.spec import TimeStep
from actsafe.models.rssm.encoder import prefers_products
from actsafe.problems.cores import num_cores


class Way(NamedTuple):
    """How decisions are made."""

    policy: Policy
    is_greedy: bool = False
    """The policy's median instead of a draw from it."""


@dataclasses.dataclass(frozen=True)
class Block:
    """Some ticks of every environment. What is small is on the host, observations are where they were drawn."""

    observations: Callable[[], Shaped[Array | np.ndarray, "environment time *observation"]]
    view: Callable[[int], Any]
    """What the observations of a tick were drawn from."""
    action: Float[np.ndarray, "environment time action"]
    """What led to the row."""
    reward: Float[np.ndarray, "environment time"]
    costs: Float[np.ndarray, "environment time constraint"]
    is_first: Bool[np.ndarray, "environment time"]
    is_last: Bool[np.ndarray, "environment time"]

    @property
    def num_decisions(self) -> int:
        """Of all environments: rows that are not the beginning of an episode."""
        return int(np.sum(~self.is_first))

    def rows(self) -> Rows:
        """To be learned from."""
        return Rows(self.observations(), self.action, self.reward, self.costs, self.is_first)


@runtime_checkable
class Collector(Protocol):
    """Lets an agent act on environments."""

    def begin(self, seed: int) -> None:
        """From now on, new episodes of all environments, which `seed` determines."""
        ...

    def collect(self, mind: Mind, num_ticks: int, way: Way, key: PRNGKeyArray) -> Block:
        """What so many ticks bring: each is the last decision carried out, then the next decision made."""
        ...


def make_collector(agent: VisionAgent, fleet: EnvBatch) -> Collector:
    """Decides where the learner is; simulates there too where the environments are ours, else on the host."""
    return DeviceCollector(agent, fleet) if isinstance(fleet, ProblemBatch) else HostCollector(agent, fleet)


class Deciding:
    """What every tick does with an arrival, in two parts; to be compiled."""

    def __init__(self, agent: VisionAgent, fleet: EnvBatch) -> None:
        self._agent, self._fleet = agent, fleet

    def see(self, mind: Mind, view: Any) -> tuple[Array, Array]:
        """Observations, and what the encoder makes of them."""
        observation = self._fleet.observe(view)
        return observation, self._agent.see(mind, observation)

    def act(
        self, mind: Mind, memory: Filter, seen: Array, is_first: Array, key: PRNGKeyArray, tick: Array, *, way: Way
    ) -> tuple[Array, Filter]:
        """Actions, and what is remembered."""
        key = jax.random.fold_in(key, tick)
        return self._agent.act(mind, memory, seen, is_first, key, policy=way.policy, is_greedy=way.is_greedy)

    def __call__(self, mind: Mind, memory: Filter, view: Any, *rest: Any, way: Way) -> tuple[Array, Array, Filter]:
        """Both: observations, actions and what is remembered."""
        observation, seen = self.see(mind, view)
        return observation, *self.act(mind, memory, seen, *rest, way=way)


class DecidingByThreads:
    """The same by two programs, of which the first, and most of the work, is done by threads.

    For CPUs, where a compiled call draws its frames one after the other.
    """

    def __init__(self, deciding: Deciding, num_threads: int) -> None:
        self._see, self._act = jax.jit(deciding.see), jax.jit(deciding.act, static_argnames="way")
        self._sharing = Sharing(num_threads, "seeing")

    def __call__(self, mind: Mind, memory: Filter, view: Any, *rest: Any, way: Way) -> tuple[Any, Array, Filter]:
        observation, seen = self._sharing(lambda own: jax.tree.map(np.asarray, self._see(mind, own)), view)
        return observation, *self._act(mind, memory, seen, *rest, way=way)


class HostCollector:
    """Environments on the host. A tick waits for its actions alone: what was seen is fetched later."""

    def __init__(self, agent: VisionAgent, fleet: EnvBatch) -> None:
        self._agent, self._fleet = agent, fleet
        self._seed: int | None = None
        self._memory, self._actions = self._at_rest()
        deciding = Deciding(agent, fleet)
        self._decide: Callable[..., Any] = (
            DecidingByThreads(deciding, min(num_cores(), fleet.num_envs))
            if prefers_products()
            else jax.jit(deciding, static_argnames="way")
        )

    def _at_rest(self) -> tuple[Filter, np.ndarray]:
        num_envs = self._fleet.num_envs
        return self._agent.begin(num_envs), np.zeros((num_envs, self._fleet.spec.action_dim), np.float32)

    def begin(self, seed: int) -> None:
        self._seed = seed
        self._memory, self._actions = self._at_rest()

    def collect(self, mind: Mind, num_ticks: int, way: Way, key: PRNGKeyArray) -> Block:
        arrivals, observations, led_here = [], [], []
        for tick in range(num_ticks):
            arrival = self._advance()
            led_here.append(np.where(arrival.is_first[:, None], np.float32(0.0), self._actions))
            observation, actions, self._memory = self._decide(
                mind, self._memory, arrival.view, arrival.is_first, key, np.int32(tick), way=way
            )
            if isinstance(observation, jax.Array):
                observation.copy_to_host_async()
            self._actions = np.asarray(actions)
            arrivals.append(arrival)
            observations.append(observation)
        return Block(
            lambda: np.stack(observations, axis=1),
            lambda tick: arrivals[tick].view,
            action=np.stack(led_here, axis=1),
            reward=np.stack([arrival.reward for arrival in arrivals], axis=1),
            costs=np.stack([arrival.costs for arrival in arrivals], axis=1),
            is_first=np.stack([arrival.is_first for arrival in arrivals], axis=1),
            is_last=np.stack([arrival.is_last for arrival in arrivals], axis=1),
        )

    def _advance(self) -> TimeStep:
        if self._seed is None:
            return self._fleet.step(self._actions)
        seed, self._seed = self._seed, None
        return self._fleet.reset(seed)


class DeviceCollector:
    """Environments and decisions on the device: a block is one compiled call."""

    def __init__(self, agent: VisionAgent, fleet: ProblemBatch) -> None:
        self._agent, self._fleet = agent, fleet
        self._deciding = Deciding(agent, fleet)
        self._under_way: Any = None
        self._begin = jax.jit(fleet.begin)
        self._play = eqx.filter_jit(self._played)

    def begin(self, seed: int) -> None:
        course, arrival = self._begin(self._fleet.streams(seed))
        actions = jnp.zeros((self._fleet.num_envs, self._fleet.spec.action_dim), jnp.float32)
        self._under_way = course, arrival, self._agent.begin(self._fleet.num_envs), actions

    def collect(self, mind: Mind, num_ticks: int, way: Way, key: PRNGKeyArray) -> Block:
        self._under_way, (observations, arrivals, actions) = self._play(mind, self._under_way, key, num_ticks, way)
        reward, costs, is_first, is_last, led_here = (
            np.moveaxis(np.asarray(field), 0, 1) for field in (*arrivals[1:5], actions)
        )
        return Block(
            lambda: jnp.moveaxis(observations, 0, 1),
            lambda tick: jax.tree.map(lambda leaf: leaf[tick], arrivals.view),
            led_here,
            reward,
            costs,
            is_first,
            is_last,
        )

    def _played(self, mind: Mind, under_way: Any, key: PRNGKeyArray, num_ticks: int, way: Way) -> Any:
        """What is under way after the ticks, and observations, arrivals and what led to them, time first.

        Between ticks there is an arrival that was not answered yet: each tick answers it, and goes on to the next.
        """

        def tick(under_way: Any, number: Int[Array, ""]) -> Any:
            course, arrival, memory, led_here = under_way
            observation, actions, memory = self._deciding(
                mind, memory, arrival.view, arrival.is_first, key, number, way=way
            )
            led_here = jnp.where(arrival.is_first[:, None], 0.0, led_here)
            course, following = self._fleet.advance(course, actions)
            return (course, following, memory, actions), (observation, arrival, led_here)

        return jax.lax.scan(tick, under_way, jnp.arange(num_ticks, dtype=jnp.int32))
