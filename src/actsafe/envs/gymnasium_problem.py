"""A problem as a Gymnasium environment: one copy, or many stepped by one compiled call."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Float, Key, PRNGKeyArray

from actsafe.envs.registration import register
from actsafe.envs.shells import Frame, Mask, Stage, StagedEnv, StagedVectorEnv, Steps
from actsafe.problems import PROBLEMS, Action, Cartpole, CartpoleSwingup, Pendulum, Problem, State
from actsafe.problems.checking import checked_number, known
from actsafe.problems.looks import has_look, picture

__all__ = ["ProblemEnv", "ProblemVectorEnv", "draw", "register", "state_bounds"]

Point = tuple[float, float]


class Episode(NamedTuple):
    """What changes while an environment runs."""

    state: State
    key: PRNGKeyArray


class Outcome(NamedTuple):
    """What one decision brings beside the next state."""

    reward: Float[Array, ""]
    cost: Float[Array, ""]
    inner_cost: Float[Array, ""]
    rewards: Float[Array, " task"]
    """Of every task."""


def begin_episode(problem: Problem, key: PRNGKeyArray) -> Episode:
    """A new episode, with the random stream that the next one continues."""
    key, reset_key = jax.random.split(key)
    return Episode(problem.reset(reset_key), key)


def advance_episode(problem: Problem, task: str, episode: Episode, action: Action) -> tuple[Episode, Outcome]:
    """The episode one decision later, with the action as applied."""
    key, step_key = jax.random.split(episode.key)
    action = jnp.clip(action, -1.0, 1.0)
    step = problem.step(episode.state, action, step_key)
    reward = step.rewards[list(problem.tasks).index(task)]
    # Fail closed: a state that is no longer a number has left every limit.
    is_sound = jnp.all(jnp.isfinite(step.state)) & jnp.isfinite(step.cost) & jnp.isfinite(step.inner_cost)
    cost, inner_cost = (jnp.where(is_sound, cost, jnp.inf) for cost in (step.cost, step.inner_cost))
    return Episode(step.state, key), Outcome(reward, cost, inner_cost, step.rewards)


# The problem is an argument of the compiled functions: environments that differ in a mass share one compilation.
@jax.jit
def _begin_all(problem: Problem, keys: Key[Array, " env"]) -> Episode:
    return jax.vmap(functools.partial(begin_episode, problem))(keys)


@functools.partial(jax.jit, static_argnums=1)
def _advance_all(
    problem: Problem, task: str, episodes: Episode, actions: Float[Array, "env action"]
) -> tuple[Episode, Outcome]:
    return jax.vmap(functools.partial(advance_episode, problem, task))(episodes, actions)


class ProblemStage(Stage):
    """Copies of a constrained problem with one of its tasks, stepped by one compiled call."""

    def __init__(
        self,
        num_copies: int,
        /,
        problem: Problem | str,
        task: str | None = None,
        *,
        render_mode: str | None = None,
        observation: str = "state",
        image_size: int = 64,
        dtype: npt.DTypeLike = "float32",
        params: Mapping[str, Any] | None = None,
        process_noise_std: float | None = None,
        action_repeat: int | None = None,
        budget: float | None = None,
        num_decisions: int | None = None,
    ):
        """Copies of `problem` (or the one of that name); no `task` means the problem's first.

        `observation` is "state", or "pixels" (`image_size` squared) of a problem that has a look (problems/looks.py).
        `dtype` is that of observed states alone. `params` overrides physical constants by name; it and the options
        after it leave the problem's own value where they are None.
        """
        self.problem = _configure(
            problem,
            params or {},
            {
                "process_noise_std": checked_number("process_noise_std", process_noise_std, at_least=0.0),
                "budget": checked_number("budget", budget, at_least=0.0),
                "action_repeat": checked_number("action_repeat", action_repeat, at_least=1.0, is_whole=True),
                "num_decisions": checked_number("num_decisions", num_decisions, at_least=1.0, is_whole=True),
            },
        )
        tasks = self.problem.tasks
        self.task = next(iter(tasks)) if task is None else known(f"{self.problem.name} task", task, tasks)
        if render_mode is not None:
            known("render mode", render_mode, StagedEnv.metadata["render_modes"])
        self.render_mode = render_mode
        dtype = np.dtype(dtype)
        if dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype: got {dtype}, expected float32 or float64; leave it out for float32.")
        self.observation_space = _observation_space(self.problem, observation, image_size, dtype)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.problem.action_dim,), np.float32)
        self.render_fps, self.num_decisions = _frames_per_second(self.problem), self.problem.num_decisions
        self._episodes: Episode | None = None
        self._num_taken = np.zeros(num_copies, int)

    @property
    def episodes(self) -> Episode:
        """States and random streams of all copies."""
        if self._episodes is None:
            raise gymnasium.error.ResetNeeded("the environment has no state yet; call reset() first.")
        return self._episodes

    def reset(self, seeds: Sequence[int | None], which: Mask | None = None) -> None:
        running = [None] * len(seeds) if self._episodes is None else self._episodes.key
        keys = [
            draw_key(seeding.np_random(seed)[0]) if seed is not None or key is None else key
            for seed, key in zip(seeds, running, strict=True)
        ]
        chosen = np.ones(len(seeds), bool) if which is None else which
        self._take_over(_begin_all(self.problem, jnp.stack(keys)), np.zeros_like(self._num_taken), chosen)

    def step(self, actions: npt.NDArray[np.float64], which: Mask) -> Steps:
        moved, outcome = _advance_all(self.problem, self.task, self.episodes, actions)
        self._take_over(moved, self._num_taken + 1, which)
        reward, cost, inner_cost = (np.where(which, np.asarray(value, np.float64), 0.0) for value in outcome[:3])
        is_over = self._num_taken >= self.num_decisions
        return Steps(reward, np.zeros_like(is_over), is_over, {"cost": cost, "inner_cost": inner_cost})

    def _take_over(self, episodes: Episode, num_taken: npt.NDArray[np.int_], which: Mask) -> None:
        """Keep these of the copies chosen by `which`."""

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(which.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        is_all = self._episodes is None or np.all(which)
        self._episodes = episodes if is_all else jax.tree.map(choose, episodes, self._episodes)
        self._num_taken = np.where(which, num_taken, self._num_taken)

    def observe(self) -> npt.NDArray[Any]:
        """States, in the space's dtype, or pixels."""
        states, space = self.episodes.state, self.observation_space
        if space.dtype == np.uint8:
            return np.array(_pixels(self.problem, states, space.shape[0]))
        # Rounding can leave the unit circle by the last bit, which the space would refuse.
        return np.clip(np.array(states, space.dtype), space.low, space.high)

    def pictures(self) -> list[Frame]:
        """200 x 200 x 3."""
        return [_picture(self.problem, state) for state in self.episodes.state]

    def close(self) -> None:
        """Does nothing: nothing is held."""


