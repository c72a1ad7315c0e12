"""The confidence multiplier: the theory's formula, calibration by held-out errors, and the rules that use them."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array

from actsafe.data.transitions import Transitions
from actsafe.models.base import Model, Prediction
from actsafe.models.gp.dynamics import GPSettings, learn
from actsafe.models.gp.kernels import SquaredExponential
from actsafe.objectives.confidence import Calibrated, Evidence, Fixed, Theory, realised_gains
from actsafe.objectives.scores import conformal_quantile, coverage, normal_coverage, standard_scores
from actsafe.problems import Pendulum
from actsafe.theory.confidence import confidence_multiplier
from actsafe.theory.information_gain import information_gain

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("covariance", "noise_std", "expected"),
    [
        # 1/2 log(1 + 1/0.25) = 1/2 log 5
        ([[1.0]], 0.5, 0.5 * math.log(5.0)),
        # I + K/0.25 = [[5, 2], [2, 5]], whose determinant is 21.
        ([[1.0, 0.5], [0.5, 1.0]], 0.5, 0.5 * math.log(21.0)),
        # The same point twice: [[5, 4], [4, 5]], 25 - 16 = 9.
        ([[1.0, 1.0], [1.0, 1.0]], 0.5, math.log(3.0)),
        # Two points that have nothing to do with each other: twice the first.
        ([[1.0, 0.0], [0.0, 1.0]], 0.5, math.log(5.0)),
        ([[0.0, 0.0], [0.0, 0.0]], 0.5, 0.0),
    ],
)
def test_information_gain_by_hand(covariance, noise_std, expected):
    np.testing.assert_allclose(information_gain(jnp.array(covariance), noise_std), expected, rtol=0.0, atol=1e-14)


def covariance_of(inputs, lengthscales=1.0):
    return np.exp(-0.5 * np.sum(((inputs[:, None] - inputs[None]) / lengthscales) ** 2, axis=-1))


def test_information_gain_adds_up():
    """1/2 sum log(1 + s_(i-1)^2(x_i) / sigma^2), every variance from the points before, by NumPy."""
    covariance, noise_std = covariance_of(np.random.default_rng(0).normal(size=(8, 2))), 0.3
    total = 0.0
    for i in range(8):
        known = covariance[:i, :i] + noise_std**2 * np.eye(i)
        variance = covariance[i, i] - covariance[i, :i] @ np.linalg.solve(known, covariance[:i, i])
        total += 0.5 * math.log1p(variance / noise_std**2)
        if i in (0, 3, 7):
            gain = information_gain(jnp.asarray(covariance[: i + 1, : i + 1]), noise_std)
            np.testing.assert_allclose(gain, total, rtol=0.0, atol=1e-12)


def test_confidence_multiplier_by_hand():
    """B + sqrt(2 (gamma + log(d/delta))): 2 + sqrt(2 (3 + log(1/0.1))) = 2 + sqrt(10.6051702)."""
    np.testing.assert_allclose(confidence_multiplier(3.0, delta=0.1, norm_bound=2.0), 5.2565580, rtol=1e-7)
    # Three outputs share delta: 2 + sqrt(2 (3 + log 30)) = 2 + sqrt(12.8023948).
    three = confidence_multiplier(jnp.asarray(3.0), delta=0.1, norm_bound=2.0, num_outputs=3)
    np.testing.assert_allclose(three, 5.5780434, rtol=1e-7)
    # A size measured on the pendulum: gamma 300, B 7.6, delta 0.05 for one output make about 32.
    np.testing.assert_allclose(confidence_multiplier(300.0, delta=0.05, norm_bound=7.6), 32.2, atol=0.05)


@given(
    gain=st.floats(0.0, 1e4),
    more=st.floats(1e-3, 1e4),
    delta=st.floats(1e-6, 0.99),
    norm_bound=st.floats(0.0, 100.0),
    num_outputs=st.integers(1, 10),
)
def test_confidence_multiplier_is_monotone(gain, more, delta, norm_bound, num_outputs):
    """It grows with what was learned, with the norm and with the number of outputs, and shrinks with the risk taken."""
    options = {"delta": delta, "norm_bound": norm_bound, "num_outputs": num_outputs}
    beta = float(confidence_multiplier(gain, **options))
    assert beta >= norm_bound
    assert float(confidence_multiplier(gain + more, **options)) > beta
    assert float(confidence_multiplier(gain, **{**options, "norm_bound": norm_bound + more})) > beta
    assert float(confidence_multiplier(gain, **{**options, "num_outputs": num_outputs + 1})) > beta
    assert float(confidence_multiplier(gain, **{**options, "delta": 0.5 * delta})) > beta


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1, got 0.0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, got 1.0"),
        ({"delta": NAN}, "delta must lie strictly between 0 and 1, got nan"),
        ({"norm_bound": -1.0}, "norm_bound must be at least 0, got -1.0"),
        ({"norm_bound": NAN}, "norm_bound must be at least 0, got nan"),
    ],
    ids=str,
)
def test_a_wrong_bound_is_named_with_what_was_expected(options, message):
    with pytest.raises(ValueError, match=message):
        confidence_multiplier(1.0, **{"delta": 0.1, "norm_bound": 1.0, **options})
    with pytest.raises(ValueError, match=message):
        Theory(**options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Fixed, {"value": -1.0}, "confidence.value must be at least 0, got -1.0"),
        (Fixed, {"value": NAN}, "confidence.value must be at least 0, got nan"),
        (Calibrated, {"coverage": 1.0}, "confidence.coverage must lie strictly between 0 and 1, got 1.0"),
        (Calibrated, {"coverage": 0.0}, "confidence.coverage must lie strictly between 0 and 1, got 0.0"),
        (
            Calibrated,
            {"floor": 0.0},
            r"confidence.floor must be positive and at most confidence.start \(3.0\), got 0.0",
        ),
        (
            Calibrated,
            {"floor": 3.5},
            r"confidence.floor must be positive and at most confidence.start \(3.0\), got 3.5",
        ),
        (Calibrated, {"window": 0}, "confidence.window must be at least 1 episode, got 0"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named_with_what_was_expected(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_no_evidence_needed_is_refused():
    with pytest.raises(ValueError, match="min_evidence"):
        Calibrated(min_evidence=0)


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [
        # ceil((n + 1) coverage): 20 * 0.9 = 18, 21 * 0.9 = 18.9, 10 * 0.5 = 5, 4 * 0.25 = 1
        (19, 0.9, 18),
        (20, 0.9, 19),
        (9, 0.5, 5),
        (3, 0.25, 1),
        # 100 * 0.99 = 99: the first n for which the largest score is enough.
        (99, 0.99, 99),
        # 51 * 0.99 = 50.49 would be the 51st of 50: the largest stands in.
        (50, 0.99, 50),
        (1, 0.99, 1),
    ],
)
def test_conformal_quantile_by_hand(count, share, rank):
    """The scores 1, 2, ... in any order, among others that are no evidence: the k-th smallest is k."""
    scores = np.concatenate([np.arange(1.0, count + 1.0), [0.0, 1e9, INF, NAN]])
    is_evidence = np.arange(count + 4) < count
    order = np.random.default_rng(0).permutation(count + 4)
    assert conformal_quantile(jnp.asarray(scores[order]), jnp.asarray(is_evidence[order]), share) == rank


def test_conformal_quantile_without_evidence():
    assert conformal_quantile(jnp.arange(3.0), jnp.zeros(3, bool), 0.9) == -INF


@pytest.mark.parametrize("bad", [INF, NAN])
def test_a_score_that_is_not_finite_is_the_largest(bad):
    """Of nine scores two are bad: the quantile of rank ceil(10 * 0.7) = 7 is the last finite one, rank 8 is not."""
    scores = jnp.array([1.0, bad, 2.0, 3.0, 4.0, bad, 5.0, 6.0, 7.0, 0.0])
    is_evidence = jnp.arange(10) < 9
    assert conformal_quantile(scores, is_evidence, 0.7) == 7.0
    assert not np.isfinite(conformal_quantile(scores, is_evidence, 0.8))


def test_coverage_by_hand():
    """Of the evidence 1, 2, 3, inf two lie within 2, the limit included."""
    scores, is_evidence = jnp.array([1.0, 2.0, 0.5, 3.0, INF]), jnp.array([True, True, False, True, True])
    assert coverage(scores, is_evidence, jnp.asarray(2.0)) == 0.5
    assert coverage(scores, is_evidence, jnp.asarray(0.1)) == 0.0
    assert np.isnan(coverage(scores, jnp.zeros(5, bool), jnp.asarray(2.0)))


@pytest.mark.parametrize("multiplier", [0.0, 0.5, 1.0, 1.96, 3.0])
def test_normal_coverage_is_scipys(multiplier):
    expected = scipy.stats.norm.cdf(multiplier) - scipy.stats.norm.cdf(-multiplier)
    np.testing.assert_allclose(normal_coverage(multiplier), expected, rtol=0.0, atol=1e-14)


class Told(Model):
    """Predicts what it is told, whatever the state; the doubt of the first coordinate is the action."""

    mean: Array
    aleatoric_std: Array

    def predict(self, state, action):
        return Prediction(self.mean, jnp.concatenate([action, jnp.array([0.3])]), self.aleatoric_std)


def test_standard_scores_by_hand():
    """Stds are hypot(u, 0.4) and hypot(0.3, 0.4) = 0.5; only a doubt of at least the noise is evidence."""
    model = Told(jnp.array([1.0, -1.0]), jnp.array([0.4, 0.4]))
    next_states = jnp.array([[2.0, -1.0], [0.0, -2.0], [1.0, NAN], [INF, -1.5], [1.0, 0.0]])
    actions = jnp.array([[0.3], [0.4], [0.5], [0.3], [NAN]])
    scores, is_evidence = standard_scores(model, jnp.zeros((5, 2)), actions, next_states)
    # Errors (1, 0), (1, 1), (0, ?), (inf, 0.5) and (0 of unknown std, 1).
    expected = [[2.0, 0.0], [1.0 / math.hypot(0.4, 0.4), 2.0], [0.0, INF], [INF, 1.0], [INF, 2.0]]
    np.testing.assert_allclose(scores, expected, rtol=1e-14)
    # What is not known counts as evidence even where the doubt was below the noise.
    np.testing.assert_array_equal(
        is_evidence, [[False, False], [True, False], [True, True], [True, False], [True, False]]
    )


def evidence_of(*columns):
    """One column of scores per coordinate; None is no evidence."""
    is_evidence = jnp.array([[score is not None for score in column] for column in columns]).T
    return Evidence(jnp.array([[score or 0.0 for score in column] for column in columns]).T, is_evidence)


def call(rule, current, evidence):
    """The rule's update, for rules that do not look at the model."""
    return rule.update(current, evidence, gaussian_process())


