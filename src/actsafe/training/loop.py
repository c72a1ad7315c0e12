"""The training loop: policies act, buffers fill, agents learn, tasks are evaluated.

for every epoch:
    for every cycle:   learn what is due, collect a block, append it
    learn what is due, and what an epoch's end asks for
    evaluate, hand over
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode, Agent, Learner, Policy
from actsafe.agents.phases import Phase
from actsafe.data.replay import make_replay
from actsafe.data.rows import RowLayout, Rows, require_sound
from actsafe.envs.base import EnvBatch
from actsafe.envs.make import is_pure
from actsafe.evidence.ledger import is_over
from actsafe.training.collecting import Block, make_collector
from actsafe.training.config import Config
from actsafe.training.episodes import EpisodeOutcome, Episodes
from actsafe.training.errors import ProblemError, UserError
from actsafe.training.settings import ConfigError

TRAINING = 0
"""The random stream of an epoch's training; task k is evaluated with stream 1 + k."""
EVALUATION = 1000
"""Task k is evaluated with stream 1000 + k when it is asked for."""


class TrainState(NamedTuple):
    """With the buffer, all that an epoch depends on."""

    agent: Any
    """With a leading axis seed."""
    keys: Key[Array, " seed"]
    """The root of every seed's random numbers."""
    has_handed_over: Any
    """Whether the task's policy has taken over from the exploration's, and was not called back."""
    may_hand_over: Any
    """Whether it may, going by the last epoch."""
    num_steps: Any
    """Simulator steps of all environments of a seed, evaluations aside."""
    num_updates: Any


@dataclasses.dataclass(frozen=True)
class Rollout:
    """The rows of an epoch or of an evaluation, with what was said of decisions; arrays (seed, environment, time)."""

    blocks: tuple[Block, ...]

    @property
    def rows(self) -> Rows:
        """To be learned from; observations are on the host."""
        parts = [block.rows() for block in self.blocks]
        return Rows(
            *(np.concatenate([np.asarray(each) for each in field], axis=2) for field in zip(*parts, strict=True))
        )

    @property
    def decisions(self) -> dict[str, np.ndarray]:
        """What was said of every decision; rows that no decision followed are left out."""
        return _joined([block.decisions for block in self.blocks if block.decisions])

    @property
    def info(self) -> dict[str, np.ndarray]:
        return _joined([block.info for block in self.blocks])

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, for a trajectory file."""
        return {**self.rows._asdict(), **self.info, **self.decisions}


def _joined(parts: list[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in parts], axis=2) for name in parts[0]}


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What an epoch brought."""

    number: int
    train_state: TrainState
    buffer: Any
    phase: Phase
    role: Role
    episodes: list[list[EpisodeOutcome]]
    """Of training, by seed."""
    evaluations: Mapping[str, list[list[EpisodeOutcome]]]
    """By task and seed; empty where nothing was evaluated."""
    learned: list[dict[str, Any]]
    """By seed, means of what was measured while learning; empty where nothing was learned."""
    deployments: list[list[Mapping[str, Any]]]
    """By seed, what is told of every deployment; empty where nothing is."""
    trajectory: dict[str, np.ndarray]
    """Arrays (seed, environment, time, ...) of training, and of each task's evaluation with the task in the name."""
    num_steps: int
    num_updates: int
    seconds: dict[str, float]


