"""Anybody's Gymnasium environments as a batch, and what is refused of them."""

import contextlib
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array, Shaped

from actsafe.envs.base import EnvBatch, environment_seeds, require_sound_step
from actsafe.envs.checks import FaultyEnvironmentError, blamed_on
from actsafe.envs.spec import EnvSpec, TimeStep
from actsafe.problems.checking import checked_number

Mask = npt.NDArray[np.bool_]
_STACKING = (SyncVectorEnv, AsyncVectorEnv)
"""Vectors that cast what the environments say to the type of what the first of them says."""


class GymnasiumBatch(EnvBatch):
    """A Gymnasium vector environment; costs are read from `info`, actions stretched from [-1, 1] to their bounds.

    Every autoreset mode gives the same rows where all episodes end together, as with a time limit. Where they do not,
    NEXT_STEP (what Gymnasium makes by default) is the one to use. With SAME_STEP and DISABLED all environments must be
    stepped in the tick in which some of them show their first observation: those take a step with the middle of the
    action range, the row shows what comes after it, and its reward and costs are added to those of the next row.
    Nothing of an episode's return and cost is lost.
    """

    def __init__(
        self,
        envs: VectorEnv,
        *,
        budgets: Sequence[float],
        cost_names: Sequence[str] = ("cost",),
        num_decisions: int | None = None,
        action_repeat: int = 1,
    ):
        """`cost_names` are keys of `info`, each a constraint with its budget.

        `num_decisions` is needed where the environment does not say how long its episodes are. `action_repeat` says
        how many simulator steps the environment makes of one action; nothing is repeated here (see `RepeatedAction`).
        """
        self._envs, self.num_envs = envs, envs.num_envs
        name = "a Gymnasium environment" if envs.spec is None else envs.spec.id
        self._actions = _action_box(name, envs.single_action_space)
        self._observations = _observation_box(name, envs.single_observation_space)
        shape = self._observations.shape
        names = _cost_names(cost_names)
        if len(names) != len(budgets) or not names:
            raise ValueError(f"budgets: got {list(budgets)}, expected one for each of the costs {list(cost_names)}.")
        repeat = int(checked_number("action_repeat", action_repeat, at_least=1.0, is_whole=True))
        self.spec = EnvSpec(
            name,
            shape,
            int(np.prod(self._actions.shape)),
            names,
            tuple(float(budget) for budget in budgets),
            _episode_length(envs, num_decisions, repeat),
            repeat,
            action_range=(tuple(self._actions.low.ravel().tolist()), tuple(self._actions.high.ravel().tolist())),
            action_shape=self._actions.shape,
            action_dtype=str(self._actions.dtype),
            observation_dtype="uint8" if len(shape) == 3 else "float32",
        )
        mode = envs.metadata.get("autoreset_mode")
        if mode is None:
            raise ValueError(f"{self.name}: its metadata has no 'autoreset_mode'; set one of {list(AutoresetMode)}.")
        self._mode = AutoresetMode(mode)
        self._tick, self._is_cut_off, self._owed = -1, False, (0.0, 0.0)

    def reset(self, seed: int) -> TimeStep:
        self._tick = -1
        with self._blamed("reset()", 0):
            observation, _ = self._envs.reset(seed=environment_seeds(seed, self.num_envs)[0])
        self._tick = 0
        return self._first_rows(self._checked_observations(observation))

    def _first_rows(self, observation: npt.NDArray[Any]) -> TimeStep:
        """Rows that all begin an episode, without a step."""
        self._is_over, self._begun = np.zeros(self.num_envs, bool), None
        reward, costs = np.zeros(self.num_envs), np.zeros((self.num_envs, len(self.spec.cost_names)))
        return self._time_step(observation, reward, costs, ~self._is_over)

    def step(self, actions: Any) -> TimeStep:
        """What one tick brings; environments whose episode is over begin the next."""
        checked = self.checked_actions(actions)
        if self._tick < 0:
            raise gymnasium.error.ResetNeeded("the batch has no state yet; call reset(seed) first.")
        self._tick += 1
        is_first = self._is_over
        if self._begun is not None and np.all(is_first):
            return self._first_rows(self._begun)
        checked[is_first] = 0.0
        with self._blamed("step()", self._tick):
            outcome = self._envs.step(self.spec.own_actions(checked))
        observation, reward, terminations, truncations, info = outcome
        is_over = self._flags("terminations", terminations) | self._flags("truncations", truncations)
        if np.any(is_first & is_over):
            raise ValueError(
                f"{self.name}: an episode of environment {int(np.argmax(is_first & is_over))} ended with the step that "
                "began it; expected at least two steps. Use the autoreset mode NEXT_STEP."
            )
        is_stepped = ~is_first if self._mode is AutoresetMode.NEXT_STEP else np.ones(self.num_envs, bool)
        costs = self._costs(info, is_stepped, is_over)
        reward = np.array(reward, np.float64)
        reward[~is_stepped] = 0.0
        observation = self._end(self._checked_observations(observation), is_over, info)
        self._is_over = is_over
        return self._time_step(observation, reward, costs, is_first)

    def _time_step(self, observation: Any, reward: Any, costs: Any, is_first: Mask) -> TimeStep:
        """The rows of this tick, once they are found sound. What first rows bring is put off to the rows after them."""
        view, reward, costs = observation.astype(self.observation_dtype), np.float32(reward), np.float32(costs)
        time_step = TimeStep(view, reward, costs, is_first, self._is_over.copy())
        require_sound_step(self, time_step, self._tick)
        owed_reward, owed_costs = self._owed
        self._owed = np.where(is_first, reward, 0), np.where(is_first[:, None], costs, 0)
        reward, costs = np.where(is_first, 0, reward + owed_reward), np.where(is_first[:, None], 0, costs + owed_costs)
        return time_step._replace(reward=reward, costs=costs)

    @contextlib.contextmanager
    def _blamed(self, call: str, tick: int) -> Iterator[None]:
        """A context in which what the environments raise is named with the call and the tick."""
        advice = (
            f"Do all its observations have the shape {self._observations.shape} and the dtype "
            f"{self._observations.dtype} that it declares? Otherwise look into the environment."
        )
        try:
            with blamed_on(f"{self.name}: {call} failed at tick {tick}", advice):
                yield
        except FaultyEnvironmentError as fault:
            cause = fault.__cause__
            if not (hasattr(self._envs.unwrapped, "processes") and isinstance(cause, (EOFError, ConnectionError))):
                raise
            self._is_cut_off = True
            raise FaultyEnvironmentError(
                f"{self.name}: a worker process ended in {call} at tick {tick}, expected an answer; look into the "
                "environment with vectorization_mode=sync, which runs it in this process."
            ) from cause

    def _flags(self, what: str, flags: Any) -> Mask:
        """Terminations or truncations, or ValueError where they are not a bool for each environment."""
        checked = np.asarray(flags)
        if checked.dtype != np.bool_ or checked.shape != (self.num_envs,):
            raise ValueError(
                f"{self.name}: the {what} at tick {self._tick} are {checked.dtype} of shape {checked.shape}, expected "
                f"bool of shape {(self.num_envs,)}; look into the environment."
            )
        return checked

    def _costs(self, info: Mapping[str, Any], is_stepped: Mask, is_over: Mask) -> npt.NDArray[np.float64]:
        """The costs (environment, constraint) of those that stepped, 0 for the others."""
        # With SAME_STEP the info of an environment that ended is that of its reset, and its own is put aside.
        is_aside = is_over & (self._mode is AutoresetMode.SAME_STEP)
        sources = ((info, is_stepped & ~is_aside), (info.get("final_info", {}), is_stepped & is_aside))
        costs = np.zeros((self.num_envs, len(self.spec.cost_names)))
        for number, name in enumerate(self.spec.cost_names):
            for source, which in sources:
                is_missing = which & ~np.broadcast_to(source.get(f"_{name}", name in source), (self.num_envs,))
                if np.any(is_missing):
                    there = sorted(key for key in source if not key.startswith("_"))
                    raise ValueError(
                        f"{self.name}: info of environment {int(np.argmax(is_missing))} at tick {self._tick} has no "
                        f"{name!r}; expected a cost in every step. There are {there}: name those with cost_names."
                    )
                if np.any(which):
                    costs[which, number] = self._cost_values(name, source[name])[which]
        return costs

    def _cost_values(self, name: str, values: Any) -> npt.NDArray[np.float64]:
        """A cost of all environments, or ValueError where it is not a real number of each."""
        checked = np.asarray(values)
        expected = None
        if checked.dtype.kind not in "iuf" or checked.shape != (self.num_envs,):
            expected = f"real numbers of shape {(self.num_envs,)}, such as float(cost) of each environment"
        elif checked.dtype.kind != "f" and self.num_envs > 1 and isinstance(self._envs.unwrapped, _STACKING):
            expected = "floats: beside a whole 0 Gymnasium cuts another environment's 0.7 to 0. Give float(cost)"
        if expected is not None:
            raise ValueError(
                f"{self.name}: the cost {name!r} at tick {self._tick} is {checked.dtype} of shape {checked.shape}, "
                f"{reprlib.repr(checked.tolist())}; expected {expected}."
            )
        return checked.astype(np.float64)

    def _end(self, observation: npt.NDArray[Any], is_over: Mask, info: Mapping[str, Any]) -> npt.NDArray[Any]:
        """The observations with which episodes ended; what the next begin with is put aside if it is here already."""
        self._begun = None
        if self._mode is AutoresetMode.NEXT_STEP or not np.any(is_over):
            return observation
        self._begun = observation.copy()
        if self._mode is AutoresetMode.DISABLED:
            with self._blamed("reset()", self._tick):
                begun, _ = self._envs.reset(options={"reset_mask": is_over})
            self._begun[is_over] = self._checked_observations(begun)[is_over]
            return observation
        if "final_obs" not in info:
            raise ValueError(f"{self.name}: info has no 'final_obs', which the mode SAME_STEP owes; use NEXT_STEP.")
        final = observation.copy()
        for number in np.flatnonzero(is_over):
            final[number] = self._checked_observations(np.asarray(info["final_obs"][number])[None], 1)[0]
        return final

    def _checked_observations(self, observation: Any, num: int | None = None) -> npt.NDArray[Any]:
        """The observations of `num` environments (all), copied, or ValueError where they are not as declared."""
        checked = np.array(observation)
        expected = (num or self.num_envs, *self._observations.shape)
        if checked.shape != expected or checked.dtype != self._observations.dtype:
            raise ValueError(
                f"{self.name}: the observations at tick {self._tick} are {checked.dtype} of shape {checked.shape}, "
                f"expected {self._observations.dtype} of shape {expected}, as its observation space says; repair one."
            )
        return checked

    def observe(self, view: Any) -> Shaped[Array, "environment *shape"]:
        return jnp.asarray(view)

    def close(self) -> None:
        if not self._is_cut_off:
            self._envs.close()
            return
        # To close in an orderly way would be to wait for the answer of a worker that has ended.
        for process in getattr(self._envs.unwrapped, "processes", ()):
            process.terminate()
        self._envs.unwrapped.closed = True


