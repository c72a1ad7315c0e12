"""The world model: layers against other implementations, gradients, the ELBO by hand, and uncertainty off the data."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from actsafe.data.rows import Rows
from actsafe.fast import convolutions, device
from actsafe.models.networks import cast
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.decoder import Upsampling, kernel_sizes
from actsafe.models.rssm.elbo import balanced_kl, kl_divergence, squared_error
from actsafe.models.rssm.encoder import LAYOUT, ImageEncoder
from actsafe.models.rssm.states import Gaussian, State
from actsafe.models.rssm.world_model import (
    ImaginationDraws,
    WorldModel,
    WorldModelSettings,
    predict_video,
    require_learnable,
)
from actsafe.objectives.uncertainty import Disagreement, EpistemicNorm

SMALL = WorldModelSettings(
    deterministic=8, stochastic=4, hidden=6, num_members=3, image_depth=2, image_width=8, head_width=8, head_depth=1
)


def rows_of(key, *, shape=(3,), batch=2, steps=5, first=()):
    obs_key, action_key, reward_key = jax.random.split(key, 3)
    is_first = jnp.zeros((batch, steps), bool).at[:, 0].set(True)
    for place in first:
        is_first = is_first.at[place].set(True)
    if len(shape) == 1:
        observation = jax.random.normal(obs_key, (batch, steps, *shape), jnp.float32)
    else:
        observation = jax.random.randint(obs_key, (batch, steps, *shape), 0, 256).astype(jnp.uint8)
    return Rows(
        observation,
        jax.random.uniform(action_key, (batch, steps, 2), jnp.float32, -1, 1),
        jax.random.normal(reward_key, (batch, steps), jnp.float32),
        jnp.ones((batch, steps, 1), jnp.float32),
        is_first,
    )


@eqx.filter_jit
def make_cell(key):
    return Cell.create(
        deterministic=8, stochastic=4, hidden=6, embedding=5, action=2, num_members=3, member_noise=1.0, key=key
    )


@eqx.filter_jit
def make_model(key, shape=(3,), num_constraints=1, settings=SMALL):
    return WorldModel.create(shape, 2, num_constraints, settings, key)


def test_parameter_count_of_the_paper(key):
    model = eqx.filter_eval_shape(lambda k: WorldModel.create((64, 64, 3), 2, 1, WorldModelSettings(), k), key)
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == 6_800_141


def test_kl_by_hand():
    # N(1, 2) against N(0, 1): log(1/2) + (4 + 1) / 2 - 1/2 = 1.306853. A second feature that agrees adds nothing.
    p, q = (
        Gaussian(jnp.array([1.0, 3.0]), jnp.array([2.0, 0.5])),
        Gaussian(jnp.array([0.0, 3.0]), jnp.array([1.0, 0.5])),
    )
    assert float(kl_divergence(p, q)) == pytest.approx(2.0 - np.log(2.0), abs=1e-6)
    # The other way round: log 2 + (1 + 1) / 8 - 1/2 = 0.443147.
    assert float(kl_divergence(q, p)) == pytest.approx(np.log(2.0) - 0.25, abs=1e-6)


def test_balance_and_free_nats():
    prior = Gaussian(jnp.zeros((1, 1)), jnp.ones((1, 1)))

    def loss(shift, of_prior, free_nats):
        moved = Gaussian(prior.mean + shift, prior.std)
        posterior, expected = (prior, moved) if of_prior else (moved, prior)
        return balanced_kl(posterior, expected, balance=0.8, free_nats=free_nats)[0]

    # KL = shift² / 2, so that its slope at shift 2 is 2: 0.8 of it teaches the prior, 0.2 the posterior.
    assert float(jax.grad(loss)(2.0, True, 0.0)) == pytest.approx(1.6)
    assert float(jax.grad(loss)(2.0, False, 0.0)) == pytest.approx(0.4)
    # KL is 2 there: with 3 free nats nothing presses, and the loss is the 3.
    assert float(jax.grad(loss)(2.0, True, 3.0)) == 0.0
    assert float(loss(2.0, True, 3.0)) == pytest.approx(3.0)


@pytest.mark.parametrize(("free_nats", "at_floor"), [(0.0, 0.0), (1e3, 1.0)])
def test_a_batch_at_the_floor_says_so_and_teaches_the_prior_nothing(free_nats, at_floor, key):
    model = make_model(key, settings=dataclasses.replace(SMALL, free_nats=free_nats))
    # Without outcomes, which reach the priors through the states that they lead to, the KL alone is left.
    rows = rows_of(key)._replace(is_first=jnp.ones((2, 5), bool))
    gradient, (_, parts) = jax.jit(jax.grad(lambda m: m.loss(rows, key), has_aux=True))(model)
    assert parts["kl_at_floor"] == at_floor
    assert np.any(gradient.cell.priors.out.weight) == (at_floor == 0.0)


def begun(key, member_noise_on, member_noise=1.0):
    settings = dataclasses.replace(SMALL, member_noise_on=member_noise_on, member_noise=member_noise)
    return make_model(key, settings=settings).cell.priors


def test_noise_on_linear_layers_leaves_the_gru_the_same_in_all_members(key):
    everywhere, linear = begun(key, "all"), begun(key, "linear")
    for name in ("entry", "hidden", "out"):
        np.testing.assert_array_equal(getattr(linear, name).weight, getattr(everywhere, name).weight)
    # What all members share is what they have without noise.
    shared = begun(key, "all", member_noise=0.0)
    for of in (lambda p: p.gates_from_entry.weight, lambda p: p.gates_from_state, lambda p: p.candidate_bias):
        np.testing.assert_allclose(of(linear), of(shared), rtol=1e-5, atol=1e-7)
        assert not np.allclose(of(everywhere)[0], of(everywhere)[1])


def test_independent_members_share_nothing(key):
    """Every weight in ±1/√inputs, as a layer of its own has, and no correlation between members."""
    priors = begun(key, "independent", member_noise=7.0)
    for weight in (priors.entry.weight, priors.gates_from_entry.weight, priors.gates_from_state, priors.hidden.weight):
        assert np.abs(weight).max() <= 1 / np.sqrt(weight.shape[1])
        correlations = np.corrcoef(np.reshape(weight, (3, -1)))[np.triu_indices(3, 1)]
        assert np.abs(correlations).max() < 0.5
    shared = begun(key, "all", member_noise=0.3).gates_from_state
    assert np.corrcoef(np.reshape(shared, (3, -1)))[0, 1] > 0.8


def test_squared_error_by_hand():
    # ½ (1² + 2²) = 2.5 for the first row, 0 for the second.
    np.testing.assert_allclose(squared_error(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.zeros((2, 2))), [2.5, 0.0])


@pytest.fixture(params=["plain", "products", "convolutions"])
def layers(request, monkeypatch):
    """The plain layers, and both forms of the fast ones, whichever this device prefers."""
    monkeypatch.setattr(device, "is_for_cpu", lambda: request.param == "products")
    if request.param == "plain":
        return Upsampling.__call__, ImageEncoder.__call__
    return convolutions.upsample, convolutions.encode


@pytest.mark.parametrize(("size", "side"), [(5, 5), (6, 4)])
def test_upsample_is_a_transposed_convolution(size, side, key, layers):
    x_key, kernel_key = jax.random.split(key)
    x = jax.random.normal(x_key, (2, side, side, 3))
    kernel = jax.random.normal(kernel_key, (size, size, 3, 2))
    expected = np.zeros((2, 2 * side - 2 + size, 2 * side - 2 + size, 2))
    for i in range(side):
        for j in range(side):
            patch = np.einsum("nc,abco->nabo", x[:, i, j], kernel)
            expected[:, 2 * i : 2 * i + size, 2 * j : 2 * j + size] += patch
    found = layers[0](Upsampling(kernel, jnp.array([1.0, 2.0])), x)
    np.testing.assert_allclose(found, expected + np.array([1.0, 2.0]), rtol=1e-4, atol=1e-6)


def test_upsamplings_gradient_is_that_of_a_transposed_convolution(key, layers):
    """JAX's own, in which a kernel is turned round; 3 channels in and 4 · 3 out are not eights."""
    x_key, kernel_key, error_key = jax.random.split(key, 3)
    x = jax.random.normal(x_key, (2, 5, 5, 3))
    kernel = jax.random.normal(kernel_key, (6, 6, 3, 3))
    errors = jax.random.normal(error_key, (2, 14, 14, 3))

    def theirs(x, kernel):
        kernel = kernel[::-1, ::-1]
        return jax.lax.conv_transpose(x, kernel, (2, 2), "VALID", dimension_numbers=LAYOUT)

    _, back = jax.vjp(lambda x, kernel: layers[0](Upsampling(kernel, jnp.zeros(3)), x), x, kernel)
    _, expected = jax.vjp(theirs, x, kernel)
    for mine, other in zip(back(errors), expected(errors), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_encoder_is_equinoxs_convolutions(key, layers):
    """32 pixels: 32 -> 15 -> 6 -> 2, an odd side among them; the second layer has more than a few channels."""
    encoder = eqx.filter_jit(ImageEncoder.create)(32, 3, 12, key)
    images = jax.random.randint(key, (2, 32, 32, 3), 0, 256).astype(jnp.uint8)
    x = jnp.moveaxis(images.astype(jnp.float32) / 255.0 - 0.5, 3, 1)
    for number, ours in enumerate(encoder.layers):
        layer = eqx.nn.Conv2d(ours.kernel.shape[2], ours.kernel.shape[3], 4, stride=2, key=key)
        theirs = (jnp.transpose(ours.kernel, (3, 2, 0, 1)), ours.bias[:, None, None])
        layer = eqx.tree_at(lambda conv: (conv.weight, conv.bias), layer, theirs)
        x = jax.vmap(layer)(jax.nn.elu(x) if number else x)
    expected = jnp.moveaxis(x, 1, 3).reshape(2, -1)
    assert encoder.embedding_size == expected.shape[1]
    np.testing.assert_allclose(layers[1](encoder, images), expected, rtol=1e-4, atol=1e-5)


def test_kernels_lead_to_the_image():
    assert kernel_sizes(64) == (5, 5, 6, 6)
    for size in (16, 32, 64, 128, 256):
        side = 1
        for kernel in kernel_sizes(size):
            side = 2 * side - 2 + kernel
        assert side == size
    with pytest.raises(ValueError, match="20"):
        kernel_sizes(20)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((16, 32, 3), "images must be square, got 16 x 32 pixels"),
        ((17, 17, 3), "to 17; 16, 32, 64, 128 and 256 do"),
        ((1, 1, 3), "to 1; 16, 32, 64"),
        ((0,), r"vectors of at least one number, got the shape \(0,\)"),
        ((4, 4), r"got the shape \(4, 4\)"),
    ],
)
def test_what_there_is_no_model_of_is_refused(shape, message, key):
    with pytest.raises(ValueError, match=message):
        require_learnable(shape)
    with pytest.raises(ValueError, match=message):
        WorldModel.create(shape, 2, 1, WorldModelSettings(), key)


