"""A step of learning for the model and for the policies at the same time.

Each has a chain of steps that wait for each other, forwards and back, and leave most of a device idle: the filter's
through recorded sequences, and the policies' through their dreams. Neither learner needs the other. But a compiler puts
all operations into one order, and lets those that come later write over what is no longer needed; where they do, even
a device that may run them at the same time has to wait. So the order is given here: both chains come next to each
other, and nothing that they read is given up before both have ended.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PRNGKeyArray

from actsafe.actor_critic.aims import Aim
from actsafe.actor_critic.learning import ActorCritic, Learner
from actsafe.data.rows import Rows
from actsafe.models.networks import cast
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
    """What the policies learn from, and how; all but `learner` and `starts` have a leading axis policy."""

    learner: Learner
    learned: ActorCritic
    aims: Aim
    starts: State
    keys: Key[Array, " policy"]


def learn_both(model: WorldModel, batch: Batch, policies: Policies) -> tuple[Taught, ActorCritic, dict[str, Array]]:
    """What `batch` teaches the model, and the actor-critics after an update in the model as it is."""
    usable = cast(model, batch.dtype)
    learner, learned, aims, starts, keys = policies

    # Up to the chains.
    steps, draws, back_to_look = _looking(model, batch)
    noise = eqx.filter_vmap(lambda learned, key: learner.draw(learned, usable, starts, key))(learned, keys)
    steps, draws, noise, starts = together(steps, draws, noise, starts)

    # The chains.
    walked, back_to_steps = _walking(model, batch, steps, draws)
    dreamt, to_pushes = eqx.filter_vmap(lambda *own: learner.dream(own[0], usable, starts, own[1]))(learned, noise)
    walked, dreamt, steps, draws, noise, starts = together(walked, dreamt, steps, draws, noise, starts)

    # What came of them.
    loss, explained, from_end, d_walked = _explaining(model, batch, walked, draws)
    lessons = eqx.filter_vmap(lambda learned, *own: learner.judge(learned.critics.tree, usable, *own))(
        learned, dreamt, noise, aims
    )
    d_walked, lessons, walked, dreamt, noise = together(d_walked, lessons, walked, dreamt, noise)

    # The chains, the other way.
    from_steps, d_steps = back_to_steps(d_walked)
    wishes = eqx.filter_vmap(learner.wish)(to_pushes, lessons)
    from_steps, d_steps, wishes, lessons, dreamt, noise = together(from_steps, d_steps, wishes, lessons, dreamt, noise)

    # From there on.
    (from_look,) = back_to_look(d_steps)
    gradient = jax.tree.map(lambda *parts: sum(parts), from_end, from_steps, from_look)
    recalled = eqx.filter_vmap(learner.recall)(learned, dreamt)
    learned, info = eqx.filter_vmap(learner.learn)(learned, recalled, noise, lessons, wishes, aims)
    return Taught(loss, explained, gradient), learned, info


def together(*values: Any) -> Any:
    """The same values, of which none is used, and the memory of none given up, before all have their place."""
    arrays, rest = eqx.partition(values, eqx.is_array)
    return eqx.combine(jax.lax.optimization_barrier(arrays), rest)


def _looking(model: WorldModel, batch: Batch) -> Any:
    def look(model: WorldModel) -> tuple[Steps, StepDraws]:
        return cast(model, batch.dtype).look(batch.rows, batch.key)

    steps, pull_back, draws = jax.vjp(look, model, has_aux=True)
    return steps, draws, pull_back


def _walking(model: WorldModel, batch: Batch, steps: Steps, draws: StepDraws) -> Any:
    def walk(model: WorldModel, steps: Steps) -> Walked:
        with jax.named_scope("filter"):
            return cast(model, batch.dtype).cell.walk(steps, draws, unroll=batch.unroll)

    return jax.vjp(walk, model, steps)


def _explaining(model: WorldModel, batch: Batch, walked: Walked, draws: StepDraws) -> Any:
    def loss(model: WorldModel, walked: Walked) -> tuple[Array, Explained]:
        model = cast(model, batch.dtype)
        return explain(model, batch.rows, model.cell.distributions(walked, draws), batch.settings)

    (value, explained), (gradient, d_walked) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(model, walked)
    return value, explained, gradient, d_walked
