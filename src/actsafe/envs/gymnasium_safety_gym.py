"""Safety-Gym tasks as Gymnasium environments: one simulation, or many in one object on all cores."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from actsafe.envs.camera import Camera
from actsafe.envs.checks import (
    check_action,
    checked_autoreset_mode,
    copy_seeds,
    refuse_options,
    require_known_options,
    with_finals,
)
from actsafe.problems.checking import checked_number, known
from actsafe.problems.cores import num_cores
from actsafe.problems.safety_gym import COST_SOURCES, Batch, SafetyGymSettings, StepResult
from actsafe.problems.safety_gym.observation import num_features

Frame = npt.NDArray[np.uint8]
OBSERVATIONS = ("pixels", "state")
CAMERAS = ("vision", "track", "fixednear", "fixedfar")
ENVIRONMENT_STEPS_PER_SECOND = {"Point": 50, "Doggo": 7}


class _Stage:
    """What a single environment and a batch share: simulations, and what is seen of them."""

    def __init__(
        self,
        num_simulations: int,
        /,
        *,
        num_threads: int | None,
        render_mode: str | None = None,
        observation: str = "pixels",
        image_size: int = 64,
        num_samples: int = 4,
        render_camera: str = "track",
        render_size: int = 256,
        renderer: str = "raycast",
        **settings: Any,
    ):
        require_known_options(settings, SafetyGymSettings, type(self))
        self.render_mode = render_mode
        if render_mode is not None:
            known("render mode", render_mode, ("rgb_array",))
        self.is_pixels = known("observation", observation, OBSERVATIONS) == "pixels"
        known("camera", render_camera, CAMERAS)
        size = checked_number("image_size", image_size, at_least=1.0, is_whole=True)
        large = checked_number("render_size", render_size, at_least=1.0, is_whole=True)
        self.settings = SafetyGymSettings(**settings)
        self.batch = Batch(self.settings, num_simulations, num_threads)
        model = self.batch.simulations[0].model
        threads = num_threads or min(num_cores(), num_simulations)
        self.eye = Camera(model, "vision", size, num_samples, renderer, threads)
        self.picture = Camera(model, render_camera, large, 4, renderer, threads)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.settings.body.num_actions,), np.float32)
        self.observation_space: gymnasium.spaces.Box
        if self.is_pixels:
            self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        else:
            shape = (num_features(self.settings.body),)
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        rate = ENVIRONMENT_STEPS_PER_SECOND[self.settings.robot] / self.settings.action_repeat
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": max(1, round(rate))}

    def observe(self) -> npt.NDArray[Any]:
        """Rows of pixels or of state vectors, in fresh memory; zeros where a simulation has broken down."""
        if self.is_pixels:
            return self.eye.frames(self.batch.simulations)
        return np.nan_to_num(self.batch.observe().astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)

    def close(self) -> None:
        """Ends all threads."""
        for part in (self.batch, self.eye, self.picture):
            part.close()

    def info(self, result: StepResult) -> dict[str, npt.NDArray[Any]]:
        """Everything beside reward and endings, in rows."""
        sources = {f"cost_{source}": result.cost_sources[source] for source in COST_SOURCES}
        return {"cost": result.costs, **sources, "goals_met": result.goals_met, "is_broken": result.is_broken}


class SafetyGymEnv(gymnasium.Env[npt.NDArray[Any], npt.NDArray[np.float32]]):
    """A robot with a task among hazards, vases and pillars.

    `info["cost"]` counts the environment steps of this action with any violation, `info["cost_hazards"]` and so on
    those of one source. An episode is truncated after `episode_length` environment steps; it terminates only if the
    physics break down, which pays -10 and costs 1 (`info["is_broken"]`).
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    observation_space: gymnasium.spaces.Box

    def __init__(self, robot: str = "Point", task: str = "GotoGoal", **options: Any):
        """`options` are what `_Stage` has, with its defaults, and those of `SafetyGymSettings`.

        `observation` is "pixels", seen by the robot, or "state", lidars and sensors. `num_samples` are the rays per
        pixel of what the robot sees, 1 or 4; `render()` looks through `render_camera`. `renderer` is "raycast", ours,
        or "mujoco", which needs OpenGL. Then action_noise, action_repeat, reward, motor_gear, floor_damping, ...
        """
        self._stage = _Stage(1, num_threads=1, robot=robot, task=task, **options)
        self.render_mode, self.metadata = self._stage.render_mode, self._stage.metadata
        self.settings = self._stage.settings
        self.observation_space, self.action_space = self._stage.observation_space, self._stage.action_space

    @property
    def model(self) -> Any:
        """MuJoCo's model of this simulation."""
        return self._stage.batch.simulations[0].model

    @property
    def data(self) -> Any:
        """MuJoCo's state of this simulation."""
        return self._stage.batch.simulations[0].data

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[npt.NDArray[Any], dict]:
        """The first observation. With `seed` all that follows is reproducible, later unseeded resets included."""
        refuse_options(options)
        super().reset(seed=seed)
        self._stage.batch.reset([seed])
        return self._stage.observe()[0], {}

    def step(self, action: Any) -> tuple[npt.NDArray[Any], float, bool, bool, dict[str, Any]]:
        """What one action brings. Outside [-1, 1] it is clipped; one that is no action raises ValueError."""
        stage = self._stage
        checked = check_action(action, self.action_space)
        _require_started(stage.batch)
        result = stage.batch.step(checked[None])
        info = {name: row[0].item() for name, row in stage.info(result).items()}
        is_broken, is_truncated = bool(result.is_broken[0]), bool(result.is_truncated[0])
        return stage.observe()[0], float(result.rewards[0]), is_broken, is_truncated, info

    def render(self) -> Frame | None:
        """A picture through `render_camera`, where `render_mode` is "rgb_array"."""
        if self.render_mode is None:
            return None
        _require_reset(self._stage.batch)
        return self._stage.picture.frames(self._stage.batch.simulations)[0]

    def close(self) -> None:
        """Frees the simulation, which cannot be used afterwards."""
        self._stage.close()


