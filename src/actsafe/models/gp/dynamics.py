"""Gaussian-process dynamics: one independent process per state coordinate, on standardised changes."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.data.normalisation import Normaliser
from actsafe.data.transitions import Transitions
from actsafe.models.base import Model, Prediction
from actsafe.models.gp.fit import FitSettings, fit_kernel
from actsafe.models.gp.kernels import Kernel, Matern52, SquaredExponential
from actsafe.models.gp.posterior import Posterior, condition
from actsafe.problems.base import Action, Problem, State

ACTION_SCALE = 0.5
"""Typical size of an action: half of the range [-1, 1]."""

KERNELS: dict[str, type[Kernel]] = {"squared_exponential": SquaredExponential, "matern52": Matern52}


@dataclasses.dataclass(frozen=True)
class GPSettings:
    """How the dynamics are modelled."""

    kernel: str = "squared_exponential"
    """squared_exponential or matern52."""
    noise_std: float = 1e-3
    """Std of the process noise the model assumes, in the problem's units."""
    subset_size: int | None = 128
    """Rows of data that the variance conditions on; None for all of them (exact, and slower)."""
    is_mean_exact: bool = False
    """Whether the mean uses all data even where the variance uses a subset."""
    fit: FitSettings = dataclasses.field(default_factory=FitSettings)

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"gp.kernel must be one of {', '.join(KERNELS)}, got {self.kernel!r}")
        if not self.noise_std > 0:
            raise ValueError(f"gp.noise_std must be positive, got {self.noise_std}")
        if self.subset_size is not None and self.subset_size < 1:
            raise ValueError(f"gp.subset_size must be at least 1 or None, got {self.subset_size}")


class GPDynamics(Model):
    """Posterior belief about the change of every state coordinate."""

    problem: Problem
    posteriors: Posterior
    """One per state coordinate, stacked along the leading axis."""
    input_normaliser: Normaliser
    change_normaliser: Normaliser
    noise_std: float = eqx.field(static=True)

    def predict(self, state: State, action: Action) -> Prediction:
        x = self.input_normaliser(jnp.concatenate([state, action]))
        moments = jax.vmap(lambda posterior: posterior(x))(self.posteriors)
        mean = state + self.change_normaliser.invert(moments.mean)
        noise_std = jnp.full_like(state, self.noise_std)
        return Prediction(mean, moments.std * self.change_normaliser.scale, noise_std)

    @property
    def kernels(self) -> Kernel:
        """The fitted kernels, one per state coordinate, stacked."""
        return self.posteriors.kernel


def prior_kernels(problem: Problem, settings: GPSettings) -> Kernel:
    """The kernels before any data, one per state coordinate, stacked."""
    require_float64()
    outputs, inputs = problem.state_dim, problem.state_dim + problem.action_dim
    lengthscales = jnp.full((outputs, inputs), jnp.log(settings.fit.prior_lengthscale))
    return jax.vmap(KERNELS[settings.kernel])(lengthscales, jnp.zeros((outputs,)))


class _Standardised(NamedTuple):
    """Data in the units that the processes see."""

    inputs: Float[Array, "data input"]
    targets: Float[Array, "state data"]
    noise_stds: Float[Array, " state"]
    input_normaliser: Normaliser
    change_normaliser: Normaliser


def _standardise(problem: Problem, data: Transitions, settings: GPSettings) -> _Standardised:
    require_float64()
    values = jnp.concatenate([data.states, data.actions], axis=-1)
    input_floor = jnp.asarray([*problem.state_scale, *([ACTION_SCALE] * problem.action_dim)])
    input_normaliser = Normaliser.fit(values, data.is_data, input_floor)
    change_normaliser = Normaliser.fit(data.changes, data.is_data, jnp.asarray(problem.change_scale))
    return _Standardised(
        jax.vmap(input_normaliser)(values),
        jax.vmap(change_normaliser)(data.changes).T,
        settings.noise_std / change_normaliser.scale,
        input_normaliser,
        change_normaliser,
    )


def fit_kernels(problem: Problem, data: Transitions, kernels: Kernel, settings: GPSettings) -> Kernel:
    """The kernels that explain `data`, found from `kernels` on."""
    if settings.fit.num_steps == 0:
        return kernels
    d = _standardise(problem, data, settings)

    def one_output(kernel: Kernel, targets: Float[Array, " data"], noise_std: Float[Array, ""]) -> Kernel:
        return fit_kernel(kernel, d.inputs, targets, data.is_data, noise_std=noise_std, settings=settings.fit)

    return jax.vmap(one_output)(kernels, d.targets, d.noise_stds)


def learn(problem: Problem, data: Transitions, kernels: Kernel, settings: GPSettings) -> GPDynamics:
    """The dynamics that `data` speaks for under `kernels`; the factors are computed once, here."""
    d = _standardise(problem, data, settings)

    def one_output(kernel: Kernel, targets: Float[Array, " data"], noise_std: Float[Array, ""]) -> Posterior:
        return condition(
            kernel,
            d.inputs,
            targets,
            data.is_data,
            noise_std=noise_std,
            subset_size=settings.subset_size,
            is_mean_exact=settings.is_mean_exact,
        )

    posteriors = jax.vmap(one_output)(kernels, d.targets, d.noise_stds)
    return GPDynamics(problem, posteriors, d.input_normaliser, d.change_normaliser, settings.noise_std)


def require_float64() -> None:
    """Raise unless JAX computes in double precision: 1 - k K^-1 k cancels to noise in single."""
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise RuntimeError(
            "Gaussian-process posteriors need float64, and JAX is set to float32. "
            'Call jax.config.update("jax_enable_x64", True) before anything else, or run through the actsafe command.'
        )