def test_calibrated_by_hand():
    """Nine scores are enough here; of nine the rank is ceil(10 * 0.8) = 8."""
    rule = Calibrated(start=3.0, coverage=0.8, floor=1.0, min_evidence=9)
    np.testing.assert_array_equal(rule.initial(2), [3.0, 3.0])
    current = jnp.array([3.0, 3.0, 3.0, 3.0, 2.0])
    ours = call(
        rule,
        current,
        evidence_of(
            [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8],  # falls to the eighth, 1.6
            [0.1] * 9,  # the floor
            [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0],  # rises to the eighth, 8
            [1.5] * 8 + [None],  # would fall, but eight are not enough
            [1.5] * 7 + [2.5, None],  # rises at once: of eight the rank is ceil(9 * 0.8) = 8
        ),
    )
    np.testing.assert_allclose(ours, [1.6, 1.0, 8.0, 3.0, 2.5], rtol=1e-14)


def test_calibrated_without_evidence_stays():
    current = jnp.array([3.0, 0.5])
    ours = call(Calibrated(start=3.0, floor=1.0), current, evidence_of([None] * 3, [None] * 3))
    # Below the floor it cannot stay.
    np.testing.assert_array_equal(ours, [3.0, 1.0])


@pytest.mark.parametrize("count", [1, 30])
def test_an_infinite_score_makes_the_multiplier_infinite(count):
    """Whether or not there is evidence enough to fall; and with enough better evidence it comes back."""
    rule = Calibrated(coverage=0.99, min_evidence=20)
    ours = call(rule, jnp.array([3.0]), evidence_of([0.5] * (count - 1) + [INF]))
    np.testing.assert_array_equal(ours, [INF])
    np.testing.assert_array_equal(call(rule, ours, evidence_of([0.5] * 19)), [INF])
    np.testing.assert_array_equal(call(rule, ours, evidence_of([1.25] * 20)), [1.25])


