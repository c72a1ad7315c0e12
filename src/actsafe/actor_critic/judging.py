"""What dreams say of a policy, and what follows for the actor and its critics."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.actor_critic.critics import CriticValues, evaluate
from actsafe.actor_critic.imagination import Dream, DreamNoise
from actsafe.actor_critic.lambda_return import discount_weights, lambda_returns
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.models.networks import MLP
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel
from actsafe.objectives.uncertainty import Disagreement, Uncertainty
from actsafe.objectives.weights import ObjectiveWeights

OUTPUT = 2
"""The axis of cotangents, one for the loss and one for each cost return: after those of time and rows, with which it
makes the rows of larger products. In front it would have to be moved for each."""


class Imagined(NamedTuple):
    """What dreams say of a policy: means over imagined decisions, of costs and uncertainty over those that count."""

    returns: Float[Array, "critic time row"]
    """λ-returns of the reward and of every pessimistic cost."""
    loss: Float[Array, ""]
    cost_returns: Float[Array, " constraint"]
    reward: Float[Array, ""]
    costs: Float[Array, " constraint"]
    uncertainty: Float[Array, ""]


class DreamGradients(NamedTuple):
    """What follows from dreams for an actor and its critics."""

    imagined: Imagined
    dream: Dream
    """How the loss and each cost return change with every dreamt state and action: (time, row, output, ...)."""
    critic_losses: Float[Array, " critic"]
    critic_gradients: Float[Array, "critic parameter"]


@dataclasses.dataclass(frozen=True)
class ImaginedObjective:
    """How dreams are valued."""

    settings: ActorCriticSettings
    uncertainty: Uncertainty
    is_uncertainty_differentiated: bool = False
    is_outcome_averaged: bool = False
    """Whether rewards and costs are means over what all members expect (the released code), or those of the believed
    one (the paper)."""
    is_counted: tuple[bool, ...] = (True,)
    """Of so many neighbouring rows, again and again, whether they count against the budgets; all teach the critics."""
    dtype: Any = jnp.float32

    def __call__(
        self, critics: MLP, model: WorldModel, dreamt: Dream, noise: DreamNoise, weights: ObjectiveWeights
    ) -> DreamGradients:
        """What dreams of an actor teach it and its critics.

        Backwards in parts: from the outputs to values, uncertainty and dream; from values, through each critic for its
        own output; from the uncertainty, which takes asking all members, for those outputs alone that follow it.
        """
        features = dreamt.features
        with jax.named_scope("everyone"):
            (uncertainty, everyone), to_dream = jax.vjp(lambda dreamt: self._ask_everyone(model, dreamt, noise), dreamt)
        with jax.named_scope("critics"):
            valued = evaluate(critics, features, self.dtype)
        with jax.named_scope("outcomes"):
            outputs, to_parts, imagined = jax.vjp(
                lambda *parts: self._evaluate(model, weights, *parts),
                features,
                valued.values,
                uncertainty,
                everyone,
                has_aux=True,
            )
            each = jnp.eye(outputs.size, dtype=outputs.dtype)
            d_features, d_values, d_uncertainty, d_everyone = jax.vmap(
                to_parts, out_axes=(OUTPUT, 0, OUTPUT, OUTPUT + 1)
            )(each)
        with jax.named_scope("critics"):
            own = jnp.stack([d_values[number, number] for number in range(outputs.size)])
            d_features += jnp.moveaxis(valued.to_features(own), 0, OUTPUT)
        with jax.named_scope("everyone"):
            followers = 0 if self.is_uncertainty_differentiated or self.is_outcome_averaged else 1
            asked = (d_uncertainty[:, :, followers:], jax.tree.map(lambda leaf: leaf[:, :, :, followers:], d_everyone))
            (through_uncertainty,) = jax.vmap(to_dream, in_axes=((OUTPUT, OUTPUT + 1),), out_axes=OUTPUT)(asked)
        with jax.named_scope("dream"):
            size = model.cell.deterministic_size
            d_states = State(d_features[..., :size], d_features[..., size:])
            shape = (*noise.action.shape[:OUTPUT], outputs.size, noise.action.shape[-1])
            d_actions = jnp.zeros(shape, dreamt.actions.dtype)
            d_dream = jax.tree.map(
                lambda whole, part: jnp.concatenate(
                    [whole[:, :, :followers], whole[:, :, followers:] + part], axis=OUTPUT
                ),
                Dream(d_states, d_actions),
                through_uncertainty,
            )
        with jax.named_scope("critics"):
            # The dreams' way back waits for what is above, and for nothing of this.
            taught = self._critic_gradients(valued, imagined.returns, d_dream)
        return DreamGradients(imagined, d_dream, *taught)

    def _ask_everyone(
        self, model: WorldModel, dreamt: Dream, noise: DreamNoise
    ) -> tuple[Float[Array, "time row"], Float[Array, "member time row feature"] | None]:
        """How much the members disagree at each step, and where each would have gone, if outcomes are averaged."""
        lead = dreamt.actions.shape[:2]
        before = jax.tree.map(lambda leaf: leaf[:-1].reshape(-1, leaf.shape[-1]), dreamt.states)
        deterministic, priors = model.cell.predict_many(before, dreamt.actions.reshape(-1, dreamt.actions.shape[-1]))
        uncertainty = self.uncertainty(Disagreement.among(priors.mean, priors.std, axis=0)).reshape(lead)
        if not self.is_outcome_averaged:
            return uncertainty, None
        shared = jnp.broadcast_to(noise.state.reshape(1, -1, noise.state.shape[-1]), priors.mean.shape)
        sampled = priors.sample(shared)
        features = State(deterministic, sampled.astype(deterministic.dtype)).features
        return uncertainty, features.reshape(features.shape[0], *lead, -1)

    def _evaluate(
        self,
        model: WorldModel,
        weights: ObjectiveWeights,
        features: Array,
        values: Array,
        uncertainty: Array,
        everyone: Array | None,
    ) -> tuple[Float[Array, " output"], Imagined]:
        """The loss −Σ_t γ^t R_t, a mean over all dreamt states, and then those of the pessimistic cost returns."""
        settings = self.settings
        reward, costs = model.outcome(features[1:] if everyone is None else everyone)
        if everyone is not None:
            reward, costs = jnp.mean(reward, axis=0), jnp.mean(costs, axis=0)
        bonus = uncertainty if self.is_uncertainty_differentiated else jax.lax.stop_gradient(uncertainty)
        rewards = weights.task * reward + weights.uncertainty * bonus
        pessimistic = jnp.moveaxis(costs, -1, 0) + weights.pessimism * uncertainty[None]
        possible = jnp.clip(values[0], weights.lowest, weights.highest)
        returns = [lambda_returns(rewards, possible, discount=settings.discount, trace=settings.trace)]
        returns += [
            lambda_returns(cost, value, discount=settings.cost_discount, trace=settings.trace)
            for cost, value in zip(pessimistic, values[1:], strict=True)
        ]
        discounts = discount_weights(settings.discount, settings.horizon)[:, None]
        outputs = jnp.stack([-jnp.mean(discounts * returns[0]), *(self._counted(cost) for cost in returns[1:])])
        imagined = Imagined(
            jnp.stack(returns),
            outputs[0],
            outputs[1:],
            jnp.mean(reward),
            self._counted(costs),
            self._counted(uncertainty),
        )
        return outputs, jax.lax.stop_gradient(imagined)

    def _counted(self, values: Float[Array, "time row *entry"]) -> Float[Array, " *entry"]:
        """Means over all times and the rows that count."""
        if all(self.is_counted):
            return jnp.mean(values, axis=(0, 1))
        num_times, _, *entry = values.shape
        by_place = values.reshape(num_times, -1, len(self.is_counted), *entry)
        share = sum(self.is_counted) / len(self.is_counted)
        weights = jnp.asarray(self.is_counted, values.dtype).reshape(1, 1, -1, *(1 for _ in entry)) / share
        return jnp.mean(weights * by_place, axis=(0, 1, 2))

    def _critic_gradients(
        self, valued: CriticValues, returns: Float[Array, "critic time row"], d_dream: Dream
    ) -> tuple[Float[Array, " critic"], Float[Array, "critic parameter"]]:
        """Losses and their gradients, after `d_dream`: half the squared error of values, weighted by the discount."""
        discounts = (self.settings.discount, *(self.settings.cost_discount for _ in returns[1:]))
        weighed = jnp.stack([discount_weights(d, self.settings.horizon) for d in discounts])[..., None]
        errors = valued.values[:, :-1] - returns
        losses = jnp.mean(weighed * 0.5 * errors**2, axis=(1, 2))
        cotangents = weighed * errors / errors[0].size
        return losses, valued.to_weights(jnp.pad(cotangents, ((0, 0), (0, 1), (0, 0))), d_dream)
