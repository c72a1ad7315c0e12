"""Coloured noise against its definition: the power spectrum f^-exponent, and the variance it promises.

Tolerances are five standard errors. A periodogram ordinate of Gaussian noise is exponentially distributed, so its mean
over n sequences has a relative standard error of 1/sqrt(n) (of sqrt(2/n) at the Nyquist frequency and at zero, whose
coefficients are real).
"""

import functools
import math

import jax
import numpy as np
import pytest

from actsafe.planning.coloured_noise import coloured_noise

NUM_SAMPLES, NUM_CHANNELS = 6000, 2
NUM_SEQUENCES = NUM_SAMPLES * NUM_CHANNELS
LENGTHS = [20, 21]

every_length = pytest.mark.parametrize("length", LENGTHS)
every_exponent = pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])


@functools.cache
def draw(length, exponent, num_samples=NUM_SAMPLES, num_channels=NUM_CHANNELS, seed=0):
    return np.asarray(coloured_noise(jax.random.key(seed), num_samples, length, num_channels, exponent))


def mean_periodogram(noise):
    """E |X_f|^2 over samples and channels, at the frequencies of `np.fft.rfftfreq`."""
    return np.mean(np.abs(np.fft.rfft(noise, axis=1)) ** 2, axis=(0, 2))


@every_length
@every_exponent
def test_slope_of_the_spectrum(length, exponent):
    """Least squares on log power against log frequency, zero excluded."""
    frequency, power = np.fft.rfftfreq(length)[1:], mean_periodogram(draw(length, exponent))[1:]
    x = np.log(frequency) - np.mean(np.log(frequency))
    slope = np.sum(x * np.log(power)) / np.sum(x**2)
    # The Nyquist ordinate's larger error stands for all: an upper bound on the slope's.
    error = math.sqrt(2.0 / NUM_SEQUENCES / np.sum(x**2))
    assert abs(slope + exponent) < 5.0 * error
    assert error < 0.01, "the test must tell exponents apart"


@every_length
@every_exponent
def test_every_frequency_has_its_power(length, exponent):
    """Relative to the slowest wave; the mean has the power of that wave, and the Nyquist wave that of the law."""
    frequency, power = np.fft.rfftfreq(length), mean_periodogram(draw(length, exponent))
    frequency[0] = frequency[1]
    expected = (frequency / frequency[1]) ** -exponent
    np.testing.assert_allclose(power / np.mean(power / expected), expected, rtol=5.0 * math.sqrt(2.0 / NUM_SEQUENCES))


def variance_error():
    """Five standard errors of a variance from sequences whose members may be wholly correlated."""
    return 5.0 * math.sqrt(2.0 / NUM_SEQUENCES)


@pytest.mark.parametrize("length", [2, *LENGTHS])
@every_exponent
def test_variance_is_the_reference_normalisers(length, exponent):
    """Worked out from the definition: the mean X_0 and an even length's Nyquist wave are real with variance 2 A^2,
    every other wave enters twice, with variance 4 A^2; the normaliser counts 4 A^2 for those, A^2 for Nyquist, and
    leaves out the mean.
    """
    frequency = np.fft.rfftfreq(length)
    frequency[0] = 1.0 / length
    power = frequency**-exponent
    paired, nyquist = (power[1:], 0.0) if length % 2 else (power[1:-1], power[-1])
    expected = (2.0 * power[0] + 4.0 * np.sum(paired) + 2.0 * nyquist) / (4.0 * np.sum(paired) + nyquist)
    variance = np.mean(draw(length, exponent) ** 2, axis=(0, 2))
    np.testing.assert_allclose(variance, expected, rtol=variance_error())


def test_a_single_step_is_standard_normal():
    noise = draw(1, 2.0)
    np.testing.assert_allclose(np.mean(noise**2), 1.0, rtol=0.0, atol=variance_error())
    np.testing.assert_allclose(np.mean(noise), 0.0, rtol=0.0, atol=5.0 / math.sqrt(NUM_SEQUENCES))


@every_length
@every_exponent
def test_every_time_is_alike(length, exponent):
    """The variance does not depend on time, and its size is about one."""
    noise = draw(length, exponent)
    variance = np.mean(noise**2, axis=(0, 2))
    np.testing.assert_allclose(variance / np.mean(variance), 1.0, rtol=0.0, atol=variance_error())
    assert 0.9 < np.mean(variance) < 1.4
    np.testing.assert_allclose(np.mean(noise, axis=(0, 2)), 0.0, atol=5.0 * math.sqrt(1.4 / NUM_SEQUENCES))


@every_length
def test_exponent_zero_is_white(length):
    """No correlation between any two times."""
    noise = draw(length, 0.0)
    covariance = np.einsum("stc,suc->tu", noise, noise) / NUM_SEQUENCES
    correlation = covariance / np.mean(np.diag(covariance))
    np.testing.assert_allclose(correlation, np.eye(length), rtol=0.0, atol=variance_error())


@every_length
def test_a_larger_exponent_is_smoother(length):
    neighbours = [np.mean(draw(length, e)[:, 1:] * draw(length, e)[:, :-1]) for e in (0.0, 1.0, 2.0)]
    assert neighbours[0] + 0.3 < neighbours[1] < neighbours[2] - 0.2


@every_exponent
def test_channels_and_samples_are_independent(exponent):
    noise = draw(20, exponent)
    between_channels = np.einsum("st,su->tu", noise[..., 0], noise[..., 1]) / NUM_SAMPLES
    between_samples = np.einsum("stc,suc->tu", noise[::2], noise[1::2]) / NUM_SAMPLES
    np.testing.assert_allclose(between_channels, 0.0, rtol=0.0, atol=5.0 * 1.4 / math.sqrt(NUM_SAMPLES))
    np.testing.assert_allclose(between_samples, 0.0, rtol=0.0, atol=5.0 * 1.4 / math.sqrt(NUM_SAMPLES))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_shape_and_key(length):
    noise = draw(length, 1.0, num_samples=4, num_channels=3)
    assert noise.shape == (4, length, 3)
    np.testing.assert_array_equal(noise, coloured_noise(jax.random.key(0), 4, length, 3, 1.0))
    assert not np.any(noise == draw(length, 1.0, num_samples=4, num_channels=3, seed=1))
    assert len(np.unique(np.round(noise, 12))) == noise.size
