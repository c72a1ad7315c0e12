"""Kernels, posteriors and their data: hand-worked numbers, brute force, and what must hold for any data."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from actsafe.data.normalisation import Normaliser
from actsafe.data.transitions import Transitions
from actsafe.models.gp.dynamics import GPSettings, fit_kernels, learn, prior_kernels, require_float64
from actsafe.models.gp.fit import FitSettings, fit_kernel
from actsafe.models.gp.kernels import Matern52, SquaredExponential
from actsafe.models.gp.posterior import condition, log_marginal_likelihood, spread_order
from actsafe.problems import Cartpole, Pendulum

KERNEL_TYPES = [SquaredExponential, Matern52]
every_kernel = pytest.mark.parametrize("kernel_type", KERNEL_TYPES)


def make(kernel_type, lengthscales=(1.0, 1.0), signal_std=1.0):
    return kernel_type(jnp.log(jnp.asarray(lengthscales, float)), jnp.log(jnp.asarray(signal_std, float)))


def all_data(rows):
    return jnp.ones(len(rows), bool)


def numpy_kernel(kernel_type, lengthscales, signal_std=1.0):
    """The covariance function, written again."""

    def covariance(left, right):
        difference = (np.asarray(left)[:, None] - np.asarray(right)[None]) / np.asarray(lengthscales)
        r = np.sqrt(np.sum(difference**2, axis=-1))
        if kernel_type is SquaredExponential:
            return signal_std**2 * np.exp(-(r**2) / 2)
        return signal_std**2 * (1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r)

    return covariance


def numpy_posterior(covariance, inputs, targets, queries, noise_std):
    """(mean, variance) by the textbook's inverse."""
    inverse = np.linalg.inv(covariance(inputs, inputs) + noise_std**2 * np.eye(len(inputs)))
    across = covariance(queries, inputs)
    prior = np.diag(covariance(queries, queries))
    return across @ inverse @ targets, prior - np.einsum("qi,ij,qj->q", across, inverse, across)


@functools.cache
def jitted_condition(subset_size, is_mean_exact=True):
    return jax.jit(functools.partial(condition, subset_size=subset_size, is_mean_exact=is_mean_exact))


likelihood = jax.jit(log_marginal_likelihood)
ask = jax.jit(jax.vmap(lambda posterior, x: posterior(x), in_axes=(None, 0)))


@pytest.mark.parametrize(
    ("kernel_type", "expected"),
    [
        # x - y = (1, -2), over the lengthscales (2, 4): (1/2, -1/2), so r^2 = 1/2; s^2 = 9.
        # 9 exp(-1/4) = 9 * 0.7788007831
        (SquaredExponential, 7.0092070477),
        # sqrt(5) r = sqrt(2.5) = 1.58113883; (1 + 1.58113883 + 2.5/3) exp(-1.58113883) = 3.41447216 * 0.20574066
        (Matern52, 9 * 3.41447216 * 0.20574066),
    ],
)
def test_kernel_by_hand(kernel_type, expected):
    kernel = make(kernel_type, [2.0, 4.0], 3.0)
    left, right = jnp.array([[1.5, -1.0], [0.0, 0.0]]), jnp.array([[0.5, 1.0]])
    matrix = kernel.matrix(left, right)
    assert matrix.shape == (2, 1)
    np.testing.assert_allclose(matrix[0, 0], expected, rtol=1e-7)
    np.testing.assert_allclose(jnp.diagonal(kernel.matrix(left, left)), 9.0, rtol=1e-14)
    np.testing.assert_allclose(kernel.variance, 9.0, rtol=1e-14)
    assert kernel.matrix(left, left)[0, 1] == kernel.matrix(left, left)[1, 0] < 9.0


