"""What an agent is after, and when: seed or warm-up, expansion, exploitation. Here alone phase lengths live."""

import dataclasses
import enum


class Phase(enum.Enum):
    """A stage of learning."""

    SEED = "seed"
    """The safe seed policy S_0 acts: zero input."""
    WARM_UP = "warm_up"
    """Random actions, whose costs are not held against the policy: data for the first world model."""
    EXPANSION = "expansion"
    """The intrinsic reward: go, safely, where the model is uncertain (Algorithm 2, first loop)."""
    EXPLOITATION = "exploitation"
    """The task's reward (Algorithm 2, second loop)."""

    @property
    def is_judged(self) -> bool:
        """Whether the agent answers for the costs of this phase: neither S_0 nor random actions are its choice."""
        return self in (Phase.EXPANSION, Phase.EXPLOITATION)

    @property
    def label(self) -> str:
        """For people."""
        return self.value.replace("_", "-")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Lengths of the phases, in episodes of every environment.

    A run is computed, recorded and resumed in epochs of `episodes_per_epoch` episodes; a phase is whole epochs.
    """

    seed_decisions: int = 0
    """Decisions under the safe seed policy S_0 before the first epoch: the data that a first model has."""
    warm_up: int = 0
    """Episodes of random actions."""
    expansion: int = 10
    """Episodes that follow the intrinsic reward."""
    exploitation: int = 0
    """Episodes that follow the task's reward."""
    episodes_per_epoch: int = 1

    def __post_init__(self) -> None:
        for name, least in (("seed_decisions", 0), ("warm_up", 0), ("expansion", 0), ("exploitation", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"schedule.{name} must be at least {least}, got {getattr(self, name)}")
        if self.episodes_per_epoch < 1:
            raise ValueError(f"schedule.episodes_per_epoch must be at least 1, got {self.episodes_per_epoch}")
        for name in ("warm_up", "expansion", "exploitation"):
            if getattr(self, name) % self.episodes_per_epoch:
                raise ValueError(
                    f"schedule.{name} must be a multiple of schedule.episodes_per_epoch = {self.episodes_per_epoch}, "
                    f"got {getattr(self, name)}: phases change between epochs"
                )
        if self.num_epochs < 1:
            raise ValueError("schedule: warm-up, expansion and exploitation together must have an episode, got 0")

    @property
    def num_episodes(self) -> int:
        """Episodes of every environment in all."""
        return self.warm_up + self.expansion + self.exploitation

    @property
    def num_epochs(self) -> int:
        """Epochs in all; what comes before them is committed as epoch 0."""
        return self.num_episodes // self.episodes_per_epoch

    def phase(self, epoch: int) -> Phase:
        """The phase of an epoch; epoch 0 is the seed, the others count from 1."""
        if not 0 <= epoch <= self.num_epochs:
            raise ValueError(f"epoch must lie in 0..{self.num_epochs}, got {epoch}")
        before = (epoch - 1) * self.episodes_per_epoch
        if epoch == 0:
            return Phase.SEED
        if before < self.warm_up:
            return Phase.WARM_UP
        return Phase.EXPANSION if before < self.warm_up + self.expansion else Phase.EXPLOITATION
