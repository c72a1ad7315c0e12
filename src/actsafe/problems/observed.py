"""An environment of which reward and cost are observed, not known, as a problem that a planner can work with."""

import math
from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from actsafe.problems.base import Action, Problem, Reward, Scalar, State

TASK = "task"


class ObservedProblem(Problem):
    """A constrained MDP that is known by its transitions alone.

    The state is the observation with the last reward and the last cost behind it: what predicts the next state then
    predicts reward and cost too, with the same kinds of uncertainty. There is nothing to simulate: `reset` and
    `simulate` raise.
    """

    name: str = eqx.field(static=True)
    num_observed: int = eqx.field(static=True)
    """Coordinates of the state that are the observation's."""
    num_actions: int = eqx.field(static=True)
    num_decisions: int = eqx.field(static=True)
    budget: float = eqx.field(static=True)
    action_repeat: int = eqx.field(default=1, static=True)
    process_noise_std: float = eqx.field(default=0.0, static=True)
    state_scale: tuple[float, ...] = eqx.field(default=(), static=True)
    change_scale: tuple[float, ...] = eqx.field(default=(), static=True)

    @classmethod
    def create(
        cls, name: str, *, num_observed: int, num_actions: int, num_decisions: int, budget: float, scale: float
    ) -> "ObservedProblem":
        """With the same prior scale, of states and of their changes, for every coordinate."""
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"prior_scale must be positive and finite, got {scale}")
        scales = (float(scale),) * (num_observed + 2)
        # Properties stand for the fields that are abstract in a problem.
        return cls(  # pyright: ignore[reportCallIssue]
            name=name,
            num_observed=num_observed,
            num_actions=num_actions,
            num_decisions=num_decisions,
            budget=float(budget),
            state_scale=scales,
            change_scale=scales,
        )

    @property
    def state_names(self) -> tuple[str, ...]:
        return (*(f"observation {n}" for n in range(self.num_observed)), "reward", "cost")

    @property
    def action_names(self) -> tuple[str, ...]:
        return tuple(f"action {n}" for n in range(self.num_actions))

    def reset(self, key: PRNGKeyArray) -> State:
        raise NotImplementedError(f"{self.name}: only the environment itself can begin an episode")

    def simulate(self, state: State, action: Action) -> State:
        raise NotImplementedError(f"{self.name}: only the environment itself can be stepped")

    def cost(self, state: State, margin: float = 0.0) -> Scalar:
        """The cost received on arrival. A margin in units of the limit means nothing here: the limit is not known."""
        return jnp.maximum(state[-1], 0.0)

    def project(self, state: State) -> State:
        """Costs are at least 0."""
        return state.at[-1].set(jnp.maximum(state[-1], 0.0))

    @property
    def tasks(self) -> Mapping[str, Reward]:
        """The reward received on arrival."""
        return {TASK: lambda state, action: state[-2]}

    def is_goal(self, state: State) -> Array:
        """Nothing says what the goal is."""
        return jnp.zeros((), bool)