def test_a_member_is_equinoxs_gru(key):
    cell = make_cell(key)
    priors = cell.priors
    state = State(jax.random.normal(key, (5, 8)), jax.random.normal(key, (5, 4)))
    action = jax.random.normal(key, (5, 2))
    deterministic, _ = cell.predict(state, action)
    for member in range(3):
        gru = eqx.nn.GRUCell(6, 8, key=key)
        theirs = (
            priors.gates_from_entry.weight[member].T,
            priors.gates_from_state[member].T,
            priors.gates_from_entry.bias[member],
            priors.candidate_bias[member],
        )
        gru = eqx.tree_at(lambda g: (g.weight_ih, g.weight_hh, g.bias, g.bias_n), gru, theirs)
        inputs = jnp.concatenate([state.stochastic, action], axis=-1) @ priors.entry.weight[member]
        expected = jax.vmap(gru)(jax.nn.elu(inputs + priors.entry.bias[member][None]), state.deterministic)
        np.testing.assert_allclose(deterministic[member], expected, rtol=1e-4, atol=1e-5)


def test_a_normalised_cell_by_numpy(key):
    """Ba et al. (2016): both products of the GRU normalised before they meet, and both hidden layers."""
    cell = make_model(key, settings=dataclasses.replace(SMALL, is_cell_normalised=True)).cell
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(each)) for each in (cell, make_model(key).cell)]
    assert sizes[0] - sizes[1] == 3 * (24 + 24 + 6) + 6
    # Scales that are not one, and a state and embeddings whose mean and variance are not 0 and 1.
    wave = lambda leaf: jnp.sin(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape)  # noqa: E731
    cell = jax.tree.map(lambda leaf: leaf + 0.3 * wave(leaf), cell)
    state = State(*(3.0 + jax.random.normal(key, (5, size), jnp.float32) for size in (8, 4)))
    action = jax.random.normal(key, (5, 2), jnp.float32)
    embedding = 2.0 + jax.random.normal(key, (5, 8), jnp.float32)
    everyone, beliefs = jax.jit(lambda cell: cell.predict(state, action))(cell)
    posterior = jax.jit(lambda cell: cell.posterior(everyone[1], embedding))(cell)
    h, s, a, e = (np.asarray(each, float) for each in (*state, action, embedding))

    def norm(y, scale):
        return (y - y.mean(axis=-1, keepdims=True)) / np.sqrt(y.var(axis=-1, keepdims=True) + 1e-3) * scale

    def elu(x):
        return np.where(x > 0, x, np.expm1(x))

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def belief(layers, x, scale):
        hidden = elu(norm(x @ layers.hidden.weight, scale) + layers.hidden.bias)
        mean, raw = np.split(hidden @ layers.out.weight + layers.out.bias, 2, axis=-1)
        return mean, np.logaddexp(0, raw) + 0.1

    for member in range(3):
        own = jax.tree.map(lambda leaf, member=member: np.asarray(leaf[member], float), cell.priors)
        entered = elu(np.concatenate([s, a], axis=1) @ own.entry.weight + own.entry.bias)
        x = norm(entered @ own.gates_from_entry.weight, own.scales.from_entry) + own.gates_from_entry.bias
        u = norm(h @ own.gates_from_state, own.scales.from_state)
        reset, update = sigmoid(x[:, :8] + u[:, :8]), sigmoid(x[:, 8:16] + u[:, 8:16])
        candidate = np.tanh(x[:, 16:] + reset * (u[:, 16:] + own.candidate_bias))
        following = candidate + update * (h - candidate)
        np.testing.assert_allclose(everyone[member], following, rtol=1e-4, atol=1e-5)
        for found, expected in zip(beliefs, belief(own, following, own.scales.hidden), strict=True):
            np.testing.assert_allclose(found[member], expected, rtol=1e-4, atol=1e-4)
    layers = jax.tree.map(lambda leaf: np.asarray(leaf, float), cell.posterior)
    expected = belief(layers, np.concatenate([np.asarray(everyone[1], float), e], axis=1), layers.scale)
    for found, value in zip(posterior, expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4)


