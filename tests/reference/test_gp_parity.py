"""Our Gaussian processes against scikit-learn's, an independent implementation, and against NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from actsafe.data.transitions import Transitions
from actsafe.models.gp.dynamics import GPSettings, learn
from actsafe.models.gp.fit import FitSettings, fit_kernel
from actsafe.models.gp.kernels import Matern52, SquaredExponential
from actsafe.models.gp.posterior import condition, log_marginal_likelihood
from actsafe.problems import Pendulum

TOLERANCE = 1e-8
NOISE_STD = 0.05
LENGTHSCALES = np.array([0.7, 1.5, 3.0])
SIGNAL_STD = 1.3

every_kernel = pytest.mark.parametrize("kernel_type", [SquaredExponential, Matern52])


def our_kernel(kernel_type, lengthscales=LENGTHSCALES, signal_std=SIGNAL_STD):
    return kernel_type(jnp.log(jnp.asarray(lengthscales)), jnp.log(jnp.asarray(signal_std)))


def their_process(kernel_type, *, lengthscales=LENGTHSCALES, signal_std=SIGNAL_STD, noise_std=NOISE_STD, **options):
    """scikit-learn's regressor with the same hyper-parameters, which stay as they are unless an optimiser is given."""
    shape = RBF(lengthscales) if kernel_type is SquaredExponential else Matern(lengthscales, nu=2.5)
    signal = ConstantKernel(signal_std**2, constant_value_bounds=options.pop("signal_bounds", (1e-5, 1e5)))
    return GaussianProcessRegressor(signal * shape, alpha=noise_std**2, **{"optimizer": None, **options})


def random_data(seed=0, *, num=25, num_inputs=3):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(num, num_inputs))
    return inputs, np.sin(inputs @ rng.normal(size=num_inputs)) + NOISE_STD * rng.normal(size=num)


def pad(inputs, targets, *, capacity, seed=0):
    """The data scattered among rows of rubbish, in their old order."""
    rng = np.random.default_rng(seed)
    place = np.sort(rng.permutation(capacity)[: len(inputs)])
    padded_inputs, padded_targets = 1e3 * rng.normal(size=(capacity, inputs.shape[1])), 1e3 * rng.normal(size=capacity)
    padded_inputs[place], padded_targets[place] = inputs, targets
    return jnp.asarray(padded_inputs), jnp.asarray(padded_targets), jnp.isin(jnp.arange(capacity), place)


@functools.partial(jax.jit, static_argnames=("subset_size",))
def predict(kernel, inputs, targets, is_data, queries, subset_size=None):
    posterior = condition(kernel, inputs, targets, is_data, noise_std=jnp.asarray(NOISE_STD), subset_size=subset_size)
    return jax.vmap(posterior)(queries)


likelihood_and_slope = jax.jit(jax.value_and_grad(log_marginal_likelihood))


@every_kernel
def test_posterior_is_scikit_learns(kernel_type):
    """Ours has the 25 rows among 15 of rubbish, theirs has them alone."""
    inputs, targets = random_data()
    # Among the data, at the data, and so far away that only the prior is left.
    queries = np.concatenate([random_data(1)[0], inputs[:5], np.full((1, 3), 50.0)])
    ours = predict(our_kernel(kernel_type), *pad(inputs, targets, capacity=40), queries)
    mean, std = their_process(kernel_type).fit(inputs, targets).predict(queries, return_std=True)
    np.testing.assert_allclose(ours.mean, mean, rtol=0.0, atol=TOLERANCE)
    np.testing.assert_allclose(ours.std, std, rtol=0.0, atol=TOLERANCE)
    np.testing.assert_allclose(ours.std[-1], SIGNAL_STD, rtol=0.0, atol=TOLERANCE)
    assert np.ptp(std) > 0.5, "the comparison must cover what is known and what is not"


