import jax
import jax.numpy as jnp
import numpy as np

from actsafe.actor_critic.critics import evaluate
from actsafe.models.networks import MLP
from actsafe.models.packing import flat


def make_critics(key):
    one = [MLP.create(4, 1, 5, 2, k) for k in jax.random.split(key, 3)]
    return one, jax.tree.map(lambda *leaves: jnp.stack(leaves), *one)


def test_values_are_each_critics_own(key):
    one, critics = make_critics(key)
    features = jax.random.normal(key, (6, 7, 4), jnp.float32)
    values = evaluate(critics, features, jnp.float32).values
    for critic, value in zip(one, values, strict=True):
        np.testing.assert_allclose(value, critic(features)[..., 0], rtol=1e-5, atol=1e-6)


def test_both_ways_back_equal_plain_differentiation(key):
    """Of Σ values · cotangents, of one critic at a time: neither its states nor its weights hear of the others."""
    one, critics = make_critics(key)
    features = jax.random.normal(key, (6, 7, 4), jnp.float32)
    cotangents = jax.random.normal(jax.random.fold_in(key, 1), (3, 6, 7), jnp.float32)
    valued = evaluate(critics, features, jnp.float32)
    to_features = valued.to_features(cotangents)
    to_weights = valued.to_weights(cotangents, to_features)
    for number, critic in enumerate(one):

        def weighed(critic, features, number=number):
            return jnp.sum(critic(features)[..., 0] * cotangents[number])

        d_critic, d_features = jax.grad(weighed, argnums=(0, 1))(critic, features)
        np.testing.assert_allclose(to_features[number], d_features, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(to_weights[number], flat(d_critic), rtol=1e-4, atol=1e-5)