def test_fixed_is_fixed():
    rule = Fixed(2.5)
    np.testing.assert_array_equal(rule.initial(3), [2.5, 2.5, 2.5])
    np.testing.assert_array_equal(call(rule, rule.initial(1), evidence_of([INF] * 50)), [2.5])


NOISE_STD = 0.05
LENGTHSCALES = np.random.default_rng(1).uniform(1.0, 2.0, (3, 4))


def transitions(num=12, capacity=16):
    rng = np.random.default_rng(2)
    rows = (jnp.asarray(rng.normal(size=(num, dim))) for dim in (3, 1, 3))
    return Transitions.empty(capacity, 3, 1).append(*rows)


learn_jitted = eqx.filter_jit(learn)
gains_of = eqx.filter_jit(realised_gains)


@functools.cache
def gaussian_process(num=12, **options):
    kernels = jax.vmap(SquaredExponential)(jnp.log(LENGTHSCALES), jnp.full(3, math.log(1.5)))
    settings = GPSettings(noise_std=NOISE_STD, **{"subset_size": None, **options})
    return learn_jitted(Pendulum(), transitions(num), kernels, settings)


def direct_gains(rows):
    """1/2 log det(I + K / sigma^2) of every output from data standardised in NumPy, for these rows of them."""
    data = transitions()
    values = np.concatenate([data.states, data.actions], axis=-1)[:12]
    values = values / np.maximum(values.std(axis=0), [0.5, 0.5, 2.0, 0.5])
    change_scale = np.maximum(np.asarray(data.changes)[:12].std(axis=0), [0.3, 0.3, 1.0])
    gains = []
    for lengthscales, scale, chosen in zip(LENGTHSCALES, change_scale, rows, strict=True):
        ratio = 1.5**2 * covariance_of(values[chosen], lengthscales) / (NOISE_STD / scale) ** 2
        gains.append(0.5 * np.linalg.slogdet(np.eye(len(chosen)) + ratio)[1])
    return np.array(gains)


