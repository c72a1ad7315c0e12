"""Where the confidence multiplier comes from: fixed, the theory, or the errors seen on recent data."""

import abc
import dataclasses
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from actsafe.models.gp.dynamics import GPDynamics
from actsafe.models.gp.posterior import noisy_covariance
from actsafe.objectives.scores import conformal_quantile
from actsafe.theory.confidence import confidence_multiplier

Multiplier = Float[Array, " state"]


class Evidence(NamedTuple):
    """Scores of the most recent held-out episodes, each predicted by the model that planned it."""

    scores: Float[Array, "n state"]
    is_evidence: Bool[Array, "n state"]


class Confidence(abc.ABC):
    """A rule for the multiplier beta of every state coordinate; the model set is |f - mu| <= beta sigma."""

    kind: ClassVar[str]
    """The tag of the rule in settings."""

    @property
    def num_episodes(self) -> int:
        """Newest episodes whose predictions the rule looks back on."""
        return 1

    @abc.abstractmethod
    def initial(self, state_dim: int) -> Multiplier:
        """Before any data."""

    @abc.abstractmethod
    def update(self, current: Multiplier, evidence: Evidence, model: GPDynamics) -> Multiplier:
        """After an episode."""


@dataclasses.dataclass(frozen=True)
class Fixed(Confidence):
    """The same number always."""

    kind: ClassVar[str] = "fixed"

    value: float = 3.0

    def __post_init__(self) -> None:
        if not self.value >= 0:
            raise ValueError(f"confidence.value must be at least 0, got {self.value}")

    def initial(self, state_dim: int) -> Multiplier:
        return jnp.full((state_dim,), self.value)

    def update(self, current: Multiplier, evidence: Evidence, model: GPDynamics) -> Multiplier:
        return current


@dataclasses.dataclass(frozen=True)
class Theory(Confidence):
    """beta_n(delta) of the RKHS bound, with the realised information gain of every output."""

    kind: ClassVar[str] = "theory"

    delta: float = 0.1
    """Probability that the truth leaves the model set at any time."""
    norm_bound: float = 10.0
    """Bound on the RKHS norm of every output, in standardised units."""

    def __post_init__(self) -> None:
        confidence_multiplier(0.0, delta=self.delta, norm_bound=self.norm_bound)

    def initial(self, state_dim: int) -> Multiplier:
        beta = confidence_multiplier(0.0, delta=self.delta, norm_bound=self.norm_bound, num_outputs=state_dim)
        return jnp.full((state_dim,), beta)

    def update(self, current: Multiplier, evidence: Evidence, model: GPDynamics) -> Multiplier:
        gains = realised_gains(model)
        beta = confidence_multiplier(gains, delta=self.delta, norm_bound=self.norm_bound, num_outputs=gains.shape[0])
        return jnp.maximum(current, beta)


@dataclasses.dataclass(frozen=True)
class Calibrated(Confidence):
    """An empirical quantile of recent scores (split-conformal style, without its guarantee), coordinate by coordinate.

    Starts from `start` and moves only on evidence: predictions, made before they were learned from, of states where the
    model was uncertain. Scores are serially dependent, of the models before this one, in states of their plans: they
    are not exchangeable with those to come, and a share of coordinates and steps is none of episodes.
    """

    kind: ClassVar[str] = "calibrated"

    start: float = 3.0
    """Before there is evidence."""
    coverage: float = 0.99
    """Share of recent errors that beta standard deviations must hold, by coordinate and step."""
    floor: float = 1.0
    """The multiplier never falls below this, however good the predictions."""
    window: int = 3
    """Episodes whose predictions count: those of the latest models."""
    min_evidence: int = 99
    """With fewer scores than this a multiplier may rise but not fall. Of n scores the largest is the quantile of
    n / (n + 1) at most: of 99, that of 99 %."""

    def __post_init__(self) -> None:
        if not 0 < self.coverage < 1:
            raise ValueError(f"confidence.coverage must lie strictly between 0 and 1, got {self.coverage}")
        if not 0 < self.floor <= self.start:
            raise ValueError(
                f"confidence.floor must be positive and at most confidence.start ({self.start}), got {self.floor}"
            )
        if self.min_evidence < 1:
            raise ValueError(f"confidence.min_evidence must be at least 1, got {self.min_evidence}")
        if self.window < 1:
            raise ValueError(f"confidence.window must be at least 1 episode, got {self.window}")

    @property
    def num_episodes(self) -> int:
        return self.window

    def initial(self, state_dim: int) -> Multiplier:
        return jnp.full((state_dim,), self.start)

    def update(self, current: Multiplier, evidence: Evidence, model: GPDynamics) -> Multiplier:
        def one(current: Array, scores: Array, is_evidence: Array) -> Array:
            covering = jnp.maximum(conformal_quantile(scores, is_evidence, self.coverage), self.floor)
            has_enough = jnp.sum(is_evidence) >= self.min_evidence
            return jnp.where(has_enough, covering, jnp.maximum(current, covering))

        return jax.vmap(one)(current, evidence.scores.T, evidence.is_evidence.T)


def realised_gains(model: GPDynamics) -> Float[Array, " state"]:
    """The information gain of every output from the data its posterior conditions on, in nats."""
    posteriors = model.posteriors
    noise_stds = model.noise_std / model.change_normaliser.scale

    def one(posterior, noise_std: Array) -> Array:
        inputs = posterior.scaled_inputs * jnp.exp(posterior.kernel.log_lengthscales)[None]
        covariance = noisy_covariance(posterior.kernel, inputs, posterior.is_data, noise_std=noise_std)
        factor = jnp.linalg.cholesky(covariance)
        log_noise = jnp.where(posterior.is_data, jnp.log(noise_std), 0.0)
        return jnp.sum(jnp.log(jnp.diagonal(factor)) - log_noise)

    return eqx.filter_vmap(one)(posteriors, noise_stds)