@every_kernel
def test_gradient_at_zero_distance_is_zero(kernel_type):
    """Both kernels are flat at their peak; the square root in Matern's is not differentiable there."""
    kernel, x = make(kernel_type), jnp.array([0.3, -0.7])

    def value(kernel, left, right):
        return kernel.of_scaled(kernel.scale(left), kernel.scale(right))

    slopes = jax.grad(value, argnums=(0, 1, 2))(kernel, x, x)
    np.testing.assert_array_equal(slopes[1], np.zeros(2))
    np.testing.assert_array_equal(slopes[2], np.zeros(2))
    np.testing.assert_array_equal(slopes[0].log_lengthscales, np.zeros(2))
    assert slopes[0].log_signal_std == pytest.approx(2.0)
    # A little off the peak the slope is there: -dx for the square exponential, -5/3 dx for Matern's.
    slope = jax.grad(value, argnums=1)(kernel, x + jnp.array([1e-6, 0.0]), x)[0]
    np.testing.assert_allclose(slope, {SquaredExponential: -1e-6, Matern52: -5e-6 / 3}[kernel_type], rtol=1e-4)


def greedy(covariance, inputs, noise_std, size):
    """Rows in the order of the largest variance given those before, each variance computed afresh."""
    chosen = []
    for _ in range(size):
        left = [i for i in range(len(inputs)) if i not in chosen]
        _, variance = numpy_posterior(covariance, inputs[chosen], np.zeros(len(chosen)), inputs[left], noise_std)
        chosen.append(left[int(np.argmax(np.round(variance, 12)))])
    return chosen


@every_kernel
@pytest.mark.parametrize("noise_std", [0.01, 1.0])
def test_spread_order_is_the_greedy_one(kernel_type, noise_std):
    inputs, is_data = np.random.default_rng(2).normal(size=(14, 2)), np.ones(14, bool)
    is_data[[0, 5, 13]] = False
    rows = np.flatnonzero(is_data)
    lengthscales = [1.5, 3.0]
    order = np.asarray(
        spread_order(
            make(kernel_type, lengthscales),
            jnp.asarray(inputs),
            jnp.asarray(is_data),
            noise_std=jnp.asarray(noise_std),
            size=6,
        )
    )
    covariance = numpy_kernel(kernel_type, lengthscales)
    expected = rows[greedy(covariance, inputs[rows], noise_std, 6)]
    np.testing.assert_array_equal(order[:6], expected)
    if noise_std == 1.0:
        # What is seen through noise is less known, and on these rows that changes the order.
        assert list(expected) != list(rows[greedy(covariance, inputs[rows], 1e-4, 6)])
    assert order[0] == 1, "before anything is known all rows are equal, and the first of the data is taken"
    assert sorted(order) == list(range(14))
    assert list(order[-3:]) == [0, 5, 13], "padding comes last"
    assert list(order[6:11]) == sorted(set(rows) - set(expected)), "what was not chosen stays in its order"


@pytest.mark.parametrize("size", [3, 8])
def test_spread_order_puts_data_before_padding(size):
    """Three rows of data in eight, two of them the same point, and as many or more asked for."""
    inputs = jnp.array([[9.0], [0.0], [9.0], [0.0], [9.0], [2.0], [9.0], [9.0]])
    is_data = jnp.array([False, True, False, True, False, True, False, False])
    order = spread_order(make(SquaredExponential, [1.0]), inputs, is_data, noise_std=jnp.asarray(1e-3), size=size)
    assert list(order[:3]) == [1, 5, 3]
    assert sorted(order.tolist()) == list(range(8))