class Loop:
    """Agents, one for each seed, in their environments.

    What an epoch brings depends on the train state, the buffer and the epoch's number, and on nothing else:
    environments begin anew, and all random numbers are derived from a seed's key and the number.
    """

    def __init__(self, config: Config, envs: EnvBatch, agent: Agent) -> None:
        self.config, self.envs, self.agent = config, envs, agent
        self.num_seeds = len(config.seeds)
        self.num_ticks = self.ticks_of(config.schedule.episodes_per_epoch * config.num_envs)
        self.steps_per_tick = config.num_envs * envs.spec.action_repeat
        self.on_steps: Callable[[int], None] = lambda num_steps: None
        self.learner = agent.learner(config.num_envs, self.num_seeds)
        self._collector = make_collector(envs, self.num_seeds)

    @property
    def layout(self) -> RowLayout:
        """Of the buffer: the environments of a seed follow each other."""
        spec, num_envs = self.envs.spec, self.num_seeds * self.config.num_envs
        shape = (spec.observation_shape, self.envs.observation_dtype, spec.action_dim, len(spec.cost_names))
        return RowLayout(num_envs, max(1, self.config.rows_per_env), *shape)

    def ticks_of(self, num_episodes: int) -> int:
        """Ticks in which the environments of a seed together end so many episodes that have their full length."""
        return -(-num_episodes // self.config.num_envs) * (self.envs.spec.num_decisions + 1)

    def begin(self) -> TrainState:
        """The train state of a run that has not begun."""
        return first_state(self.learner, self.config.seeds)

    def make_buffer(self) -> Any:
        """An empty buffer; None for agents that keep what they need in their state."""
        return make_replay(*self.layout) if self.agent.keeps_rows else None

    def epoch(self, number: int, train_state: TrainState, buffer: Any) -> Epoch:
        """One epoch of training, and the evaluation after it where one is due. State and buffer are given up."""
        with self.agent.precision():
            return self._epoch(number, train_state, buffer)

    def _epoch(self, number: int, before: TrainState, buffer: Any) -> Epoch:
        started = time.perf_counter()
        phase = self._phase(number, before)
        mode = ActMode(self.agent.role(phase))
        keys = rollout_keys(before, number, TRAINING)
        session = self.learner.epoch(before.agent, int(before.num_updates), _folded(keys, 1), phase)
        num_steps, num_rows = int(before.num_steps), (number - 1) * self.num_ticks
        num_ticks = self.num_ticks if number else self.config.schedule.seed_decisions + 1
        episodes, blocks = Episodes(self.envs.spec), []
        # Where compiling takes longest, this phase's program and the last one's are compiled beside all else.
        for scheduled in (number, self.config.num_units):
            self.learner.compile_ahead(before.agent, buffer, self.config.phase(scheduled))
        for deployment, ticks in enumerate(self._deployments(num_ticks)):
            own_keys = _folded(keys, deployment) if deployment else keys
            session.begin_deployment(mode, buffer, own_keys)
            with self._explained(f"epoch {number}"):
                self._collector.begin(session.policy, self._env_seeds(number, TRAINING, deployment), own_keys)
            for collect in self._cycles(ticks):
                session.catch_up(buffer, num_rows, num_steps)
                with self._explained(f"epoch {number}"):
                    block = collect(session.policy)
                    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), block.rows())
                    require_sound(rows, self.envs.name)
                buffer = buffer.append(rows) if buffer is not None else None
                episodes.add(block)
                session.record(block)
                if not self.agent.keeps_rows:
                    blocks.append(block)
                num_rows += block.reward.shape[2]
                num_steps += block.num_decisions * self.envs.spec.action_repeat
        outcomes = episodes.outcomes()
        self._require_safe_seed(phase, outcomes)
        explored = time.perf_counter()
        rollout = Rollout(tuple(blocks))
        kept_rows = rollout.rows if blocks else None
        measured = session.finish(buffer, kept_rows, num_rows, num_steps)
        values = {name: np.asarray(value).tolist() for name, value in measured.items()}
        learned = [{name: value[seed] for name, value in values.items()} for seed in range(self.num_seeds)]
        may_hand_over = all(self.agent.may_exploit(_numbers(each)) for each in learned)
        is_handed_back = phase is Phase.EXPLOITATION and self.agent.hands_back and self._is_broken(outcomes)
        after = TrainState(
            session.agent,
            before.keys,
            np.asarray((bool(before.has_handed_over) or phase is Phase.EXPLOITATION) and not is_handed_back),
            np.asarray(may_hand_over and not is_handed_back),
            np.int32(num_steps),
            np.int32(session.num_updates),
        )
        trained = time.perf_counter()
        trajectory = rollout.arrays() if blocks else {}
        evaluations = {}
        if self.config.is_evaluated(number):
            for place, task in enumerate(self.agent.tasks):
                num_episodes, stream = self.config.evaluation_episodes, 1 + place
                rollout, evaluations[task] = self.evaluate(after, task, num_episodes, epoch=number, stream=stream)
                if not self.agent.keeps_rows:
                    trajectory |= {f"{task}/{name}": value for name, value in rollout.arrays().items()}
        ended = time.perf_counter()
        return Epoch(
            number,
            after,
            buffer,
            phase,
            mode.role,
            outcomes,
            evaluations,
            learned,
            [list(own) for own in session.deployments],
            trajectory,
            num_steps - int(before.num_steps),
            session.num_updates - int(before.num_updates),
            {
                "seconds": ended - started,
                "train_seconds": trained - started,
                "collect_seconds": explored - started,
                "evaluate_seconds": ended - trained,
            },
        )

    def evaluate(
        self,
        state: TrainState,
        task: str,
        num_episodes: int,
        *,
        epoch: int,
        stream: int | None = None,
        is_greedy: bool = True,
    ) -> tuple[Rollout, list[list[EpisodeOutcome]]]:
        """Episodes of a task's policy by seed, nothing is learned; `epoch` and `stream` choose random numbers.

        By default these are those of the evaluation that is asked for.
        """
        stream = EVALUATION + self.agent.tasks.index(task) if stream is None else stream
        with self.agent.precision():
            mode, num_ticks = ActMode(Role.TASK, task, is_greedy), self.ticks_of(num_episodes)
            blocks = tuple(self.rollout(state, mode, num_ticks, epoch=epoch, stream=stream))
        episodes = Episodes(self.envs.spec)
        for block in blocks:
            episodes.add(block)
        # As many of each environment: otherwise those that end early would have more of a say.
        return Rollout(blocks), episodes.first(num_episodes)

    def rollout(self, state: TrainState, mode: ActMode, num_ticks: int, *, epoch: int, stream: int) -> Iterator[Block]:
        """Blocks of ticks under the policies of a mode. Call within the agent's precision."""
        policy = self.learner.policy(state.agent, mode)
        when = f"the evaluation after epoch {epoch}"
        with self._explained(when):
            self._collector.begin(policy, self._env_seeds(epoch, stream), rollout_keys(state, epoch, stream))
        for collect in self._cycles(num_ticks):
            with self._explained(when):
                block = collect(policy)
            yield block

    def _cycles(self, num_ticks: int) -> Iterator[Callable[[Policy], Block]]:
        """What collects each cycle's block; a last tick that is left over is a row without a decision."""
        at_once, left = self.agent.num_ticks_at_once, num_ticks
        while left:
            count = min(at_once, left)
            if left == 1:
                yield lambda policy: self._collector.last_row()
            else:
                yield lambda policy, count=count: self._collector.collect(policy, count)
            left -= count
            self.on_steps(count * self.steps_per_tick)

    def _phase(self, number: int, state: TrainState) -> Phase:
        """The schedule's, but that the expansion goes on, and comes back, until the task's policy may take over."""
        phase = self.config.phase(number)
        is_held_back = not (bool(state.has_handed_over) or bool(state.may_hand_over) or number <= 1)
        return Phase.EXPANSION if phase is Phase.EXPLOITATION and is_held_back else phase

    def _is_broken(self, outcomes: list[list[EpisodeOutcome]]) -> bool:
        """Whether the mean cost over some seed's episodes is over a budget."""
        means = [np.mean([outcome.costs for outcome in of_seed], axis=0) for of_seed in outcomes if of_seed]
        return any(
            is_over(cost, budget)
            for of_seed in means
            for cost, budget in zip(of_seed, self.envs.spec.budgets, strict=True)
        )

    def _require_safe_seed(self, phase: Phase, outcomes: list[list[EpisodeOutcome]]) -> None:
        costs = [outcome.costs for of_seed in outcomes for outcome in of_seed]
        if phase is not Phase.SEED or not costs:
            return
        for budget, spent in zip(self.envs.spec.budgets, np.max(costs, axis=0), strict=True):
            if is_over(spent, budget):
                raise ProblemError(
                    f"the safe seed policy (zero input) is not safe here: it cost {spent:g}, and the budget is "
                    f"{budget:g}. Raise the budget, or start the environment where zero input is safe"
                )

    def _deployments(self, num_ticks: int) -> list[int]:
        """Ticks of every deployment, which begins with new episodes of all environments."""
        each = self.agent.ticks_per_deployment or num_ticks
        return [min(each, num_ticks - start) for start in range(0, num_ticks, each)]

    def _env_seeds(self, epoch: int, stream: int, deployment: int = 0) -> list[int]:
        """For the environments of every seed."""
        entropy = (epoch, stream, deployment) if deployment else (epoch, stream)
        numbers = [np.random.SeedSequence((seed, *entropy)) for seed in self.config.seeds]
        return [int(each.generate_state(1)[0]) for each in numbers]

    @contextlib.contextmanager
    def _explained(self, when: str) -> Iterator[None]:
        """A context in which what environments raise becomes a `ProblemError`."""
        try:
            yield
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            raise ProblemError(
                f"in {when}: {error} Nothing of this epoch was recorded, and the epochs before it are kept; once the "
                "cause is mended, resume the run"
            ) from error