def _cost_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names, or ValueError where they are one string, or name a cost twice, which would then count twice."""
    if isinstance(names, str):
        raise ValueError(f"cost_names: got {names!r}, expected a list of names; write [{names!r}].")
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise ValueError(f"cost_names: got {list(names)}, expected each cost once; leave out the second {twice[0]!r}.")
    return tuple(names)


def _action_box(name: str, space: gymnasium.Space) -> gymnasium.spaces.Box:
    """The action space, or ValueError where it is not one that [-1, 1] can be stretched to."""
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype.kind != "f" or not space.is_bounded():
        raise ValueError(f"{name}: got the action space {space}, expected a bounded Box of floats; wrap it.")
    if 0 in space.shape:
        raise ValueError(f"{name}: got the action space {space}, expected at least one number to choose; repair it.")
    return space


def _observation_box(name: str, space: gymnasium.Space) -> gymnasium.spaces.Box:
    """The observation space, or ValueError where it is neither pixels nor a vector."""
    if isinstance(space, gymnasium.spaces.Box):
        is_pixels = len(space.shape) == 3 and space.shape[2] == 3 and space.dtype == np.uint8
        if is_pixels or (len(space.shape) == 1 and space.dtype.kind == "f"):
            return space
    raise ValueError(
        f"{name}: got the observation space {space}, expected a Box of uint8 pixels (height, width, 3) or of a vector "
        "of floats; wrap it (gymnasium.wrappers.FlattenObservation, ReshapeObservation, ...)."
    )


def _episode_length(envs: VectorEnv, num_decisions: int | None, action_repeat: int) -> int:
    """Decisions of a full episode: as given, or as the environment's time limit has it."""
    if num_decisions is not None:
        return int(checked_number("num_decisions", num_decisions, at_least=1.0, is_whole=True))
    limit = None if envs.spec is None else envs.spec.max_episode_steps
    if limit is None:
        raise ValueError("num_decisions: the environment has no time limit to take it from; give one.")
    return -(-limit // action_repeat)
