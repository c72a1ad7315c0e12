"""What a planned trajectory is worth: the information it promises, or a task's reward."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.models.base import Prediction
from actsafe.problems.base import Action, Problem, State


class PlanReward(eqx.Module):
    """The worth of one imagined step."""

    @abc.abstractmethod
    def __call__(self, state: State, action: Action, prediction: Prediction) -> Float[Array, ""]:
        """The reward of taking `action` in `state`, where the model predicts `prediction`."""


class InformationGain(PlanReward):
    """sum_j log(1 + (sigma_j / sigma_noise,j)^2): twice the information, in nats, that the step would bring.

    What the authors ran. The theorem is stated for `UncertaintyNorm`.
    """

    noise_floor: float = eqx.field(default=1e-4, static=True)

    def __call__(self, state: State, action: Action, prediction: Prediction) -> Float[Array, ""]:
        ratio = prediction.epistemic_std / jnp.maximum(prediction.aleatoric_std, self.noise_floor)
        return jnp.sum(jnp.log1p(ratio**2))


class UncertaintyNorm(PlanReward):
    """||sigma_n(s, a)||_2, the intrinsic reward of the paper's Algorithm 1, each coordinate over its scale."""

    scale: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, state: State, action: Action, prediction: Prediction) -> Float[Array, ""]:
        return jnp.sqrt(jnp.sum((prediction.epistemic_std / jnp.asarray(self.scale)) ** 2))


class TaskReward(PlanReward):
    """The known reward of one of the problem's tasks."""

    problem: Problem
    task: str = eqx.field(static=True)

    def __call__(self, state: State, action: Action, prediction: Prediction) -> Float[Array, ""]:
        return self.problem.tasks[self.task](state, action)


class Mixture(PlanReward):
    """A weighted sum of rewards. The weights are data: phases that differ by them alone share one compiled program."""

    rewards: tuple[PlanReward, ...]
    weights: Float[Array, "*seed reward"]

    def __call__(self, state: State, action: Action, prediction: Prediction) -> Float[Array, ""]:
        return jnp.dot(self.weights, jnp.stack([reward(state, action, prediction) for reward in self.rewards]))