def first_state(learner: Learner, seeds: Sequence[int]) -> TrainState:
    """The train state of a run that has not begun."""
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    roots = jax.vmap(lambda key: jax.random.split(key, 3)[2])(keys)
    # Arrays of their own: a program that takes the state over takes each only once.
    no, zero = (jnp.zeros((), bool) for _ in range(2)), (jnp.zeros((), jnp.int32) for _ in range(2))
    return TrainState(learner.init(keys), roots, *no, *zero)


def rollout_keys(state: TrainState, epoch: int, stream: int) -> Key[Array, " seed"]:
    """By seed, what the draws of a rollout's policy are derived from."""
    return _folded(_folded(state.keys, epoch), stream)


def _folded(keys: Key[Array, " seed"], number: int) -> Key[Array, " seed"]:
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number)


def _numbers(learned: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: float(value) for name, value in learned.items() if isinstance(value, int | float)}


def make_loop(config: Config) -> Loop:
    """The loop of a run: its environments and its agent, or `ConfigError`."""
    with jax.enable_x64(config.agent.is_double):
        is_shared = is_host_shared(config)
        envs = config.make_envs(config.num_envs * len(config.seeds) if is_shared else config.num_envs)
        try:
            return Loop(config, envs, config.make_agent(envs))
        except ValueError as error:
            envs.close()
            raise error if isinstance(error, ConfigError) else ConfigError(str(error)) from error


def is_host_shared(config: Config) -> bool:
    """Whether the environments of all seeds are one batch on the host."""
    return not is_pure(config.env)
