"""What an agent is after, and when: seed or warm-up, expansion, exploitation. Here alone phase lengths live."""

import dataclasses
import enum


class Phase(enum.Enum):
    """A stage of learning."""

    SEED = "seed"
    """The safe seed policy S_0 acts: zero input."""
    WARM_UP = "warm_up"
    """Random actions, whose costs are not held against anyone: data for the first world model."""
    EXPANSION = "expansion"
    """The intrinsic reward: go, safely, where the model is in doubt (Algorithm 2, first loop)."""
    EXPLOITATION = "exploitation"
    """The task's reward (Algorithm 2, second loop)."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Lengths of the phases."""

    num_seed_decisions: int = 1
    """Decisions under the safe seed policy before the first planned episode: the data the first model has."""
    num_expansion: int = 10
    """Episodes of expansion."""
    num_exploitation: int = 0
    """Episodes of exploitation that follow."""

    def __post_init__(self) -> None:
        if self.num_seed_decisions < 1:
            raise ValueError(
                f"schedule.num_seed_decisions must be at least 1, got {self.num_seed_decisions}: "
                "a model needs at least one transition to start from"
            )
        if self.num_expansion < 0 or self.num_exploitation < 0:
            raise ValueError(
                "schedule.num_expansion and schedule.num_exploitation must be at least 0, "
                f"got {self.num_expansion} and {self.num_exploitation}"
            )
        if self.num_episodes < 1:
            raise ValueError("schedule: expansion and exploitation together must have at least 1 episode, got 0")

    @property
    def num_episodes(self) -> int:
        """Planned episodes in all."""
        return self.num_expansion + self.num_exploitation

    def phase(self, episode: int) -> Phase:
        """The phase of an episode; episode 0 is the seed, planned episodes count from 1."""
        if not 0 <= episode <= self.num_episodes:
            raise ValueError(f"episode must lie in 0..{self.num_episodes}, got {episode}")
        if episode == 0:
            return Phase.SEED
        return Phase.EXPANSION if episode <= self.num_expansion else Phase.EXPLOITATION


@dataclasses.dataclass(frozen=True)
class StepSchedule:
    """When the phases of a run with a world model end, in simulator steps of all environments."""

    warm_up: int = 200_000
    """End of the warm-up."""
    expansion: int = 500_000
    """End of the expansion."""
    total: int = 5_000_000
    """End of the exploitation, and of the run."""

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up <= self.expansion <= self.total or self.total < 1:
            raise ValueError(
                "schedule: expected 0 <= warm_up <= expansion <= total and total at least 1, "
                f"got {self.warm_up}, {self.expansion} and {self.total}"
            )

    def phase(self, step: int) -> Phase:
        """The phase in which simulator step `step` (the first is 0) is taken."""
        if step < self.warm_up:
            return Phase.WARM_UP
        return Phase.EXPANSION if step < self.expansion else Phase.EXPLOITATION
