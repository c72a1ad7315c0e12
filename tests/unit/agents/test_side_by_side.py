"""Learning side by side comes to the same as each learner for itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.algorithms import ALGORITHMS
from actsafe.agents.phases import Schedule
from actsafe.agents.side_by_side import Batch, Policies, learn_both
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.data.rows import Rows
from actsafe.envs.spec import EnvSpec
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModelSettings, elbo_loss

SETTINGS = WorldModelAgentSettings(
    model=WorldModelSettings(deterministic=6, stochastic=3, hidden=5, num_members=2, head_width=6, head_depth=1),
    actor_critic=ActorCriticSettings(horizon=2, actor_width=6, actor_depth=1, critic_width=6, critic_depth=1),
    batch_size=2,
    sequence_length=4,
    precision="float32",
)


def test_gradient_and_policies_are_those_of_each_alone(key):
    agent = SETTINGS.make(EnvSpec("here", (3,), 2, ("cost",), (25.0,), 500, 2), ALGORITHMS["actsafe"], Schedule())
    keys = jax.random.split(key, 6)
    rows = Rows(
        jax.random.normal(keys[0], (2, 4, 3), jnp.float32),
        jax.random.uniform(keys[1], (2, 4, 2), jnp.float32, -1.0, 1.0),
        jnp.ones((2, 4), jnp.float32),
        jnp.ones((2, 4, 1), jnp.float32),
        jnp.asarray([[True, False, False, False], [False, False, True, False]]),
    )
    state = jax.jit(agent.init)(keys[2])
    model, learner, learned = state.model.tree, agent.search, state.actor_critics
    starts = State(*(jax.random.normal(keys[3], (8, size), jnp.float32) for size in (6, 3)))
    batch = Batch(rows, SETTINGS.model, keys[4], jnp.float32, 1)
    policies = Policies(learner, learned, agent.objective_weights, starts, jax.random.split(keys[5], 2))

    @jax.jit
    def alone():
        loss = jax.value_and_grad(lambda model: elbo_loss(model, rows, SETTINGS.model, keys[4])[0])(model)
        improve = eqx.filter_vmap(lambda learned, weights, key: learner.improve(learned, model, starts, weights, key))
        return loss, improve(learned, agent.objective_weights, policies.keys)

    (loss, gradient), (improved, info) = alone()
    taught, learned, reported = jax.jit(lambda: learn_both(model, batch, policies))()
    np.testing.assert_allclose(taught.loss, loss, rtol=1e-5)
    assert sum(bool(np.any(leaf)) for leaf in jax.tree.leaves(gradient)) == len(jax.tree.leaves(gradient))
    for ours, expected in zip(jax.tree.leaves(taught.gradient), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    for ours, expected in zip(jax.tree.leaves(learned), jax.tree.leaves(improved), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    assert reported.keys() == info.keys()
