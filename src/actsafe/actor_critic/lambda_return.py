"""λ-returns: what follows a state, partly imagined and partly estimated."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def lambda_returns(
    rewards: Float[Array, "time *rows"], values: Float[Array, "time_and_one *rows"], *, discount: float, trace: float
) -> Float[Array, "time *rows"]:
    """R_t = r_t + γ ((1 − λ) V_{t+1} + λ R_{t+1}),  R_T = V_T.

    `rewards[t]` is received between states t and t + 1, of which `values` has all T + 1. The recursion is unrolled into
    one product with a triangular matrix: R_t = Σ_{k ≥ t} (γλ)^{k − t} x_k.
    """
    steps = rewards.shape[0]
    last = np.zeros(steps)
    last[-1] = trace
    share = discount * (1.0 - trace + last).reshape(-1, *(1,) * (rewards.ndim - 1))
    now = rewards + share.astype(np.float32) * values[1:]
    ahead = np.arange(steps)[None, :] - np.arange(steps)[:, None]
    decay = np.where(ahead >= 0, (discount * trace) ** np.maximum(ahead, 0), 0.0)
    # Written out as a sum: a matrix product might be computed in a lower precision.
    return jnp.sum(decay.astype(np.float32).reshape(steps, steps, *(1,) * (rewards.ndim - 1)) * now[None], axis=1)


def discount_weights(discount: float, steps: int) -> Float[np.ndarray, " time"]:
    """1, γ, γ², …: how much each imagined step counts."""
    return (discount ** np.arange(steps)).astype(np.float32)
