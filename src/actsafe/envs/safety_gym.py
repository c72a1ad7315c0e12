"""Safety-Gym tasks as a batch of environments: physics on the host, pixels wherever the learner is."""

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from actsafe.envs.base import EnvBatch, environment_seeds, require_sound_step
from actsafe.envs.checks import require_known_options
from actsafe.envs.gymnasium_safety_gym import SafetyGymStage
from actsafe.envs.spec import EnvSpec, TimeStep
from actsafe.problems.safety_gym import SafetyGymSettings


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
        look = {"observation": observation, "image_size": image_size, "num_samples": num_samples}
        self._stage = stage = SafetyGymStage(num_envs, num_threads=num_threads, **look, **settings)
        self.settings, self.num_envs = stage.settings, num_envs
        self.spec = EnvSpec(
            f"{self.settings.robot}{self.settings.task}",
            stage.observation_space.shape,
            self.settings.body.num_actions,
            ("cost",),
            (float(self.settings.budget),),
            stage.num_decisions,
            self.settings.action_repeat,
            observation_dtype=str(stage.observation_space.dtype),
        )
        self._is_over = np.zeros(num_envs, bool)
        self._tick = -1

    def reset(self, seed: int) -> TimeStep:
        self._stage.reset(environment_seeds(seed, self.num_envs))
        self._is_over, self._tick = np.zeros(self.num_envs, bool), 0
        zeros = np.zeros(self.num_envs, np.float32)
        return TimeStep(self._view(), zeros, zeros[:, None].copy(), np.ones(self.num_envs, bool), self._is_over.copy())

    def step(self, actions: Any) -> TimeStep:
        """What one tick brings; environments whose episode is over begin the next, the others decide."""
        checked = self.checked_actions(actions)
        if self._tick < 0:
            raise gymnasium.error.ResetNeeded("the batch has no state yet; call reset(seed) first.")
        is_first = self._is_over
        if np.any(is_first):
            self._stage.reset([None] * self.num_envs, is_first)
        rewards, terminations, truncations, info = self._stage.step(checked, ~is_first)
        # A simulation that was reset is neither broken nor at its end, and has zeros.
        self._is_over, self._tick = terminations | truncations, self._tick + 1
        reward, costs = rewards.astype(np.float32), info["cost"].astype(np.float32)[:, None]
        time_step = TimeStep(self._view(), reward, costs, is_first, self._is_over.copy())
        # Poses of a simulation that broke down may be anything; what cannot be drawn is not.
        return require_sound_step(self, time_step, self._tick, is_view_checked=not self._stage.is_pixels)

    def _view(self) -> Any:
        """The poses that every robot's view is drawn from, or the state vectors."""
        stage = self._stage
        return stage.eye.views(stage.batch.simulations) if stage.is_pixels else stage.observe()

    def observe(self, view: Any) -> Shaped[Array, "environment *shape"]:
        """What the robots see, drawn on the device; state vectors as they are."""
        return self._stage.eye.draw(view) if self._stage.is_pixels else jnp.asarray(view)

    def close(self) -> None:
        self._stage.close()
