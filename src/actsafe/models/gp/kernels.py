"""Stationary kernels with one lengthscale per input (ARD) and unit signal variance by default."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Kernel(eqx.Module):
    """k(x, y) = s^2 rho(r^2), r^2 = sum_d ((x_d - y_d) / l_d)^2."""

    log_lengthscales: eqx.AbstractVar[Float[Array, " input"]]
    log_signal_std: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        """rho as a function of the squared scaled distance; rho(0) = 1."""

    @property
    def variance(self) -> Float[Array, ""]:
        """k(x, x)."""
        return jnp.exp(2.0 * self.log_signal_std)

    def scale(self, x: Float[Array, " input"]) -> Float[Array, " input"]:
        """`x` in units of the lengthscales."""
        return x * jnp.exp(-self.log_lengthscales)

    def matrix(self, left: Float[Array, "n input"], right: Float[Array, "m input"]) -> Float[Array, "n m"]:
        """k(left_i, right_j)."""
        return self.of_scaled(jax.vmap(self.scale)(left)[:, None], jax.vmap(self.scale)(right)[None])

    def of_scaled(
        self, left: Float[Array, "*#batch input"], right: Float[Array, "*#batch input"]
    ) -> Float[Array, "*batch"]:
        """k between inputs that were scaled before. Differences, not a product of norms: k(x, x) is exact.

        Summed over a leading axis, which CPUs vectorise: a plan takes 1.4 times as long with a trailing one.
        """
        difference = jnp.moveaxis(left, -1, 0) - jnp.moveaxis(right, -1, 0)
        return self.variance * self.correlation(jnp.sum(difference**2, axis=0))


class SquaredExponential(Kernel):
    """rho = exp(-r^2 / 2)."""

    log_lengthscales: Float[Array, " input"]
    log_signal_std: Float[Array, ""]

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.exp(-0.5 * squared_distance)


class Matern52(Kernel):
    """rho = (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)."""

    log_lengthscales: Float[Array, " input"]
    log_signal_std: Float[Array, ""]

    def correlation(self, squared_distance: Float[Array, "..."]) -> Float[Array, "..."]:
        # The square root has no derivative at 0; rho does (it is 0), so the root is kept away from there.
        root = jnp.sqrt(5.0 * jnp.maximum(squared_distance, 1e-30))
        return (1.0 + root + root**2 / 3.0) * jnp.exp(-root)
