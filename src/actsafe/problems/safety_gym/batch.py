"""Many simulations stepped together, by threads that each look after some of them."""

import numbers
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from actsafe.problems.cores import Threads, num_cores
from actsafe.problems.safety_gym.anatomy import COST_SOURCES
from actsafe.problems.safety_gym.observation import state_vectors
from actsafe.problems.safety_gym.settings import SafetyGymSettings
from actsafe.problems.safety_gym.simulation import NOTHING, Outcome, Simulation, total

Mask = npt.NDArray[np.bool_]

LEAST_SHARE = {"Point": 10, "Doggo": 1}
"""Simulations for which a thread of their own pays."""


class StepResult(NamedTuple):
    """What one action each brought, in rows of simulations, summed over the environment steps it was held."""

    rewards: npt.NDArray[np.float64]
    costs: npt.NDArray[np.float64]
    """Environment steps with a violation of any source; a step in which the physics broke down is one."""
    cost_sources: dict[str, npt.NDArray[np.float64]]
    """Environment steps with a violation by source: hazards, vases, pillars."""
    goals_met: npt.NDArray[np.intp]
    is_broken: Mask
    """The physics broke down: the episode is over."""
    is_truncated: Mask
    """The episode has had all its environment steps."""


class Batch:
    """`num_simulations` independent simulations of the same settings.

    Simulation i with seed s is the same as a lone one with seed s, however many threads there are.
    """

    def __init__(self, settings: SafetyGymSettings, num_simulations: int, num_threads: int | None = None):
        """With None, as many threads as there are cores, but none with fewer simulations than pay for it.

        A thread that is handed a few Points, whose physics take 0.03 ms a step, waits longer for Python's lock than it
        works: ten on ten cores of a larger machine took twice as long as on one.
        """
        for name, value in (("num_simulations", num_simulations), ("num_threads", num_threads)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1; change it.")
        self.settings = settings
        self.simulations = tuple(Simulation(settings) for _ in range(num_simulations))
        worthwhile = max(1, num_simulations // LEAST_SHARE[settings.robot])
        self.num_threads = min(num_threads or min(num_cores(), worthwhile), num_simulations)
        # The calling thread takes a share of the work.
        self._threads = Threads(self.num_threads - 1, "safety-gym")
        self.is_closed = False

    def reset(self, seeds: Sequence[Any] | None = None, which: npt.ArrayLike | None = None) -> None:
        """New episodes of the simulations chosen by `which` (all, if None). A seed of None lets a stream go on.

        There is a seed for every simulation, of which those not chosen are not used.
        """
        chosen = self._chosen(which)
        checked = [None] * len(self.simulations) if seeds is None else list(seeds)
        if len(checked) != len(self.simulations):
            raise ValueError(f"seeds: got {len(checked)}, expected {len(self.simulations)}, one for each simulation.")
        for seed in checked:
            if seed is not None and not (isinstance(seed, numbers.Integral) and int(seed) >= 0):
                raise ValueError(f"seeds: got {seed!r}, expected whole numbers of at least 0, or None.")
        self._for_each(lambda number: self.simulations[number].reset(checked[number]), chosen)

    def step(self, actions: Any, which: npt.ArrayLike | None = None) -> StepResult:
        """What the rows of `actions` (simulation, action) bring to the simulations chosen by `which` (all, if None).

        The others stay as they are and have zeros. A bad action, or a simulation whose episode is over, refuses the
        call before anything has changed.
        """
        chosen = self._chosen(which)
        checked = self._check_actions(actions)
        over = [number for number in chosen if not self.simulations[number].is_ready]
        if over:
            raise RuntimeError(
                f"step() of simulations {over}, whose episodes are over or have not begun; reset them first, or leave "
                "them out with `which`."
            )
        outcomes: list[list[Outcome]] = [[] for _ in self.simulations]
        for _ in range(self.settings.action_repeat):
            for number in chosen:
                self.simulations[number].prepare(checked[number])
            # Only physics in threads: the rest holds Python's lock, for which they would wait in turn.
            self._for_each(lambda number: self.simulations[number].run_physics(), chosen)
            for number in chosen:
                outcomes[number].append(self.simulations[number].judge())
            chosen = [number for number in chosen if self.simulations[number].is_ready]
        return self._result([total(steps) if steps else NOTHING for steps in outcomes])

    def _result(self, outcomes: list[Outcome]) -> StepResult:
        rewards, costs, sources, num_met = zip(*outcomes, strict=True)
        length, simulations = self.settings.episode_length, self.simulations
        return StepResult(
            rewards=np.array(rewards),
            costs=np.array(costs),
            cost_sources=dict(zip(COST_SOURCES, np.array(sources, np.float64).T, strict=True)),
            goals_met=np.array(num_met),
            is_broken=np.array([each.is_broken for each in simulations]),
            is_truncated=np.array([each.num_taken >= length and not each.is_broken for each in simulations]),
        )

    def observe(self) -> npt.NDArray[np.float64]:
        """State vectors (simulation, feature), fresh."""
        self._for_each(lambda number: self.simulations[number].refresh(), self._chosen(None))
        seen = [each.surroundings() for each in self.simulations]
        return state_vectors(self.settings.body, seen, np.stack([each.data.sensordata for each in self.simulations]))

    def close(self) -> None:
        """Ends the threads; the batch cannot be used afterwards. Closing twice does no harm."""
        self.is_closed = True
        self._threads.close()

    def _for_each(self, act: Callable[[int], None], chosen: Sequence[int]) -> None:
        """Every thread, this one included, acts on some of the simulations, one after the other."""
        pool = self._threads.pool
        if pool is None:
            _act_on(act, chosen)
            return
        own, *shares = [chosen[start :: self.num_threads] for start in range(self.num_threads)]
        others = [pool.submit(_act_on, act, share) for share in shares if share]
        try:
            _act_on(act, own)
        finally:
            # Also when this thread's own share failed: nobody may still be at work when the caller hears of it.
            wait(others)
        for done in others:
            done.result()

    def _chosen(self, which: npt.ArrayLike | None) -> list[int]:
        """Numbers of the simulations that are meant, once it is clear that the batch is open."""
        if self.is_closed:
            raise RuntimeError("this batch is closed; make a new Batch.")
        if which is None:
            return list(range(len(self.simulations)))
        mask = np.asarray(which)
        if mask.dtype != np.bool_ or mask.shape != (len(self.simulations),):
            raise ValueError(
                f"which: got {mask.dtype} of shape {mask.shape}, expected a mask of shape ({len(self.simulations)},)."
            )
        return np.flatnonzero(mask).tolist()

    def _check_actions(self, actions: Any) -> npt.NDArray[np.float64]:
        """Actions as float64, or ValueError."""
        shape = (len(self.simulations), self.settings.body.num_actions)
        advice = f"expected finite numbers of shape {shape}, in [-1, 1]."
        try:
            checked = np.asarray(actions)
            if checked.dtype.kind not in "fiub":
                raise TypeError
            checked = checked.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"actions: got {actions!r}, which are not real numbers; {advice}") from None
        if checked.shape != shape:
            raise ValueError(f"actions: got shape {checked.shape}; {advice}")
        if not np.isfinite(checked).all():
            rows = np.flatnonzero(~np.isfinite(checked).all(axis=1))
            raise ValueError(f"actions: got {checked[rows[0]].tolist()} for simulations {rows.tolist()}; {advice}")
        return checked


def _act_on(act: Callable[[int], None], chosen: Sequence[int]) -> None:
    for number in chosen:
        act(number)
