"""What a model of the dynamics is: of observed states (`Model`), or in a latent space (`LatentModel`).

Both keep two kinds of uncertainty apart: epistemic, which more data would remove, and aleatoric, which no data will.
"""

import abc
import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.data.rows import Rows
from actsafe.problems.base import Action, Problem, State

Std = Float[Array, " state"]


class Prediction(NamedTuple):
    """A model's belief about the next state, coordinate by coordinate, in the problem's units."""

    mean: State
    epistemic_std: Std
    """What more data would remove."""
    aleatoric_std: Std
    """What no data will remove: process noise."""


class Model(eqx.Module):
    """What we know of the dynamics."""

    @abc.abstractmethod
    def predict(self, state: State, action: Action) -> Prediction:
        """The belief about the state that follows `state` under `action`."""


class TrueDynamics(Model):
    """The problem's own dynamics as a model without uncertainty: the reference for learned models."""

    problem: Problem

    def predict(self, state: State, action: Action) -> Prediction:
        noiseless = dataclasses.replace(self.problem, process_noise_std=0.0)
        step = noiseless.step(state, action, jax.random.key(0))
        return Prediction(step.state, jnp.zeros_like(state), jnp.full_like(state, self.problem.process_noise_std))


class Disagreement(NamedTuple):
    """The uncertainty of an ensemble about each feature of the next state, in two kinds."""

    epistemic_var: Float[Array, "*rows feature"]
    """Variance over members of their means: σ_n² = Var({s^p_{t+1}}), paper, appendix B.2."""
    aleatoric_var: Float[Array, "*rows feature"]
    """Mean over members of their variances."""

    @classmethod
    def among(
        cls, means: Float[Array, "*rows member feature"], stds: Float[Array, "*rows member feature"], *, axis: int
    ) -> "Disagreement":
        """Of members along `axis`."""
        return cls(jnp.var(means, axis=axis), jnp.mean(stds**2, axis=axis))


class Outcome(NamedTuple):
    """The expected reward and costs of a transition, given the state it leads to."""

    reward: Float[Array, "*lead"]
    costs: Float[Array, "*lead constraint"]


Latent = Any
"""A pytree of arrays whose leading axes are rows. Only its model knows what is in it."""

Draws = Any
"""The random numbers of imagined steps: a pytree whose leading axis is time."""


@runtime_checkable
class LatentModel(Protocol):
    """A model that infers latent states from observations and imagines their course: an `equinox.Module` whose
    arrays, all of floating point, are its parameters.

    The agent, its policies and the actor-critic know a model by this alone.
    """

    @property
    def num_features(self) -> int:
        """Size of `features`."""
        ...

    @property
    def num_members(self) -> int:
        """Members of the ensemble."""
        ...

    def encode(self, observations: Array) -> Float[Array, "row embedding"]:
        """What `step` needs of observations, row by row."""
        ...

    def begin(self, num_rows: int) -> Latent:
        """The state before anything was observed."""
        ...

    def observe(self, rows: Rows, key: PRNGKeyArray) -> Latent:
        """The states (batch, time) of recorded sequences."""
        ...

    def step(
        self,
        latent: Latent,
        action: Float[Array, "row action"],
        embedding: Float[Array, "row embedding"],
        is_first: Bool[Array, " row"],
        key: PRNGKeyArray,
    ) -> Latent:
        """The state after an action and the observation it led to; where an episode begins, nothing before counts."""
        ...

    def draw(self, num_rows: int, horizon: int, keys: list[PRNGKeyArray]) -> Draws:
        """The random numbers of `horizon` imagined steps, from two keys."""
        ...

    def imagine(self, latent: Latent, action: Float[Array, "row action"], draws: Draws) -> Latent:
        """A draw of the state that follows, with the random numbers of one step."""
        ...

    def imagine_each(self, latent: Latent, action: Float[Array, "row action"], draws: Draws) -> Latent:
        """The same by every member of the ensemble: (member, row)."""
        ...

    def follow(self, latent: Latent, action: Float[Array, "member row action"], key: PRNGKeyArray) -> Latent:
        """A draw of the states that follow, (member, row), where each member advances rows of its own.

        The noise is independent for all rows of all members.
        """
        ...

    def disagreement(self, latent: Latent, action: Float[Array, "row action"]) -> Disagreement:
        """How far the members of the ensemble disagree about what follows."""
        ...

    def features(self, latent: Latent) -> Float[Array, "*lead feature"]:
        """A state as one vector, for actors, critics and heads."""
        ...

    def outcome(self, features: Float[Array, "*lead feature"]) -> Outcome:
        """The reward and costs that are expected on the way to a state."""
        ...

    def loss(self, rows: Rows, key: PRNGKeyArray) -> tuple[Float[Array, ""], tuple[Latent, dict[str, Array]]]:
        """What is minimised to learn from recorded sequences, their states (batch, time), and parts of the loss."""
        ...
