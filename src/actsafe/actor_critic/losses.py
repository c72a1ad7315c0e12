"""The losses of an actor and its critics, from dreams.

maximise    E[Σ_t γ^t (r_t + κ u_t)]
subject to  E[Σ_t γ^t (c_t + λ u_t)] ≤ d,      u_t = ‖σ_n(s_t, a_t)‖

κ weighs the intrinsic reward or an optimist's bonus, λ pessimism (`ObjectiveWeights`). Both sums are λ-returns: partly
imagined, partly estimated by a critic. Paper, section 4.3 (the practical problem) and appendix B.2.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from actsafe.actor_critic.bounds import ObjectiveMemory, value_bounds
from actsafe.actor_critic.dream import Dream, DreamNoise
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.models.base import LatentModel, Outcome
from actsafe.models.networks import MLP
from actsafe.objectives.uncertainty import Uncertainty
from actsafe.objectives.weights import ObjectiveWeights


def lambda_returns(
    rewards: Float[Array, "time *rows"], values: Float[Array, "time_and_one *rows"], *, discount: float, trace: float
) -> Float[Array, "time *rows"]:
    """R_t = r_t + γ ((1 − λ) V_{t+1} + λ R_{t+1}),  R_T = V_T.

    `rewards[t]` is received between states t and t + 1, of which `values` has all T + 1.
    """

    def step(following: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, value = inputs
        following = reward + discount * ((1.0 - trace) * value + trace * following)
        return following, following

    last = values[-1].astype(jnp.result_type(rewards, values))
    return jax.lax.scan(step, last, (rewards, values[1:]), reverse=True)[1]


def discount_weights(discount: float, steps: int) -> Float[np.ndarray, " time"]:
    """1, γ, γ², …: how much each imagined step counts."""
    return (discount ** np.arange(steps)).astype(np.float32)


def critic_values(critics: MLP, features: Float[Array, "time row feature"]) -> Float[Array, "critic time row"]:
    """V of every state by every critic; `critics` are one batch along the leading axis."""
    rows = features.reshape(1, -1, features.shape[-1])
    return critics(rows)[..., 0].astype(jnp.float32).reshape(-1, *features.shape[:2])


class Imagined(NamedTuple):
    """What dreams say of a policy: means over imagined decisions, of costs and uncertainty over those that count."""

    returns: Float[Array, "critic time row"]
    """λ-returns of the reward and of every pessimistic cost."""
    loss: Float[Array, ""]
    cost_returns: Float[Array, " constraint"]
    reward: Float[Array, ""]
    costs: Float[Array, " constraint"]
    uncertainty: Float[Array, ""]
    memory: ObjectiveMemory
    """After these dreams."""


@dataclasses.dataclass(frozen=True)
class ImaginedObjective:
    """The objective and the constraints of a policy in imagination."""

    settings: ActorCriticSettings
    uncertainty: Uncertainty
    is_uncertainty_differentiated: bool = False
    is_outcome_averaged: bool = False
    """Whether rewards and costs are means over what all members expect (the released code), or those of the member that
    is followed (the paper)."""
    is_counted: tuple[bool, ...] = (True,)
    """Of neighbouring rows, repeating: whether they count against the budgets. All teach the critics."""
    is_loss_counted: bool = True
    """Whether the loss counts the same rows as the costs. False: all rows. Where costs do not count, nothing holds the
    policy back from what the loss alone teaches it there."""
    smallest_range: float | None = None
    """The exploration's loss is divided by the running range of its returns, and by at least this; None: by nothing."""
    dtype: Any = jnp.float32
    """Of products of matrices."""

    def __call__(
        self,
        model: LatentModel,
        critics: MLP,
        dreamt: Dream,
        noise: DreamNoise,
        weights: ObjectiveWeights,
        memory: ObjectiveMemory,
    ) -> tuple[Float[Array, " output"], Imagined]:
        """The loss and the pessimistic cost returns of dreams, as one vector, and what they are made of."""
        before = jax.tree.map(lambda leaf: leaf[:-1], dreamt.states)
        features = model.features(dreamt.states)
        uncertainty = self.uncertainty(jax.vmap(model.disagreement)(before, dreamt.actions))
        if self.is_outcome_averaged:
            everyone = jax.vmap(model.imagine_each, out_axes=1)(before, dreamt.actions, noise.model)
            outcome = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), model.outcome(model.features(everyone)))
        else:
            outcome = model.outcome(features[1:])
        return self.evaluate(weights, memory, outcome, uncertainty, critic_values(critics, features))

    def evaluate(
        self,
        weights: ObjectiveWeights,
        memory: ObjectiveMemory,
        outcome: Outcome,
        uncertainty: Float[Array, "time row"],
        values: Float[Array, "critic time_and_one row"],
        returns_of: Callable[..., Array] = lambda_returns,
    ) -> tuple[Float[Array, " output"], Imagined]:
        """−mean γ^t R_t over dreamt states, and the mean return of every pessimistic cost c + λ u."""
        settings, (reward, costs) = self.settings, outcome
        bonus = uncertainty if self.is_uncertainty_differentiated else jax.lax.stop_gradient(uncertainty)
        rewards = weights.task * reward + weights.uncertainty * bonus
        pessimistic = jnp.moveaxis(costs, -1, 0) + weights.pessimism * uncertainty[None]
        memory = memory.with_uncertainty(jax.lax.stop_gradient(uncertainty))
        if settings.is_value_bounded:
            largest_costs = jax.lax.stop_gradient(jnp.max(costs, axis=(0, 1)))
            values = value_bounds(settings, weights, largest_costs, memory.largest_uncertainty).clip(values)
        returns = [returns_of(rewards, values[0], discount=settings.discount, trace=settings.trace)]
        returns += [
            returns_of(cost, value, discount=settings.cost_discount, trace=settings.trace)
            for cost, value in zip(pessimistic, values[1:], strict=True)
        ]
        discounts = discount_weights(settings.discount, settings.horizon)[:, None]
        earned = returns[0] * discounts
        loss = -(self._counted(earned) if self.is_loss_counted else jnp.mean(earned))
        if self.smallest_range is not None:
            memory = memory.with_returns(jax.lax.stop_gradient(returns[0]))
            scale = jnp.maximum(memory.return_range, self.smallest_range)
            loss = loss / jnp.where(jnp.asarray(weights.task) == 0.0, scale, 1.0)
        outputs = jnp.stack([loss, *(self._counted(cost) for cost in returns[1:])])
        imagined = Imagined(
            jnp.stack(returns),
            outputs[0],
            outputs[1:],
            jnp.mean(reward),
            self._counted(costs),
            self._counted(uncertainty),
            memory,
        )
        return outputs, jax.lax.stop_gradient(imagined)

    def critic_losses(
        self, values: Float[Array, "critic time_and_one row"], returns: Float[Array, "critic time row"]
    ) -> Float[Array, " critic"]:
        """½ mean γ^t (V(s_t) − R_t)² of every critic."""
        weights = self.critic_weights(len(returns))
        return jnp.mean(weights * 0.5 * (values[:, :-1] - returns) ** 2, axis=(1, 2))

    def critic_weights(self, num_critics: int) -> Float[Array, "critic time 1"]:
        """γ^t of every critic."""
        discounts = (self.settings.discount, *[self.settings.cost_discount] * (num_critics - 1))
        return jnp.stack([discount_weights(d, self.settings.horizon) for d in discounts])[..., None]

    def _counted(self, values: Float[Array, "time row *entry"]) -> Float[Array, " *entry"]:
        """Means over all times and the rows that count."""
        if all(self.is_counted):
            return jnp.mean(values, axis=(0, 1))
        num_times, _, *entry = values.shape
        by_place = values.reshape(num_times, -1, len(self.is_counted), *entry)
        share = sum(self.is_counted) / len(self.is_counted)
        weights = jnp.asarray(self.is_counted, values.dtype).reshape(1, 1, -1, *(1 for _ in entry)) / share
        return jnp.mean(weights * by_place, axis=(0, 1, 2))
