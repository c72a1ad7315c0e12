"""Everything that a run from pixels (or state vectors) depends on, as one frozen value."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from actsafe.agents.phases import Phase, StepSchedule
from actsafe.agents.recipes import VISION_RECIPES
from actsafe.agents.vision import EnvSpec, VisionAgent, VisionSettings
from actsafe.envs.make import EnvBatch, make_envs
from actsafe.training.settings import ConfigError, build, digest, plain, require_at_least, require_known

ROWS = "rows"
"""What is committed with an epoch beside the agent: its part of the replay."""


@dataclasses.dataclass(frozen=True)
class VisionConfig:
    """One run: environments, an algorithm, a seed, and every setting.

    A decision is held for `action_repeat` simulator steps. An epoch is `steps_per_epoch` steps of all environments
    together, from fresh beginnings; it is what a run is computed, recorded and resumed in, and its phase is one.
    """

    unit: ClassVar[str] = "epoch"

    environment: str = "PointGotoGoal"
    """A Safety-Gym task, a problem of ours, or any Gymnasium id."""
    task: str | None = None
    """Which reward of a problem that has several; None for the environment's own."""
    observation: str = "pixels"
    """pixels or state."""
    image_size: int = 64
    """Width and height of what the agent sees."""
    num_samples: int = 4
    """Rays per pixel, 1 or 4."""
    num_envs: int = 10
    action_repeat: int = 2
    """Simulator steps for which one action is held; reward and costs are summed over them."""
    budget: float | tuple[float, ...] | None = None
    """Largest sum of costs in an episode, one for all costs or a list of one for each; None for the environment's own.
    A Gymnasium id needs one."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What else the environment takes, for instance episode_length of a Safety-Gym task, num_decisions of a problem, or
    cost_names of a Gymnasium id: the entries of its info that are costs."""
    algorithm: str = "actsafe"
    """A row of the table in agents/recipes.py."""
    seed: int = 0
    schedule: StepSchedule = dataclasses.field(default_factory=StepSchedule)
    is_handover_checked: bool = True
    """Whether the expansion goes on after its time until the task's policy keeps its budgets in its own dreams, or is
    no worse there than the one that explores. The released code hands over in any case."""
    steps_per_epoch: int = 50_000
    decisions_per_cycle: int = 50
    """Decisions of every environment between two stretches of learning."""
    updates_per_1000_steps: int = 100
    replay_capacity: int = 500_000
    """Rows, of all environments together, that are kept to learn from: a decision each, or an episode's beginning."""
    evaluate_every: int = 5
    """Episodes of the task's policy without exploration after each so many epochs and the last; 0 for never."""
    evaluation_episodes: int = 50
    agent: VisionSettings = dataclasses.field(default_factory=VisionSettings)

    def __post_init__(self) -> None:
        require_known("algorithm", self.algorithm, VISION_RECIPES)
        require_known("observation", self.observation, ("pixels", "state"))
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be a number from 0 to 2^32 - 1, got {self.seed}")
        for budget in self.budget if isinstance(self.budget, tuple) else (self.budget,):
            if budget is not None and not (math.isfinite(budget) and budget >= 0):
                raise ConfigError(f"budget must be a finite number of at least 0, got {budget}")
        whole = ("image_size", "num_envs", "action_repeat", "steps_per_epoch", "decisions_per_cycle")
        require_at_least(1, self, *whole, "evaluation_episodes")
        require_at_least(0, self, "evaluate_every", "updates_per_1000_steps")
        least = self.num_envs * self.agent.sequence_length
        for name, rows in (("replay_capacity", self.replay_capacity), ("agent.recent_rows", self.agent.recent_rows)):
            if rows < least and not (name == "agent.recent_rows" and rows == 0):
                raise ConfigError(
                    f"{name} must hold a sequence of agent.sequence_length = {self.agent.sequence_length} for each of "
                    f"{self.num_envs} environments, {least} in all, got {rows}"
                )
        for name in ("warm_up", "expansion", "total"):
            steps = getattr(self.schedule, name)
            if steps % self.steps_per_epoch:
                raise ConfigError(
                    f"schedule.{name} must be a multiple of steps_per_epoch = {self.steps_per_epoch}, got {steps}: "
                    "phases change between epochs"
                )
        if self.num_units < 1:
            raise ConfigError(f"schedule.total must be at least one epoch of {self.steps_per_epoch}, got 0")

    @property
    def subject(self) -> str:
        """What is learned, in a word that can be part of a file's name."""
        return re.sub(r"[^\w.-]+", "-", self.environment)

    @property
    def num_units(self) -> int:
        """Epochs; the agent as it is made is committed before them as number 0."""
        return self.schedule.total // self.steps_per_epoch

    @property
    def rows_per_env(self) -> int:
        """Rows of every environment that the replay holds."""
        return self.replay_capacity // self.num_envs

    @property
    def parts_kept(self) -> Mapping[str, int]:
        """The rows of so many epochs fill the replay, also that of the checkpoint before the newest."""
        num_decisions = max(1, self.steps_per_epoch // (self.num_envs * self.action_repeat))
        return {ROWS: -(-self.rows_per_env // num_decisions) + 1}

    def phase(self, epoch: int) -> Phase:
        """The phase of an epoch; they count from 1."""
        return self.schedule.phase((epoch - 1) * self.steps_per_epoch)

    def is_evaluated(self, epoch: int) -> bool:
        """Whether the task is evaluated after this epoch."""
        if self.evaluate_every == 0 or epoch == 0:
            return False
        return epoch % self.evaluate_every == 0 or epoch == self.num_units

    def make_envs(self) -> EnvBatch:
        """The environments, or `ConfigError`."""
        try:
            return make_envs(
                self.environment,
                self.num_envs,
                observation=self.observation,
                image_size=self.image_size,
                num_samples=self.num_samples,
                action_repeat=self.action_repeat,
                task=self.task,
                budget=self.budget,
                **self.options,
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(f"environment {self.environment}: {error}") from error

    def make_agent(self, fleet: EnvBatch) -> VisionAgent:
        """The agent that this run trains in `fleet`."""
        surroundings = EnvSpec(
            fleet.spec.observation_shape,
            fleet.spec.action_dim,
            fleet.spec.budgets,
            fleet.spec.num_decisions,
            fleet.spec.action_repeat,
        )
        return VisionAgent(surroundings, VISION_RECIPES[self.algorithm], self.agent)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the same config back."""
        return plain(self)

    @classmethod
    def from_json(cls, content: Any) -> "VisionConfig":
        """The config that was written; an entry that is unknown or not of its kind raises `ConfigError`."""
        return build(cls, content)

    @property
    def digest(self) -> str:
        """A short hash of every setting."""
        return digest(self.to_json())