class ProblemEnv(StagedEnv[ProblemStage]):
    """A constrained problem with one of its tasks, as a Gymnasium environment.

    `reward` is the task's, `info["cost"]` counts against `env.unwrapped.problem.budget`; where both are read says
    `Problem.is_summed`. `info["inner_cost"]` is the largest cost at any simulator step of the decision.
    An episode is truncated after `num_decisions` and never terminates: breaking the limit costs, it does not end.
    """

    def __init__(self, problem: Problem | str, task: str | None = None, **options: Any):
        """`options` are those of `ProblemStage`."""
        super().__init__(ProblemStage(1, problem, task, **options))
        self.problem, self.task = self._stage.problem, self._stage.task

    @property
    def state(self) -> npt.NDArray[Any]:
        """A copy of the current state, in the simulator's precision rather than the observation's."""
        return np.array(self._stage.episodes.state[0])


class ProblemVectorEnv(StagedVectorEnv[ProblemStage]):
    """`num_envs` independent copies of a `ProblemEnv`, stepped by one compiled call."""

    def __init__(
        self,
        problem: Problem | str,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Any,
    ):
        """Copies of `ProblemEnv(problem, **options)`."""
        super().__init__(lambda num: ProblemStage(num, problem, **options), num_envs, autoreset_mode)
        self.problem, self.task = self._stage.problem, self._stage.task

    @property
    def states(self) -> npt.NDArray[Any]:
        """A copy of the current states (env, state), in the simulator's precision."""
        return np.array(self._stage.episodes.state)