class SafetyGymVectorEnv(gymnasium.vector.VectorEnv[npt.NDArray[Any], npt.NDArray[np.float32], npt.NDArray[Any]]):
    """`num_envs` independent simulations, stepped by all cores and seen by one compiled call.

    Copy i with seed s behaves as the `SafetyGymEnv` with seed s + i. Autoreset is Gymnasium's NEXT_STEP, each copy by
    itself: in the step after its episode has ended a copy ignores its action, returns a first observation and reward 0,
    and its info is masked out. With SAME_STEP the step that ends an episode returns the first observation of the next,
    and what it brought is in `final_obs` and `final_info`. One that breaks down does not touch the others.
    """

    metadata: dict[str, Any] = {**SafetyGymEnv.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        robot: str = "Point",
        task: str = "GotoGoal",
        *,
        num_threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **options: Any,
    ):
        """Copies of `SafetyGymEnv(robot, task, **options)`; without `num_threads` all cores are used."""
        self.num_envs = int(checked_number("num_envs", num_envs, at_least=1.0, is_whole=True))
        self._mode = checked_autoreset_mode(autoreset_mode)
        self._stage = _Stage(self.num_envs, num_threads=num_threads, robot=robot, task=task, **options)
        self.render_mode, self.settings = self._stage.render_mode, self._stage.settings
        self.metadata = {**self._stage.metadata, "autoreset_mode": self._mode}
        self.single_observation_space = self._stage.observation_space
        self.single_action_space = self._stage.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._is_over = np.zeros(self.num_envs, bool)

    @property
    def batch(self) -> Batch:
        """The simulations; `batch.simulations[i].model` and `.data` are MuJoCo's."""
        return self._stage.batch

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """First observations. A whole `seed` gives copy i seed + i; in a list, None lets a copy's stream go on.

        `options={"reset_mask": mask}` resets some of the copies only, as Gymnasium has it.
        """
        mask = _reset_mask(options, self.num_envs)
        seeds = copy_seeds(seed, self.num_envs)
        super().reset(seed=seeds[0])
        self.batch.reset(seeds, mask)
        self._is_over[slice(None) if mask is None else mask] = False
        return self._stage.observe(), {}

    def step(
        self, actions: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """What one action of every copy brings; one bad action refuses the batch and leaves all states untouched."""
        checked = check_action(actions, self.action_space)
        is_over = self._is_over
        _require_started(self.batch, ~is_over)
        if np.any(is_over):
            self.batch.reset(None, is_over)
        result = self.batch.step(checked, None if not np.any(is_over) else ~is_over)
        terminations, truncations = result.is_broken & ~is_over, result.is_truncated & ~is_over
        info, observations, ended = self._stage.info(result), self._stage.observe(), terminations | truncations
        if self._mode is AutoresetMode.SAME_STEP:
            info = with_finals(info, observations, ended)
            if np.any(ended):
                self.batch.reset(None, ended)
                observations = self._stage.observe()
        else:
            self._is_over = ended
            info |= {f"_{name}": ~is_over for name in info}
        return observations, result.rewards, terminations, truncations, info

    def render(self) -> tuple[Frame, ...] | None:
        """One picture per copy, where `render_mode` is "rgb_array"."""
        if self.render_mode is None:
            return None
        _require_reset(self.batch)
        return tuple(self._stage.picture.frames(self.batch.simulations))

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads."""
        self._stage.close()


def _require_reset(batch: Batch) -> None:
    if not all(each.has_begun for each in batch.simulations):
        raise gymnasium.error.ResetNeeded("the environment has no state yet; call reset() first.")


def _require_started(batch: Batch, which: npt.NDArray[np.bool_] | None = None) -> None:
    """Gymnasium's own error where there was no reset, or none after the end; a closed batch says so itself."""
    _require_reset(batch)
    for number, each in enumerate(batch.simulations):
        if not each.is_ready and (which is None or which[number]) and not batch.is_closed:
            raise gymnasium.error.ResetNeeded("step() after the episode's end; call reset() for the next episode.")


def _reset_mask(options: dict[str, Any] | None, num_envs: int) -> npt.NDArray[np.bool_] | None:
    rest = dict(options or {})
    mask = rest.pop("reset_mask", None)
    refuse_options(rest)
    if mask is None:
        return None
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.shape != (num_envs,):
        raise ValueError(f"reset_mask: got {mask.dtype} of shape {mask.shape}, expected bool of shape ({num_envs},).")
    return mask
