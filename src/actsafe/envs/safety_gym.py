"""Safety-Gym tasks as a batch of environments: physics on the host, pixels wherever the learner is."""

import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from actsafe.envs.base import EnvBatch, environment_seeds, require_sound_step
from actsafe.envs.checks import require_known_options
from actsafe.envs.spec import EnvSpec, TimeStep
from actsafe.problems.checking import checked_number, known
from actsafe.problems.safety_gym import Batch, SafetyGymSettings
from actsafe.problems.safety_gym.observation import num_features
from actsafe.render.mujoco import scene_of, viewer_of
from actsafe.render.raycast import SAMPLES, render

CAMERA = "vision"


class SafetyGymBatch(EnvBatch):
    """MuJoCo simulations of one robot and task; environment i is the `SafetyGymEnv` with seed i.

    What is handed to the device is not pixels but the poses that they are drawn from, 1.5 kB instead of 12 kB for a
    Point. The cost counts simulator steps with any violation. An episode ends early only if physics break down, which
    pays -10 and costs 1.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        observation: str = "pixels",
        image_size: int = 64,
        num_samples: int = 4,
        num_threads: int | None = None,
        **settings: Any,
    ):
        """`settings` are those of `SafetyGymSettings`: robot, task, action_repeat, ...; threads are as in `Batch`."""
        require_known_options(settings, SafetyGymSettings, type(self))
        self.settings = SafetyGymSettings(**settings)
        self._is_pixels = known("observation", observation, ("pixels", "state")) == "pixels"
        size = checked_number("image_size", image_size, at_least=1.0, is_whole=True)
        if num_samples not in SAMPLES:
            raise ValueError(f"num_samples: got {num_samples!r}, expected one of {list(SAMPLES)}; leave it out for 4.")
        self.num_envs = num_envs
        self.spec = EnvSpec(
            f"{self.settings.robot}{self.settings.task}",
            (size, size, 3) if self._is_pixels else (num_features(self.settings.body),),
            self.settings.body.num_actions,
            ("cost",),
            (float(self.settings.budget),),
            -(-self.settings.episode_length // self.settings.action_repeat),
            self.settings.action_repeat,
            observation_dtype="uint8" if self._is_pixels else "float32",
        )
        self._batch = Batch(self.settings, num_envs, num_threads)
        model = self._batch.simulations[0].model
        self._scene, self._num_samples = scene_of(model), num_samples
        self._camera, viewer = model.camera(CAMERA).id, viewer_of(model)
        self._viewers = [dataclasses.replace(viewer, model=each.model) for each in self._batch.simulations]
        self._is_over = np.zeros(num_envs, bool)
        self._tick = 0

    def reset(self, seed: int) -> TimeStep:
        """First rows of all environments."""
        self._batch.reset(environment_seeds(seed, self.num_envs))
        self._is_over, self._tick = np.zeros(self.num_envs, bool), 0
        zeros = np.zeros(self.num_envs, np.float32)
        return TimeStep(self._view(), zeros, zeros[:, None].copy(), np.ones(self.num_envs, bool), self._is_over.copy())

    def step(self, actions: Any) -> TimeStep:
        """What one tick brings; environments whose episode is over begin the next, the others decide."""
        checked = self.checked_actions(actions)
        if not all(each.has_begun for each in self._batch.simulations):
            raise gymnasium.error.ResetNeeded("the batch has no state yet; call reset(seed) first.")
        is_first = self._is_over
        if np.any(is_first):
            self._batch.reset(None, is_first)
        result = self._batch.step(checked, ~is_first)
        # A simulation that was reset is neither broken nor at its end, and has zeros.
        self._is_over, self._tick = result.is_broken | result.is_truncated, self._tick + 1
        reward, costs = result.rewards.astype(np.float32), result.costs.astype(np.float32)[:, None]
        time_step = TimeStep(self._view(), reward, costs, is_first, self._is_over.copy())
        # Poses of a simulation that broke down may be anything; what cannot be drawn is not.
        return require_sound_step(self, time_step, self._tick, is_view_checked=not self._is_pixels)

    def _view(self) -> Any:
        """The view of every robot, or the state vectors; zeros where a simulation has broken down."""
        if not self._is_pixels:
            return np.nan_to_num(self._batch.observe().astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
        simulations = self._batch.simulations
        views = [viewer.view(each.data, self._camera) for viewer, each in zip(self._viewers, simulations, strict=True)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *views)

    def observe(self, view: Any) -> Shaped[Array, "environment *shape"]:
        """What the robots see, drawn on the device; state vectors as they are."""
        if not self._is_pixels:
            return jnp.asarray(view)
        height, width, _ = self.spec.observation_shape

        def draw(view: Any) -> Array:
            return render(self._scene, view, width=width, height=height, samples=self._num_samples)

        return jax.vmap(draw)(view)

    def close(self) -> None:
        """Ends the threads."""
        self._batch.close()
