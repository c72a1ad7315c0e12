"""Gymnasium's two interfaces, of one environment and of a vector of them, on copies that are stepped together."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from actsafe.envs.checks import check_action, checked_autoreset_mode, copy_seeds, refuse_options, with_finals
from actsafe.problems.checking import checked_number

Frame = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class Steps(NamedTuple):
    """What one action of every copy brings, in rows."""

    rewards: npt.NDArray[np.float64]
    terminations: Mask
    truncations: Mask
    info: dict[str, npt.NDArray[Any]]


class Stage(abc.ABC):
    """Copies of an environment, each of which goes on as if it were alone."""

    render_mode: str | None
    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.Space[npt.NDArray[np.float32]]
    render_fps: int
    num_decisions: int
    """Of an episode that does not end early."""

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int | None], which: Mask | None = None) -> None:
        """Begin episodes of the copies chosen by `which` (all, if None). Without a seed a random stream goes on."""

    @abc.abstractmethod
    def step(self, actions: npt.NDArray[np.float64], which: Mask) -> Steps:
        """What actions bring to the copies chosen by `which`. The others stay as they are and have zeros."""

    @abc.abstractmethod
    def observe(self) -> npt.NDArray[Any]:
        """The observations of all copies, in fresh memory."""

    @abc.abstractmethod
    def pictures(self) -> Sequence[Frame]:
        """A picture of every copy."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what the copies hold."""


AnyStage = TypeVar("AnyStage", bound=Stage)


class StagedEnv(gymnasium.Env[npt.NDArray[Any], npt.NDArray[np.float32]], Generic[AnyStage]):
    """The one copy on a stage."""

    # An annotation that is not ClassVar, as in Gymnasium's base class, which lets an instance have its own.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space: gymnasium.spaces.Box

    def __init__(self, stage: AnyStage):
        self._stage = stage
        self._is_over: bool | None = None
        self.render_mode, self.metadata = stage.render_mode, {**self.metadata, "render_fps": stage.render_fps}
        self.observation_space, self.action_space = stage.observation_space, stage.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[npt.NDArray[Any], dict]:
        """The first observation. With `seed` all that follows is reproducible, later unseeded resets included."""
        refuse_options(options)
        # Gymnasium's contract: its generator is seeded here, and a tool that looks at `np_random` finds it so.
        super().reset(seed=seed)
        self._stage.reset([seed])
        self._is_over = False
        return self._stage.observe()[0], {}

    def step(self, action: Any) -> tuple[npt.NDArray[Any], float, bool, bool, dict[str, Any]]:
        """What one action brings. Outside [-1, 1] it is clipped; one that is no action raises ValueError."""
        checked = check_action(action, self.action_space)
        _require_begun(self._is_over is not None)
        if self._is_over:
            raise gymnasium.error.ResetNeeded(
                f"step() after the episode's end, at most {self._stage.num_decisions} decisions; call reset() for the "
                "next episode."
            )
        steps = self._stage.step(checked[None], np.ones(1, bool))
        is_terminated, is_truncated = bool(steps.terminations[0]), bool(steps.truncations[0])
        self._is_over = is_terminated or is_truncated
        info = {name: row[0].item() for name, row in steps.info.items()}
        return self._stage.observe()[0], float(steps.rewards[0]), is_terminated, is_truncated, info

    def render(self) -> Frame | None:
        """A picture, where `render_mode` is "rgb_array"."""
        if self.render_mode is None:
            return None
        _require_begun(self._is_over is not None)
        return self._stage.pictures()[0]

    def close(self) -> None:
        self._stage.close()


class StagedVectorEnv(
    gymnasium.vector.VectorEnv[npt.NDArray[Any], npt.NDArray[np.float32], npt.NDArray[Any]], Generic[AnyStage]
):
    """All copies on a stage; copy i with seed s behaves as the `StagedEnv` with seed s + i.

    Autoreset is Gymnasium's NEXT_STEP, each copy by itself: in the step after its episode has ended a copy ignores its
    action, returns a first observation and reward 0, and its info is masked out. With SAME_STEP the step that ends an
    episode returns the first observation of the next, and what it brought is in `final_obs` and `final_info`.
    """

    metadata: dict[str, Any] = {**StagedEnv.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, make: Callable[[int], AnyStage], num_envs: int, autoreset_mode: AutoresetMode | str):
        self.num_envs = int(checked_number("num_envs", num_envs, at_least=1.0, is_whole=True))
        self._mode = checked_autoreset_mode(autoreset_mode)
        self._stage = stage = make(self.num_envs)
        self.render_mode = stage.render_mode
        self.metadata = {**self.metadata, "render_fps": stage.render_fps, "autoreset_mode": self._mode}
        self.single_observation_space, self.single_action_space = stage.observation_space, stage.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._has_begun, self._is_over = np.zeros((2, self.num_envs), bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """First observations. A whole `seed` gives copy i seed + i; in a list, None lets a copy's stream go on.

        `options={"reset_mask": mask}` resets some of the copies only, as Gymnasium has it.
        """
        mask = _reset_mask(options, self.num_envs)
        seeds = copy_seeds(seed, self.num_envs)
        super().reset(seed=seeds[0])
        self._stage.reset(seeds, mask)
        self._has_begun, self._is_over = self._has_begun | mask, self._is_over & ~mask
        return self._stage.observe(), {}

    def step(
        self, actions: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """What one action of every copy brings; one bad action refuses the batch and leaves all states untouched."""
        checked = check_action(actions, self.action_space)
        _require_begun(np.all(self._has_begun))
        is_over = self._is_over
        self._begin_anew(is_over)
        rewards, terminations, truncations, info = self._stage.step(checked, ~is_over)
        observations, ended = self._stage.observe(), terminations | truncations
        if self._mode is AutoresetMode.SAME_STEP:
            info = with_finals(info, observations, ended)
            if self._begin_anew(ended):
                observations = self._stage.observe()
        else:
            self._is_over = ended
            info |= {f"_{name}": ~is_over for name in info}
        return observations, rewards, terminations, truncations, info

    def _begin_anew(self, which: Mask) -> bool:
        """Reset copies whose episode is over; returns whether there are any."""
        if np.any(which):
            self._stage.reset([None] * self.num_envs, which)
        return bool(np.any(which))

    def render(self) -> tuple[Frame, ...] | None:
        """One picture per copy, where `render_mode` is "rgb_array"."""
        if self.render_mode is None:
            return None
        _require_begun(np.all(self._has_begun))
        return tuple(self._stage.pictures())

    def close_extras(self, **kwargs: Any) -> None:
        self._stage.close()


def _require_begun(has_begun: bool | np.bool_) -> None:
    if not has_begun:
        raise gymnasium.error.ResetNeeded("the environment has no state yet; call reset() first.")


def _reset_mask(options: dict[str, Any] | None, num_envs: int) -> Mask:
    rest = dict(options or {})
    mask = np.asarray(rest.pop("reset_mask", np.ones(num_envs, bool)))
    refuse_options(rest)
    if mask.dtype != np.bool_ or mask.shape != (num_envs,):
        raise ValueError(f"reset_mask: got {mask.dtype} of shape {mask.shape}, expected bool of shape ({num_envs},).")
    return mask
