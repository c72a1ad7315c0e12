"""Epochs and evaluations: the agent acts, the replay fills, the agent learns."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from actsafe.agents.phases import Phase
from actsafe.agents.recipes import Policy
from actsafe.agents.vision import VisionAgent, VisionState
from actsafe.data.replay import HostReplay, Replay, require_sound
from actsafe.envs.make import EnvBatch
from actsafe.models.rssm.blocks import is_for_nvidia
from actsafe.training.collecting import Block, Way, make_collector
from actsafe.training.errors import UserError
from actsafe.training.learning import Learner, Sums, added
from actsafe.training.recording import Outcome, Tally
from actsafe.training.settings import ConfigError
from actsafe.training.vision_config import VisionConfig

TRAINING, EVALUATION = 0, 1
"""Random streams of an epoch; whoever has other uses for its agent takes later ones."""

EVALUATED = Way(Policy.TASK, is_greedy=True)
DRAWN = Way(Policy.TASK)
"""As the task's policy acts in training, and in the dreams whose costs are held against the budgets."""

AnyReplay = Replay | HostReplay


class ProblemError(UserError, RuntimeError):
    """An environment returned something that no constrained MDP may return."""


class Standing(NamedTuple):
    """Where a run stands: with the replay, all that its next epoch depends on."""

    agent: VisionState
    num_steps: Any
    """Simulator steps of all environments, evaluations aside."""
    num_updates: Any


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What an epoch brought."""

    standing: Standing
    replay: AnyReplay
    phase: Phase
    outcomes: list[Outcome]
    learned: Mapping[str, float]
    """What the updates reported, averaged; empty where there was none."""
    num_steps: int
    num_updates: int
    seconds: float


class Loop:
    """An agent in its environments.

    What an epoch brings depends on where the run stands, the replay, the seed and the epoch's number, and on nothing
    else: environments begin anew, and all random numbers are derived from seed and number.
    """

    def __init__(self, config: VisionConfig, fleet: EnvBatch, agent: VisionAgent) -> None:
        self.config, self.fleet, self.agent = config, fleet, agent
        self.num_ticks = ticks_per_epoch(config, fleet)
        self.steps_per_tick = fleet.num_envs * fleet.spec.action_repeat
        self.on_steps: Callable[[int], None] = lambda num_steps: None
        self._collector = make_collector(agent, fleet)
        # One call for all that a cycle is due: a device takes long to begin with a program of thousands of kernels.
        self._learner = Learner(agent, max(1, self._updates_due(config.decisions_per_cycle * self.steps_per_tick)))

    def ticks_of(self, num_episodes: int) -> int:
        """Ticks in which the environments together end so many episodes that have their full length."""
        return -(-num_episodes // self.fleet.num_envs) * (self.fleet.spec.num_decisions + 1)

    def epoch(self, number: int, standing: Standing, replay: AnyReplay, phase: Phase | None = None) -> Epoch:
        """One epoch of training, of the schedule's phase if no other is given. `standing` and `replay` are given up."""
        started = time.perf_counter()
        phase, num_steps = phase or self.config.phase(number), int(standing.num_steps)
        way = Way(self.agent.recipe.policy(phase))
        act_key, learn_key = jax.random.split(self._key(number, TRAINING))
        pupil = Pupil(self._learner, standing.agent, int(standing.num_updates), learn_key, phase)
        tally, num_rows = self._tally(), (number - 1) * self.num_ticks
        self._collector.begin(self._seed(number, TRAINING))
        self._compile_ahead(number, standing.agent, replay)

        def catch_up() -> None:
            """Learn what the steps so far are due."""
            pupil.learn(replay, pupil.num_updates + self._updates_owed(pupil, num_rows, num_steps))

        for cycle, count in enumerate(self._cycles(self.num_ticks)):
            catch_up()
            with _explained(f"epoch {number}"):
                block = self._collector.collect(pupil.agent.mind, count, way, jax.random.fold_in(act_key, cycle))
                rows = block.rows()
                require_sound(rows, self.fleet.name)
            replay = replay.append(rows)
            tally.add(block)
            num_rows, num_steps = num_rows + count, num_steps + block.num_decisions * self.fleet.spec.action_repeat
            self.on_steps(count * self.steps_per_tick)
        catch_up()
        num_new_steps, num_new_updates = (
            num_steps - int(standing.num_steps),
            pupil.num_updates - int(standing.num_updates),
        )
        return Epoch(
            Standing(pupil.agent, np.int32(num_steps), np.int32(pupil.num_updates)),
            replay,
            phase,
            tally.outcomes(),
            {name: float(total) / num_new_updates for name, total in (pupil.reported or {}).items()},
            num_new_steps,
            num_new_updates,
            seconds=time.perf_counter() - started,
        )

    def evaluate(
        self, agent: VisionState, num_episodes: int, *, epoch: int, stream: int = EVALUATION, way: Way = EVALUATED
    ) -> list[Outcome]:
        """Episodes of the task's policy, at its median if nothing else is said, from which nothing is learned."""
        tally = self._tally()
        for block in self.rollout(agent, self.ticks_of(num_episodes), epoch=epoch, stream=stream, way=way):
            tally.add(block)
        # As many of each environment: otherwise those that end early would have more of a say.
        per_env = -(-num_episodes // self.fleet.num_envs)
        chosen = [ended[n] for n in range(per_env) for ended in tally.ended if n < len(ended)]
        return chosen[:num_episodes]

    def rollout(
        self, agent: VisionState, num_ticks: int, *, epoch: int, stream: int, way: Way = EVALUATED
    ) -> Iterator[Block]:
        """Blocks of ticks under the task's policy; `epoch` and `stream` choose the random numbers."""
        self._collector.begin(self._seed(epoch, stream))
        for cycle, count in enumerate(self._cycles(num_ticks)):
            key = jax.random.fold_in(self._key(epoch, stream), cycle)
            with _explained(f"the evaluation after epoch {epoch}"):
                block = self._collector.collect(agent.mind, count, way, key)
            self.on_steps(count * self.steps_per_tick)
            yield block

    def _compile_ahead(self, number: int, agent: VisionState, replay: AnyReplay) -> None:
        """Where compiling takes longest, let this phase's program and the last one's be compiled beside all else."""
        if is_for_nvidia() and isinstance(replay, Replay):
            for epoch in (number, self.config.num_units):
                self._learner.compile_ahead(agent, replay, self.config.phase(epoch))

    def _cycles(self, num_ticks: int) -> Iterator[int]:
        """Ticks of each cycle; the last is short if it must be."""
        for start in range(0, num_ticks, self.config.decisions_per_cycle):
            yield min(self.config.decisions_per_cycle, num_ticks - start)

    def _updates_due(self, num_steps: int) -> int:
        return num_steps * self.config.updates_per_1000_steps // 1000

    def _updates_owed(self, pupil: "Pupil", num_rows: int, num_steps: int) -> int:
        """Updates that these steps are due and that were not done; none before there is a sequence to learn from."""
        is_possible = num_rows >= self.config.agent.sequence_length
        return max(0, self._updates_due(num_steps) - pupil.num_updates) if is_possible else 0

    def _tally(self) -> Tally:
        return Tally(self.fleet.num_envs, len(self.fleet.spec.cost_names))

    def _key(self, epoch: int, stream: int) -> Any:
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self.config.seed), epoch), stream)

    def _seed(self, epoch: int, stream: int) -> int:
        """For the environments."""
        return int(np.random.SeedSequence((self.config.seed, epoch, stream)).generate_state(1)[0])


