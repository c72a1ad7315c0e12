"""One update of an actor and its critics from dreams, and of the model that they dream with."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.bounds import ObjectiveMemory
from actsafe.actor_critic.dream import DreamNoise, dream
from actsafe.actor_critic.losses import Imagined, ImaginedObjective, critic_values
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.constrained.base import ConstrainedStep, Info, Linearisation
from actsafe.constrained.descent import descend
from actsafe.constrained.optimisers import clipped_adam
from actsafe.data.rows import Rows
from actsafe.models.base import Latent, LatentModel
from actsafe.models.networks import MLP, cast
from actsafe.models.packing import Packed, Tree
from actsafe.objectives.weights import ObjectiveWeights


class ActorCritic(eqx.Module):
    """A policy, its critics, and what their optimisers remember."""

    actor: Packed[Actor]
    critics: Packed[MLP]
    """One for the reward and one for every constraint, along the leading axis."""
    actor_memory: Any
    critic_memory: Any
    step_memory: Any
    """Of the constrained step: barrier weight or multipliers."""
    objective_memory: ObjectiveMemory
    slow_critics: Packed[MLP] | None = None
    """Running averages of the critics; None where returns end in the values of the critics themselves."""
    average_actor: Packed[Actor] | None = None
    """The running average of the actor; None where the newest is deployed."""

    @property
    def deployed(self) -> Packed[Actor]:
        """The actor that acts, is evaluated and is certified."""
        return self.actor if self.average_actor is None else self.average_actor

    @property
    def bootstrap(self) -> Packed[MLP]:
        """The critics whose values returns end in."""
        return self.critics if self.slow_critics is None else self.slow_critics


class Gradients(NamedTuple):
    """What follows from dreams for an actor and its critics."""

    imagined: Imagined
    saturation: Float[Array, ""]
    actor: Float[Array, "output parameter"]
    """Of the loss and of every pessimistic cost return."""
    critic_losses: Float[Array, " critic"]
    critics: Float[Array, "critic parameter"]


@dataclasses.dataclass(frozen=True)
class Learner:
    """The unchanging part of an actor-critic's learning."""

    objective: ImaginedObjective
    step: ConstrainedStep
    budgets: tuple[float, ...]
    """Bounds on the discounted cost returns, one per constraint."""

    @property
    def settings(self) -> ActorCriticSettings:
        return self.objective.settings

    def init(self, num_features: int, num_actions: int, key: PRNGKeyArray) -> ActorCritic:
        """An actor-critic that has learned nothing."""
        settings = self.settings
        actor_key, *critic_keys = jax.random.split(key, 2 + len(self.budgets))
        width, depth, std = settings.actor_width, settings.actor_depth, settings.initial_std
        actor = Actor.create(num_features, num_actions, width=width, depth=depth, initial_std=std, key=actor_key)
        sizes = (num_features, 1, settings.critic_width, settings.critic_depth)
        one = [Packed.of(MLP.create(*sizes, k)) for k in critic_keys]
        actor, critics = Packed.of(actor), jax.tree.map(lambda *leaves: jnp.stack(leaves), *one)
        return ActorCritic(
            actor,
            critics,
            self._actor_optimiser.init(actor.vector),
            jax.vmap(clipped_adam(settings.critic_rate).init)(critics.vector),
            self.step.init(len(self.budgets)),
            ObjectiveMemory.empty(),
            _copy(critics) if settings.critic_average else None,
            _copy(actor) if settings.actor_average else None,
        )

    def improve(
        self, learned: ActorCritic, model: LatentModel, start: Latent, weights: ObjectiveWeights, key: PRNGKeyArray
    ) -> tuple[ActorCritic, Info]:
        """The actor-critic after one update, from dreams that begin in every row of `start`; `model` is cast."""
        noise = self.draw(learned, model, start, key)
        return self.apply(learned, self.gradients(learned, model, start, noise, weights), weights)

    def draw(self, learned: ActorCritic, model: LatentModel, start: Latent, key: PRNGKeyArray) -> DreamNoise:
        """The random numbers of an update."""
        num_rows, num_actions = len(jax.tree.leaves(start)[0]), learned.actor.tree.num_actions
        with jax.named_scope("noise"):
            return DreamNoise.draw(model, num_rows, num_actions, self.settings.horizon, key)

    def gradients(
        self, learned: ActorCritic, model: LatentModel, start: Latent, noise: DreamNoise, weights: ObjectiveWeights
    ) -> Gradients:
        """Gradients of the loss and the cost returns for the actor's weights, and of the critics' losses for theirs."""
        dtype = self.objective.dtype
        frozen_critics = cast(learned.bootstrap.tree, dtype)

        def outputs(vector: Array) -> tuple[Array, Any]:
            actor = cast(Packed(vector, learned.actor.layout).tree, dtype)
            dreamt = dream(model, actor, start, noise)
            found, imagined = self.objective(model, frozen_critics, dreamt, noise, weights, learned.objective_memory)
            features = jax.lax.stop_gradient(model.features(dreamt.states))
            saturation = actor.saturation(actor.layers(features[:-1]))
            return found + self.settings.saturation_penalty * saturation, (imagined, features, saturation)

        def critic_losses(vectors: Array) -> tuple[Array, Array]:
            critics = cast(Packed(vectors, learned.critics.layout).tree, dtype)
            losses = self.objective.critic_losses(critic_values(critics, features), imagined.returns)
            return jnp.sum(losses), losses

        gradients, (imagined, features, saturation) = jax.jacrev(outputs, has_aux=True)(learned.actor.vector)
        d_critics, losses = jax.grad(critic_losses, has_aux=True)(learned.critics.vector)
        return Gradients(imagined, saturation, gradients, losses, d_critics)

    def apply(self, learned: ActorCritic, taught: Gradients, weights: ObjectiveWeights) -> tuple[ActorCritic, Info]:
        """The actor-critic after the steps of its optimisers."""
        imagined = taught.imagined
        charge = self.settings.saturation_penalty * taught.saturation
        loss, cost_returns = imagined.loss + charge, imagined.cost_returns + charge
        margins = jnp.asarray(self.budgets, jnp.float32) - cost_returns
        with jax.named_scope("step"):
            linearisation = Linearisation(loss, margins, taught.actor[0], taught.actor[1:])
            direction, step_memory, info = self.step.direction(learned.step_memory, linearisation)
            vector, actor_memory, is_actor_skipped = descend(
                self._actor_optimiser, learned.actor.vector, direction, learned.actor_memory
            )
            every, critic_memory, is_critic_skipped = jax.vmap(
                lambda rate, *critic: descend(clipped_adam(rate), *critic)
            )(self._critic_rates, learned.critics.vector, taught.critics, learned.critic_memory)
        is_skipped = jnp.maximum(is_actor_skipped, jnp.max(is_critic_skipped))
        info |= {
            "loss": loss,
            "return": jnp.mean(imagined.returns[0]),
            "reward": imagined.reward,
            "uncertainty": imagined.uncertainty,
            "saturation": taught.saturation,
            "critic_loss": taught.critic_losses[0],
            "is_skipped": jnp.maximum(info["is_skipped"], is_skipped),
        }
        for number in range(cost_returns.size):
            pessimistic = imagined.costs[number] + weights.pessimism * imagined.uncertainty
            info |= {
                f"cost_{number}": imagined.costs[number],
                f"pessimistic_cost_{number}": pessimistic,
                f"cost_return_{number}": cost_returns[number],
                f"margin_{number}": margins[number],
                f"safety_critic_loss_{number}": taught.critic_losses[1 + number],
            }
        if self.objective.smallest_range is not None:
            info["return_range"] = jnp.asarray(imagined.memory.return_range)
        actor, critics = Packed(vector, learned.actor.layout), Packed(every, learned.critics.layout)
        return ActorCritic(
            actor,
            critics,
            actor_memory,
            critic_memory,
            step_memory,
            imagined.memory.or_before(learned.objective_memory),
            averaged(learned.slow_critics, critics, self.settings.critic_average),
            averaged(learned.average_actor, actor, self.settings.actor_average),
        ), info

    @property
    def _actor_optimiser(self) -> optax.GradientTransformation:
        return self.step.optimiser(self.settings.actor_rate)

    @property
    def _critic_rates(self) -> Float[Array, " critic"]:
        settings = self.settings
        of_costs = settings.critic_rate if settings.safety_critic_rate is None else settings.safety_critic_rate
        return jnp.asarray([settings.critic_rate, *(of_costs for _ in self.budgets)], jnp.float32)


