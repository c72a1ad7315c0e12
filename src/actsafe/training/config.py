"""Everything a run depends on, as one frozen value that can be written to JSON and read back."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from actsafe.agents.actsafe import Agent, ObjectiveSettings
from actsafe.agents.deciding import PlanningSettings
from actsafe.agents.phases import Schedule
from actsafe.agents.recipes import RECIPES
from actsafe.models.gp.dynamics import GPSettings
from actsafe.objectives.confidence import Calibrated, Confidence, Fixed, Theory
from actsafe.problems import PROBLEMS, Problem
from actsafe.training.settings import (
    ConfigError,
    build,
    digest,
    plain,
    require_at_least,
    require_known,
    require_mapping,
)

CONFIDENCE: Mapping[str, type[Confidence]] = {"calibrated": Calibrated, "fixed": Fixed, "theory": Theory}


@dataclasses.dataclass(frozen=True)
class Config:
    """One run: a problem, an algorithm, seeds, and every setting."""

    unit: ClassVar[str] = "episode"
    """What is computed and committed at a time."""
    parts_kept: ClassVar[Mapping[str, int]] = {}
    """What is committed beside the agent's state, and for how many of the newest episodes."""

    problem: str = "pendulum"
    algorithm: str = "actsafe"
    """A row of the table in agents/recipes.py."""
    seeds: tuple[int, ...] = (0,)
    """Independent repetitions, computed side by side in one program."""
    budget: float | None = None
    """Largest sum of costs in an episode; None for the problem's own."""
    process_noise_std: float | None = None
    """Std of the noise that the simulator adds; None for the problem's own."""
    evaluate_every: int = 1
    """Zero-shot evaluation of every task after each so many episodes, and after the last; 0 for never."""
    capacity_step: int = 128
    """Arrays grow by this many rows of data; larger steps compile less often and compute more padding."""
    decisions_per_call: int = 10
    """Decisions in one compiled call: how often progress is shown and a stop is noticed."""
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    gp: GPSettings = dataclasses.field(default_factory=GPSettings)
    planning: PlanningSettings = dataclasses.field(default_factory=PlanningSettings)
    objective: ObjectiveSettings = dataclasses.field(default_factory=ObjectiveSettings)
    confidence: Confidence = dataclasses.field(default_factory=Calibrated)

    def __post_init__(self) -> None:
        require_known("problem", self.problem, PROBLEMS)
        require_known("algorithm", self.algorithm, RECIPES)
        if (
            not self.seeds
            or len(set(self.seeds)) != len(self.seeds)
            or not 0 <= min(self.seeds) <= max(self.seeds) < 2**32
        ):
            raise ConfigError(f"seeds must be one or more different numbers from 0 to 2^32 - 1, got {list(self.seeds)}")
        for name in ("budget", "process_noise_std"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} must be a finite number of at least 0, got {value}")
        require_at_least(0, self, "evaluate_every")
        require_at_least(1, self, "capacity_step", "decisions_per_call")
        problem = self.make_problem()
        if problem.is_summed:
            raise ConfigError(
                f"problem: got {self.problem}, which is for agents that learn from pixels. Its budget of "
                f"{problem.budget:g} is for {problem.num_decisions} decisions, of which a planner sees too few ahead "
                "to keep it. Choose pendulum or cartpole"
            )
        require_known("objective.task", self.objective.task, problem.tasks)

    def make_problem(self) -> Problem:
        """The problem, with the budget and the noise asked for."""
        changes: dict[str, Any] = {}
        if self.budget is not None:
            changes["budget"] = self.budget
        if self.process_noise_std is not None:
            changes["process_noise_std"] = self.process_noise_std
        return dataclasses.replace(PROBLEMS[self.problem](), **changes)

    def make_agent(self) -> Agent:
        """The agent that this run trains."""
        recipe = RECIPES[self.algorithm]
        return Agent(self.make_problem(), recipe, self.gp, self.planning, self.objective, self.confidence)

    def is_evaluated(self, episode: int) -> bool:
        """Whether the tasks are evaluated after this episode."""
        if self.evaluate_every == 0 or episode == 0:
            return False
        return episode % self.evaluate_every == 0 or episode == self.schedule.num_episodes

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the same config back."""
        content = plain(self)
        kind = next(name for name, cls in CONFIDENCE.items() if isinstance(self.confidence, cls))
        return content | {"confidence": {"kind": kind, **content["confidence"]}}

    @classmethod
    def from_json(cls, content: Any) -> "Config":
        """The config that was written; an entry that is unknown or not of its kind raises `ConfigError`."""
        require_mapping("config", content)
        values = dict(content)
        confidence = values.pop("confidence", {"kind": "calibrated"})
        require_mapping("confidence", confidence)
        rest = dict(confidence)
        kind = rest.pop("kind", "calibrated")
        require_known("confidence.kind", kind, CONFIDENCE)
        values["confidence"] = build(CONFIDENCE[kind], rest, "confidence.")
        return build(cls, values)

    @property
    def subject(self) -> str:
        """What is learned, in a word that can be part of a file's name."""
        return self.problem

    @property
    def num_units(self) -> int:
        """Episodes planned; the seed, which is committed before them as number 0, is not one."""
        return self.schedule.num_episodes

    @property
    def digest(self) -> str:
        """A short hash of every setting."""
        return digest(self.to_json())
