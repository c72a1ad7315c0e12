"""A step of learning for the model and for the policies at the same time.

Each has a chain of steps that wait for each other, forwards and back, and leave most of a device idle: the filter's
through recorded sequences, and the policies' through their dreams. Neither learner needs the other, but a compiler puts
all operations into one order, and lets those that come later write over what is no longer needed; where they do, even
a device that may run them at the same time has to wait. So chains have memory of their own from the start, and a place
in the order at which all that can be done beside them is done: what comes later then waits for nothing but results.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.dream import Dream, DreamNoise
from actsafe.actor_critic.update import ActorCritic, Batch, Gradients, Learner, Policies, Taught
from actsafe.fast import dream as dreams
from actsafe.fast import filter as filters
from actsafe.fast import networks, objective
from actsafe.fast.objective import OUTPUT, DreamGradients
from actsafe.fast.ordering import after, once, together
from actsafe.fast.world_model import elbo, encode_rows
from actsafe.models.networks import cast
from actsafe.models.packing import flat
from actsafe.models.rssm.world_model import WorldModel
from actsafe.objectives.weights import ObjectiveWeights


def learn_both(model: WorldModel, batch: Batch, policies: Policies) -> tuple[Taught, ActorCritic, dict[str, Array]]:
    """What `batch` teaches the model, and the actor-critics after an update in the model as it is.

    Plain: `actor_critic.update.learn_both`.
    """
    learner, learned, weights, starts, keys = policies
    usable = cast(model, batch.dtype)
    starts = jax.tree.map(lambda leaf: leaf.astype(batch.dtype), starts)
    actors = eqx.filter_vmap(lambda learned: cast(learned.actor.tree, batch.dtype))(learned)
    noise = eqx.filter_vmap(lambda learned, key: learner.draw(learned, usable, starts, key))(learned, keys)
    is_bootstrapped = model.settings.is_bootstrapped
    memory = filters.workspace(usable.cell, *batch.rows.is_first.shape[::-1], is_bootstrapped=is_bootstrapped)
    actor, one_noise = jax.tree.map(lambda leaf: leaf[0], (actors, noise))
    of_one = dreams.workspace(usable.cell, actor, one_noise, 1 + len(learner.budgets))
    memories = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (keys.shape[0], *leaf.shape)), of_one)
    memory, memories = _uninitialised((memory, memories))
    # What the chains need, memory included, comes before all else.
    batch, usable, starts, actors, noise, memory, memories = together(
        batch, usable, starts, actors, noise, memory, memories
    )

    def learn(learned: ActorCritic, actor: Actor, noise: DreamNoise, weights: ObjectiveWeights, own: Any) -> Any:
        """With one policy: mapped over all, the model's part is done once."""
        steps, back_to_rows, draws = jax.vjp(
            lambda model: encode_rows(cast(model, batch.dtype), batch.rows, batch.key), model, has_aux=True
        )
        # Dreams of several policies fill a device: the encoder, which the filter waits for, goes first.
        begin = once(starts, steps.from_observations) if keys.shape[0] > 1 else starts
        filtered, back_to_steps = _filter(model, batch, steps, draws, memory)
        (loss, (states, parts)), (from_end, d_filtered) = jax.value_and_grad(
            lambda model, result: elbo(cast(model, batch.dtype), batch.rows, result, draws, batch.key),
            argnums=(0, 1),
            has_aux=True,
        )(model, filtered)

        # Dreams may begin before all this, and the filter's backward pass beside what they teach.
        actor, start, dreaming, own = after((actor, begin, noise, own), d_filtered)
        dreamt, to_offsets = _dream(usable, actor, start, dreaming, own, batch.unroll)
        taught = objective.gradients(learner.objective, learned, usable, dreamt, noise, weights)
        d_filtered, back_to_steps = after((d_filtered, back_to_steps), taught)
        from_steps, d_steps = back_to_steps(d_filtered)

        # The dreams' backward pass, beside the rest of the model's.
        (from_rows,) = back_to_rows(d_steps)
        gradient = jax.tree.map(lambda *each: sum(each), from_end, from_steps, from_rows)
        recalled = _recall(learner, learned, dreamt)
        taught, to_offsets = after((taught, to_offsets), (gradient, recalled))
        found = _gradients(learner, learned, recalled, noise, taught, to_offsets)
        return Taught(loss, states, parts, gradient), *learner.apply(learned, found, weights)

    each = eqx.if_array(0)
    return eqx.filter_vmap(learn, out_axes=(None, each, each))(learned, actors, noise, weights, memories)


def _uninitialised(memory: Any) -> Any:
    """Memory like `memory`, in which nothing was written yet, but for whole numbers, which count."""

    def like(leaf: Array) -> Array:
        return jax.lax.empty(leaf.shape, leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(like, memory)


def _filter(model: WorldModel, batch: Batch, steps: Any, draws: Any, memory: Any) -> Any:
    def run(model: WorldModel, steps: Any) -> Any:
        with jax.named_scope("filter"):
            return filters.filter_steps(cast(model, batch.dtype).cell, steps, draws, memory, unroll=batch.unroll)

    return jax.vjp(run, model, steps)


def _dream(usable: WorldModel, actor: Actor, start: Any, noise: DreamNoise, memory: Any, unroll: int) -> Any:
    """Dreams, and the backward pass to what is added to their actions."""
    with jax.named_scope("dream"):
        return jax.vjp(
            lambda offsets: dreams.dream(usable.cell, actor, start, noise, offsets, memory, unroll=unroll),
            jnp.zeros_like(noise.action),
        )


class _Recalled(NamedTuple):
    """What the actor's layers gave at every step of its dreams."""

    outputs: Float[Array, "decision outputs"]
    seen: Any
    """The inputs of every layer."""


def _recall(learner: Learner, learned: ActorCritic, dreamt: Dream) -> _Recalled:
    features, dtype = dreamt.states.features, learner.objective.dtype
    with jax.named_scope("actor"):
        rows = features[:-1].reshape(-1, features.shape[-1]).astype(dtype)
        return _Recalled(*networks.trace(cast(learned.actor.tree.layers, dtype), rows))


def _gradients(
    learner: Learner,
    learned: ActorCritic,
    recalled: _Recalled,
    noise: DreamNoise,
    taught: DreamGradients,
    to_offsets: Any,
) -> Gradients:
    """All gradients, from those for what was dreamt. Plain: `Learner.gradients`.

    ∂outputs/∂weights = Σ ∂outputs/∂actions · ∂actions/∂weights, over all steps and rows at once; each output is charged
    for saturation.
    """
    actor = learned.actor.tree
    with jax.named_scope("dream"):
        (action_gradients,) = jax.vmap(to_offsets, in_axes=OUTPUT, out_axes=OUTPUT)(taught.dream)
    with jax.named_scope("actor"):
        drawn, d_actions = (x.reshape(-1, *x.shape[2:]) for x in (noise.action, action_gradients))
        _, pull_back = jax.vjp(lambda outputs: actor.distribution(outputs).sample(drawn), recalled.outputs)
        (errors,) = jax.vmap(pull_back, in_axes=1, out_axes=1)(d_actions)
        penalty = learner.settings.saturation_penalty * jax.grad(actor.saturation)(recalled.outputs)
        errors += penalty[:, None].astype(errors.dtype)
        layers = cast(actor.layers, learner.objective.dtype)
        found = jax.vmap(flat)(networks.gradients(layers, recalled.seen, errors))
    saturation = actor.saturation(recalled.outputs)
    return Gradients(taught.imagined, saturation, found, taught.critic_losses, taught.critic_gradients)
