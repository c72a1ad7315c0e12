"""Everything a run depends on, as one frozen value that can be written to JSON and read back."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from actsafe.agents.algorithms import ALGORITHMS, Algorithm, algorithm
from actsafe.agents.base import Agent
from actsafe.agents.gp import GPAgentSettings
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.envs.base import EnvBatch
from actsafe.envs.make import is_pure, make_envs
from actsafe.objectives.confidence import Calibrated, Confidence, Fixed, Theory
from actsafe.training.settings import (
    ConfigError,
    build,
    digest,
    plain,
    require_at_least,
    require_known,
    require_mapping,
)

AgentSettings = GPAgentSettings | WorldModelAgentSettings
AGENTS: Mapping[str, type[AgentSettings]] = {each.kind: each for each in (GPAgentSettings, WorldModelAgentSettings)}
"""The members of the tagged union `Config.agent`, by their tag `kind`."""
CONFIDENCE: Mapping[str, type[Confidence]] = {"calibrated": Calibrated, "fixed": Fixed, "theory": Theory}
"""The same of `GPAgentSettings.confidence`."""
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
    num_envs: int = 1
    """Environments that advance together, for every seed."""
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
    seeds: tuple[int, ...] = (0,)
    """Independent repetitions in one program, where the environment or the agent allows it."""
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    evaluate_every: int = 1
    """Evaluate the tasks after each so many epochs and the last; 0 for never. Nothing is learned from it."""
    evaluation_episodes: int = 1
    """Episodes of every task and seed in an evaluation."""
    agent: AgentSettings = dataclasses.field(default_factory=GPAgentSettings)

    unit: ClassVar[str] = "epoch"

    def __post_init__(self) -> None:
        require_known("observation", self.observation, ("pixels", "state"))
        seeds = self.seeds
        if not seeds or len(set(seeds)) != len(seeds) or not 0 <= min(seeds) <= max(seeds) < 2**32:
            raise ConfigError(f"seeds must be one or more different numbers from 0 to 2^32 - 1, got {list(seeds)}")
        for budget in self.budget if isinstance(self.budget, tuple) else (self.budget,):
            if budget is not None and not (math.isfinite(budget) and budget >= 0):
                raise ConfigError(f"budget must be a finite number of at least 0, got {budget}")
        require_at_least(1, self, "image_size", "num_envs", "evaluation_episodes")
        require_at_least(0, self, "evaluate_every")
        if self.action_repeat is not None:
            require_at_least(1, self, "action_repeat")
        row = self.row
        if self.agent.kind not in row.models:
            takes = [name for name, each in ALGORITHMS.items() if self.agent.kind in each.models]
            raise ConfigError(
                f"algorithm: {self.algorithm} needs an agent of kind {' or '.join(row.models)}, got agent.kind = "
                f"{self.agent.kind}; choose one of {', '.join(takes)}, or another agent"
            )
        if self.agent.replay_rows:
            self._require_room_for_sequences(self.agent.replay_rows)

    def _require_room_for_sequences(self, rows: Mapping[str, int]) -> None:
        least = self.num_envs * self.agent.sequence_length
        for name, number in rows.items():
            if number < least:
                raise ConfigError(
                    f"agent.{name} must hold a sequence of agent.sequence_length = {self.agent.sequence_length} for "
                    f"each of {self.num_envs} environments, {least} in all, got {number}"
                )

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

    def make_agent(self, envs: EnvBatch) -> Agent:
        """The agent that this run trains in `envs`, or `ConfigError`."""
        try:
            return self.agent.make(envs.spec, self.row, self.schedule)
        except ValueError as error:
            raise error if isinstance(error, ConfigError) else ConfigError(str(error)) from error

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the same config back."""
        content = plain(self)
        agent = {"kind": self.agent.kind, **content["agent"]}
        if isinstance(self.agent, GPAgentSettings):
            kind = next(name for name, cls in CONFIDENCE.items() if isinstance(self.agent.confidence, cls))
            agent["confidence"] = {"kind": kind, **agent["confidence"]}
        return content | {"agent": agent}

    @classmethod
    def from_json(cls, content: Any) -> "Config":
        """The config that was written; an entry that is unknown or not of its kind raises `ConfigError`."""
        require_mapping("config", content)
        values = dict(content)
        values["agent"] = _agent_from_json(values.get("agent", {"kind": GPAgentSettings.kind}))
        return build(cls, values)

    @property
    def digest(self) -> str:
        """A short hash of every setting."""
        return digest(self.to_json())


def _agent_from_json(content: Any) -> AgentSettings:
    kind, rest = _tagged("agent", content, AGENTS)
    if "confidence" in rest:
        rule, settings = _tagged("agent.confidence", rest["confidence"], CONFIDENCE)
        rest["confidence"] = build(CONFIDENCE[rule], settings, "agent.confidence.")
    return build(AGENTS[kind], rest, "agent.")


def _tagged(name: str, content: Any, known: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The tag of a member of a union, and its entries."""
    require_mapping(name, content)
    rest = dict(content)
    kind = rest.pop("kind", next(iter(known)))
    require_known(f"{name}.kind", kind, known)
    return kind, rest