def _frames_per_second(problem: Problem) -> int:
    """Decisions in a second of the problem's time, where it says how long a simulator step is; else 10."""
    time_step = getattr(getattr(problem, "params", None), "time_step", None)
    return 10 if time_step is None else max(1, round(1.0 / (float(time_step) * problem.action_repeat)))


@functools.singledispatch
def state_bounds(problem: Problem) -> tuple[list[float], list[float]]:
    """The least and the largest value of every state coordinate; infinite where nothing holds it.

    Register an implementation for a problem class that knows more.
    """
    high = [1.0 if name in ("cos", "sin") else math.inf for name in problem.state_names]
    return [-bound for bound in high], high


@state_bounds.register
def _(problem: Pendulum) -> tuple[list[float], list[float]]:
    # Noise comes after the simulator's clip, so that a noisy speed has no bound.
    speed = math.inf if problem.process_noise_std > 0.0 else float(problem.params.max_speed)
    return [-1.0, -1.0, -speed], [1.0, 1.0, speed]


def _observation_space(problem: Problem, observation: str, image_size: int, dtype: np.dtype) -> gymnasium.spaces.Box:
    if known("observation", observation, ("state", "pixels")) == "state":
        low, high = (np.asarray(bound, dtype) for bound in state_bounds(problem))
        return gymnasium.spaces.Box(low, high, dtype=dtype.type)
    if not has_look(problem):
        raise ValueError(f"observation: got 'pixels', but {problem.name} has no look; expected 'state'. Leave it out.")
    size = checked_number("image_size", image_size, at_least=1.0, is_whole=True)
    return gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)


@functools.partial(jax.jit, static_argnames="size")
def _pixels(problem: Problem, states: Float[Array, "env state"], size: int) -> Array:
    return jax.vmap(lambda state: picture(problem, state, size=size))(states)


def draw_key(generator: np.random.Generator) -> PRNGKeyArray:
    """A JAX key from 64 bits of `generator`: seeds of any size, and the same key with and without float64."""
    return jax.random.wrap_key_data(
        jnp.asarray(generator.integers(2**32, size=2, dtype=np.uint32)), impl="threefry2x32"
    )


def _configure(problem: Problem | str, params: Mapping[str, Any], options: Mapping[str, Any]) -> Problem:
    """The problem (or the one of that name) with its physical constants and options overridden."""
    if isinstance(problem, str):
        problem = PROBLEMS[known("problem", problem, PROBLEMS)]()
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if params:
        constants = getattr(problem, "params", None)
        if constants is None:
            raise ValueError(
                f"params: got {sorted(params)}, but {problem.name} has no physical constants; leave it out."
            )
        names = [field.name for field in dataclasses.fields(constants)]
        checked = {
            known(f"{problem.name} parameter", name, names): checked_number(name, params[name]) for name in params
        }
        changes["params"] = dataclasses.replace(constants, **checked)
    return dataclasses.replace(problem, **changes)


_SIZE = 200
_PAPER, _INK, _GREY, _SAFE, _UNSAFE = (250, 250, 248), (45, 45, 50), (200, 200, 200), (40, 110, 180), (200, 40, 40)


def _picture(problem: Problem, state: State) -> Frame:
    """A picture of `state`; all red where it is no longer a number."""
    if not np.all(np.isfinite(state)):
        return np.full((_SIZE, _SIZE, 3), _UNSAFE, np.uint8)
    return draw(problem, state)


