"""The agent knows a model by its protocol alone: the RSSM, and one of another make whose latent is a dictionary."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.algorithms import ALGORITHMS, Role
from actsafe.agents.base import ActMode, Percept
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.data.rows import Rows
from actsafe.envs.spec import EnvSpec
from actsafe.models.base import Disagreement, LatentModel, Outcome
from actsafe.models.networks import Dense
from actsafe.models.rssm.world_model import WorldModelSettings


class Linear(eqx.Module):
    """s' = [s, a] W + b of what is observed, by two members; reward and costs are linear too."""

    members: Dense
    head: Dense

    @property
    def num_features(self):
        return self.head.weight.shape[0]

    @property
    def num_members(self):
        return self.members.weight.shape[0]

    def encode(self, observations):
        return observations

    def begin(self, num_rows):
        return {"seen": jnp.zeros((num_rows, self.num_features), jnp.float32)}

    def observe(self, rows, key):
        return {"seen": jnp.asarray(rows.observation)}

    def step(self, latent, action, embedding, is_first, key):
        return {"seen": embedding.astype(jnp.float32)}

    def draw(self, num_rows, horizon, keys):
        return jax.random.randint(keys[0], (horizon, num_rows), 0, 2)

    def imagine_each(self, latent, action, draws):
        inputs = jnp.concatenate([latent["seen"], action], axis=-1)
        return {"seen": self.members(inputs[None])}

    def imagine(self, latent, action, draws):
        return {"seen": self.imagine_each(latent, action, draws)["seen"][draws, jnp.arange(len(draws))]}

    def follow(self, latent, action, key):
        return {"seen": self.members(jnp.concatenate([latent["seen"], action], axis=-1))}

    def disagreement(self, latent, action):
        means = self.imagine_each(latent, action, None)["seen"]
        return Disagreement.among(means, jnp.ones_like(means), axis=0)

    def features(self, latent):
        return latent["seen"]

    def outcome(self, features):
        outputs = self.head(features)
        return Outcome(outputs[..., 0], outputs[..., 1:])

    def loss(self, rows, key):
        states, actions = self.observe(rows, key), jnp.asarray(rows.action)
        before = jax.tree.map(lambda leaf: leaf[:, :-1].reshape(-1, leaf.shape[-1]), states)
        following = self.imagine_each(before, actions[:, 1:].reshape(-1, actions.shape[-1]), None)["seen"]
        error = jnp.mean((following - states["seen"][:, 1:].reshape(1, -1, self.num_features)) ** 2)
        outcome = self.outcome(self.features(states))
        return error + jnp.mean((outcome.reward - rows.reward) ** 2), (states, {"error": error})


@dataclasses.dataclass(frozen=True)
class LinearSettings(WorldModelSettings):
    """Makes the other model."""

    def create(self, observation_shape, action_dim, num_constraints, key):
        size, keys = observation_shape[0], jax.random.split(key, 3)
        members = [Dense.create(size + action_dim, size, k) for k in keys[:2]]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
        return Linear(stacked, Dense.create(size, 1 + num_constraints, keys[2]))


SMALL = {"deterministic": 6, "stochastic": 3, "hidden": 5, "num_members": 2, "head_width": 6, "head_depth": 1}
MODELS = {"rssm": WorldModelSettings(**SMALL), "linear": LinearSettings()}
SPEC = EnvSpec("here", (3,), 2, ("cost",), (25.0,), 500, 2)


def make_agent(model, **changes):
    settings = WorldModelAgentSettings(
        model=MODELS[model],
        actor_critic=ActorCriticSettings(horizon=3, actor_width=6, actor_depth=1, critic_width=6, critic_depth=1),
        batch_size=2,
        sequence_length=4,
        model_rate=1e-2,
        precision="float32",
        **changes,
    )
    return settings.make(SPEC, ALGORITHMS["actsafe"], Schedule())


def make_rows(key):
    keys = jax.random.split(key, 3)
    observation, action = (jax.random.normal(k, (2, 4, n), jnp.float32) for k, n in zip(keys, (3, 2), strict=False))
    is_first = jnp.zeros((2, 4), bool).at[:, 0].set(True)
    return Rows(observation, action, observation[..., 0], jnp.abs(observation[..., :1]), is_first)


@pytest.mark.parametrize("name", MODELS)
def test_shapes(name, key):
    model, rows = MODELS[name].create((3,), 2, 1, key), make_rows(key)
    assert isinstance(model, LatentModel)
    latent, draws = model.begin(6), model.draw(6, 5, [*jax.random.split(key)])
    one, action = jax.tree.map(lambda leaf: leaf[0], draws), jnp.ones((6, 2), jnp.float32)
    like = jax.tree.map(jnp.shape, latent)
    assert jax.tree.map(jnp.shape, model.imagine(latent, action, one)) == like
    embedding = model.encode(jnp.ones((6, 3), jnp.float32))
    assert jax.tree.map(jnp.shape, model.step(latent, action, embedding, jnp.ones(6, bool), key)) == like
    assert {leaf.shape[:2] for leaf in jax.tree.leaves(model.imagine_each(latent, action, one))} == {(2, 6)}
    own, acting = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (latent, action))
    assert model.num_members == 2
    assert jax.tree.map(jnp.shape, model.follow(own, acting, key)) == jax.tree.map(jnp.shape, own)
    assert model.disagreement(latent, action).epistemic_var.shape[0] == 6
    assert model.features(latent).shape == (6, model.num_features)
    assert model.outcome(model.features(latent)).costs.shape == (6, 1)
    loss, (states, parts) = model.loss(rows, key)
    assert loss.shape == () and all(part.shape == () for part in parts.values())
    assert all(leaf.shape[:2] == (2, 4) for leaf in jax.tree.leaves(states))


@pytest.mark.parametrize("name", MODELS)
def test_an_agent_learns_with_it_and_acts(name, key):
    agent, rows = make_agent(name), make_rows(key)
    with agent.precision():
        state = jax.jit(agent.init)(key)
        keys = jax.random.split(key, 40)
        state, metrics = jax.jit(lambda state: agent.learn(state, lambda _: rows, keys, keys, Phase.EXPANSION))(state)
        assert metrics["model/loss"][-1] < 0.9 * metrics["model/loss"][0]
        assert int(state.num_skipped) == 0
        policy = agent.policy(state.policy_weights, ActMode(Role.TASK))
        percept = Percept(jnp.zeros(5, jnp.float32), jnp.zeros((5, 1), jnp.float32), jnp.ones(5, bool))
        decision, memory = policy.act(policy.begin(5, key), policy.encode(jnp.ones((5, 3), jnp.float32)), percept)
    assert decision.action.shape == (5, 2)
    assert np.all(np.abs(decision.action) <= 1.0)
    assert jax.tree.structure(memory.state) == jax.tree.structure(state.starts)


def test_a_model_without_fast_functions_says_so(key):
    agent = make_agent("linear", implementation="fast")
    with agent.precision(), pytest.raises(ValueError, match="a Linear has a plain one alone; use auto or plain"):
        agent.update(agent.init(key), make_rows(key), key)
