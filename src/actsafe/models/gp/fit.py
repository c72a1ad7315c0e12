"""Kernel hyper-parameters from data: the maximum of marginal likelihood times a broad prior."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from actsafe.models.gp.kernels import Kernel
from actsafe.models.gp.posterior import log_marginal_likelihood, spread_order


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """How hyper-parameters are found."""

    num_steps: int = 200
    """Adam steps, from where the last fit ended; 0 keeps the prior's hyper-parameters."""
    learning_rate: float = 3e-2
    max_points: int = 192
    """At most this many rows enter the likelihood: those that spread furthest. Its cost grows with their cube."""
    prior_lengthscale: float = 3.0
    """Median of the log-normal prior on every lengthscale, in units of the standardised inputs."""
    prior_log_std: float = 0.5
    """Std of that prior's logarithm; what keeps the fit honest while there are few data."""
    fit_signal: bool = False
    """Whether the signal variance is fitted too, or stays at one (the prior std of a change is then its scale)."""
    prior_signal_log_std: float = 0.5
    """Std of the log-normal prior on the signal's std, whose median is one."""

    def __post_init__(self) -> None:
        for field in ("learning_rate", "max_points", "prior_lengthscale", "prior_log_std", "prior_signal_log_std"):
            if not getattr(self, field) > 0:
                raise ValueError(f"fit.{field} must be positive, got {getattr(self, field)}")
        if self.num_steps < 0:
            raise ValueError(f"fit.num_steps must be at least 0, got {self.num_steps}")


def fit_kernel(
    kernel: Kernel,
    inputs: Float[Array, "data input"],
    targets: Float[Array, " data"],
    is_data: Bool[Array, " data"],
    *,
    noise_std: Float[Array, ""],
    settings: FitSettings,
) -> Kernel:
    """`kernel` moved uphill on log p(y | theta) + log p(theta); the best point met, which may be where it started.

    Where the loss or its gradient is not finite the gradient counts as zero, and the kernel that comes back is always
    one whose loss was finite (or the one given).
    """
    size = min(settings.max_points, inputs.shape[0])
    if size < inputs.shape[0]:
        order = spread_order(kernel, inputs, is_data, noise_std=noise_std, size=size)[:size]
        inputs, targets, is_data = inputs[order], targets[order], is_data[order]

    def loss(kernel: Kernel) -> Float[Array, ""]:
        likelihood = log_marginal_likelihood(kernel, inputs, targets, is_data, noise_std=noise_std)
        return -likelihood - log_prior(kernel, settings)

    optimiser = optax.adam(settings.learning_rate)

    def freeze(gradient: Kernel) -> Kernel:
        if settings.fit_signal:
            return gradient
        return eqx.tree_at(lambda k: k.log_signal_std, gradient, jnp.zeros_like(gradient.log_signal_std))

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        kernel, state, best, best_loss = carry
        value, gradient = jax.value_and_grad(loss)(kernel)
        is_better = value < best_loss  # False for a value that is not a number
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), kernel, best)
        best_loss = jnp.where(is_better, value, best_loss)
        finite = jnp.isfinite(value)
        gradient = jax.tree.map(lambda g: jnp.where(finite & jnp.isfinite(g), g, 0.0), freeze(gradient))
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(kernel, updates), state, best, best_loss), None

    # Any pytree will do for optax, but its type does not say so.
    state = optimiser.init(kernel)  # pyright: ignore[reportArgumentType]
    start = (kernel, state, kernel, jnp.asarray(jnp.inf))
    (_, _, best, _), _ = jax.lax.scan(step, start, length=settings.num_steps)
    return best


def log_prior(kernel: Kernel, settings: FitSettings) -> Float[Array, ""]:
    """The log density, up to a constant, of the log-normal priors on lengthscales and signal std."""
    lengthscales = (kernel.log_lengthscales - jnp.log(settings.prior_lengthscale)) / settings.prior_log_std
    signal = kernel.log_signal_std / settings.prior_signal_log_std
    return -0.5 * (jnp.sum(lengthscales**2) + signal**2)
