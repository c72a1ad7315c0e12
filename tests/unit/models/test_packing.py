import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.models.networks import MLP
from actsafe.models.packing import Packed, flat


def test_what_was_packed_comes_back(key):
    model = MLP.create(3, 2, 5, 2, key)
    packed = Packed.of(model)
    # (3 + 1) · 5 + (5 + 1) · 5 + (5 + 1) · 2 parameters.
    assert packed.vector.shape == (62,)
    assert jax.tree.structure(packed.tree) == jax.tree.structure(model)
    for one, other in zip(jax.tree.leaves(packed.tree), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(flat(packed.tree), packed.vector)


def test_several_models_of_one_layout_are_one_with_leading_axes(key):
    models = [MLP.create(3, 2, 5, 2, k) for k in jax.random.split(key, 4)]
    packed = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(Packed.of, models))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    for one, other in zip(jax.tree.leaves(packed.tree), jax.tree.leaves(stacked), strict=True):
        np.testing.assert_array_equal(one, other)


def test_whole_numbers_are_no_parameters():
    with pytest.raises(TypeError, match="floating point"):
        Packed.of({"weight": jnp.ones(3), "count": jnp.zeros(2, jnp.int32)})
