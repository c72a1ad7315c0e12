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
from actsafe.actor_critic.aims import Aim
from actsafe.actor_critic.critics import Judged, judge
from actsafe.actor_critic.imagination import Dream, DreamNoise, dream
from actsafe.actor_critic.lambda_return import discount_weights, lambda_returns
from actsafe.constrained.base import ConstrainedStep, Info, Linearisation
from actsafe.constrained.descent import descend
from actsafe.constrained.optimisers import clipped_adam
from actsafe.models.networks import MLP, cast
from actsafe.models.packing import Packed, flat
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel
from actsafe.objectives.doubt import Disagreement, Doubt


@dataclasses.dataclass(frozen=True)
class ActorCriticSettings:
    """Sizes, horizon and rates; the paper's."""

    horizon: int = 15
    """Decisions that are imagined from each state of a batch."""
    discount: float = 0.99
    cost_discount: float = 0.99
    trace: float = 0.95
    """λ of the λ-returns."""
    actor_width: int = 400
    actor_depth: int = 5
    critic_width: int = 400
    critic_depth: int = 3
    initial_std: float = 5.0
    """Std of the first policy's actions before squashing."""
    actor_rate: float = 8e-5
    critic_rate: float = 8e-5

    def __post_init__(self) -> None:
        for name in ("horizon", "actor_width", "actor_depth", "critic_width", "critic_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"actor_critic.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("discount", "cost_discount", "trace"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"actor_critic.{name} must be at least 0 and below 1, got {getattr(self, name)}")
        for name in ("initial_std", "actor_rate", "critic_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"actor_critic.{name} must be positive, got {getattr(self, name)}")


OUTPUT = 2
"""The axis of cotangents, one for the loss and one for each cost return: after those of time and rows, with which it
makes the rows of larger products. In front it would have to be moved for each."""


class ActorCritic(eqx.Module):
    """A policy, its critics, and what their optimisers remember."""

    actor: Packed[Actor]
    critics: Packed[MLP]
    """One for the reward and one for every constraint, along the leading axis."""
    actor_memory: Any
    critic_memory: Any
    step_memory: Any
    """Of the constrained step: barrier weight or multipliers."""


class Imagined(NamedTuple):
    """What dreams say of a policy; means over all imagined decisions."""

    returns: Float[Array, "critic time row"]
    """λ-returns of the reward and of every pessimistic cost."""
    loss: Float[Array, ""]
    cost_returns: Float[Array, " constraint"]
    reward: Float[Array, ""]
    costs: Float[Array, " constraint"]
    doubt: Float[Array, ""]


class Lessons(NamedTuple):
    """What follows from dreams for an actor and its critics."""

    imagined: Imagined
    wishes: Dream
    """How the loss and each cost return change with every dreamt state and action: (time, row, output, ...)."""
    critic_losses: Float[Array, " critic"]
    critic_gradients: Float[Array, "critic parameter"]


class Recalled(NamedTuple):
    """What the actor's layers gave at every step of its dreams."""

    outputs: Float[Array, "decision outputs"]
    seen: Any
    """The inputs of every layer."""


ToPushes = Callable[[Dream], tuple[Float[Array, "time row action"]]]
"""From how something changes with what was dreamt to how it changes with what is added to each action."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """The unchanging part of an actor-critic's learning."""

    settings: ActorCriticSettings
    step: ConstrainedStep
    doubt: Doubt
    budgets: tuple[float, ...]
    """Bounds on the discounted cost returns, one per constraint."""
    is_doubt_differentiated: bool = False
    is_outcome_averaged: bool = False
    """Whether rewards and costs are means over what all members expect (the released code), or those of the believed
    one (the paper)."""
    dtype: Any = jnp.float32
    unroll: int = 1

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
            jax.vmap(self._critic_optimiser.init)(critics.vector),
            self.step.init(len(self.budgets)),
        )

    def improve(
        self, learned: ActorCritic, model: WorldModel, start: State, aim: Aim, key: PRNGKeyArray
    ) -> tuple[ActorCritic, Info]:
        """The actor-critic after one update, from dreams that begin in every row of `start`; `model` is cast."""
        noise = self.draw(learned, model, start, key)
        dreamt, to_pushes = self.dream(learned, model, start, noise)
        lessons = self.judge(learned, model, dreamt, noise, aim)
        wishes = self.wish(to_pushes, lessons)
        return self.learn(learned, self.recall(learned, dreamt), noise, lessons, wishes, aim)

    def draw(self, learned: ActorCritic, model: WorldModel, start: State, key: PRNGKeyArray) -> DreamNoise:
        """The random numbers of an update."""
        num_actions = learned.actor.tree.layers.layers[-1].bias.shape[-1] // 2
        with jax.named_scope("noise"):
            return DreamNoise.draw(model.cell, start.stochastic.shape[0], num_actions, self.settings.horizon, key)

    def dream(self, learned: ActorCritic, model: WorldModel, start: State, noise: DreamNoise) -> tuple[Dream, ToPushes]:
        """Dreams of the actor, and the way back to its actions."""
        actor = cast(learned.actor.tree, self.dtype)
        with jax.named_scope("dream"):
            return jax.vjp(
                lambda pushes: dream(model.cell, actor, start, noise, pushes, unroll=self.unroll),
                jnp.zeros_like(noise.action),
            )

    def recall(self, learned: ActorCritic, dreamt: Dream) -> Recalled:
        """What the actor's layers gave at every step of its dreams."""
        features = dreamt.features[:-1].reshape(-1, dreamt.features.shape[-1]).astype(self.dtype)
        with jax.named_scope("actor"):
            return Recalled(*cast(learned.actor.tree.layers, self.dtype).trace(features))

    def wish(self, to_pushes: ToPushes, lessons: Lessons) -> Float[Array, "time row output action"]:
        """How the loss and each cost return change with every dreamt action."""
        with jax.named_scope("dream"):
            return jax.vmap(to_pushes, in_axes=OUTPUT, out_axes=OUTPUT)(lessons.wishes)[0]

    def learn(
        self,
        learned: ActorCritic,
        recalled: Recalled,
        noise: DreamNoise,
        lessons: Lessons,
        wishes: Float[Array, "time row output action"],
        aim: Aim,
    ) -> tuple[ActorCritic, Info]:
        """The actor-critic once it has taken its lessons."""
        with jax.named_scope("actor"):
            gradients = self._actor_gradients(learned.actor.tree, recalled, noise.action, wishes)
        imagined = lessons.imagined
        loss, cost_returns = imagined.loss, imagined.cost_returns
        margins = jnp.asarray(self.budgets, jnp.float32) - cost_returns
        with jax.named_scope("step"):
            linearisation = Linearisation(loss, margins, gradients[0], gradients[1:])
            direction, step_memory, info = self.step.direction(learned.step_memory, linearisation)
            weights, actor_memory, is_actor_skipped = descend(
                self._actor_optimiser, learned.actor.vector, direction, learned.actor_memory
            )
            every, critic_memory, is_critic_skipped = jax.vmap(lambda *args: descend(self._critic_optimiser, *args))(
                learned.critics.vector, lessons.critic_gradients, learned.critic_memory
            )
        is_skipped = jnp.maximum(is_actor_skipped, jnp.max(is_critic_skipped))
        info |= {
            "loss": loss,
            "return": jnp.mean(imagined.returns[0]),
            "reward": imagined.reward,
            "doubt": imagined.doubt,
            "critic_loss": lessons.critic_losses[0],
            "is_skipped": jnp.maximum(info["is_skipped"], is_skipped),
        }
        for number in range(cost_returns.size):
            pessimistic = imagined.costs[number] + aim.pessimism * imagined.doubt
            info |= {
                f"cost_{number}": imagined.costs[number],
                f"pessimistic_cost_{number}": pessimistic,
                f"cost_return_{number}": cost_returns[number],
                f"margin_{number}": margins[number],
                f"safety_critic_loss_{number}": lessons.critic_losses[1 + number],
            }
        packed = Packed(weights, learned.actor.layout), Packed(every, learned.critics.layout)
        return ActorCritic(*packed, actor_memory, critic_memory, step_memory), info

    def judge(self, learned: ActorCritic, model: WorldModel, dreamt: Dream, noise: DreamNoise, aim: Aim) -> Lessons:
        """What dreams teach the actor and its critics.

        Backwards in parts: from the outputs to values, doubt and dream; from values, through each critic for its own
        output; from the doubt, which takes asking all members, for those outputs alone that follow its gradient.
        """
        features = dreamt.features
        with jax.named_scope("everyone"):
            (doubt, everyone), to_dream = jax.vjp(lambda dreamt: self._ask_everyone(model, dreamt, noise), dreamt)
        with jax.named_scope("critics"):
            judged = judge(learned.critics.tree, features, self.dtype)
        with jax.named_scope("outcomes"):
            outputs, to_parts, imagined = jax.vjp(
                lambda *parts: self._evaluate(model, aim, *parts),
                features,
                judged.values,
                doubt,
                everyone,
                has_aux=True,
            )
            each = jnp.eye(outputs.size, dtype=outputs.dtype)
            d_features, d_values, d_doubt, d_everyone = jax.vmap(to_parts, out_axes=(OUTPUT, 0, OUTPUT, OUTPUT + 1))(
                each
            )
        with jax.named_scope("critics"):
            own = jnp.stack([d_values[number, number] for number in range(outputs.size)])
            d_features += jnp.moveaxis(judged.to_features(own), 0, OUTPUT)
            critic_losses, critic_gradients = self._critic_lessons(judged, imagined.returns)
        with jax.named_scope("everyone"):
            followers = 0 if self.is_doubt_differentiated or self.is_outcome_averaged else 1
            asked = (d_doubt[:, :, followers:], jax.tree.map(lambda leaf: leaf[:, :, :, followers:], d_everyone))
            (through_doubt,) = jax.vmap(to_dream, in_axes=((OUTPUT, OUTPUT + 1),), out_axes=OUTPUT)(asked)
        with jax.named_scope("dream"):
            size = model.cell.deterministic_size
            d_states = State(d_features[..., :size], d_features[..., size:])
            d_actions = jnp.zeros((*noise.action.shape[:OUTPUT], outputs.size, noise.action.shape[-1]), jnp.float32)
            wishes = jax.tree.map(
                lambda whole, part: whole.at[:, :, followers:].add(part), Dream(d_states, d_actions), through_doubt
            )
        return Lessons(imagined, wishes, critic_losses, critic_gradients)

    def _ask_everyone(
        self, model: WorldModel, dreamt: Dream, noise: DreamNoise
    ) -> tuple[Float[Array, "time row"], Float[Array, "member time row feature"] | None]:
        """How much the members disagree at each step, and where each would have gone, if outcomes are averaged."""
        lead = dreamt.actions.shape[:2]
        before = jax.tree.map(lambda leaf: leaf[:-1].reshape(-1, leaf.shape[-1]), dreamt.states)
        deterministic, priors = model.cell.predict(before, dreamt.actions.reshape(-1, dreamt.actions.shape[-1]))
        doubt = self.doubt(Disagreement.among(priors.mean, priors.std, axis=0)).reshape(lead)
        if not self.is_outcome_averaged:
            return doubt, None
        shared = jnp.broadcast_to(noise.state.reshape(1, -1, noise.state.shape[-1]), priors.mean.shape)
        sampled = priors.sample(shared)
        features = State(deterministic, sampled.astype(deterministic.dtype)).features
        return doubt, features.reshape(features.shape[0], *lead, -1)

    def _evaluate(
        self, model: WorldModel, aim: Aim, features: Array, values: Array, doubt: Array, everyone: Array | None
    ) -> tuple[Float[Array, " output"], Imagined]:
        """The loss −Σ_t γ^t R_t and then the pessimistic cost returns, means over all dreamt states."""
        settings = self.settings
        reward, costs = model.outcome(features[1:] if everyone is None else everyone)
        if everyone is not None:
            reward, costs = jnp.mean(reward, axis=0), jnp.mean(costs, axis=0)
        bonus = doubt if self.is_doubt_differentiated else jax.lax.stop_gradient(doubt)
        rewards = aim.task * reward + aim.doubt * bonus
        pessimistic = jnp.moveaxis(costs, -1, 0) + aim.pessimism * doubt[None]
        returns = [lambda_returns(rewards, values[0], discount=settings.discount, trace=settings.trace)]
        returns += [
            lambda_returns(cost, value, discount=settings.cost_discount, trace=settings.trace)
            for cost, value in zip(pessimistic, values[1:], strict=True)
        ]
        weights = discount_weights(settings.discount, settings.horizon)[:, None]
        outputs = jnp.stack([-jnp.mean(weights * returns[0]), *(jnp.mean(cost) for cost in returns[1:])])
        imagined = Imagined(
            jnp.stack(returns), outputs[0], outputs[1:], jnp.mean(reward), jnp.mean(costs, axis=(0, 1)), jnp.mean(doubt)
        )
        return outputs, jax.lax.stop_gradient(imagined)

    def _critic_lessons(
        self, judged: Judged, returns: Float[Array, "critic time row"]
    ) -> tuple[Float[Array, " critic"], Float[Array, "critic parameter"]]:
        """Losses and their gradients: half the squared error of values, weighted by the discount."""
        discounts = (self.settings.discount, *(self.settings.cost_discount for _ in self.budgets))
        weights = jnp.stack([discount_weights(d, self.settings.horizon) for d in discounts])[..., None]
        errors = judged.values[:, :-1] - returns
        losses = jnp.mean(weights * 0.5 * errors**2, axis=(1, 2))
        cotangents = weights * errors / errors[0].size
        return losses, judged.to_weights(jnp.pad(cotangents, ((0, 0), (0, 1), (0, 0))))

    def _actor_gradients(
        self, actor: Actor, recalled: Recalled, noise: Array, wishes: Float[Array, "time row output action"]
    ) -> Float[Array, "output parameter"]:
        """∂outputs/∂weights = Σ ∂outputs/∂actions · ∂actions/∂weights, over all steps and rows at once."""
        layers = cast(actor.layers, self.dtype)
        noise, wishes = (x.reshape(-1, *x.shape[2:]) for x in (noise, wishes))
        _, pull_back = jax.vjp(lambda outputs: actor.distribution(outputs).sample(noise), recalled.outputs)
        (errors,) = jax.vmap(pull_back, in_axes=1, out_axes=1)(wishes)
        return jax.vmap(flat)(layers.gradients(recalled.seen, errors))

    @property
    def _actor_optimiser(self) -> optax.GradientTransformation:
        return self.step.optimiser(self.settings.actor_rate)

    @property
    def _critic_optimiser(self) -> optax.GradientTransformation:
        return clipped_adam(self.settings.critic_rate)
