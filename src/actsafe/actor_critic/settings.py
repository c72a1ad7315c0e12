"""What an actor-critic and its learning are made of."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ActorCriticSettings:
    """Sizes, horizon and rates; the paper's."""

    horizon: int = 15
    """Decisions that are imagined from each state of a batch."""
    discount: float = 0.99
    cost_discount: float = 0.99
    trace: float = 0.95
    """λ of the λ-returns."""
    actor_width: int = 400
    actor_depth: int = 5
    critic_width: int = 400
    critic_depth: int = 3
    initial_std: float = 5.0
    """Std of the first policy's actions before squashing."""
    actor_rate: float = 8e-5
    critic_rate: float = 8e-5
    safety_critic_rate: float | None = None
    """Of the critics of costs, which have to keep up with the policy; None: as `critic_rate`."""
    critic_average: float = 0.0
    """Decay of the slow copies of the critics, whose values λ-returns end in: copy ← decay · copy + (1 − decay) ·
    critic at each update. 0: no copies, critics are taught by their own newest values, as released."""
    actor_average: float = 0.0
    """Decay of the average of the actor's weights over updates. Where it is above 0 that average acts, is evaluated and
    is certified: one update moves it little. 0: the newest actor does, as released."""
    is_value_bounded: bool = True
    """Whether λ-returns believe critics only within what is possible (see `bounds.value_bounds`). False: whatever they
    say, as released."""
    saturation_penalty: float = 0.0
    """What the loss and every cost return are charged per unit of `Actor.saturation`, how far means lie beyond where
    squashing tells them apart. 0: nothing, as published. Means may then grow without end, and a policy
    whose means did so can learn nothing any more, not even to keep its budget."""

    def __post_init__(self) -> None:
        for name in ("horizon", "actor_width", "actor_depth", "critic_width", "critic_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"agent.actor_critic.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("discount", "cost_discount", "trace", "critic_average", "actor_average"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"agent.actor_critic.{name} must be at least 0 and below 1, got {getattr(self, name)}")
        for name in ("initial_std", "actor_rate", "critic_rate", "safety_critic_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"agent.actor_critic.{name} must be positive, got {value}")
        if not 0 <= self.saturation_penalty < float("inf"):
            raise ValueError(
                "agent.actor_critic.saturation_penalty must be a finite number of at least 0, got "
                f"{self.saturation_penalty}"
            )
