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
from actsafe.actor_critic.aims import Aim
from actsafe.actor_critic.imagination import DreamNoise
from actsafe.actor_critic.learning import ActorCritic, Learner
from actsafe.data.rows import Rows
from actsafe.models.networks import cast
from actsafe.models.ordering import after, once, together
from actsafe.models.rssm.states import State, StepDraws, Steps, Walked
from actsafe.models.rssm.world_model import Explained, WorldModel, WorldModelSettings, explain


class Taught(NamedTuple):
    """What a batch teaches the model."""

    loss: Float[Array, ""]
    explained: Explained
    gradient: WorldModel


class Batch(NamedTuple):
    """What the model learns from, and how."""

    rows: Rows
    settings: WorldModelSettings
    key: PRNGKeyArray
    dtype: Any
    unroll: int


class Policies(NamedTuple):
    """What policies learn from, and how; `learned`, `aims` and `keys` have a leading axis policy."""

    learner: Learner
    learned: ActorCritic
    aims: Aim
    starts: State
    keys: Key[Array, " policy"]


def learn_both(model: WorldModel, batch: Batch, policies: Policies) -> tuple[Taught, ActorCritic, dict[str, Array]]:
    """What `batch` teaches the model, and the actor-critics after an update in the model as it is."""
    learner, learned, aims, starts, keys = policies
    usable = cast(model, batch.dtype)
    starts = jax.tree.map(lambda leaf: leaf.astype(batch.dtype), starts)
    actors = eqx.filter_vmap(learner.ready)(learned)
    noise = eqx.filter_vmap(lambda learned, key: learner.draw(learned, usable, starts, key))(learned, keys)
    room = usable.cell.room(*batch.rows.is_first.shape[::-1])
    first = jax.tree.map(lambda leaf: leaf[0], (actors, noise))
    of_one = learner.room(first[0], usable, first[1])
    rooms = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (keys.shape[0], *leaf.shape)), of_one)
    room, rooms = _uninitialised((room, rooms))
    # What the chains need, memory included, comes before all else.
    batch, usable, starts, actors, noise, room, rooms = together(batch, usable, starts, actors, noise, room, rooms)

    def learn(learned: ActorCritic, actor: Actor, noise: DreamNoise, aim: Aim, own: Any) -> Any:
        """With one policy: mapped over all, the model's part is done once."""
        steps, draws, back_to_look = _looking(model, batch)
        # Dreams of several policies fill a device: what looks at the batch, which the filter waits for, goes first.
        begin = once(starts, steps.informed) if keys.shape[0] > 1 else starts
        walked, back_to_steps = _walking(model, batch, steps, draws, room)
        loss, explained, from_end, d_walked = _explaining(model, batch, walked, draws)

        # Dreams may begin before all this, and the filter's way back beside what they teach.
        actor, start, dreaming, own = after((actor, begin, noise, own), d_walked)
        dreamt, to_pushes = learner.dream(actor, usable, start, dreaming, own)
        lessons = learner.judge(learned.critics.tree, usable, dreamt, noise, aim)
        d_walked, back_to_steps = after((d_walked, back_to_steps), lessons)
        from_steps, d_steps = back_to_steps(d_walked)

        # The dreams' way back, beside the rest of the model's.
        (from_look,) = back_to_look(d_steps)
        gradient = jax.tree.map(lambda *parts: sum(parts), from_end, from_steps, from_look)
        recalled = learner.recall(learned, dreamt)
        lessons, to_pushes = after((lessons, to_pushes), (gradient, recalled))
        wishes = learner.wish(to_pushes, lessons)
        return Taught(loss, explained, gradient), *learner.learn(learned, recalled, noise, lessons, wishes, aim)

    each = eqx.if_array(0)
    return eqx.filter_vmap(learn, out_axes=(None, each, each))(learned, actors, noise, aims, rooms)


def _uninitialised(room: Any) -> Any:
    """Memory like `room`, in which nothing was written yet, but for whole numbers, which count."""

    def like(leaf: Array) -> Array:
        return jax.lax.empty(leaf.shape, leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(like, room)


def _looking(model: WorldModel, batch: Batch) -> Any:
    def look(model: WorldModel) -> tuple[Steps, StepDraws]:
        return cast(model, batch.dtype).look(batch.rows, batch.key)

    steps, pull_back, draws = jax.vjp(look, model, has_aux=True)
    return steps, draws, pull_back


def _walking(model: WorldModel, batch: Batch, steps: Steps, draws: StepDraws, room: Any) -> Any:
    def walk(model: WorldModel, steps: Steps) -> Walked:
        with jax.named_scope("filter"):
            return cast(model, batch.dtype).cell.walk(steps, draws, room, unroll=batch.unroll)

    return jax.vjp(walk, model, steps)


def _explaining(model: WorldModel, batch: Batch, walked: Walked, draws: StepDraws) -> Any:
    def loss(model: WorldModel, walked: Walked) -> tuple[Array, Explained]:
        model = cast(model, batch.dtype)
        return explain(model, batch.rows, model.cell.distributions(walked, draws), batch.settings)

    (value, explained), (gradient, d_walked) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(model, walked)
    return value, explained, gradient, d_walked
