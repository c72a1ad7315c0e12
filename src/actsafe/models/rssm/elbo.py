"""Terms of the evidence lower bound: likelihoods of what was observed, and the divergence of posterior and prior.

ELBO = Σ_t E_q[log p(o_t | h_t, s_t) + log p(r_t, c_t | h_t, s_t)] − KL(q(s_t | h_t, o_t) ‖ p(s_t | h_t))

Paper, section 4.3: the RSSM as "a sequential variational auto-encoder".
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.models.rssm.states import Gaussian


def kl_divergence(p: Gaussian, q: Gaussian) -> Float[Array, "*lead"]:
    """KL(p ‖ q) = Σ_i log(σ_q / σ_p) + (σ_p² + (μ_p − μ_q)²) / (2 σ_q²) − ½."""
    ratio = p.std / q.std
    shift = (p.mean - q.mean) / q.std
    return jnp.sum(0.5 * (ratio**2 + shift**2 - 1.0) - jnp.log(ratio), axis=-1)


def balanced_kl(
    posterior: Gaussian, prior: Gaussian, *, balance: float, free_nats: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The KL term of the loss and the plain KL, means over all rows.

    balance · max(KL(sg(posterior) ‖ prior), free) + (1 − balance) · max(KL(posterior ‖ sg(prior)), free), where sg
    stops gradients: the prior learns faster than the posterior gives way, and below `free` nats neither is pressed.
    """
    fixed = jax.lax.stop_gradient
    to_prior = jnp.mean(kl_divergence(fixed(posterior), prior))
    to_posterior = jnp.mean(kl_divergence(posterior, fixed(prior)))
    loss = balance * jnp.maximum(to_prior, free_nats) + (1.0 - balance) * jnp.maximum(to_posterior, free_nats)
    return loss, to_prior


def squared_error(predicted: Float[Array, "row ..."], target: Float[Array, "row ..."]) -> Float[Array, " row"]:
    """−log N(target; predicted, 1) up to a constant: half the squared error, summed over all but the first axis."""
    error = predicted.astype(jnp.float32) - target
    return 0.5 * jnp.sum(error**2, axis=tuple(range(1, error.ndim)))
