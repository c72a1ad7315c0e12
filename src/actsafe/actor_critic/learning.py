"""One update of an actor and its critics, from dreams."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.imagination import Dream, DreamNoise, dream, dream_workspace
from actsafe.actor_critic.judging import OUTPUT, DreamGradients, ImaginedObjective
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.constrained.base import ConstrainedStep, Info, Linearisation
from actsafe.constrained.descent import descend
from actsafe.constrained.optimisers import clipped_adam
from actsafe.models.networks import MLP, cast
from actsafe.models.packing import Packed, flat
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel
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


class Recalled(NamedTuple):
    """What the actor's layers gave at every step of its dreams."""

    outputs: Float[Array, "decision outputs"]
    seen: Any
    """The inputs of every layer."""


ToOffsets = Callable[[Dream], tuple[Float[Array, "time row action"]]]
"""From how something changes with what was dreamt to how it changes with what is added to each action."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """The unchanging part of an actor-critic's learning."""

    objective: ImaginedObjective
    step: ConstrainedStep
    budgets: tuple[float, ...]
    """Bounds on the discounted cost returns, one per constraint."""
    unroll: int = 1

    @property
    def settings(self) -> ActorCriticSettings:
        return self.objective.settings

    @property
    def dtype(self) -> Any:
        """Of products of matrices."""
        return self.objective.dtype

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
        )

    def improve(
        self, learned: ActorCritic, model: WorldModel, start: State, weights: ObjectiveWeights, key: PRNGKeyArray
    ) -> tuple[ActorCritic, Info]:
        """The actor-critic after one update, from dreams that begin in every row of `start`; `model` is cast."""
        noise = self.draw(learned, model, start, key)
        dreamt, to_offsets = self.dream(self.ready(learned), model, start, noise)
        taught = self.objective(learned.critics.tree, model, dreamt, noise, weights)
        action_gradients = self.action_gradients(to_offsets, taught)
        return self.learn(learned, self.recall(learned, dreamt), noise, taught, action_gradients, weights)

    def draw(self, learned: ActorCritic, model: WorldModel, start: State, key: PRNGKeyArray) -> DreamNoise:
        """The random numbers of an update."""
        num_actions = learned.actor.tree.layers.layers[-1].bias.shape[-1] // 2
        with jax.named_scope("noise"):
            return DreamNoise.draw(model.cell, start.stochastic.shape[0], num_actions, self.settings.horizon, key)

    def ready(self, learned: ActorCritic) -> Actor:
        """The actor, in the precision in which it dreams."""
        return cast(learned.actor.tree, self.dtype)

    def workspace(self, actor: Actor, model: WorldModel, noise: DreamNoise) -> Any:
        """For `dream`: memory to work in."""
        return dream_workspace(model.cell, actor, noise, 1 + len(self.budgets))

    def dream(
        self, actor: Actor, model: WorldModel, start: State, noise: DreamNoise, workspace: Any = None
    ) -> tuple[Dream, ToOffsets]:
        """Dreams of an actor that is `ready`, and the way back to its actions."""
        with jax.named_scope("dream"):
            return jax.vjp(
                lambda action_offsets: dream(
                    model.cell, actor, start, noise, action_offsets, workspace, unroll=self.unroll
                ),
                jnp.zeros_like(noise.action),
            )

    def recall(self, learned: ActorCritic, dreamt: Dream) -> Recalled:
        """What the actor's layers gave at every step of its dreams."""
        features = dreamt.features[:-1].reshape(-1, dreamt.features.shape[-1]).astype(self.dtype)
        with jax.named_scope("actor"):
            return Recalled(*cast(learned.actor.tree.layers, self.dtype).trace(features))

    def action_gradients(self, to_offsets: ToOffsets, taught: DreamGradients) -> Float[Array, "time row output action"]:
        """How the loss and each cost return change with every dreamt action."""
        with jax.named_scope("dream"):
            return jax.vmap(to_offsets, in_axes=OUTPUT, out_axes=OUTPUT)(taught.dream)[0]

    def learn(
        self,
        learned: ActorCritic,
        recalled: Recalled,
        noise: DreamNoise,
        taught: DreamGradients,
        action_gradients: Float[Array, "time row output action"],
        weights: ObjectiveWeights,
    ) -> tuple[ActorCritic, Info]:
        """The actor-critic after the steps of its optimisers."""
        with jax.named_scope("actor"):
            gradients = self._actor_gradients(learned.actor.tree, recalled, noise.action, action_gradients)
        imagined = taught.imagined
        saturation = learned.actor.tree.saturation(recalled.outputs)
        charge = self.settings.saturation_penalty * saturation
        loss, cost_returns = imagined.loss + charge, imagined.cost_returns + charge
        margins = jnp.asarray(self.budgets, jnp.float32) - cost_returns
        with jax.named_scope("step"):
            linearisation = Linearisation(loss, margins, gradients[0], gradients[1:])
            direction, step_memory, info = self.step.direction(learned.step_memory, linearisation)
            vector, actor_memory, is_actor_skipped = descend(
                self._actor_optimiser, learned.actor.vector, direction, learned.actor_memory
            )
            every, critic_memory, is_critic_skipped = jax.vmap(
                lambda rate, *critic: descend(clipped_adam(rate), *critic)
            )(self._critic_rates, learned.critics.vector, taught.critic_gradients, learned.critic_memory)
        is_skipped = jnp.maximum(is_actor_skipped, jnp.max(is_critic_skipped))
        info |= {
            "loss": loss,
            "return": jnp.mean(imagined.returns[0]),
            "reward": imagined.reward,
            "uncertainty": imagined.uncertainty,
            "saturation": saturation,
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
        packed = Packed(vector, learned.actor.layout), Packed(every, learned.critics.layout)
        return ActorCritic(*packed, actor_memory, critic_memory, step_memory), info

    def _actor_gradients(
        self, actor: Actor, recalled: Recalled, noise: Array, action_gradients: Float[Array, "time row output action"]
    ) -> Float[Array, "output parameter"]:
        """∂outputs/∂weights = Σ ∂outputs/∂actions · ∂actions/∂weights, over all steps and rows at once; each output is
        charged for saturation."""
        layers = cast(actor.layers, self.dtype)
        noise, action_gradients = (x.reshape(-1, *x.shape[2:]) for x in (noise, action_gradients))
        _, pull_back = jax.vjp(lambda outputs: actor.distribution(outputs).sample(noise), recalled.outputs)
        (errors,) = jax.vmap(pull_back, in_axes=1, out_axes=1)(action_gradients)
        saturation_penalty = self.settings.saturation_penalty * jax.grad(actor.saturation)(recalled.outputs)
        errors += saturation_penalty[:, None].astype(errors.dtype)
        return jax.vmap(flat)(layers.gradients(recalled.seen, errors))

    @property
    def _actor_optimiser(self) -> optax.GradientTransformation:
        return self.step.optimiser(self.settings.actor_rate)

    @property
    def _critic_rates(self) -> Float[Array, " critic"]:
        settings = self.settings
        of_costs = settings.critic_rate if settings.safety_critic_rate is None else settings.safety_critic_rate
        return jnp.asarray([settings.critic_rate, *(of_costs for _ in self.budgets)], jnp.float32)
