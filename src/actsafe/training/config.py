"""Everything a run depends on, as one frozen value that can be written to JSON and read back."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from actsafe.agents.algorithms import ALGORITHMS, Algorithm, algorithm
from actsafe.agents.base import Agent, AgentSettings
from actsafe.agents.gp import GPAgentSettings
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.safe_set.agent import GuardedAgent
from actsafe.agents.safe_set.settings import NO_PART, SafeSetSettings
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.envs.base import EnvBatch
from actsafe.envs.make import is_pure, known_problem, make_envs
from actsafe.envs.spec import EnvSpec
from actsafe.objectives.confidence import Calibrated, Confidence, Fixed, Theory
from actsafe.problems import Problem
from actsafe.training.settings import ConfigError, build, digest, plain, require_at_least, require_known

AGENTS: Mapping[str, type[AgentSettings]] = {each.kind: each for each in (GPAgentSettings, WorldModelAgentSettings)}
"""The kinds of agents, in the order in which they are chosen; others are named "module:Class"."""
CONFIDENCE: Mapping[str, type[Confidence]] = {each.kind: each for each in (Calibrated, Fixed, Theory)}
"""The same of `GPAgentSettings.confidence`."""
CHOSEN: Any = None
"""The default of an entry that the config chooses for the environment and the algorithm."""
ROWS = "rows"
"""What is committed with an epoch beside the agent: its part of the buffer."""


@dataclasses.dataclass(frozen=True)
class Config:
    """One run: an environment, an algorithm, an agent, seeds, and every setting."""

    env: str = "pendulum"
    """A problem of ours, a Safety-Gym task, any Gymnasium id, or module:Name of a problem or an environment of one's
    own."""
    task: str | None = None
    """Which reward of a problem that has several is maximised; None for its first."""
    observation: str = "state"
    """state or pixels."""
    image_size: int = 64
    """Width and height of pixel observations."""
    num_samples: int = 4
    """Rays per pixel, 1 or 4."""
    num_envs: int = CHOSEN
    """Environments that advance together, for every seed; by default as many as a small agent of the kind has."""
    action_repeat: int | None = None
    """Simulator steps for which one action is held; reward and costs are summed over them. None for the environment's
    own."""
    budget: float | tuple[float, ...] | None = None
    """Largest sum of costs in an episode, one for all costs or a list of one for each; None for the environment's own.
    A Gymnasium id needs one."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What else the environment takes: for instance process_noise_std or num_decisions of a problem, episode_length of
    a Safety-Gym task, cost_names of a Gymnasium id (the entries of its info that are costs)."""
    algorithm: str = "actsafe"
    """A row of the table in agents/algorithms.py, or module:NAME of a row of one's own."""
    safe_set: SafeSetSettings | None = None
    """What learned policies are deployed from; None for the algorithm's own, see `deployed_from`."""
    seeds: tuple[int, ...] = (0,)
    """Independent repetitions in one program, where the environment or the agent allows it."""
    schedule: Schedule = CHOSEN
    """By default what a small agent of the kind needs for a small environment."""
    evaluate_every: int = CHOSEN
    """Evaluate the tasks after each so many epochs and the last; 0 for never. Nothing is learned from it."""
    evaluation_episodes: int = CHOSEN
    """Episodes of every task and seed in an evaluation."""
    agent: GPAgentSettings | WorldModelAgentSettings | AgentSettings = CHOSEN
    """The kind of agent and its settings. By default a small one: the planner with Gaussian processes for a problem of
    which reward and cost are known from state, with one cost; else the world model."""

    def __post_init__(self) -> None:
        small = self._chosen_kind().small() if self.agent is None else self.agent.small()
        for name, value in small.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.safe_set is not None and self.safe_set.is_on and not self.agent.takes_safe_set:
            raise ConfigError(
                f"safe_set: got parts that are on, but an agent of kind {self.agent.kind} checks every decision by "
                "itself and has no learned policies to deploy; leave safe_set out"
            )
        require_known("observation", self.observation, ("pixels", "state"))
        seeds = self.seeds
        if not seeds or len(set(seeds)) != len(seeds) or not 0 <= min(seeds) <= max(seeds) < 2**32:
            raise ConfigError(f"seeds must be one or more different numbers from 0 to 2^32 - 1, got {list(seeds)}")
        for budget in self.budget if isinstance(self.budget, tuple) else (self.budget,):
            if budget is not None and not (math.isfinite(budget) and budget >= 0):
                raise ConfigError(f"budget must be a finite number of at least 0, got {budget}")
        require_at_least(1, self, "image_size", "num_envs", "evaluation_episodes", "action_repeat")
        require_at_least(0, self, "evaluate_every")
        row = self.row
        if not row.takes(self.agent.kind):
            taken = [name for name, each in ALGORITHMS.items() if each.takes(self.agent.kind)]
            raise ConfigError(
                f"algorithm: {self.algorithm} needs an agent of kind {' or '.join(row.models or ())}, got agent.kind = "
                f"{self.agent.kind}; choose one of {', '.join(taken)}, or another agent"
            )
        for name, number in self.agent.replay_rows.items():
            length = self.agent.sequence_length
            if number < (least := self.num_envs * length):
                raise ConfigError(
                    f"agent.{name} must hold a sequence of agent.sequence_length = {length} for each of "
                    f"{self.num_envs} environments, {least} in all, got {number}"
                )

    def _chosen_kind(self) -> type[AgentSettings]:
        """The first kind of agent that suits the environment, of those that the algorithm takes."""
        kinds = [each for each in AGENTS.values() if self.row.takes(each.kind)]
        if not kinds:
            raise ConfigError(f"agent: {self.algorithm} needs an agent of kind {self.row.models}; give one")
        num_costs = max(
            len(self.options.get("cost_names", ())), len(self.budget) if isinstance(self.budget, tuple) else 1
        )
        return next((each for each in kinds if each.suits(self.problem, num_costs)), kinds[0])

    @property
    def problem(self) -> Problem | None:
        """The problem where reward and cost are known functions of what is observed, or `ConfigError`."""
        try:
            return known_problem(
                self.env, self.observation, action_repeat=self.action_repeat, budget=self.budget, **self.options
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(f"environment {self.env}: {error}") from error

    @property
    def row(self) -> Algorithm:
        """The row of the table of algorithms."""
        if ":" not in self.algorithm:
            require_known("algorithm", self.algorithm, ALGORITHMS)
        try:
            return algorithm(self.algorithm)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    @property
    def deployed_from(self) -> SafeSetSettings:
        """The safe set of learned policies: as it was set, else the algorithm's, and none for an agent that checks
        every decision by itself."""
        if not self.agent.takes_safe_set:
            return NO_PART
        return self.row.safe_set if self.safe_set is None else self.safe_set

    @property
    def subject(self) -> str:
        """What is learned, in a word that can be part of a file's name."""
        return re.sub(r"[^\w.-]+", "-", self.env)

    @property
    def num_units(self) -> int:
        """Epochs; what comes before them is committed as number 0."""
        return self.schedule.num_epochs

    @property
    def is_one_program(self) -> bool:
        """Whether several seeds can be an axis of one program; else each has a process of its own."""
        return self.agent.is_one_program or is_pure(self.env)

    @property
    def programs(self) -> list["Config"]:
        """The settings of every program that it takes: its own, or those of each seed by itself."""
        if self.is_one_program or len(self.seeds) == 1:
            return [self]
        return [dataclasses.replace(self, seeds=(seed,)) for seed in self.seeds]

    def parts_kept(self, num_ticks: int) -> Mapping[str, int]:
        """For how many of the newest epochs, of so many rows of an environment, their part of the buffer is kept."""
        if not self.agent.replay_rows:
            return {}
        return {ROWS: -(-self.rows_per_env // max(1, num_ticks)) + 1}

    @property
    def rows_per_env(self) -> int:
        """Rows of every environment that the buffer holds."""
        return self.agent.replay_rows.get("replay_capacity", 0) // self.num_envs

    def is_evaluated(self, epoch: int) -> bool:
        """Whether the tasks are evaluated after this epoch."""
        if self.evaluate_every == 0 or epoch == 0:
            return False
        return epoch % self.evaluate_every == 0 or epoch == self.num_units

    def phase(self, epoch: int) -> Phase:
        """The scheduled phase of an epoch."""
        return self.schedule.phase(epoch)

    def make_envs(self, num_envs: int | None = None) -> EnvBatch:
        """The environments of one seed, or so many, or `ConfigError`. Call within the agent's precision."""
        try:
            return make_envs(
                self.env,
                self.num_envs if num_envs is None else num_envs,
                observation=self.observation,
                image_size=self.image_size,
                num_samples=self.num_samples,
                action_repeat=self.action_repeat,
                task=self.task,
                budget=self.budget,
                is_double=self.agent.is_double,
                **self.options,
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(f"environment {self.env}: {error}") from error

    def make_agent(self, envs: EnvBatch | EnvSpec) -> Agent:
        """The agent that this run trains in `envs`, or `ConfigError`.

        Their description is enough, also as a run folder keeps it, without the problem.
        """
        spec = envs._replace(problem=self.problem) if isinstance(envs, EnvSpec) else envs.spec
        try:
            agent = self.agent.make(spec, self.row, self.schedule)
            return GuardedAgent.around(agent, self.deployed_from) if self.deployed_from.is_on else agent
        except ValueError as error:
            raise error if isinstance(error, ConfigError) else ConfigError(str(error)) from error

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the same config back."""
        return plain(self)

    @classmethod
    def from_json(cls, content: Any) -> "Config":
        """The config that was written; an entry that is unknown or not of its kind raises `ConfigError`."""
        return build(cls, content)

    @property
    def digest(self) -> str:
        """A short hash of every setting."""
        return digest(self.to_json())