def test_members_follow_rows_of_their_own(key):
    """Row r of member i becomes f^i's draw alone: as one member's priors say, with the noise of its place."""
    model = make_model(key)
    state_key, action_key, key = jax.random.split(key, 3)
    latent = State(*(jax.random.normal(state_key, (3, 5, size), jnp.float32) for size in (8, 4)))
    action = jax.random.normal(action_key, (3, 5, 2), jnp.float32)
    found = jax.jit(lambda latent: model.follow(latent, action, key))(latent)
    noise = jax.random.normal(key, (3, 5, 4), jnp.float32)
    for member in range(model.num_members):
        own = jax.tree.map(lambda leaf, member=member: leaf[member], latent)
        draws = ImaginationDraws(noise[member], jnp.zeros(5, jnp.int32))
        expected = jax.tree.map(
            lambda leaf, member=member: leaf[member], model.imagine_each(own, action[member], draws)
        )
        np.testing.assert_allclose(found.deterministic[member], expected.deterministic, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.stochastic[member], expected.stochastic, rtol=1e-5, atol=1e-6)


def test_filtering_at_once_equals_filtering_step_by_step(key):
    """One member, so that the draw of members does not matter; the noise of both is the same by construction."""
    settings = dataclasses.replace(SMALL, num_members=1)
    model = make_model(key, settings=settings)
    rows = rows_of(key, first=[(1, 3)])
    filtered = jax.jit(lambda: model.filter(rows, key))()
    noise = jax.random.normal(jax.random.split(key)[1], (5, 2, 4), jnp.float32)
    state = model.cell.begin(2)
    for t in range(5):
        goes_on = 1.0 - rows.is_first[:, t, None]
        before = jax.tree.map(lambda leaf, factor=goes_on: leaf * factor, state)
        deterministic, _ = model.cell.predict(before, rows.action[:, t] * goes_on)
        posterior = model.cell.posterior(deterministic[0], model.encode(rows.observation[:, t]))
        state = State(deterministic[0], posterior.sample(noise[t]))
        np.testing.assert_allclose(filtered.state.deterministic[:, t], state.deterministic, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(filtered.state.stochastic[:, t], state.stochastic, rtol=1e-4, atol=1e-5)
        prior = model.cell.priors.belief(deterministic)
        np.testing.assert_allclose(filtered.prior.mean[:, t], prior.mean[0], rtol=1e-4, atol=1e-5)


def test_nothing_before_an_episodes_beginning_counts(key):
    model = make_model(key)
    rows = rows_of(key, first=[(0, 3), (1, 3)])
    other = rows._replace(
        observation=rows.observation.at[:, :3].add(1.0),
        action=rows.action.at[:, :3].set(0.0).at[:, 3].set(7.0),
    )
    observe = jax.jit(lambda rows: model.observe(rows, key))
    one, two = observe(rows), observe(other)
    np.testing.assert_array_equal(one.stochastic[:, 3:], two.stochastic[:, 3:])
    assert not np.allclose(one.stochastic[:, :3], two.stochastic[:, :3])


def test_first_rows_have_no_outcome_to_predict(key):
    model = make_model(key)
    rows = rows_of(key, first=[(0, 2)])
    changed = rows._replace(reward=rows.reward.at[0, 2].set(99.0), costs=rows.costs.at[0, 2].set(99.0))
    loss = jax.jit(lambda rows: model.loss(rows, key)[0])
    assert loss(rows) == loss(changed)
    assert loss(rows) != loss(rows._replace(reward=rows.reward.at[0, 3].set(99.0)))


def test_costs_are_predicted_positive_and_prediction_has_the_images_shape(key):
    model = make_model(key, (16, 16, 3), 2)
    rows = rows_of(key, shape=(16, 16, 3))._replace(costs=jnp.ones((2, 5, 2)))
    outcome = model.outcome(10.0 * jax.random.normal(key, (7, 12)))
    assert outcome.costs.shape == (7, 2)
    assert np.all(outcome.costs > 0)
    predict = jax.jit(lambda rows: predict_video(model, rows, 2, key))
    shown = predict(rows)
    assert shown.shape == (2, 5, 16, 16, 3)
    np.testing.assert_array_equal(shown, predict(rows._replace(observation=rows.observation.at[:, 2:].set(0))))


@pytest.mark.parametrize("options", [{}, {"is_cell_normalised": True, "is_bootstrapped": True, "open_loop_steps": 2}])
def test_bfloat16_stays_near_float32(options, key):
    model = make_model(key, settings=dataclasses.replace(SMALL, **options))
    rows = rows_of(key)
    loss = jax.jit(lambda model: model.loss(rows, key)[0])
    full, half = loss(model), loss(cast(model, jnp.bfloat16))
    assert half.dtype == jnp.float32
    assert float(half) == pytest.approx(float(full), rel=0.05)


def test_uncertainty_is_higher_off_the_data_than_on_it(key):
    """Members that begin apart come to agree where they were taught: actions in [-1, 0], not those in [0.5, 1]."""
    cell = make_cell(key)
    state = State(jnp.zeros((64, 8)), jax.random.normal(key, (64, 4)))
    taught = jax.random.uniform(jax.random.fold_in(key, 1), (64, 2), jnp.float32, -1.0, 0.0)
    truth = jnp.sin(state.stochastic + taught[:, :1])

    def loss(cell):
        _, priors = cell.predict(state, taught)
        return jnp.mean((priors.mean - truth[None]) ** 2)

    optimiser = optax.adam(1e-2)

    def train(carry, _):
        cell, memory = carry
        change, memory = optimiser.update(jax.grad(loss)(cell), memory)
        return (optax.apply_updates(cell, change), memory), None

    (cell, _), _ = jax.jit(lambda cell: jax.lax.scan(train, (cell, optimiser.init(cell)), length=300))(cell)

    def uncertainty(action):
        priors = cell.predict(state, action)[1]
        return float(jnp.mean(EpistemicNorm()(Disagreement.among(priors.mean, priors.std, axis=0))))

    assert loss(cell) < 0.02
    assert uncertainty(taught + 3.0) > 2.0 * uncertainty(taught)


def test_every_environment_follows_a_member_of_its_own(key):
    """Sixty rows that are alike: each goes on as one of three members says, and all three are followed."""
    model = make_model(key)
    keys = jax.random.split(key, 2)
    one = State(*(jax.random.normal(k, (1, size), jnp.float32) for k, size in zip(keys, (8, 4), strict=True)))
    state, action = jax.tree.map(lambda leaf: jnp.repeat(leaf, 60, axis=0), (one, jnp.full((1, 2), 0.5)))
    following = model.step(state, action, jnp.ones((60, 8), jnp.float32), jnp.zeros(60, bool), key).deterministic
    everyone, _ = model.cell.predict(one, action[:1])
    distances = np.abs(np.asarray(following)[None] - np.asarray(everyone)).max(axis=-1)
    assert np.all(np.sort(distances, axis=0)[0] < 1e-6)
    assert np.all(np.sort(distances, axis=0)[1] > 1e-3), "members say different things"
    # Twenty of sixty are expected of each; the std of such a count is 3.7.
    assert np.all(np.bincount(np.argmin(distances, axis=0), minlength=3) > 8)
