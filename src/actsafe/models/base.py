"""What a dynamics model is here: a mean, and two kinds of doubt kept apart."""

import abc
import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
    """The problem's own dynamics as a model without doubt: the reference that learned models are compared with."""

    problem: Problem

    def predict(self, state: State, action: Action) -> Prediction:
        noiseless = dataclasses.replace(self.problem, process_noise_std=0.0)
        step = noiseless.step(state, action, jax.random.key(0))
        return Prediction(step.state, jnp.zeros_like(state), jnp.full_like(state, self.problem.process_noise_std))
