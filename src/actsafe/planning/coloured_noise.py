"""Noise whose power falls with frequency: smooth random action sequences."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


def coloured_noise(
    key: PRNGKeyArray, num_samples: int, length: int, num_channels: int, exponent: float
) -> Float[Array, "sample time channel"]:
    """Gaussian sequences with power spectrum ~ f^-exponent along time, each channel on its own.

    Timmer & Koenig (1995): draw the Fourier coefficients and transform back. Exponent 0 is white, 2 is brown. The
    normaliser is iCEM's: about unit variance, more by the share of the sequence's own mean, which it leaves out.
    """
    if length == 1:
        return jax.random.normal(key, (num_samples, 1, num_channels))
    frequency = np.fft.rfftfreq(length)
    frequency[0] = 1.0 / length  # the mean gets the power of the slowest wave
    amplitude = frequency ** (-exponent / 2.0)
    weight = amplitude[1:].copy()
    weight[-1] *= (1 + length % 2) / 2.0
    std = 2.0 * np.sqrt(np.sum(weight**2)) / length

    real_key, imaginary_key = jax.random.split(key)
    shape = (num_samples, num_channels, len(frequency))
    real = jax.random.normal(real_key, shape) * amplitude[None, None]
    imaginary = jax.random.normal(imaginary_key, shape) * amplitude[None, None]
    # Waves that equal their mirror image have no imaginary part; their real part carries the power of both.
    unpaired = [0] if length % 2 else [0, -1]
    real = real.at[..., unpaired].multiply(np.sqrt(2.0))
    imaginary = imaginary.at[..., unpaired].set(0.0)
    series = jnp.fft.irfft(real + 1j * imaginary, n=length, axis=-1) / std
    return jnp.swapaxes(series, -1, -2)