@functools.singledispatch
def draw(problem: Problem, state: State) -> Frame:
    """A picture of `state`, 200 x 200 x 3. Register an implementation for a problem class to have one."""
    raise NotImplementedError(f"{problem.name} has no picture; register one with actsafe.envs.gymnasium_problem.draw.")


@draw.register
def _(problem: Pendulum, state: State) -> Frame:
    """The rod, and below it a gauge of the speed with the limit marked; what is beyond the limit is red."""
    cos, sin, speed = (float(value) for value in state)
    limit, end = float(problem.params.speed_limit), 1.25 * float(problem.params.speed_limit)
    colour = _UNSAFE if float(problem.cost(state)) > 0.0 else _SAFE
    return _painted(
        ((0.0, 0.15), (-0.7 * sin, 0.15 + 0.7 * cos), 9.0, colour),
        ((0.0, 0.15), (0.0, 0.15), 7.0, _INK),
        ((-0.8, -0.85), (0.8, -0.85), 4.0, _GREY),
        ((0.0, -0.85), (0.8 * float(np.clip(speed / end, -1.0, 1.0)), -0.85), 6.0, colour),
        *(((0.8 * mark / end, -0.92), (0.8 * mark / end, -0.78), 2.0, _UNSAFE) for mark in (-limit, limit)),
    )


@draw.register
def _(problem: CartpoleSwingup, state: State) -> Frame:
    """What a pixel observation shows, larger."""
    return np.array(_pixels(problem, jnp.asarray(state)[None], _SIZE)[0])


@state_bounds.register
def _(problem: CartpoleSwingup) -> tuple[list[float], list[float]]:
    end = math.inf if problem.process_noise_std > 0.0 else float(problem.params.rail_length)
    high = [end, 1.0, 1.0, math.inf, math.inf]
    return [-bound for bound in high], high


@draw.register
def _(problem: Cartpole, state: State) -> Frame:
    """The cart on its rail between the two limits, with its pole; red beyond a limit, at the edge beyond the frame."""
    position, cos, sin = (float(value) for value in state[:3])
    limit, length = float(problem.params.position_limit), float(problem.params.pole_length)
    # From the largest thing to be seen, so that another limit or pole still fits.
    scale = 0.6 / max(limit, length)
    colour = _UNSAFE if float(problem.cost(state)) > 0.0 else _SAFE
    cart = min(max(scale * position, -0.92), 0.92)
    return _painted(
        ((-1.0, 0.0), (1.0, 0.0), 2.0, _GREY),
        *(((scale * mark, -0.9), (scale * mark, 0.9), 2.0, _UNSAFE) for mark in (-limit, limit)),
        ((cart - 0.07, 0.0), (cart + 0.07, 0.0), 14.0, colour),
        ((cart, 0.0), (cart + scale * length * sin, -scale * length * cos), 5.0, _INK),
    )


def _painted(*lines: tuple[Point, Point, float, tuple[int, int, int]]) -> Frame:
    """Smooth lines with round ends: start, end, width, colour. Corners are at -1 and 1, y upwards."""
    frame = np.full((_SIZE, _SIZE, 3), _PAPER, np.float64)
    pixels = (np.arange(_SIZE) + 0.5) * 2.0 / _SIZE - 1.0
    for start, end, width, colour in lines:
        x, y = pixels[None, :] - start[0], -pixels[:, None] - start[1]
        along_x, along_y = end[0] - start[0], end[1] - start[1]
        fraction = np.clip((x * along_x + y * along_y) / max(along_x**2 + along_y**2, 1e-12), 0.0, 1.0)
        distance = np.hypot(x - fraction * along_x, y - fraction * along_y) * _SIZE / 2.0
        cover = np.clip(width / 2.0 + 0.5 - distance, 0.0, 1.0)[..., None]
        frame += cover * (np.asarray(colour) - frame)
    return frame.round().astype(np.uint8)
