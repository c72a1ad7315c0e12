"""Our problems as a batch of environments: on the host tick by tick, or many ticks inside one compiled program."""

import functools
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from jaxtyping import Array, Float, Int, Key, Shaped

from actsafe.envs.base import EnvBatch, environment_seeds, require_sound_step
from actsafe.envs.checks import require_known_options
from actsafe.envs.gymnasium_problem import Episode, ProblemStage, advance_episode, begin_episode, draw_key, state_bounds
from actsafe.envs.spec import EnvSpec, TimeStep
from actsafe.problems.base import Problem
from actsafe.problems.looks import picture


class Course(NamedTuple):
    """All that changes while the environments run: a pytree of arrays on the device."""

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
        """`options` are those of `ProblemStage`: task, observation, image_size, action_repeat, budget, dtype, ..."""
        require_known_options(options, ProblemStage)
        single = ProblemStage(num_envs, problem, **options)
        problem, is_pixels = single.problem, single.observation_space.dtype == np.uint8
        self.problem, self.task, self.num_envs = problem, single.task, num_envs
        self.spec = EnvSpec(
            problem.name,
            single.observation_space.shape,
            problem.action_dim,
            ("cost",),
            (float(problem.budget),),
            problem.num_decisions,
            problem.action_repeat,
            task=single.task,
            tasks=tuple(problem.tasks),
            observation_dtype=str(single.observation_space.dtype),
            is_compiled=True,
            problem=None if is_pixels else problem,
        )
        self._num_samples = num_samples
        self._course: Course | None = None
        self._tick = 0

    def streams(self, seed: int) -> Key[Array, " environment"]:
        """A random stream for every environment, to `begin` with: those that `reset` takes for this seed."""
        seeds = environment_seeds(seed, self.num_envs)
        return jnp.stack([draw_key(seeding.np_random(own_seed)[0]) for own_seed in seeds])

    def begin(self, keys: Key[Array, " environment"]) -> tuple[Course, TimeStep]:
        """New episodes of all environments, each with its own random stream. Pure."""
        course, time_step = _set_out(self.problem, keys)
        return course, self._as_observed(time_step)

    def advance(self, course: Course, actions: Float[Array, "environment action"]) -> tuple[Course, TimeStep]:
        """The course one tick later: a decision of every environment, or after their last the next episodes. Pure.

        Randomness comes from the streams in the course. The cost of a state that is no longer finite is infinite.
        """
        course, time_step = _move_on(self.problem, self.task, course, actions)
        return course, self._as_observed(time_step)

    def _as_observed(self, time_step: TimeStep) -> TimeStep:
        """Reward and costs in double precision where the observations are, otherwise in single precision."""
        dtype = jnp.float64 if self.observation_dtype == np.float64 else jnp.float32
        return time_step._replace(reward=time_step.reward.astype(dtype), costs=time_step.costs.astype(dtype))

    def reset(self, seed: int) -> TimeStep:
        return self._checked(self.begin(self.streams(seed)), 0)

    def step(self, actions: Any) -> TimeStep:
        if self._course is None:
            raise gymnasium.error.ResetNeeded("the batch has no state yet; call reset(seed) first.")
        actions = jnp.asarray(self.checked_actions(actions))
        return self._checked(self.advance(self._course, actions), self._tick + 1)

    def _checked(self, outcome: tuple[Course, TimeStep], tick: int) -> TimeStep:
        """The time step on the host, once it is found sound."""
        course, time_step = outcome
        time_step = require_sound_step(self, jax.device_get(time_step), tick)
        self._course, self._tick = course, tick
        return time_step

    def observe(self, view: Float[Array | np.ndarray, "environment state"]) -> Shaped[Array, "environment *shape"]:
        """Pictures of the states, or the states themselves within their bounds."""
        states = jnp.asarray(view)
        if self.observation_dtype == np.uint8:
            size, num_samples = self.spec.observation_shape[0], self._num_samples
            return jax.vmap(lambda state: picture(self.problem, state, size=size, num_samples=num_samples))(states)
        if self.observation_dtype == np.float64:
            return states
        # Rounding can leave the unit circle by the last bit, as in the Gymnasium environment.
        low, high = (jnp.asarray(bound, jnp.float32)[None] for bound in state_bounds(self.problem))
        return jnp.clip(states.astype(jnp.float32), low, high)

    def close(self) -> None:
        self._course = None


# The problem is an argument of the compiled functions: batches that differ in a mass share one compilation.
@jax.jit
def _set_out(problem: Problem, keys: Key[Array, " environment"]) -> tuple[Course, TimeStep]:
    episodes = jax.vmap(lambda key: begin_episode(problem, key))(keys)
    states, num_envs = episodes.state, len(keys)
    zeros, no = jnp.zeros(num_envs, states.dtype), jnp.zeros(num_envs, bool)
    info = {
        "rewards": jnp.zeros((num_envs, len(problem.tasks)), states.dtype),
        "inner_cost": zeros,
    }
    return Course(episodes, jnp.zeros((), jnp.int32)), TimeStep(states, zeros, zeros[:, None], ~no, no, info)


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
        info = {
            "rewards": outcome.rewards,
            "inner_cost": outcome.inner_cost,
        }
        costs = outcome.cost[:, None]
        return Course(episodes, num_taken), TimeStep(episodes.state, outcome.reward, costs, is_first, is_last, info)

    is_over = course.num_taken >= problem.num_decisions
    return jax.lax.cond(is_over, lambda course: _set_out(problem, course.episodes.key), decide, course)
