"""What the environments accept, and what they say where they do not."""

import contextlib
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from actsafe.problems.checking import known


def check_action(action: Any, space: gymnasium.Space) -> npt.NDArray[np.float64]:
    """`action` as numbers, clipped to [-1, 1], or ValueError before anything has changed."""
    advice = f"expected finite numbers in [-1, 1] of shape {space.shape}; env.action_space.sample() is an example."
    try:
        checked = np.asarray(action)
        if checked.dtype.kind not in "fiub":
            raise TypeError
        checked = checked.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"action: got {action!r}, which is not an array of real numbers; {advice}") from None
    if checked.shape != space.shape:
        raise ValueError(f"action: got shape {checked.shape}; {advice}")
    if not np.all(np.isfinite(checked)):
        raise ValueError(f"action: got {checked[~np.isfinite(checked)].tolist()} in {checked.tolist()}; {advice}")
    # Clipped here as well as in the problem: a finite number may overflow when JAX runs in float32.
    return np.clip(checked, -1.0, 1.0)


def refuse_options(options: dict[str, Any] | None) -> None:
    """Raise ValueError where there are options: one that is ignored would look as if it had been heard."""
    if options:
        raise ValueError(f"reset options: got {sorted(options)}, expected none; pass options to the constructor.")


def copy_seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """A seed for every copy: seed + i for a whole one, as they are in a list."""
    if seed is None or isinstance(seed, int):
        return [None if seed is None else seed + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"seed: got {len(seed)} seeds, expected {num_envs}, one for each copy, or one int.")
    return list(seed)


def require_known_options(options: Iterable[str], *takers: Callable[..., Any]) -> None:
    """Raise ValueError for an option that none of `takers` has, with the nearest that one has."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = [each for taker in takers for each in inspect.signature(taker).parameters.values()]
    names = list(dict.fromkeys(each.name for each in parameters if each.kind in kinds))
    for name in options:
        known("option", name, names)


def checked_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """The mode (or the one of that value), or ValueError where a batch of ours has no such mode."""
    choices = [each.value for each in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)]
    word = mode.value if isinstance(mode, AutoresetMode) else mode
    return AutoresetMode(known("autoreset_mode", word, choices))


def with_finals(info: Mapping[str, npt.NDArray[Any]], finals: Any, is_over: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The info of a step in the mode SAME_STEP, as Gymnasium has it: that of the copies that ended is put aside.

    `finals` are the observations of all copies before those were reset.
    """

    def masked(mask: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[Any]]:
        values = {name: np.where(mask, value, np.zeros((), value.dtype)) for name, value in info.items()}
        return values | {f"_{name}": mask.copy() for name in info}

    if not np.any(is_over):
        return masked(~is_over)
    final_obs = np.full(len(is_over), None, object)
    for number in np.flatnonzero(is_over):
        final_obs[number] = finals[number].copy()
    aside = {"final_obs": final_obs, "_final_obs": is_over.copy(), "final_info": masked(is_over)}
    return masked(~is_over) | aside | {"_final_info": is_over.copy()}


class FaultyEnvironmentError(ValueError):
    """Something that an environment did wrong, in a sentence."""


@contextlib.contextmanager
def blamed_on(what: str, advice: str) -> Iterator[None]:
    """A context in which any exception becomes a `FaultyEnvironmentError` that begins with `what`, chained to it.

    Also `SystemExit`, with which an environment would end the program without a word; but not `KeyboardInterrupt`.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, FaultyEnvironmentError):
            raise FaultyEnvironmentError(f"{what}: {error}") from error
        words = f"{type(error).__name__}: {error}".removesuffix(": ").removesuffix(".")
        raise FaultyEnvironmentError(f"{what}: {words}. {advice}") from error


class CheckedEnv(gymnasium.Wrapper):
    """An environment that raises `FaultyEnvironmentError` where it does not keep to Gymnasium's interface.

    A vector environment would cast what it is given to the types of its arrays: NaN as `terminated` is True there, and
    a cost of 0.7 is 0 beside another environment's whole 0. Costs are handed on as floats.
    """

    def __init__(self, env: gymnasium.Env, cost_names: Sequence[str]):
        super().__init__(env)
        self._cost_names = tuple(cost_names)
        self._where = "the environment"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._where = f"the environment with seed {seed}"
        with blamed_on(f"reset() of {self._where} failed", "Look into the environment."):
            outcome = self.env.reset(seed=seed, options=options)
        observation, info = self._parts(outcome, "reset()", "(observation, info)")
        self._check_observation(observation, "reset()")
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with blamed_on(f"step() of {self._where} failed", "Look into the environment."):
            outcome = self.env.step(action)
        parts = self._parts(outcome, "step()", "(observation, reward, terminated, truncated, info)")
        observation, reward, is_terminated, is_truncated, info = parts
        self._check_observation(observation, "step()")
        for name, value in (("terminated", is_terminated), ("truncated", is_truncated)):
            if not isinstance(value, (bool, np.bool_)):
                self._refuse(f"{name} is {value!r}", "True or False", "step()")
        costs = {name: self._cost(name, info[name]) for name in self._cost_names if name in info}
        return observation, reward, bool(is_terminated), bool(is_truncated), {**info, **costs}

    def _parts(self, outcome: Any, call: str, expected: str) -> tuple[Any, ...]:
        """The parts of what the environment returned, of which the last is the info."""
        if not isinstance(outcome, tuple) or len(outcome) != expected.count(",") + 1:
            self._refuse(f"the result is {reprlib.repr(outcome)}", f"the tuple {expected}", call)
        if not isinstance(outcome[-1], dict):
            self._refuse(f"info is {reprlib.repr(outcome[-1])}", "a dict", call)
        return outcome

    def _check_observation(self, observation: Any, call: str) -> None:
        space = self.observation_space
        with blamed_on(f"{call} of {self._where} returned no array as observation", f"Expected one of {space}."):
            array = np.asarray(observation)
        if (array.dtype, array.shape) != (space.dtype, space.shape):
            got, expected = (f"{each.dtype} of shape {each.shape}" for each in (array, space))
            self._refuse(f"the observation is {got}", f"{expected}, as its observation space says", call)

    def _cost(self, name: str, value: Any) -> float:
        kind, shape = np.asarray(value).dtype.kind, np.shape(value)
        if kind not in "iuf" or shape != ():
            self._refuse(f"the cost {name!r} is {reprlib.repr(value)}", "a real number such as float(cost)", "step()")
        return float(value)

    def _refuse(self, got: str, expected: str, call: str) -> NoReturn:
        raise FaultyEnvironmentError(
            f"after {call} of {self._where}, {got}; expected {expected}. Repair the environment."
        )