class Pupil:
    """An agent that learns, and how far it has come."""

    def __init__(self, learner: Learner, agent: VisionState, num_updates: int, key: PRNGKeyArray, phase: Phase) -> None:
        self._learner, self._key, self._phase = learner, key, phase
        self.agent, self.num_updates = agent, num_updates
        self.reported: Sums | None = None
        """What the updates reported, added up."""

    def learn(self, replay: AnyReplay, until: int) -> None:
        """As many whole calls of updates as there are before `until`; none waits for the device."""
        while self.num_updates + self._learner.num_updates <= until:
            key = jax.random.fold_in(self._key, self.num_updates)
            self.agent, sums = self._learner.learn(self.agent, replay, key, self._phase)
            self.reported = sums if self.reported is None else added(self.reported, sums)
            self.num_updates += self._learner.num_updates


def ticks_per_epoch(config: VisionConfig, fleet: EnvBatch) -> int:
    """Rows that every environment has in an epoch: its decisions, and the beginnings of its episodes.

    Where episodes end early there are more beginnings and so fewer decisions than `steps_per_epoch` says.
    """
    whole = fleet.num_envs * fleet.spec.num_decisions * fleet.spec.action_repeat
    if config.steps_per_epoch % whole:
        raise ConfigError(
            f"steps_per_epoch must be a multiple of {whole}, so that episodes end with the epoch ({fleet.num_envs} "
            f"environments, {fleet.spec.num_decisions} decisions of {fleet.spec.action_repeat} steps each), "
            f"got {config.steps_per_epoch}"
        )
    return config.steps_per_epoch // whole * (fleet.spec.num_decisions + 1)


@contextlib.contextmanager
def _explained(when: str) -> Iterator[None]:
    """A context in which what environments raise becomes a `ProblemError`."""
    try:
        yield
    except ValueError as error:
        raise ProblemError(
            f"in {when}: {error} Nothing of this epoch was recorded, and the epochs before it are kept; once the cause "
            "is mended, resume the run"
        ) from error
