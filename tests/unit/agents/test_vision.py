"""The vision agent: schedule, who acts, what is learned when, and what happens to bad data."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.phases import Phase, StepSchedule
from actsafe.agents.recipes import VISION_RECIPES, Policy
from actsafe.agents.vision import EXPLORATION, TASK, EnvSpec, VisionAgent, VisionSettings
from actsafe.constrained.augmented_lagrangian import AugmentedLagrangian
from actsafe.constrained.unconstrained import Unconstrained
from actsafe.data.rows import Rows
from actsafe.models.packing import flat
from actsafe.models.rssm.world_model import WorldModelSettings, elbo_loss

SETTINGS = VisionSettings(
    model=WorldModelSettings(deterministic=6, stochastic=3, hidden=5, num_members=2, head_width=6, head_depth=1),
    actor_critic=ActorCriticSettings(horizon=2, actor_width=6, actor_depth=1, critic_width=6, critic_depth=1),
    batch_size=2,
    sequence_length=4,
    precision="float32",
)
HERE = EnvSpec((3,), 2, (25.0,), 500, 2)


def make_agent(recipe="actsafe", **changes):
    return VisionAgent(HERE, VISION_RECIPES[recipe], dataclasses.replace(SETTINGS, **changes))


def make_rows(key):
    lead = (2, 4)
    return Rows(
        jax.random.normal(key, (*lead, 3), jnp.float32),
        jnp.zeros((*lead, 2), jnp.float32),
        jnp.ones(lead, jnp.float32),
        jnp.ones((*lead, 1), jnp.float32),
        jnp.zeros(lead, bool),
    )


@pytest.fixture(scope="module")
def after_expansion():
    """An agent, its first state, and its state after three updates of the expansion phase."""
    agent, key = make_agent(), jax.random.key(0)
    state = jax.jit(agent.init)(key)

    @jax.jit
    def learn(state, keys):
        return agent.learn(state, lambda _: make_rows(key), keys, keys, Phase.EXPANSION)

    return agent, state, *learn(state, jax.random.split(key, 3)), learn


def changed(before, after):
    """For every leaf, along the axis of actor-critics, whether it changed."""
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return np.array([[not np.array_equal(a[i], b[i]) for i in range(a.shape[0])] for a, b in pairs])


def test_schedule():
    schedule = StepSchedule(warm_up=10, expansion=30, total=50)
    assert [schedule.phase(step) for step in (0, 9, 10, 29, 30, 49)] == [
        *[Phase.WARM_UP] * 2,
        *[Phase.EXPANSION] * 2,
        *[Phase.EXPLOITATION] * 2,
    ]
    with pytest.raises(ValueError, match="30, 20 and 50"):
        StepSchedule(warm_up=30, expansion=20, total=50)


@pytest.mark.parametrize(
    ("name", "expansion"),
    [
        ("actsafe", Policy.EXPLORATION),
        ("greedy", Policy.TASK),
        ("uniform", Policy.UNIFORM),
        ("optimistic", Policy.TASK),
    ],
)
def test_who_acts(name, expansion):
    recipe = VISION_RECIPES[name]
    assert recipe.policy(Phase.WARM_UP) is Policy.UNIFORM
    assert recipe.policy(Phase.EXPANSION) is expansion
    assert recipe.policy(Phase.EXPLOITATION) is Policy.TASK


def test_rows_of_the_table_differ_by_what_they_name():
    assert isinstance(make_agent("opax").learner.step, Unconstrained)
    assert isinstance(make_agent("actsafe_lagrangian").learner.step, AugmentedLagrangian)
    assert np.all(make_agent("no_pessimism").aims.pessimism == 0)
    assert np.all(make_agent().aims.pessimism > 0)
    doubt = dataclasses.replace(SETTINGS.doubt, optimism=3.0)
    np.testing.assert_allclose(make_agent("optimistic", doubt=doubt).aims.doubt, [3.0])
    np.testing.assert_allclose(make_agent(doubt=doubt).aims.doubt, [0.0, 10.0])
    np.testing.assert_allclose(make_agent().aims.task, [1.0, 0.0])


def test_no_critic_is_heeded_beyond_what_rewards_allow(after_expansion):
    """Critics that promise 10,000 everywhere, where rewards of -1 to 2 over 1 - 0.99 come to at most 200."""
    agent, first, *_ = after_expansion
    key = jax.random.key(0)
    critics = first.actor_critics.critics.tree
    last = critics.layers[-1]
    boastful = eqx.tree_at(lambda critics: critics.layers[-1].bias, critics, jnp.full_like(last.bias, 1e4))
    vector = jax.vmap(jax.vmap(flat))(boastful)
    critics = dataclasses.replace(first.actor_critics.critics, vector=vector)
    state = dataclasses.replace(first, actor_critics=dataclasses.replace(first.actor_critics, critics=critics))

    @jax.jit
    def measured(reward_range):
        return agent.update(state, make_rows(key), key, reward_range)[1]

    bounded, free = measured(jnp.asarray([-1.0, 2.0], jnp.float32)), measured(None)
    assert free["task/return"] > 9000.0
    # At the last of two steps r + 0.99 · 200, at the first a mixture of that and of what it leads to, all near 200.
    assert 190.0 < bounded["task/return"] < 205.0
    # The critic is taught what is possible, not what it said: half the squared error is that of 10,000 and 200.
    np.testing.assert_allclose(bounded["task/critic_loss"], 0.5 * 9800.0**2, rtol=0.03)
    # Of doubt nothing is recorded, and costs are never trimmed.
    for name in ("exploration/return", "task/cost_return_0", "exploration/cost_return_0"):
        assert bounded[name] == free[name] > 9000.0


def test_an_optimist_is_not_bounded():
    aims = make_agent("optimistic").aims
    bounded = make_agent("optimistic")._bounded(aims, jnp.asarray([-1.0, 2.0], jnp.float32))
    np.testing.assert_array_equal(bounded.highest, [np.inf])
    scaled = make_agent(reward_scale=10.0)
    np.testing.assert_allclose(
        scaled._bounded(scaled.aims, jnp.asarray([-1.0, 2.0], jnp.float32)).lowest, [-1000.0, -np.inf]
    )


def test_planner_budgets():
    assert make_agent().planner_budgets == pytest.approx((5.0,))
    assert make_agent(is_budget_released=True).planner_budgets == pytest.approx((2.5,))


def test_expansion_teaches_everyone_and_exploitation_only_the_task(after_expansion):
    agent, first, state, metrics, _ = after_expansion
    assert int(state.num_updates) == 3
    assert changed(first.actor_critics.actor, state.actor_critics.actor).all()
    assert {"task/margin_0", "exploration/margin_0", "model/kl"} <= set(metrics)
    assert metrics["model/loss"].shape == (3,)

    keys = jax.random.split(jax.random.key(1), 2)
    rows = make_rows(jax.random.key(0))
    later, metrics = jax.jit(lambda s: agent.learn(s, lambda _: rows, keys, keys, Phase.EXPLOITATION))(state)
    by_place = changed(state.actor_critics, later.actor_critics)
    assert not by_place[:, EXPLORATION].any()
    assert by_place[:, TASK].any()
    assert "exploration/margin_0" not in metrics


def test_updates_that_are_not_finite_are_skipped_and_counted(after_expansion):
    agent, _, state, _, _ = after_expansion
    rows = make_rows(jax.random.key(0))
    rows = rows._replace(reward=rows.reward.at[0, 0].set(jnp.nan))
    later, metrics = jax.jit(agent.update)(state, rows, jax.random.key(2))
    assert int(later.num_skipped) == 1
    assert float(metrics["is_skipped"]) == 1.0
    for before, after in zip(jax.tree.leaves(state.model), jax.tree.leaves(later.model), strict=True):
        np.testing.assert_array_equal(before, after)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(later.actor_critics))


def test_the_same_keys_give_the_same_state(after_expansion):
    _, first, state, _, learn = after_expansion
    again, _ = learn(first, jax.random.split(jax.random.key(0), 3))
    for one, two in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, two)


def test_dreams_from_recent_rows_alone_may_count(after_expansion):
    """Of a batch of two the second sequence is recent: where dreams from the first begin changes no cost."""
    agents, (_, _, state, _, _) = (make_agent(), make_agent(recent_rows=8)), after_expansion
    # Neighbours are of different sequences: every second one is of the second.
    moved = jax.tree.map(lambda leaf: leaf.at[0::2].add(1.0), state.starts)
    states = [dataclasses.replace(state, starts=starts) for starts in (state.starts, moved)]
    key = jax.random.key(4)
    (whole, whole_moved), (recent, recent_moved) = (
        [jax.jit(agent.update)(state, make_rows(key), key)[1] for state in states] for agent in agents
    )
    for name in ("task/cost_0", "task/cost_return_0", "exploration/margin_0", "task/doubt"):
        assert float(recent[name]) == pytest.approx(float(recent_moved[name]), rel=1e-6)
        assert float(whole[name]) != pytest.approx(float(whole_moved[name]), rel=1e-3)
        assert float(whole[name]) != pytest.approx(float(recent[name]), rel=1e-3)
    assert float(recent["task/reward"]) == pytest.approx(float(whole["task/reward"]), rel=1e-6)
    assert float(recent["task/reward"]) != pytest.approx(float(recent_moved["task/reward"]), rel=1e-3)


def test_acting(after_expansion):
    agent, _, state, _, _ = after_expansion
    key = jax.random.key(3)
    observation, is_first = jnp.ones((50, 3), jnp.float32), jnp.ones(50, bool)
    memory = agent.begin(50)

    def act(policy, is_greedy=False, is_first=is_first, memory=memory):
        seen = agent.see(state.mind, observation)
        return agent.act(state.mind, memory, seen, is_first, key, policy=policy, is_greedy=is_greedy)

    uniform, _ = act(Policy.UNIFORM)
    assert uniform.min() < -0.8
    assert uniform.max() > 0.8
    task, remembered = act(Policy.TASK)
    explored, _ = act(Policy.EXPLORATION)
    assert np.all(np.abs(task) <= 1.0)
    assert not np.allclose(task, explored)
    np.testing.assert_array_equal(remembered.action, task)
    # What was remembered does not count where an episode begins, and does elsewhere.
    _, anew = act(Policy.TASK, memory=remembered)
    np.testing.assert_array_equal(anew.state.deterministic, remembered.state.deterministic)
    _, onward = act(Policy.TASK, memory=remembered, is_first=jnp.zeros(50, bool))
    assert not np.allclose(onward.state.deterministic, remembered.state.deterministic)
    greedy, _ = act(Policy.TASK, is_greedy=True)
    assert np.std(np.asarray(greedy)) < np.std(np.asarray(task))


def test_every_constraint_has_a_margin_of_its_own_and_rewards_have_a_scale():
    settings = dataclasses.replace(SETTINGS, reward_scale=3.0)
    agent = VisionAgent(HERE._replace(budgets=(25.0, 5.0)), VISION_RECIPES["greedy"], settings)
    assert agent.planner_budgets == pytest.approx((5.0, 1.0))
    rows = make_rows(jax.random.key(0))
    rows = rows._replace(costs=jnp.concatenate([rows.costs, jnp.zeros_like(rows.costs)], axis=-1))
    state = jax.jit(agent.init)(jax.random.key(0))
    assert state.actor_critics.critics.vector.shape[:2] == (1, 3)
    _, metrics = jax.jit(agent.update)(state, rows, jax.random.key(1))
    for number, budget in enumerate(agent.planner_budgets):
        spent = float(metrics[f"task/cost_return_{number}"])
        assert float(metrics[f"task/margin_{number}"]) == pytest.approx(budget - spent, abs=1e-5)
    assert metrics["task/cost_0"] != metrics["task/cost_1"]
    model_key = jax.random.split(jax.random.key(1))[0]
    larger = rows._replace(reward=3.0 * rows.reward)
    _, explained = jax.jit(lambda model: elbo_loss(model, larger, settings.model, model_key))(state.model.tree)
    assert float(metrics["model/reward_loss"]) == pytest.approx(float(explained.reward_loss), rel=1e-5)


def test_bad_settings_say_what_to_do():
    with pytest.raises(ValueError, match="float32, bfloat16, got 'float16'"):
        VisionSettings(precision="float16")
    with pytest.raises(ValueError, match=r"agent\.batch_size must be at least 2, got 1"):
        VisionSettings(batch_size=1, recent_rows=500)
    with pytest.raises(ValueError, match=r"agent\.actor_critic\.horizon must be at least 1, got 0"):
        ActorCriticSettings(horizon=0)
    with pytest.raises(ValueError, match=r"agent\.model\.num_members must be at least 1, got 0"):
        WorldModelSettings(num_members=0)
