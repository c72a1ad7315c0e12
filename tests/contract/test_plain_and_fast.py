"""Every fast function against its plain twin: the same inputs, the same values and the same gradients.

Kernels are interpreted here, and run as they are by `make test-gpu`, in the precision that they are for.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic import dream as plain_dream
from actsafe.actor_critic import losses
from actsafe.actor_critic import update as plain_update
from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.bounds import ObjectiveMemory
from actsafe.actor_critic.dream import DreamNoise
from actsafe.actor_critic.losses import ImaginedObjective
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.actor_critic.update import Batch, Learner, Policies
from actsafe.constrained.lbsgd import LBSGD
from actsafe.data.rows import Rows
from actsafe.fast import cell as fast_cell
from actsafe.fast import convolutions, critics, device, networks, objective, side_by_side
from actsafe.fast import dream as fast_dream
from actsafe.fast import filter as fast_filter
from actsafe.fast import world_model as fast_world_model
from actsafe.fast.dream_forward import Draws, Sizes
from actsafe.fast.dream_kernel import DreamWorkspace, dream_states
from actsafe.fast.filter_forward import FilterSizes
from actsafe.fast.filter_kernel import FilterWorkspace
from actsafe.fast.hoisting import hoisted_scan
from actsafe.models.networks import MLP, Dense, cast
from actsafe.models.packing import flat
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.decoder import ImageDecoder, Upsampling, VectorDecoder
from actsafe.models.rssm.encoder import Convolution, ImageEncoder, VectorEncoder
from actsafe.models.rssm.filter import filter_sequences
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings
from actsafe.objectives.uncertainty import EpistemicNorm
from actsafe.objectives.weights import ObjectiveWeights, Recorded, stacked

pytestmark = pytest.mark.parity

IS_GPU = jax.default_backend() == "gpu"
KERNEL_DTYPE = jnp.bfloat16 if IS_GPU else jnp.float32
STEPS, ROWS = 4, 32
MODEL = WorldModelSettings(deterministic=6, stochastic=3, hidden=5, num_members=3, head_width=6, head_depth=1)
ACTOR_CRITIC = ActorCriticSettings(
    horizon=3, actor_width=6, actor_depth=1, critic_width=6, critic_depth=1, initial_std=1.0, saturation_penalty=0.25
)


class Pair(NamedTuple):
    """Two functions of the same inputs, all of which have gradients."""

    plain: Any
    fast: Any
    inputs: tuple[Any, ...]


def normal(key, *shapes):
    return tuple(
        jax.random.normal(k, s, jnp.float32) for k, s in zip(jax.random.split(key, len(shapes)), shapes, strict=True)
    )


def ensemble(create, key, num_members=3):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(create(k) for k in jax.random.split(key, num_members)))


def make_cell(key, *, deterministic=37, stochastic=5, hidden=29, embedding=6, is_normalised=False):
    """Sizes that are no powers of 2, nor equal, so that pieces have ends that count nothing."""
    sizes = {"deterministic": deterministic, "stochastic": stochastic, "hidden": hidden, "embedding": embedding}
    return Cell.create(**sizes, action=2, num_members=3, member_noise=1.0, is_normalised=is_normalised, key=key)


def make_state(key, *lead, sizes=(37, 5)):
    return State(*normal(key, *((*lead, size) for size in sizes)))


@functools.cache
def make_model(settings=MODEL):
    return eqx.filter_jit(lambda k: WorldModel.create((4,), 2, 1, settings, k))(jax.random.key(0))


OPTIONS = {
    "normalised": dataclasses.replace(MODEL, is_cell_normalised=True),
    "bootstrapped": dataclasses.replace(MODEL, is_bootstrapped=True),
    "open_loop": dataclasses.replace(MODEL, open_loop_steps=2, open_loop_weight=0.5),
}
"""Of the world model, each on its own."""
TOGETHER = dataclasses.replace(
    MODEL, is_cell_normalised=True, is_bootstrapped=True, open_loop_steps=2, member_noise_on="independent"
)


def make_rows(key, batch=2, steps=5):
    observation, action, reward, costs = normal(
        key, (batch, steps, 4), (batch, steps, 2), (batch, steps), (batch, steps, 1)
    )
    is_first = jnp.zeros((batch, steps), bool).at[:, 0].set(True).at[1, 2].set(True)
    return Rows(observation, jnp.tanh(action), reward, jnp.abs(costs), is_first)


# Layers.


def dense(key):
    layer = ensemble(lambda k: Dense.create(5, 4, k), key)
    return Pair(lambda layer, x: layer(x), networks.dense, (layer, *normal(key, (3, 6, 5))))


def dense_alone(key):
    return Pair(lambda layer, x: layer(x), networks.dense, (Dense.create(5, 4, key), *normal(key, (2, 6, 5))))


def shifted_in_between(key):
    """The members of an ensemble meet the axis before the last two."""
    plain = lambda x, bias: x + bias[None, :, None]  # noqa: E731
    return Pair(plain, networks.shifted, normal(key, (2, 5, 4, 3), (5, 3)))


def mlp(key):
    return Pair(lambda net, x: net(x), networks.mlp, (MLP.create(5, 3, 4, 2, key), *normal(key, (7, 5))))


def mlp_in_two_passes(key):
    """Of two objectives at once: values by `trace`, gradients by `gradients`."""
    network, (x, errors) = MLP.create(5, 3, 4, 2, key), normal(key, (7, 5), (7, 2, 3))

    def plain(network, x):
        outputs, pull_back = jax.vjp(lambda network: network(x), network)
        return outputs, jax.vmap(pull_back, in_axes=1)(errors)[0]

    def fast(network, x):
        outputs, seen = networks.trace(network, x)
        return outputs, networks.gradients(network, seen, errors)

    return Pair(plain, fast, (network, x))


def elu(key):
    return Pair(jax.nn.elu, networks.elu, (jnp.linspace(-3.0, 3.0, 13),))


def product(key):
    return Pair(jnp.matmul, networks.product, normal(key, (2, 6, 5), (5, 4)))


def summed(num_rows):
    """Pieces of at least 3 rows: 4 of 12, but 13 can only stay whole, and so do 2."""
    return lambda key: Pair(lambda x, y: x.T @ y, networks.summed, normal(key, (num_rows, 5), (num_rows, 2)))


def column_sums(*shape):
    """Few columns by several rows at a time, where their number allows it, and many as they are."""
    return lambda key: Pair(lambda x: jnp.sum(x, axis=0), networks.column_sums, normal(key, shape))


def convolution(num_in):
    """An odd side; few channels and more."""
    make = lambda key: Convolution.create(num_in, 4, key)  # noqa: E731
    inputs = lambda key: (make(key), *normal(key, (2, 15, 15, num_in)))  # noqa: E731
    return lambda key: Pair(lambda layer, x: layer(x), convolutions.convolve, inputs(key))


def upsampling(size, side):
    """3 channels in and 4 · 3 out are not eights."""
    inputs = lambda key: (Upsampling.create(size, 3, 3, key), *normal(key, (2, side, side, 3)))  # noqa: E731
    return lambda key: Pair(lambda layer, x: layer(x), convolutions.upsample, inputs(key))


def image_encoder(key):
    images = jax.random.randint(key, (2, 32, 32, 3), 0, 256).astype(jnp.uint8)
    encoder = ImageEncoder.create(32, 3, 4, key)
    return Pair(lambda e: e(images), lambda e: convolutions.encode(e, images), (encoder,))


def vector_encoder(key):
    return Pair(lambda e, x: e(x), convolutions.encode, (VectorEncoder.create(4, 5, 2, key), *normal(key, (6, 4))))


def image_decoder(key):
    images = jax.random.randint(key, (3, 16, 16, 3), 0, 256).astype(jnp.uint8)
    decoder = ImageDecoder.create(5, 16, 3, 2, 8, key)
    fast = lambda d, x: convolutions.decoder_error(d, x, images)  # noqa: E731
    return Pair(lambda d, x: d.error(x, images), fast, (decoder, *normal(key, (3, 5))))


def vector_decoder(key):
    features, vectors = normal(key, (3, 5), (3, 4))
    fast = lambda d, x: convolutions.decoder_error(d, x, vectors)  # noqa: E731
    return Pair(lambda d, x: d.error(x, vectors), fast, (VectorDecoder(MLP.create(5, 4, 6, 1, key)), features))


# The cell and the filter.


def predict(fast, *, is_normalised=False):
    def make(key):
        cell = make_cell(key, is_normalised=is_normalised)
        return Pair(Cell.predict, fast, (cell, make_state(key, 6), *normal(key, (6, 2))))

    return make


def predict_each(key):
    inputs = (make_cell(key).priors, make_state(key, 3, 6), *normal(key, (3, 6, 2)))
    return Pair(lambda priors, *rest: priors(*rest), fast_cell.predict_each, inputs)


def correct(key):
    inputs = (make_cell(key).posterior, *normal(key, (6, 37), (6, 6)))
    return Pair(lambda posterior, *rest: posterior(*rest), fast_cell.correct, inputs)


def filtering(steps_of):
    """Of two blocks of rows, with episodes that begin inside."""

    def make(key, dtype=jnp.float32):
        embeddings, actions = normal(key, (ROWS, STEPS, 6), (ROWS, STEPS, 2))
        is_first = jax.random.bernoulli(key, 0.3, (ROWS, STEPS))

        def plain(cell, embeddings):
            return filter_sequences(*cast((cell, embeddings), dtype), actions, is_first, key)

        def fast(cell, embeddings):
            cell, embeddings = cast((cell, embeddings), dtype)
            steps, draws = fast_filter.prepare(cell, embeddings, actions, is_first, key)
            return fast_filter.distributions(cell, steps_of(cell, steps, draws), draws)

        return Pair(plain, fast, (make_cell(key), embeddings))

    return make


def filter_kernel(key):
    memory = FilterWorkspace.of(FilterSizes(STEPS, ROWS, 37, 5, 29), KERNEL_DTYPE)
    run = functools.partial(fast_filter.filter_by_kernel, memory=memory, interpret=not IS_GPU)
    return filtering(run)(key, KERNEL_DTYPE)


def hoisting(key):
    weights = dict(zip("ab", normal(key, (4, 3), (2, 3, 4)), strict=True))
    carry, inputs = normal(key, (5, 4), (STEPS, 5, 3))
    members = jnp.asarray([0, 1, 1, 0])

    def step(layers, carry, inputs, others):
        carry = jnp.tanh(layers("b", jnp.tanh(layers("a", carry) + inputs)))
        return carry, carry * others

    def plain(weights, carry, inputs):
        def body(carry, now):
            inputs, member = now
            of_step = {"a": weights["a"], "b": weights["b"][member]}
            return step(lambda name, x: x @ of_step[name], carry, inputs, 2.0)

        return jax.lax.scan(body, carry, (inputs, members))

    def fast(weights, carry, inputs):
        return hoisted_scan(step, weights, carry, inputs, jnp.full(STEPS, 2.0, jnp.float32), members)

    return Pair(plain, fast, (weights, carry, inputs))


# Dreams and what follows from them.


def dreams(key):
    """Values; gradients for what is added to actions are those of `dream_kernel`, and of `policy_gradients`."""
    cell, actor, start, noise = dream_inputs(key)
    model = eqx.tree_at(lambda model: model.cell, make_model(), cell)
    offsets = jnp.zeros((STEPS, ROWS, 2), jnp.float32)

    def states(dreamt):
        return jax.lax.stop_gradient(tuple(dreamt))

    return Pair(
        lambda start: states(plain_dream.dream(model, actor, start, noise)),
        lambda start: states(fast_dream.dream(cell, actor, start, noise, offsets)),
        (start,),
    )


def dream_inputs(key, dtype=jnp.float32):
    cell, start = make_cell(key), make_state(key, ROWS)
    actor = Actor.create(42, 2, width=19, depth=2, initial_std=1.0, key=key)
    model = eqx.tree_at(lambda model: model.cell, make_model(), cell)
    noise = DreamNoise.draw(model, ROWS, 2, STEPS, key)
    return *cast((cell, actor, start), dtype), noise


def dream_kernel(num_cotangents):
    """Of two actors at once, as agents that explore have them; 3 cotangents are no power of 2, and go one by one."""

    def make(key):
        cell, actor, start, noise = dream_inputs(key, KERNEL_DTYPE)
        actors = jax.tree.map(lambda leaf: jnp.stack([leaf, 2.0 * leaf]), actor)
        noises = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), noise)
        memory = DreamWorkspace.of(Sizes(STEPS, ROWS, 2, 37, 5, 29), 19, 2, KERNEL_DTYPE)

        def loop(actor, noise, offsets):
            return tuple(fast_dream.dream(cell, actor, start, noise, offsets, ()))

        def kernel(actor, noise, offsets):
            draws = Draws(noise.action, *noise.model)
            return dream_states(offsets, memory, cell.priors, actor, start, draws, not IS_GPU)

        def both(run):
            def one(actor, noise):
                zeros = jnp.zeros((STEPS, ROWS, 2), jnp.float32)
                result, pull_back = jax.vjp(functools.partial(run, actor, noise), zeros)
                several = jax.tree.map(
                    lambda leaf: jnp.stack([jnp.sin(n + 3 * leaf) for n in range(num_cotangents)], axis=2), result
                )
                return result, jax.vmap(pull_back, in_axes=2, out_axes=2)(several)[0]

            return lambda: jax.lax.stop_gradient(eqx.filter_vmap(one)(actors, noises))

        return Pair(both(loop), both(kernel), ())

    return make


def returns(key):
    kwargs = {"discount": 0.99, "trace": 0.95}
    fast = functools.partial(objective.lambda_returns, **kwargs)
    return Pair(functools.partial(losses.lambda_returns, **kwargs), fast, normal(key, (15, 4), (16, 4)))


def critic_values(key):
    """Both backward passes, of one critic at a time: neither its states nor its weights depend on the others."""
    batch, (features, cotangents) = (
        ensemble(lambda k: MLP.create(4, 1, 5, 2, k), key),
        normal(key, (6, 7, 4), (3, 6, 7)),
    )

    def plain(batch):
        def weighed(batch, features):
            return jnp.sum(losses.critic_values(batch, features) * cotangents, axis=(1, 2))

        d_features = jax.jacrev(weighed, argnums=1)(batch, features)
        d_weights = jax.grad(lambda batch: jnp.sum(weighed(batch, features)))(batch)
        vectors = jnp.concatenate([leaf.reshape(3, -1) for leaf in jax.tree.leaves(d_weights)], axis=1)
        return jax.lax.stop_gradient((losses.critic_values(batch, features), d_features, vectors))

    def fast(batch):
        valued = critics.evaluate(batch, features, jnp.float32)
        to_features = valued.to_features(cotangents)
        return jax.lax.stop_gradient((valued.values, to_features, valued.to_weights(cotangents, to_features)))

    return Pair(plain, fast, (batch,))


def learner_of(settings=ACTOR_CRITIC, **choices):
    return Learner(ImaginedObjective(settings, EpistemicNorm(), **choices), LBSGD(), (5.0,))


SINGLE = functools.partial(jnp.asarray, dtype=jnp.float32)
WEIGHTS = ObjectiveWeights(*map(SINGLE, (1.0, 0.5, 2.0)), Recorded(SINGLE(-0.01), SINGLE(0.01), SINGLE([0.5])))
EXPLORING = ObjectiveWeights(*map(SINGLE, (0.0, 10.0, 2.0)), WEIGHTS.recorded)


def saturated(learned, mean=7.0):
    """An actor-critic whose actions all have nearly this mean before squashing."""
    last = learned.actor.tree.layers.layers[-1]
    actor = eqx.tree_at(lambda a: a.layers.layers[-1].bias, learned.actor.tree, last.bias.at[0].set(mean))
    return dataclasses.replace(learned, actor=type(learned.actor).of(actor))


def outspoken(critics, factor):
    """Critics whose values reach beyond what is possible, to both sides."""
    tree = critics.tree
    louder = eqx.tree_at(lambda net: net.layers[-1].weight, tree, factor * tree.layers[-1].weight)
    return type(critics)(jax.vmap(flat)(louder), critics.layout)


def policy_gradients(settings=ACTOR_CRITIC, weights=WEIGHTS, memory=(0.0, 0.0), **choices):
    def make(key):
        model, learner = make_model(), learner_of(settings, **choices)
        learned, start = saturated(learner.init(9, 2, key)), make_state(key, 34, sizes=(6, 3))
        critics = outspoken(learned.critics, 3e3)
        slow = None if learned.slow_critics is None else outspoken(learned.slow_critics, 2e3)
        seen = ObjectiveMemory(*map(SINGLE, memory))
        learned = dataclasses.replace(learned, critics=critics, slow_critics=slow, objective_memory=seen)
        noise = learner.draw(learned, model, start, key)

        def plain(start):
            return jax.lax.stop_gradient(tuple(learner.gradients(learned, model, start, noise, weights)))

        def fast(start):
            actor = learned.actor.tree
            dreamt, to_offsets = side_by_side._dream(model, actor, start, noise, None, 1)
            taught = objective.gradients(learner.objective, learned, model, dreamt, noise, weights)
            recalled = side_by_side._recall(learner, learned, dreamt)
            found = side_by_side._gradients(learner, learned, recalled, noise, taught, to_offsets)
            return jax.lax.stop_gradient(tuple(found))

        return Pair(plain, fast, (start,))

    return make


# The world model, and an update of everything.


def world_model_loss(settings=MODEL):
    def make(key):
        rows = make_rows(key)
        return Pair(
            lambda model: model.loss(rows, key),
            lambda model: fast_world_model.loss(model, rows, key),
            (make_model(settings),),
        )

    return make


def world_model_step(settings=MODEL):
    def make(key):
        model, (action, embedding) = make_model(settings), normal(key, (5, 2), (5, 6))
        is_first = jnp.asarray([True, False, False, True, False])

        def of(step):
            return lambda model, state, embedding: step(model, state, action, embedding, is_first, key)

        state = make_state(key, 5, sizes=(6, 3))
        return Pair(of(WorldModel.step), of(fast_world_model.step), (model, state, embedding))

    return make


def everything(model_settings=MODEL, *, settings=ACTOR_CRITIC, **choices):
    def make(key):
        model, learner, rows = make_model(model_settings), learner_of(settings, **choices), make_rows(key)
        keys = jax.random.split(key, 2)
        learned = eqx.filter_vmap(lambda k: learner.init(9, 2, k))(keys)
        starts = make_state(key, 10, sizes=(6, 3))
        weights = stacked([WEIGHTS, EXPLORING])

        def of(learn_both):
            def run(model):
                taught, *rest = learn_both(
                    model, Batch(rows, key, jnp.float32), Policies(learner, learned, weights, starts, keys)
                )
                return jax.lax.stop_gradient((tuple(taught), *rest))

            return run

        return Pair(of(plain_update.learn_both), of(side_by_side.learn_both), (model,))

    return make


PAIRS = {
    "dense": dense,
    "dense_alone": dense_alone,
    "shifted": shifted_in_between,
    "mlp": mlp,
    "mlp_in_two_passes": mlp_in_two_passes,
    "elu": elu,
    "product": product,
    **{f"summed_{n}": summed(n) for n in (12, 13, 2)},
    **{
        f"column_sums_{rows}_{columns}": column_sums(rows, columns)
        for rows, columns in ((6, 3), (64, 12), (7, 5), (4, 600))
    },
    "vector_encoder": vector_encoder,
    "vector_decoder": vector_decoder,
    "predict": predict(fast_cell.predict),
    "predict_many": predict(fast_cell.predict_many),
    "predict_each": predict_each,
    "correct": correct,
    "filter_loop": filtering(fast_filter.filter_by_loop),
    "filter_kernel": filter_kernel,
    "hoisting": hoisting,
    "dreams": dreams,
    **{f"dream_kernel_{n}": dream_kernel(n) for n in (1, 2, 3)},
    "lambda_returns": returns,
    "critic_values": critic_values,
    "policy_gradients": policy_gradients(),
    "policy_gradients_averaged": policy_gradients(is_outcome_averaged=True),
    "policy_gradients_differentiated": policy_gradients(is_uncertainty_differentiated=True),
    "policy_gradients_counted": policy_gradients(is_counted=(True, False)),
    "policy_gradients_counted_in_costs": policy_gradients(is_counted=(True, False), is_loss_counted=False),
    "policy_gradients_unbounded": policy_gradients(dataclasses.replace(ACTOR_CRITIC, is_value_bounded=False)),
    "policy_gradients_slow_critics": policy_gradients(dataclasses.replace(ACTOR_CRITIC, critic_average=0.9)),
    "policy_gradients_exploring": policy_gradients(weights=EXPLORING, memory=(3.0, 0.0)),
    "policy_gradients_normalised": policy_gradients(weights=EXPLORING, memory=(0.0, 0.4), smallest_range=0.01),
    "world_model_loss": world_model_loss(),
    "world_model_step": world_model_step(),
    "learn_both": everything(),
    "predict_normalised": predict(fast_cell.predict, is_normalised=True),
    "predict_many_normalised": predict(fast_cell.predict_many, is_normalised=True),
    "world_model_step_normalised": world_model_step(OPTIONS["normalised"]),
    **{f"world_model_loss_{name}": world_model_loss(settings) for name, settings in OPTIONS.items()},
    "learn_both_with_all_options": everything(
        TOGETHER, settings=dataclasses.replace(ACTOR_CRITIC, critic_average=0.9, actor_average=0.8), smallest_range=0.01
    ),
}
BY_DEVICE = {
    "convolution_few": convolution(3),
    "convolution_many": convolution(12),
    "upsampling_5": upsampling(5, 5),
    "upsampling_6": upsampling(6, 4),
    "image_encoder": image_encoder,
    "image_decoder": image_decoder,
}
"""Those that have another form for each kind of device."""
IN_BFLOAT16 = {"filter_kernel", "dream_kernel_1", "dream_kernel_2", "dream_kernel_3"}
"""Of those that run on a GPU."""


def assert_same(pair, *, is_rough=False):
    def both(function):
        def run(*inputs):
            result, pull_back = jax.vjp(function, *inputs)
            return result, pull_back(jax.tree.map(lambda leaf: jnp.sin(3 * leaf), result))

        with jax.default_matmul_precision("highest"):
            return jax.jit(run)(*pair.inputs)

    (expected, expected_gradients), (found, gradients) = both(pair.plain), both(pair.fast)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert np.mean([np.any(leaf) for leaf in jax.tree.leaves(expected)]) > 0.7
    leaves = (map(np.float32, jax.tree.leaves(each)) for each in ((found, gradients), (expected, expected_gradients)))
    for one, other in zip(*leaves, strict=True):
        scale = np.abs(other).max(initial=0.0)
        if is_rough:
            assert np.abs(one - other).max(initial=0.0) <= 0.05 * scale + 1e-3
        else:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6 + 1e-5 * scale)


@pytest.mark.parametrize("name", PAIRS)
def test_fast_is_plain(name, key, monkeypatch):
    monkeypatch.setattr(networks, "ROWS_OF_A_PIECE", 3)
    assert_same(PAIRS[name](key), is_rough=IS_GPU and name in IN_BFLOAT16)


@pytest.mark.parametrize("is_for_cpu", [False] if IS_GPU else [True, False])
@pytest.mark.parametrize("name", BY_DEVICE)
def test_fast_is_plain_by_device(name, is_for_cpu, key, monkeypatch):
    monkeypatch.setattr(device, "is_for_cpu", lambda: is_for_cpu)
    assert_same(BY_DEVICE[name](key))


def test_no_kernel_takes_what_it_does_not_know(key, monkeypatch):
    """On devices with kernels, a normalised cell and a bootstrapped filter go without."""
    for module in (fast_filter.teams, fast_dream.blocks):
        monkeypatch.setattr(module, "is_usable", lambda num_rows, dtype: True)
    known, normalised = make_cell(key), make_cell(key, is_normalised=True)
    _, actor, _, noise = dream_inputs(key)
    assert fast_filter.workspace(known, STEPS, ROWS)
    assert fast_filter.workspace(known, STEPS, ROWS, is_bootstrapped=True) == ()
    assert fast_filter.workspace(normalised, STEPS, ROWS) == ()
    assert fast_dream.workspace(known, actor, noise, 2)
    assert fast_dream.workspace(normalised, actor, noise, 2) == ()
