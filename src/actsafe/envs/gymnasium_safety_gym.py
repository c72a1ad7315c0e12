"""Safety-Gym tasks as Gymnasium environments: one simulation, or many in one object on all cores."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from actsafe.envs.camera import Camera
from actsafe.envs.checks import require_known_options
from actsafe.envs.shells import Mask, Stage, StagedEnv, StagedVectorEnv, Steps
from actsafe.problems.checking import checked_number, known
from actsafe.problems.cores import num_cores
from actsafe.problems.safety_gym import COST_SOURCES, Batch, SafetyGymSettings
from actsafe.problems.safety_gym.observation import num_features

OBSERVATIONS = ("pixels", "state")
CAMERAS = ("vision", "track", "fixednear", "fixedfar")
ENVIRONMENT_STEPS_PER_SECOND = {"Point": 50, "Doggo": 7}


class SafetyGymStage(Stage):
    """Simulations, and what is seen of them."""

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
            known("render mode", render_mode, StagedEnv.metadata["render_modes"])
        self.is_pixels = known("observation", observation, OBSERVATIONS) == "pixels"
        known("camera", render_camera, CAMERAS)
        size = checked_number("image_size", image_size, at_least=1.0, is_whole=True)
        large = checked_number("render_size", render_size, at_least=1.0, is_whole=True)
        self.settings = SafetyGymSettings(**settings)
        self.batch = Batch(self.settings, num_simulations, num_threads)
        model = self.batch.simulations[0].model
        threads = num_threads or min(num_cores(), num_simulations)
        self.eye = Camera(model, "vision", size, num_samples, renderer, threads)
        self._picture = Camera(model, render_camera, large, 4, renderer, threads)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.settings.body.num_actions,), np.float32)
        if self.is_pixels:
            self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)
        else:
            shape = (num_features(self.settings.body),)
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.num_decisions = -(-self.settings.episode_length // self.settings.action_repeat)
        self.render_fps = max(1, round(ENVIRONMENT_STEPS_PER_SECOND[self.settings.robot] / self.settings.action_repeat))

    def reset(self, seeds: Sequence[int | None], which: Mask | None = None) -> None:
        self.batch.reset(seeds, which)

    def step(self, actions: npt.NDArray[np.float64], which: Mask) -> Steps:
        result = self.batch.step(actions, which)
        sources = {f"cost_{source}": result.cost_sources[source] for source in COST_SOURCES}
        info = {"cost": result.costs, **sources, "goals_met": result.goals_met, "is_broken": result.is_broken}
        return Steps(result.rewards, result.is_broken, result.is_truncated, info)

    def observe(self) -> npt.NDArray[Any]:
        """Pixels or state vectors; zeros where a simulation has broken down."""
        if self.is_pixels:
            return self.eye.frames(self.batch.simulations)
        return np.nan_to_num(self.batch.observe().astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)

    def pictures(self) -> npt.NDArray[np.uint8]:
        """Through `render_camera`."""
        return self._picture.frames(self.batch.simulations)

    def close(self) -> None:
        for part in (self.batch, self.eye, self._picture):
            part.close()


class SafetyGymEnv(StagedEnv[SafetyGymStage]):
    """A robot with a task among hazards, vases and pillars.

    `info["cost"]` counts the environment steps of this action with any violation, `info["cost_hazards"]` and so on
    those of one source. An episode is truncated after `episode_length` environment steps; it terminates only if the
    physics break down, which pays -10 and costs 1 (`info["is_broken"]`).
    """

    def __init__(self, robot: str = "Point", task: str = "GotoGoal", **options: Any):
        """`options` are what `SafetyGymStage` has, with its defaults, and those of `SafetyGymSettings`.

        `observation` is "pixels", seen by the robot, or "state", lidars and sensors. `num_samples` are the rays per
        pixel of what the robot sees, 1 or 4; `render()` looks through `render_camera`. `renderer` is "raycast", ours,
        or "mujoco", which needs OpenGL. Then action_noise, action_repeat, reward, motor_gear, floor_damping, ...
        """
        super().__init__(SafetyGymStage(1, num_threads=1, robot=robot, task=task, **options))
        self.settings = self._stage.settings

    @property
    def model(self) -> Any:
        return self._stage.batch.simulations[0].model

    @property
    def data(self) -> Any:
        return self._stage.batch.simulations[0].data


class SafetyGymVectorEnv(StagedVectorEnv[SafetyGymStage]):
    """`num_envs` independent simulations, stepped by all cores and seen by one compiled call.

    One that breaks down does not touch the others.
    """

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

        def make(num_simulations: int) -> SafetyGymStage:
            return SafetyGymStage(num_simulations, num_threads=num_threads, robot=robot, task=task, **options)

        super().__init__(make, num_envs, autoreset_mode)
        self.settings = self._stage.settings

    @property
    def batch(self) -> Batch:
        """The simulations; `batch.simulations[i].model` and `.data` are MuJoCo's."""
        return self._stage.batch
