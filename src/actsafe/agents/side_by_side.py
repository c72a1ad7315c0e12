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
from jaxtyping import Array, Float, Key, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.imagination import DreamNoise
from actsafe.actor_critic.learning import ActorCritic, Learner
from actsafe.data.rows import Rows
from actsafe.models.networks import cast
from actsafe.models.ordering import after, once, together
from actsafe.models.rssm.states import FilterResult, State, StepDraws, Steps
from actsafe.models.rssm.world_model import Elbo, WorldModel, WorldModelSettings, elbo
from actsafe.objectives.weights import ObjectiveWeights


class Taught(NamedTuple):
    """What a batch teaches the model."""

    loss: Float[Array, ""]
    parts: Elbo
    gradient: WorldModel


class Batch(NamedTuple):
    """What the model learns from, and how."""

    rows: Rows
    settings: WorldModelSettings
    key: PRNGKeyArray
    dtype: Any
    unroll: int


class Policies(NamedTuple):
    """What policies learn from, and how; `learned`, `weights` and `keys` have a leading axis policy."""

    learner: Learner
    learned: ActorCritic
    weights: ObjectiveWeights
    starts: State
    keys: Key[Array, " policy"]


def learn_both(model: WorldModel, batch: Batch, policies: Policies) -> tuple[Taught, ActorCritic, dict[str, Array]]:
    """What `batch` teaches the model, and the actor-critics after an update in the model as it is."""
    learner, learned, weights, starts, keys = policies
    usable = cast(model, batch.dtype)
    starts = jax.tree.map(lambda leaf: leaf.astype(batch.dtype), starts)
    actors = eqx.filter_vmap(learner.ready)(learned)
    noise = eqx.filter_vmap(lambda learned, key: learner.draw(learned, usable, starts, key))(learned, keys)
    workspace = usable.cell.workspace(*batch.rows.is_first.shape[::-1])
    first = jax.tree.map(lambda leaf: leaf[0], (actors, noise))
    of_one = learner.workspace(first[0], usable, first[1])
    workspaces = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (keys.shape[0], *leaf.shape)), of_one)
    workspace, workspaces = _uninitialised((workspace, workspaces))
    # What the chains need, memory included, comes before all else.
    batch, usable, starts, actors, noise, workspace, workspaces = together(
        batch, usable, starts, actors, noise, workspace, workspaces
    )

    def learn(learned: ActorCritic, actor: Actor, noise: DreamNoise, weights: ObjectiveWeights, own: Any) -> Any:
        """With one policy: mapped over all, the model's part is done once."""
        steps, draws, back_to_observations = _encode(model, batch)
        # Dreams of several policies fill a device: what looks at the batch, which the filter waits for, goes first.
        begin = once(starts, steps.informed) if keys.shape[0] > 1 else starts
        filtered_states, back_to_steps = _filter(model, batch, steps, draws, workspace)
        loss, parts, from_end, d_filtered = _elbo(model, batch, filtered_states, draws)

        # Dreams may begin before all this, and the filter's way back beside what they teach.
        actor, start, dreaming, own = after((actor, begin, noise, own), d_filtered)
        dreamt, to_offsets = learner.dream(actor, usable, start, dreaming, own)
        taught = learner.objective(learned.critics.tree, usable, dreamt, noise, weights)
        d_filtered, back_to_steps = after((d_filtered, back_to_steps), taught)
        from_steps, d_steps = back_to_steps(d_filtered)

        # The dreams' way back, beside the rest of the model's.
        (from_encoding,) = back_to_observations(d_steps)
        gradient = jax.tree.map(lambda *parts: sum(parts), from_end, from_steps, from_encoding)
        recalled = learner.recall(learned, dreamt)
        taught, to_offsets = after((taught, to_offsets), (gradient, recalled))
        action_gradients = learner.action_gradients(to_offsets, taught)
        return Taught(loss, parts, gradient), *learner.learn(
            learned, recalled, noise, taught, action_gradients, weights
        )

    each = eqx.if_array(0)
    return eqx.filter_vmap(learn, out_axes=(None, each, each))(learned, actors, noise, weights, workspaces)


def _uninitialised(workspace: Any) -> Any:
    """Memory like `workspace`, in which nothing was written yet, but for whole numbers, which count."""

    def like(leaf: Array) -> Array:
        return jax.lax.empty(leaf.shape, leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(like, workspace)


def _encode(model: WorldModel, batch: Batch) -> Any:
    def encode(model: WorldModel) -> tuple[Steps, StepDraws]:
        return cast(model, batch.dtype).encode(batch.rows, batch.key)

    steps, pull_back, draws = jax.vjp(encode, model, has_aux=True)
    return steps, draws, pull_back


def _filter(model: WorldModel, batch: Batch, steps: Steps, draws: StepDraws, workspace: Any) -> Any:
    def run_filter(model: WorldModel, steps: Steps) -> FilterResult:
        with jax.named_scope("filter"):
            return cast(model, batch.dtype).cell.filter(steps, draws, workspace, unroll=batch.unroll)

    return jax.vjp(run_filter, model, steps)


def _elbo(model: WorldModel, batch: Batch, filtered_states: FilterResult, draws: StepDraws) -> Any:
    def loss(model: WorldModel, filtered_states: FilterResult) -> tuple[Array, Elbo]:
        model = cast(model, batch.dtype)
        return elbo(model, batch.rows, model.cell.distributions(filtered_states, draws), batch.settings)

    (value, parts), (gradient, d_filtered) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
        model, filtered_states
    )
    return value, parts, gradient, d_filtered
