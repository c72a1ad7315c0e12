"""Gradients of an imagined objective for what was dreamt, part by part."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from actsafe.actor_critic.dream import Dream, DreamNoise
from actsafe.actor_critic.losses import Imagined, ImaginedObjective
from actsafe.actor_critic.update import ActorCritic
from actsafe.fast.cell import predict_many
from actsafe.fast.critics import CriticValues, evaluate
from actsafe.fast.networks import mlp
from actsafe.models.base import Disagreement, Outcome
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel, outcome_of
from actsafe.objectives.weights import ObjectiveWeights

OUTPUT = 2
"""The axis of cotangents, one for the loss and one for each cost return: after those of time and rows, with which it
makes the rows of larger products. In front it would have to be moved for each."""


class DreamGradients(NamedTuple):
    """What follows from dreams for an actor and its critics."""

    imagined: Imagined
    dream: Dream
    """How the loss and each cost return change with every dreamt state and action: (time, row, output, ...)."""
    critic_losses: Float[Array, " critic"]
    critic_gradients: Float[Array, "critic parameter"]


def gradients(
    objective: ImaginedObjective,
    learned: ActorCritic,
    model: WorldModel,
    dreamt: Dream,
    noise: DreamNoise,
    weights: ObjectiveWeights,
) -> DreamGradients:
    """What dreams of an actor teach it and its critics. Plain: `jax.jacrev` of `ImaginedObjective.__call__`.

    Backwards in parts: from the outputs to values, uncertainty and dream; from values, through each critic for its own
    output; from the uncertainty, which takes predictions of all members, for those outputs alone that follow it.
    """
    features = dreamt.states.features
    with jax.named_scope("everyone"):
        (uncertainty, everyone), to_dream = jax.vjp(lambda dreamt: _everyone(objective, model, dreamt, noise), dreamt)
    with jax.named_scope("critics"):
        valued = evaluate(learned.critics.tree, features, objective.dtype)
        slow = learned.slow_critics
        judged = valued if slow is None else evaluate(slow.tree, features, objective.dtype)
    with jax.named_scope("outcomes"):

        def outputs_of(features: Array, values: Array, uncertainty: Array, everyone: Array | None) -> Any:
            outcome = outcome_of(mlp(model.head, features[1:] if everyone is None else everyone))
            if everyone is not None:
                outcome = Outcome(*(jnp.mean(leaf, axis=0) for leaf in outcome))
            return objective.evaluate(weights, learned.objective_memory, outcome, uncertainty, values, lambda_returns)

        outputs, to_parts, imagined = jax.vjp(outputs_of, features, judged.values, uncertainty, everyone, has_aux=True)
        each = jnp.eye(outputs.size, dtype=outputs.dtype)
        d_features, d_values, d_uncertainty, d_everyone = jax.vmap(to_parts, out_axes=(OUTPUT, 0, OUTPUT, OUTPUT + 1))(
            each
        )
    with jax.named_scope("critics"):
        own = jnp.stack([d_values[number, number] for number in range(outputs.size)])
        d_features += jnp.moveaxis(judged.to_features(own), 0, OUTPUT)
    with jax.named_scope("everyone"):
        followers = 0 if objective.is_uncertainty_differentiated or objective.is_outcome_averaged else 1
        asked = (d_uncertainty[:, :, followers:], jax.tree.map(lambda leaf: leaf[:, :, :, followers:], d_everyone))
        (through_uncertainty,) = jax.vmap(to_dream, in_axes=((OUTPUT, OUTPUT + 1),), out_axes=OUTPUT)(asked)
    with jax.named_scope("dream"):
        size = model.cell.deterministic_size
        d_states = State(d_features[..., :size], d_features[..., size:])
        shape = (*noise.action.shape[:OUTPUT], outputs.size, noise.action.shape[-1])
        d_actions = jnp.zeros(shape, dreamt.actions.dtype)
        d_dream = jax.tree.map(
            lambda whole, part: jnp.concatenate([whole[:, :, :followers], whole[:, :, followers:] + part], axis=OUTPUT),
            Dream(d_states, d_actions),
            through_uncertainty,
        )
    with jax.named_scope("critics"):
        # The dreams' backward pass waits for what is above, and for nothing of this.
        return DreamGradients(imagined, d_dream, *_of_critics(objective, valued, imagined.returns, d_dream))


def lambda_returns(
    rewards: Float[Array, "time *rows"], values: Float[Array, "time_and_one *rows"], *, discount: float, trace: float
) -> Float[Array, "time *rows"]:
    """The recursion as one product with a triangular matrix: R_t = Σ_{k ≥ t} (γλ)^{k − t} x_k.

    Plain: `losses.lambda_returns`.
    """
    steps = rewards.shape[0]
    last = np.zeros(steps)
    last[-1] = trace
    share = discount * (1.0 - trace + last).reshape(-1, *(1,) * (rewards.ndim - 1))
    now = rewards + share.astype(np.float32) * values[1:]
    ahead = np.arange(steps)[None, :] - np.arange(steps)[:, None]
    decay = np.where(ahead >= 0, (discount * trace) ** np.maximum(ahead, 0), 0.0)
    # Written out as a sum: a matrix product might be computed in a lower precision.
    return jnp.sum(decay.astype(np.float32).reshape(steps, steps, *(1,) * (rewards.ndim - 1)) * now[None], axis=1)


def _everyone(
    objective: ImaginedObjective, model: WorldModel, dreamt: Dream, noise: DreamNoise
) -> tuple[Float[Array, "time row"], Float[Array, "member time row feature"] | None]:
    """How much the members disagree at each step, and where each would have gone, if outcomes are averaged."""
    lead = dreamt.actions.shape[:2]
    before = jax.tree.map(lambda leaf: leaf[:-1].reshape(-1, leaf.shape[-1]), dreamt.states)
    deterministic, priors = predict_many(model.cell, before, dreamt.actions.reshape(-1, dreamt.actions.shape[-1]))
    uncertainty = objective.uncertainty(Disagreement.among(priors.mean, priors.std, axis=0)).reshape(lead)
    if not objective.is_outcome_averaged:
        return uncertainty, None
    draws = noise.model.noise
    shared = jnp.broadcast_to(draws.reshape(1, -1, draws.shape[-1]), priors.mean.shape)
    sampled = priors.sample(shared)
    features = State(deterministic, sampled.astype(deterministic.dtype)).features
    return uncertainty, features.reshape(features.shape[0], *lead, -1)


def _of_critics(
    objective: ImaginedObjective, valued: CriticValues, returns: Float[Array, "critic time row"], d_dream: Dream
) -> tuple[Float[Array, " critic"], Float[Array, "critic parameter"]]:
    """Losses of the critics and their gradients, after `d_dream`."""
    weights = objective.critic_weights(len(returns))
    errors = valued.values[:, :-1] - returns
    losses = jnp.mean(weights * 0.5 * errors**2, axis=(1, 2))
    cotangents = weights * errors / errors[0].size
    return losses, valued.to_weights(jnp.pad(cotangents, ((0, 0), (0, 1), (0, 0))), d_dream)