def test_subset_by_hand():
    """Of the points 0, 0.1 and 3 two are kept: 0 (the first), and 3 (the least known from 0)."""
    inputs, targets = jnp.array([[0.0], [0.1], [3.0]]), jnp.array([1.0, 2.0, -1.0])
    arguments = (make(SquaredExponential, [1.0]), inputs, targets, all_data(inputs))
    exact_mean = jitted_condition(2)(*arguments, noise_std=jnp.asarray(0.5))
    np.testing.assert_array_equal(exact_mean.scaled_inputs[:, 0], [0.0, 3.0, 0.1])
    assert exact_mean.whitening.shape == (2, 2)
    subset_mean = jitted_condition(2, is_mean_exact=False)(*arguments, noise_std=jnp.asarray(0.5))
    np.testing.assert_array_equal(subset_mean.scaled_inputs[:, 0], [0.0, 3.0])

    covariance = numpy_kernel(SquaredExponential, [1.0])
    queries = np.array([[0.05], [1.5], [3.0]])
    mean, _ = numpy_posterior(covariance, inputs, targets, queries, 0.5)
    few_mean, few_variance = numpy_posterior(covariance, inputs[::2], targets[::2], queries, 0.5)
    for posterior, expected in ((exact_mean, mean), (subset_mean, few_mean)):
        moments = ask(posterior, queries)
        np.testing.assert_allclose(moments.mean, expected, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(moments.std, np.sqrt(few_variance), rtol=0.0, atol=1e-12)


NUM_ROWS = 9
coordinates = st.floats(-3.0, 3.0)


@settings(max_examples=60)
@given(
    kind=st.sampled_from([(SquaredExponential, 4, True), (Matern52, 4, False), (SquaredExponential, 20, True)]),
    inputs=arrays(float, (NUM_ROWS, 2), elements=coordinates),
    targets=arrays(float, NUM_ROWS, elements=coordinates),
    count=st.integers(1, NUM_ROWS),
    queries=arrays(float, (3, 2), elements=coordinates),
    log_lengthscales=arrays(float, 2, elements=st.floats(-1.5, 1.5)),
    log_signal_std=st.floats(-1.0, 1.0),
    noise_std=st.floats(0.03, 2.0),
)
@example(  # every row the same point
    kind=(SquaredExponential, 4, True),
    inputs=np.zeros((NUM_ROWS, 2)),
    targets=np.arange(NUM_ROWS, dtype=float),
    count=NUM_ROWS,
    queries=np.zeros((3, 2)),
    log_lengthscales=np.zeros(2),
    log_signal_std=0.0,
    noise_std=0.03,
)
def test_less_data_never_claims_to_know_more(
    kind, inputs, targets, count, queries, log_lengthscales, log_signal_std, noise_std
):
    """The variance of a subset lies between the exact one and the prior's; a mean called exact is."""
    kernel_type, subset_size, is_mean_exact = kind
    kernel = kernel_type(jnp.asarray(log_lengthscales), jnp.asarray(log_signal_std))
    is_data = jnp.arange(NUM_ROWS) < count
    posterior = jitted_condition(subset_size, is_mean_exact)(
        kernel, inputs, targets, is_data, noise_std=jnp.asarray(noise_std)
    )
    moments = ask(posterior, queries)
    covariance = numpy_kernel(kernel_type, np.exp(log_lengthscales), math.exp(log_signal_std))
    mean, variance = numpy_posterior(covariance, inputs[:count], targets[:count], queries, noise_std)
    ours = np.asarray(moments.std) ** 2
    assert np.all(ours >= variance - 1e-9)
    assert np.all(ours <= math.exp(2 * log_signal_std) + 1e-9)
    is_everything = subset_size >= count
    if is_mean_exact or is_everything:
        np.testing.assert_allclose(moments.mean, mean, rtol=0.0, atol=1e-8)
    if is_everything:
        np.testing.assert_allclose(ours, np.maximum(variance, 1e-12), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize(("kernel_type", "subset_size"), [(SquaredExponential, 4), (Matern52, None)])
def test_duplicates_average_their_noise(kernel_type, subset_size):
    """n sightings of one point: mean = sum(y) / (n + s^2), var = 1 - n/(n + s^2) = s^2/(n + s^2); n is the subset's."""
    num, noise_std = 16, 1e-3
    inputs, targets = jnp.full((num, 2), 0.3), jnp.linspace(0.0, 1.0, num)
    posterior = jitted_condition(subset_size)(
        make(kernel_type), inputs, targets, all_data(inputs), noise_std=jnp.asarray(noise_std)
    )
    moments = ask(posterior, inputs[:1])
    np.testing.assert_allclose(moments.mean, 8.0 / (16 + 1e-6), rtol=1e-8)
    num_seen = num if subset_size is None else subset_size
    np.testing.assert_allclose(moments.std, noise_std / math.sqrt(num_seen), rtol=1e-5)
    far = ask(posterior, inputs[:1] + 30.0)
    np.testing.assert_allclose(far.std, 1.0, atol=1e-12)


@every_kernel
def test_duplicates_do_not_break_the_likelihood(kernel_type):
    inputs, targets = jnp.full((10, 2), 0.3), jnp.linspace(-1e-3, 1e-3, 10)
    noise_std = jnp.asarray(1e-3)
    value, slope = jax.jit(jax.value_and_grad(log_marginal_likelihood))(
        make(kernel_type), inputs, targets, all_data(inputs), noise_std=noise_std
    )
    # K + s^2 I = 11^T + s^2 I: det = s^18 (10 + s^2), and 1^T y = 0 so that y^T (..)^-1 y = |y|^2 / s^2.
    determinant = 9 * math.log(1e-6) + math.log(10 + 1e-6)
    expected = -0.5 * (float(jnp.sum(targets**2)) / 1e-6 + determinant + 10 * math.log(2 * math.pi))
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    np.testing.assert_allclose(slope.log_lengthscales, 0.0, atol=1e-6)


@pytest.mark.parametrize(("kernel_type", "subset_size"), [(SquaredExponential, None), (Matern52, 2)])
def test_padding_alone_is_the_prior(kernel_type, subset_size):
    inputs = jnp.full((5, 2), 7.0)
    posterior = jitted_condition(subset_size)(
        make(kernel_type, signal_std=1.5), inputs, 100.0 + inputs[:, 0], jnp.zeros(5, bool), noise_std=jnp.asarray(0.1)
    )
    moments = ask(posterior, np.array([[7.0, 7.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(moments.mean, np.zeros(2))
    np.testing.assert_allclose(moments.std, 1.5, rtol=1e-14)
    np.testing.assert_array_equal(posterior.weights, np.zeros(5))
    nothing = likelihood(make(kernel_type), inputs, inputs[:, 0], jnp.zeros(5, bool), noise_std=jnp.asarray(0.1))
    assert nothing == 0.0


def test_variance_has_a_floor():
    """A noise below rounding: the variance at the data would be some +-1e-16, and its root not a number."""
    inputs = jnp.linspace(0.0, 3.0, 4)[:, None]
    posterior = jitted_condition(None)(
        make(SquaredExponential, [1.0]), inputs, inputs[:, 0], all_data(inputs), noise_std=jnp.asarray(1e-9)
    )
    np.testing.assert_allclose(ask(posterior, inputs).std, 1e-6, rtol=0.2)


def test_dynamics_without_data_expect_no_change_and_doubt_by_the_prior():
    problem = Cartpole()
    dims = problem.state_dim, problem.action_dim
    settings = GPSettings(noise_std=0.02, fit=FitSettings(prior_lengthscale=2.0))
    kernels = prior_kernels(problem, settings)
    np.testing.assert_allclose(np.exp(kernels.log_lengthscales), np.full((dims[0], sum(dims)), 2.0), rtol=1e-14)
    np.testing.assert_array_equal(kernels.log_signal_std, np.zeros(dims[0]))
    state, action = jnp.arange(1.0, dims[0] + 1.0), jnp.array([0.5])

    @jax.jit
    def predict(kernels):
        return learn(problem, Transitions.empty(4, *dims), kernels, settings).predict(state, action)

    prediction = predict(kernels)
    np.testing.assert_array_equal(prediction.mean, state)
    np.testing.assert_allclose(prediction.epistemic_std, problem.change_scale, rtol=1e-14)
    np.testing.assert_array_equal(prediction.aleatoric_std, np.full(dims[0], 0.02))


def few_transitions(seed=0, *, num=6, capacity=8):
    rng = np.random.default_rng(seed)
    rows = (jnp.asarray(rng.normal(size=(num, dim))) for dim in (3, 1, 3))
    return Transitions.empty(capacity, 3, 1).append(*rows)


def test_every_output_is_fitted_on_its_own():
    """The kernels of outputs fitted together are those of each alone, on data standardised by hand."""
    problem, data = Pendulum(), few_transitions()
    settings = GPSettings(noise_std=0.1, fit=FitSettings(num_steps=5))
    start = jax.vmap(SquaredExponential)(jnp.log(jnp.linspace(1.0, 2.0, 12)).reshape(3, 4), jnp.zeros(3))
    fitted = jax.jit(lambda k: fit_kernels(problem, data, k, settings))(start)
    values = np.concatenate([data.states, data.actions], axis=-1)[:6]
    inputs = jnp.asarray((values - values.mean(axis=0)) / np.maximum(values.std(axis=0), [0.5, 0.5, 2.0, 0.5]))
    changes = np.asarray(data.changes)[:6]
    scale = np.maximum(changes.std(axis=0), [0.3, 0.3, 1.0])
    one = jax.jit(functools.partial(fit_kernel, settings=settings.fit))
    for j in range(3):
        targets = jnp.asarray((changes[:, j] - changes[:, j].mean()) / scale[j])
        kernel = jax.tree.map(lambda leaf, j=j: leaf[j], start)
        alone = one(kernel, inputs, targets, all_data(inputs), noise_std=jnp.asarray(0.1 / scale[j]))
        np.testing.assert_allclose(fitted.log_lengthscales[j], alone.log_lengthscales, rtol=0.0, atol=1e-9)
        assert np.max(np.abs(alone.log_lengthscales - kernel.log_lengthscales)) > 1e-3
    unfitted = fit_kernels(problem, data, start, GPSettings(fit=FitSettings(num_steps=0)))
    assert unfitted is start


@pytest.fixture
def single_precision():
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def test_double_precision_is_required(single_precision):
    with pytest.raises(RuntimeError, match=r'need float64.*float32.*jax\.config\.update\("jax_enable_x64", True\)'):
        require_float64()
    with pytest.raises(RuntimeError, match="need float64"):
        prior_kernels(Pendulum(), GPSettings())
    with pytest.raises(RuntimeError, match="need float64"):
        learn(Pendulum(), Transitions.empty(2, 3, 1), make(SquaredExponential), GPSettings())


def test_normaliser_by_hand():
    """Rows 1 and 3 are data, the others do not count: means (2, 5), stds (1, 0), and the second is below its floor."""
    values = jnp.array([[100.0, 100.0], [1.0, 5.0], [-100.0, 0.0], [3.0, 5.0]])
    is_data = jnp.array([False, True, False, True])
    normaliser = Normaliser.fit(values, is_data, jnp.array([0.5, 0.25]))
    np.testing.assert_array_equal(normaliser.mean, [2.0, 5.0])
    np.testing.assert_array_equal(normaliser.scale, [1.0, 0.25])
    np.testing.assert_array_equal(normaliser(jnp.array([4.0, 6.0])), [2.0, 4.0])
    np.testing.assert_array_equal(normaliser.invert(jnp.array([2.0, 4.0])), [4.0, 6.0])
    # A floor above the data's std takes its place: inputs are not magnified beyond it.
    np.testing.assert_array_equal(Normaliser.fit(values, is_data, jnp.array([2.0, 3.0])).scale, [2.0, 3.0])
    nothing = Normaliser.fit(values, jnp.zeros(4, bool), jnp.array([2.0, 3.0]))
    np.testing.assert_array_equal(nothing.mean, [0.0, 0.0])
    np.testing.assert_array_equal(nothing.scale, [2.0, 3.0])


def test_transitions_append_and_head():
    data = Transitions.empty(6, 2, 1)
    assert data.capacity == 6
    assert not np.any(data.is_data)
    append = jax.jit(Transitions.append)
    rows = jnp.arange(10.0).reshape(5, 2)
    data = append(data, rows[:3], rows[:3, :1] + 0.5, -rows[:3])
    data = append(data, rows[3:], rows[3:, :1] + 0.5, -rows[3:])
    assert int(data.count) == 5
    np.testing.assert_array_equal(data.is_data, [True] * 5 + [False])
    np.testing.assert_array_equal(data.states[:5], rows)
    np.testing.assert_array_equal(data.actions[:5], rows[:, :1] + 0.5)
    np.testing.assert_array_equal(data.changes[:5], -rows)
    np.testing.assert_array_equal(data.states[5], [0.0, 0.0])
    head = data.head(5)
    assert (head.capacity, int(head.count)) == (5, 5)
    assert np.all(head.is_data)
    np.testing.assert_array_equal(head.changes, -rows)


def loss_of(kernel, inputs, targets, is_data, noise_std, options):
    """What the fit minimises, up to a constant, from the likelihood and the prior written again."""
    distance = (kernel.log_lengthscales - jnp.log(options.prior_lengthscale)) / options.prior_log_std
    value = likelihood(kernel, inputs, targets, is_data, noise_std=noise_std)
    return -float(value) + 0.5 * float(jnp.sum(distance**2))


spread = np.random.default_rng(0).normal(size=(8, 2))


@every_kernel
@pytest.mark.parametrize(
    ("inputs", "targets", "num_data", "noise_std", "learning_rate"),
    [
        (spread, np.full(8, 1.7), 8, 1e-3, 0.1),
        (spread, np.zeros(8), 8, 1e-3, 0.1),
        (np.zeros((8, 2)), np.arange(8.0), 8, 1e-3, 0.1),
        (spread, spread[:, 0], 0, 1e-3, 0.1),
        (spread, spread[:, 0], 1, 1e-3, 0.1),
        (spread, 1e6 * spread[:, 0], 8, 1e-3, 0.1),
        # The kernel matrix of these has no Cholesky factor: nothing about the kernel can be told.
        (np.repeat(spread[:2], 4, axis=0), np.arange(8.0), 8, 1e-12, 0.1),
        # Steps so long that lengthscales overflow.
        (spread, spread[:, 0], 8, 1e-3, 300.0),
    ],
    ids=["constant", "zero", "one point", "no data", "one row", "huge", "singular", "overflow"],
)
def test_fit_never_returns_a_kernel_that_is_not_finite(
    kernel_type, inputs, targets, num_data, noise_std, learning_rate
):
    options = FitSettings(num_steps=15, learning_rate=learning_rate)
    data = (jnp.asarray(inputs), jnp.asarray(targets), jnp.arange(8) < num_data)
    start = make(kernel_type)
    fitted = jitted_fit(options)(start, *data, noise_std=jnp.asarray(noise_std))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(fitted))
    before, after = (loss_of(kernel, *data, jnp.asarray(noise_std), options) for kernel in (start, fitted))
    assert after <= before or math.isnan(before)


@functools.cache
def jitted_fit(options):
    return jax.jit(functools.partial(fit_kernel, settings=options))


def test_without_data_the_fit_goes_to_the_prior():
    options = FitSettings(num_steps=300, learning_rate=0.05, prior_lengthscale=2.0)
    fitted = jitted_fit(options)(
        make(SquaredExponential),
        jnp.asarray(spread),
        jnp.asarray(spread[:, 0]),
        jnp.zeros(8, bool),
        noise_std=jnp.asarray(0.1),
    )
    np.testing.assert_allclose(jnp.exp(fitted.log_lengthscales), 2.0, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (GPSettings, {"kernel": "rbf"}, "gp.kernel must be one of squared_exponential, matern52, got 'rbf'"),
        (GPSettings, {"noise_std": 0.0}, "gp.noise_std must be positive, got 0.0"),
        (GPSettings, {"noise_std": math.nan}, "gp.noise_std must be positive, got nan"),
        (GPSettings, {"subset_size": 0}, "gp.subset_size must be at least 1 or None, got 0"),
        (FitSettings, {"num_steps": -1}, "fit.num_steps must be at least 0, got -1"),
        (FitSettings, {"learning_rate": 0.0}, "fit.learning_rate must be positive, got 0.0"),
        (FitSettings, {"learning_rate": math.nan}, "fit.learning_rate must be positive, got nan"),
        (FitSettings, {"max_points": 0}, "fit.max_points must be positive, got 0"),
        (FitSettings, {"prior_lengthscale": -1.0}, "fit.prior_lengthscale must be positive, got -1.0"),
        (FitSettings, {"prior_log_std": 0.0}, "fit.prior_log_std must be positive, got 0.0"),
        (FitSettings, {"prior_signal_log_std": 0.0}, "fit.prior_signal_log_std must be positive, got 0.0"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named_with_what_was_expected(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)
