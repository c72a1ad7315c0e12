"""Our problems as a fleet: on the host tick by tick, or many ticks inside one compiled program."""

import functools
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from jaxtyping import Array, Float, Int, Key, Shaped

from actsafe.envs.base import EnvBatch, TimeStep, environment_seeds, require_sound_step
from actsafe.envs.checks import require_known_options
from actsafe.envs.gymnasium_problem import Episode, ProblemEnv, advance_episode, begin_episode, draw_key, state_bounds
from actsafe.problems.base import Problem
from actsafe.problems.looks import picture


class Course(NamedTuple):
    """All that changes while the fleet runs: a pytree of arrays on the device."""

    episodes: Episode
    """State and random stream of every environment."""
    num_taken: Int[Array, ""]
    """Decisions taken in these episodes, which begin and end together."""


class ProblemBatch(EnvBatch):
    """Copies of one problem, with the reward of one task; environment i is the `ProblemEnv` with seed i.

    `begin` and `advance` are pure: `lax.scan` over `advance` plays a whole segment on the device. `reset` and `step`
    are the same two functions compiled, with the course kept here.
    """

    def __init__(self, problem: Problem | str, num_envs: int, *, num_samples: int = 4, **options: Any):
        """`options` are those of `ProblemEnv`: task, observation, image_size, action_repeat, budget, ..."""
        require_known_options(options, ProblemEnv)
        single = ProblemEnv(problem, **options)
        self.problem, self.task = single.problem, single.task
        self.name, self.num_envs = self.problem.name, num_envs
        self.action_dim = self.problem.action_dim
        self.observation_shape = single.observation_space.shape
        self.observation_dtype = single.observation_space.dtype
        self.cost_names, self.budgets = ("cost",), (float(self.problem.budget),)
        self.action_repeat, self.num_decisions = self.problem.action_repeat, self.problem.num_decisions
        self._num_samples = num_samples
        self._course: Course | None = None
        self._tick = 0

    def streams(self, seed: int) -> Key[Array, " environment"]:
        """A random stream for every environment, to `begin` with: those that `reset` takes for this seed."""
        seeds = environment_seeds(seed, self.num_envs)
        return jnp.stack([draw_key(seeding.np_random(own_seed)[0]) for own_seed in seeds])

    def begin(self, keys: Key[Array, " environment"]) -> tuple[Course, TimeStep]:
        """New episodes of all environments, each with its own random stream. Pure."""
        return _set_out(self.problem, keys)

    def advance(self, course: Course, actions: Float[Array, "environment action"]) -> tuple[Course, TimeStep]:
        """The course one tick later: a decision of every environment, or after their last the next episodes. Pure.

        Randomness comes from the streams in the course. The cost of a state that is no longer finite is infinite.
        """
        return _move_on(self.problem, self.task, course, actions)

    def reset(self, seed: int) -> TimeStep:
        """First rows of all environments."""
        return self._arrived(self.begin(self.streams(seed)), 0)

    def step(self, actions: Any) -> TimeStep:
        """What one tick brings."""
        if self._course is None:
            raise gymnasium.error.ResetNeeded("the fleet has no state yet; call reset(seed) first.")
        actions = jnp.asarray(self.checked_actions(actions))
        return self._arrived(self.advance(self._course, actions), self._tick + 1)

    def _arrived(self, outcome: tuple[Course, TimeStep], tick: int) -> TimeStep:
        """The arrival on the host, once it is found sound."""
        course, arrival = outcome
        arrival = require_sound_step(self, jax.device_get(arrival), tick)
        self._course, self._tick = course, tick
        return arrival

    def observe(self, sight: Float[Array | np.ndarray, "environment state"]) -> Shaped[Array, "environment *shape"]:
        """Pictures of the states, or the states themselves within their bounds."""
        states = jnp.asarray(sight)
        if self.observation_dtype == np.uint8:
            size, num_samples = self.observation_shape[0], self._num_samples
            return jax.vmap(lambda state: picture(self.problem, state, size=size, num_samples=num_samples))(states)
        # Rounding can leave the unit circle by the last bit, as in the Gymnasium environment.
        low, high = (jnp.asarray(bound, jnp.float32)[None] for bound in state_bounds(self.problem))
        return jnp.clip(states.astype(jnp.float32), low, high)

    def close(self) -> None:
        """Forgets the course."""
        self._course = None


# The problem is an argument of the compiled functions: fleets that differ in a mass share one compilation.
@jax.jit
def _set_out(problem: Problem, keys: Key[Array, " environment"]) -> tuple[Course, TimeStep]:
    episodes = jax.vmap(lambda key: begin_episode(problem, key))(keys)
    zeros, no = jnp.zeros(len(keys), jnp.float32), jnp.zeros(len(keys), bool)
    return Course(episodes, jnp.zeros((), jnp.int32)), TimeStep(episodes.state, zeros, zeros[:, None], ~no, no)


@functools.partial(jax.jit, static_argnums=1)
def _move_on(
    problem: Problem, task: str, course: Course, actions: Float[Array, "environment action"]
) -> tuple[Course, TimeStep]:
    actions = actions.astype(course.episodes.state.dtype)

    def decide(course: Course) -> tuple[Course, TimeStep]:
        each = jax.vmap(lambda episode, action: advance_episode(problem, task, episode, action))
        episodes, outcome = each(course.episodes, actions)
        num_taken = course.num_taken + 1
        is_first = jnp.zeros(len(actions), bool)
        is_last = jnp.broadcast_to(num_taken >= problem.num_decisions, is_first.shape)
        reward, cost = (value.astype(jnp.float32) for value in (outcome.reward, outcome.cost))
        return Course(episodes, num_taken), TimeStep(episodes.state, reward, cost[:, None], is_first, is_last)

    is_over = course.num_taken >= problem.num_decisions
    return jax.lax.cond(is_over, lambda course: _set_out(problem, course.episodes.key), decide, course)