def averaged(average: Packed[Tree] | None, newest: Packed[Tree], decay: float) -> Packed[Tree] | None:
    """decay · average + (1 − decay) · newest; None where no average is kept."""
    if average is None:
        return None
    return Packed(decay * average.vector + (1.0 - decay) * newest.vector, newest.layout)


def _copy(packed: Packed[Tree]) -> Packed[Tree]:
    return Packed(jnp.copy(packed.vector), packed.layout)


class Batch(NamedTuple):
    """What the model learns from, and how."""

    rows: Rows
    key: PRNGKeyArray
    dtype: Any
    """Of products of matrices."""
    unroll: int = 1
    """Steps of a loop in one piece, where loops are unrolled."""


class Policies(NamedTuple):
    """What policies learn from, and how; `learned`, `weights` and `keys` have a leading axis policy."""

    learner: Learner
    learned: ActorCritic
    weights: ObjectiveWeights
    starts: Latent
    keys: Key[Array, " policy"]


class Taught(NamedTuple):
    """What a batch teaches the model."""

    loss: Float[Array, ""]
    states: Latent
    """(batch, time)"""
    parts: dict[str, Float[Array, ""]]
    """Of the loss."""
    gradient: LatentModel


def learn_both(model: LatentModel, batch: Batch, policies: Policies) -> tuple[Taught, ActorCritic, dict[str, Array]]:
    """What `batch` teaches the model, and the actor-critics after an update in the model as it is."""

    def loss(model: LatentModel) -> Any:
        return cast(model, batch.dtype).loss(batch.rows, batch.key)

    (value, (states, parts)), gradient = jax.value_and_grad(loss, has_aux=True)(model)
    learner, learned, weights, starts, keys = policies
    usable, starts = cast((model, starts), batch.dtype)
    improved, info = eqx.filter_vmap(lambda own, weights, key: learner.improve(own, usable, starts, weights, key))(
        learned, weights, keys
    )
    return Taught(value, states, parts, gradient), improved, info
