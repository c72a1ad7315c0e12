"""What a learned policy has to pass before and while it acts: five parts, each with a switch of its own."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ScreenSettings:
    """Whole-episode dreams of a candidate, before it acts (see `screen`)."""

    is_on: bool = True
    is_advisory: bool = False
    """Whether candidates that fail act all the same: what the screen said is recorded, and can be compared."""
    num_particles: int = 32
    """Dreams by each member of the ensemble."""
    quantile: float = 0.9
    """The costs of this share of a member's dreams must lie within the budget too."""
    unknown_cost: float = 0.0
    """What each decision of a dream costs once its uncertainty has passed the largest on recorded data; 0 for
    nothing."""
    unknown_factor: float = 2.0
    """How many times the largest uncertainty on recorded data is still known."""
    target: float = 0.02
    """The share of deployments over budget that the margin is moved towards."""
    margin_rate: float = 0.2
    """By how much of a budget the margin moves after a deployment; 0 for no margin."""

    def __post_init__(self) -> None:
        if self.num_particles < 1:
            raise ValueError(f"safe_set.screen.num_particles must be at least 1, got {self.num_particles}")
        for name in ("quantile", "target"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"safe_set.screen.{name} must lie between 0 and 1, got {getattr(self, name)}")
        for name in ("unknown_cost", "unknown_factor", "margin_rate"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"safe_set.screen.{name} must be at least 0 and finite, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class CanarySettings:
    """A candidate acts in few environments first (see `canary`)."""

    is_on: bool = True
    stages: tuple[float, ...] = (0.1, 0.5)
    """Shares of the environments in which a candidate acts, one deployment after the other, before it is certified and
    acts in all; at least one environment each."""

    def __post_init__(self) -> None:
        if not self.stages or not all(0 < share <= 1 for share in self.stages):
            raise ValueError(
                f"safe_set.canary.stages must be one or more shares above 0 and at most 1, got {list(self.stages)}"
            )


@dataclasses.dataclass(frozen=True)
class GovernorSettings:
    """A fallback takes an episode over before its budget is spent (see `governor`)."""

    is_on: bool = True
    reserve: float = 0.5
    """Of a budget: what the fallback is expected to cost until there is data about it."""
    coverage: float = 0.9
    """The share of recorded costs of the fallback that the reserve covers, once there is data."""
    num_kept: int = 64
    """Newest episodes taken over that the reserve is learned from."""

    def __post_init__(self) -> None:
        if not 0 <= self.reserve <= 1:
            raise ValueError(f"safe_set.governor.reserve must lie between 0 and 1, got {self.reserve}")
        if not 0 < self.coverage < 1:
            raise ValueError(f"safe_set.governor.coverage must lie between 0 and 1, got {self.coverage}")
        if self.num_kept < 1:
            raise ValueError(f"safe_set.governor.num_kept must be at least 1, got {self.num_kept}")


STARTS = ("random", "seed")


@dataclasses.dataclass(frozen=True)
class SafeSetSettings:
    """The safe set of learned policies: who may act.

    An agent that checks every decision by itself, as a planner does, needs none.
    """

    is_frozen: bool = True
    """Whether what acts changes between episodes only."""
    archive_size: int = 4
    """Certified policies that are kept; 0 for none, so that the seed policy alone can stand in for a candidate."""
    tolerance: float = 0.05
    """The share of a certified policy's own episodes that may be over budget before it is no longer certified."""
    seed_policy: str = "zero"
    """S_0: zero, or module:function of one's own that JAX can trace, from observations (environment, ...) to actions in
    [-1, 1]."""
    seed_noise: float = 0.0
    """Half the width of the uniform noise on the seed policy's actions."""
    start: str = "random"
    """Who acts in the warm-up: random, uniform actions, whose costs nobody answers for; or seed, S_0."""
    screen: ScreenSettings = dataclasses.field(default_factory=ScreenSettings)
    canary: CanarySettings = dataclasses.field(default_factory=CanarySettings)
    governor: GovernorSettings = dataclasses.field(default_factory=GovernorSettings)

    def __post_init__(self) -> None:
        if self.archive_size < 0:
            raise ValueError(f"safe_set.archive_size must be at least 0, got {self.archive_size}")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"safe_set.tolerance must be at least 0 and below 1, got {self.tolerance}")
        if not 0 <= self.seed_noise <= 1:
            raise ValueError(f"safe_set.seed_noise must lie between 0 and 1, got {self.seed_noise}")
        if self.start not in STARTS:
            raise ValueError(f"safe_set.start must be one of {', '.join(STARTS)}, got {self.start!r}")
        if self.seed_policy != "zero" and ":" not in self.seed_policy:
            raise ValueError(f"safe_set.seed_policy must be zero or module:function, got {self.seed_policy!r}")

    @property
    def is_on(self) -> bool:
        """Whether there is any part to it."""
        parts = (self.screen.is_on, self.canary.is_on, self.governor.is_on)
        return self.is_frozen or self.archive_size > 0 or any(parts)


ALL_PARTS = SafeSetSettings()
NO_PART = SafeSetSettings(
    is_frozen=False,
    archive_size=0,
    screen=ScreenSettings(is_on=False),
    canary=CanarySettings(is_on=False),
    governor=GovernorSettings(is_on=False),
)
"""Whatever the last update left acts: the behaviour of the released code."""