def test_realised_gains_are_log_determinants():
    expected = direct_gains([np.arange(12)] * 3)
    np.testing.assert_allclose(gains_of(gaussian_process()), expected, rtol=1e-9)


def test_realised_gains_count_only_the_rows_that_are_conditioned_on():
    model = gaussian_process(subset_size=5, is_mean_exact=False)
    values = np.asarray(
        jax.vmap(model.input_normaliser)(jnp.concatenate([transitions().states, transitions().actions], -1))
    )
    rows = [
        [int(np.argmin(np.abs(values[:12] / scale - row).sum(axis=-1))) for row in np.asarray(inputs)]
        for inputs, scale in zip(model.posteriors.scaled_inputs, LENGTHSCALES, strict=True)
    ]
    assert all(len(set(chosen)) == 5 for chosen in rows)
    np.testing.assert_allclose(gains_of(model), direct_gains(rows), rtol=1e-9)


def test_theory_grows_with_what_is_learned():
    """From B + sqrt(2 log(d/delta)) = 10 + sqrt(2 log 30) on, by the gain of every output."""
    rule = Theory(delta=0.1, norm_bound=10.0)
    current = rule.initial(3)
    np.testing.assert_allclose(current, 10.0 + math.sqrt(2.0 * math.log(30.0)), rtol=1e-14)
    nothing = evidence_of([None], [None], [None])
    few, many = (rule.update(current, nothing, gaussian_process(num)) for num in (4, 12))
    expected = 10.0 + np.sqrt(2.0 * (direct_gains([np.arange(12)] * 3) + math.log(30.0)))
    np.testing.assert_allclose(many, expected, rtol=1e-9)
    assert np.all(np.asarray(current) < few)
    assert np.all(np.asarray(few) < many)
    # The set of plausible models that it bounds holds at all times, so that it never falls.
    np.testing.assert_array_equal(rule.update(many, nothing, gaussian_process(4)), many)
