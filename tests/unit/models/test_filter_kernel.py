"""The kernel, interpreted, filters as the loop does; whether it compiles for a GPU only a GPU can say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from actsafe.models.networks import cast
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.filter_forward import FilterSizes
from actsafe.models.rssm.filter_kernel import FilterWorkspace

BATCH, STEPS = 32, 4


def make(key, *, deterministic, stochastic, hidden, batch=BATCH):
    keys = jax.random.split(key, 5)
    sizes = {"deterministic": deterministic, "stochastic": stochastic, "hidden": hidden}
    cell = Cell.create(**sizes, embedding=6, action=2, num_members=3, member_noise=1.0, key=keys[0])
    embeddings = jax.random.normal(keys[1], (batch, STEPS, 6), jnp.float32)
    actions = jax.random.normal(keys[2], (batch, STEPS, 2), jnp.float32)
    is_first = jax.random.bernoulli(keys[3], 0.3, (batch, STEPS))
    return cell, embeddings, actions, is_first, keys[4]


def test_states_and_gradients_are_those_of_the_loop(key):
    """Of two blocks of rows, with episodes that begin inside; sizes are no powers of 2, nor equal."""
    cell, *given, draw_key = make(key, deterministic=37, stochastic=5, hidden=29)
    weights, rest = eqx.partition(cell, eqx.is_array)

    def both(walk):
        def run(weights, embeddings):
            cell = eqx.combine(weights, rest)
            steps, draws = cell.prepare(embeddings, *given[1:], draw_key)
            return walk(cell, steps, draws)

        def all_of_it(weights):
            result, pull_back = jax.vjp(run, weights, given[0])
            return result, pull_back(jax.tree.map(lambda leaf: jnp.sin(3 * leaf), result))

        return jax.jit(all_of_it)(weights)

    looped = both(lambda cell, *args: cell.filter(*args))
    workspace = FilterWorkspace.of(FilterSizes(STEPS, BATCH, 37, 5, 29), jnp.float32)
    ours = both(lambda cell, *args: cell.filter_by_kernel(*args, workspace, interpret=True))
    num_used = 0
    for one, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(looped), strict=True):
        num_used += bool(np.abs(expected).max() > 1e-3)
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)
    # Three results, and gradients of all but the priors' last two layers, which the chain does not use.
    assert num_used == 3 + 10 + 1


def test_the_kernel_lowers_for_cuda(key):
    cell, *given, draw_key = make(key, deterministic=200, stochastic=60, hidden=200, batch=16)
    weights, rest = eqx.partition(cast(cell, jnp.bfloat16), eqx.is_array)

    def run(weights):
        def run_filter(weights):
            cell = eqx.combine(weights, rest)
            steps, draws = cell.prepare(given[0].astype(jnp.bfloat16), *given[1:], draw_key)
            return cell.filter_by_kernel(
                steps, draws, FilterWorkspace.of(FilterSizes(STEPS, 16, 200, 60, 200), jnp.bfloat16)
            )

        result, pull_back = jax.vjp(run_filter, weights)
        return pull_back(result)

    text = jax.jit(run).trace(weights).lower(lowering_platforms=("cuda",)).as_text()
    assert "filter_forward" in text
    assert "filter_back" in text