@every_kernel
def test_likelihood_and_its_gradient_are_scikit_learns(kernel_type):
    inputs, targets = random_data(2)
    data, noise_std = pad(inputs, targets, capacity=40), jnp.asarray(NOISE_STD)
    value, slope = likelihood_and_slope(our_kernel(kernel_type), *data, noise_std=noise_std)
    process = their_process(kernel_type).fit(inputs, targets)
    their_value, their_slope = process.log_marginal_likelihood(process.kernel_.theta, eval_gradient=True)
    np.testing.assert_allclose(value, their_value, rtol=0.0, atol=1e-6)
    # They differentiate by the log of the signal's variance, we by the log of its std: twice as much.
    np.testing.assert_allclose(slope.log_signal_std, 2.0 * their_slope[0], rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(slope.log_lengthscales, their_slope[1:], rtol=0.0, atol=1e-6)
    assert np.min(np.abs(their_slope)) > 0.1


@pytest.mark.parametrize("subset_size", [None, 10])
def test_padding_changes_nothing(subset_size):
    """Nor does it change which rows the variance conditions on."""
    inputs, targets = random_data(3)
    kernel, queries = our_kernel(SquaredExponential), random_data(4)[0]
    expected = predict(kernel, inputs, targets, np.ones(25, bool), queries, subset_size=subset_size)
    ours = predict(kernel, *pad(inputs, targets, capacity=40), queries, subset_size=subset_size)
    np.testing.assert_allclose(ours.mean, expected.mean, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(ours.std, expected.std, rtol=0.0, atol=1e-10)


@every_kernel
def test_dynamics_are_scikit_learn_on_standardised_transitions(kernel_type, key):
    """Standardised, learned and put back into the problem's units in NumPy; 35 transitions in 50 rows."""
    problem, noise_std, count, capacity = Pendulum(), 1e-2, 35, 50
    rng = np.random.default_rng(5)
    theta, action = rng.uniform(-3.0, 3.0, (2, 60))
    states = np.stack([np.cos(theta), np.sin(theta), rng.uniform(-0.5, 0.5, 60)], axis=-1)
    actions = np.clip(action, -1.0, 1.0)[:, None]
    next_states = np.asarray(jax.jit(jax.vmap(lambda s, a: problem.step(s, a, key).state))(states, actions))
    lengthscales = rng.uniform(0.8, 3.0, (3, 4))

    data = Transitions.empty(capacity, 3, 1)
    data = data.append(*map(jnp.asarray, (states[:count], actions[:count], (next_states - states)[:count])))
    name = "matern52" if kernel_type is Matern52 else "squared_exponential"
    settings = GPSettings(kernel=name, noise_std=noise_std, subset_size=None)
    kernels = jax.vmap(kernel_type)(jnp.log(lengthscales), jnp.zeros(3))
    model = learn(problem, data, kernels, settings)
    ours = jax.jit(jax.vmap(model.predict))(states[count:], actions[count:])

    inputs = np.concatenate([states, actions], axis=-1)
    # The speeds hardly vary, so that their scale is the floor of 2 rad/s; the other scales are the data's own.
    scale = np.maximum(inputs[:count].std(axis=0), [0.5, 0.5, 2.0, 0.5])
    assert scale[2] == 2.0
    assert np.all(scale[[0, 1, 3]] > 0.5)
    inputs = (inputs - inputs[:count].mean(axis=0)) / scale
    changes = (next_states - states)[:count]
    change_scale = np.maximum(changes.std(axis=0), [0.3, 0.3, 1.0])
    for j in range(3):
        process = their_process(
            kernel_type, lengthscales=lengthscales[j], signal_std=1.0, noise_std=noise_std / change_scale[j]
        )
        process.fit(inputs[:count], (changes[:, j] - changes[:, j].mean()) / change_scale[j])
        mean, std = process.predict(inputs[count:], return_std=True)
        expected = states[count:, j] + changes[:, j].mean() + change_scale[j] * mean
        np.testing.assert_allclose(ours.mean[:, j], expected, rtol=0.0, atol=TOLERANCE)
        np.testing.assert_allclose(ours.epistemic_std[:, j], change_scale[j] * std, rtol=0.0, atol=TOLERANCE)
    np.testing.assert_array_equal(ours.aleatoric_std, np.full((25, 3), noise_std))


def fit(kernel, inputs, targets, is_data=None, noise_std=NOISE_STD, **options):
    is_data = np.ones(len(inputs), bool) if is_data is None else is_data
    settings = FitSettings(**{"num_steps": 400, "learning_rate": 0.05, **options})
    return jax.jit(functools.partial(fit_kernel, settings=settings))(
        kernel, inputs, targets, is_data, noise_std=jnp.asarray(noise_std)
    )


@pytest.mark.parametrize(("kernel_type", "fit_signal"), [(SquaredExponential, True), (Matern52, False)])
def test_fit_is_as_likely_as_scikit_learns(kernel_type, fit_signal):
    """A prior this wide says nothing, so that both maximise the same; scikit-learn uses L-BFGS from three starts."""
    inputs, targets = random_data(6, num=40, num_inputs=2)
    start = our_kernel(kernel_type, [1.0, 1.0], 1.0)
    ours = fit(start, inputs, targets, fit_signal=fit_signal, prior_log_std=1e4, prior_signal_log_std=1e4)
    process = their_process(
        kernel_type,
        lengthscales=[1.0, 1.0],
        signal_std=1.0,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=2,
        random_state=0,
        signal_bounds=(1e-5, 1e5) if fit_signal else "fixed",
    ).fit(inputs, targets)
    best = process.log_marginal_likelihood_value_
    value, _ = likelihood_and_slope(ours, inputs, targets, np.ones(40, bool), noise_std=jnp.asarray(NOISE_STD))
    before, _ = likelihood_and_slope(start, inputs, targets, np.ones(40, bool), noise_std=jnp.asarray(NOISE_STD))
    assert best > before + 1.0, "there must be something to gain"
    assert value > best - 1e-3
    if not fit_signal:
        assert ours.log_signal_std == 0.0


def test_fit_is_the_most_probable_kernel_under_the_prior():
    """Against SciPy's minimum of -log N(y; 0, K + s^2 I) + half the squared standardised distance to the prior."""
    inputs, targets = random_data(7, num=12, num_inputs=2)
    options = {"prior_lengthscale": 2.5, "prior_log_std": 0.4, "fit_signal": True, "prior_signal_log_std": 0.3}

    def loss(theta):
        scaled = inputs / np.exp(theta[:2])
        distance = np.sum((scaled[:, None] - scaled[None]) ** 2, axis=-1)
        covariance = np.exp(2.0 * theta[2] - 0.5 * distance) + NOISE_STD**2 * np.eye(12)
        likelihood = -0.5 * (targets @ np.linalg.solve(covariance, targets) + np.linalg.slogdet(covariance)[1])
        return -likelihood + 0.5 * (np.sum(((theta[:2] - np.log(2.5)) / 0.4) ** 2) + (theta[2] / 0.3) ** 2)

    start = our_kernel(SquaredExponential, [1.0, 1.0], 1.0)
    ours = fit(start, inputs, targets, num_steps=1000, learning_rate=0.02, **options)
    best = scipy.optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    theta = np.array([*ours.log_lengthscales, ours.log_signal_std])
    np.testing.assert_allclose(theta, best.x, rtol=0.0, atol=1e-3)
    assert np.all(np.abs(best.x - np.array([np.log(2.5), np.log(2.5), 0.0])) > 0.02), "data and prior must both count"
    likeliest = fit(start, inputs, targets, fit_signal=True, prior_log_std=1e4, prior_signal_log_std=1e4)
    assert np.max(np.abs(likeliest.log_lengthscales - ours.log_lengthscales)) > 0.05


def test_fit_uses_at_most_the_points_it_may():
    """With room for ten of 30 rows, each of ten and two copies of it, the fit is that of the ten that differ."""
    inputs, targets = random_data(8, num=10, num_inputs=2)
    thrice, is_data = np.repeat(inputs, 3, axis=0), np.arange(30) < 29
    # The copies have other targets: a copy chosen in place of its original, or beside it, would change the fit.
    changed = np.repeat(targets, 3) + 5.0 * (np.arange(30) % 3 > 0)
    start = our_kernel(SquaredExponential, [1.0, 1.0], 1.0)
    expected = fit(start, inputs, targets, num_steps=50)
    ours = fit(start, thrice, changed, is_data, num_steps=50, max_points=10)
    np.testing.assert_allclose(ours.log_lengthscales, expected.log_lengthscales, rtol=0.0, atol=1e-9)
    assert np.max(np.abs(expected.log_lengthscales)) > 0.1
