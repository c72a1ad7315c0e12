"""The plain reference: a Gaussian process that builds and factors its kernel matrix inside every posterior call."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from actsafe.data.normalisation import Normaliser
from actsafe.data.transitions import Transitions
from actsafe.models.base import Model, Prediction
from actsafe.models.gp.dynamics import GPDynamics
from actsafe.models.gp.kernels import Kernel
from actsafe.models.gp.posterior import VARIANCE_FLOOR, noisy_covariance
from actsafe.problems.base import Action, Problem, State


class RefactoringGP(Model):
    """The exact posterior of `GPDynamics`, nothing computed ahead: kernel matrix, factor and solves in every `predict`.

    `predict` is written for one state. What `vmap` over plans and particles makes of it depends on one thing: whether
    the factorisation may be shared by the batch. Both readings of "in every call" are here.
    """

    problem: Problem
    kernels: Kernel
    inputs: Float[Array, "data input"]
    targets: Float[Array, "state data"]
    input_normaliser: Normaliser
    change_normaliser: Normaliser
    noise_std: float = eqx.field(static=True)
    is_shared: bool = eqx.field(static=True)
    """True: one factorisation per batched call (each horizon step of each iteration). False: one per prediction."""

    @classmethod
    def of(cls, model: GPDynamics, data: Transitions, *, is_shared: bool) -> "RefactoringGP":
        """The reference that knows what `model` knows; `data` has no padding."""
        inputs = jax.vmap(model.input_normaliser)(jnp.concatenate([data.states, data.actions], axis=-1))
        targets = jax.vmap(model.change_normaliser)(data.changes).T
        normalisers = model.input_normaliser, model.change_normaliser
        return cls(model.problem, model.kernels, inputs, targets, *normalisers, model.noise_std, is_shared)

    def predict(self, state: State, action: Action) -> Prediction:
        x = self.input_normaliser(jnp.concatenate([state, action]))
        if self.is_shared:
            # vmap leaves this alone, as no operand of the factorisation has the batch axis; the barrier ties it to the
            # call, or else the compiler would move it out of the loop over the horizon.
            inputs, x = jax.lax.optimization_barrier((self.inputs, x))
        else:
            # A zero that the compiler cannot know: it makes every operand depend on this one prediction.
            inputs = self.inputs + jnp.minimum(jnp.abs(x[:1]), 0.0)[None]
        noise_stds = self.noise_std / self.change_normaliser.scale
        is_data = jnp.ones((inputs.shape[0],), bool)

        def one_output(kernel: Kernel, targets: Array, noise_std: Array) -> tuple[Array, Array]:
            factor = jnp.linalg.cholesky(noisy_covariance(kernel, inputs, is_data, noise_std=noise_std))
            row = kernel.matrix(x[None], inputs)[0]
            mean = row @ cho_solve((factor, True), targets)
            variance = kernel.variance - row @ cho_solve((factor, True), row)
            return mean, jnp.sqrt(jnp.maximum(variance, VARIANCE_FLOOR))

        means, stds = jax.vmap(one_output)(self.kernels, self.targets, noise_stds)
        mean = state + self.change_normaliser.invert(means)
        return Prediction(mean, stds * self.change_normaliser.scale, jnp.full_like(state, self.noise_std))
