"""The agent with a world model: who acts, what is learned when, and what happens to bad data."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.bounds import value_bounds
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.algorithms import ALGORITHMS, Objective, Role
from actsafe.agents.base import ActMode, Percept
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.world_model import EXPLORATION, TASK, WorldModelAgentSettings
from actsafe.constrained.augmented_lagrangian import AugmentedLagrangian
from actsafe.constrained.unconstrained import Unconstrained
from actsafe.data.rows import Rows
from actsafe.envs.spec import EnvSpec
from actsafe.models.packing import flat
from actsafe.models.rssm.world_model import WorldModelSettings
from actsafe.objectives.weights import Recorded

SETTINGS = WorldModelAgentSettings(
    model=WorldModelSettings(deterministic=6, stochastic=3, hidden=5, num_members=2, head_width=6, head_depth=1),
    actor_critic=ActorCriticSettings(horizon=2, actor_width=6, actor_depth=1, critic_width=6, critic_depth=1),
    batch_size=2,
    sequence_length=4,
    precision="float32",
)
HERE = EnvSpec("here", (3,), 2, ("cost",), (25.0,), 500, 2)
SCHEDULE = Schedule(warm_up=1, expansion=2, exploitation=2)


def make_agent(name="actsafe", here=HERE, **changes):
    return dataclasses.replace(SETTINGS, **changes).make(here, ALGORITHMS[name], SCHEDULE)


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
    schedule = Schedule(warm_up=10, expansion=20, exploitation=20, episodes_per_epoch=5)
    assert [schedule.phase(epoch) for epoch in (0, 1, 2, 3, 6, 7, 10)] == [
        Phase.SEED,
        *[Phase.WARM_UP] * 2,
        *[Phase.EXPANSION] * 2,
        *[Phase.EXPLOITATION] * 2,
    ]
    with pytest.raises(ValueError, match=r"multiple of .* = 5, got 7"):
        Schedule(warm_up=7, expansion=20, episodes_per_epoch=5)


@pytest.mark.parametrize(
    ("name", "expansion"),
    [
        ("actsafe", Role.EXPLORATION),
        ("greedy", Role.TASK),
        ("uniform", Role.UNIFORM),
        ("optimistic", Role.TASK),
    ],
)
def test_who_acts(name, expansion):
    row = ALGORITHMS[name]
    assert row.role(Phase.WARM_UP) is Role.UNIFORM
    assert row.role(Phase.EXPANSION) is expansion
    assert row.role(Phase.EXPLOITATION) is Role.TASK


def test_rows_of_the_table_differ_by_what_they_name():
    assert isinstance(make_agent("opax").search.step, Unconstrained)
    assert isinstance(make_agent("actsafe_lagrangian").search.step, AugmentedLagrangian)
    assert np.all(make_agent("no_pessimism").objective_weights.pessimism == 0)
    assert np.all(make_agent().objective_weights.pessimism > 0)
    uncertainty = dataclasses.replace(SETTINGS.uncertainty, optimism=3.0)
    np.testing.assert_allclose(make_agent("optimistic", uncertainty=uncertainty).objective_weights.uncertainty, [3.0])
    np.testing.assert_allclose(make_agent(uncertainty=uncertainty).objective_weights.uncertainty, [0.0, 10.0])
    np.testing.assert_allclose(make_agent().objective_weights.task, [1.0, 0.0])


def boasting(state, value):
    """The state with critics that promise this value everywhere."""
    critics = state.actor_critics.critics
    tree = jax.tree.map(jnp.zeros_like, critics.tree)
    promising = eqx.tree_at(lambda net: net.layers[-1].bias, tree, jnp.full_like(tree.layers[-1].bias, value))
    critics = dataclasses.replace(critics, vector=jax.vmap(jax.vmap(flat))(promising))
    return dataclasses.replace(state, actor_critics=dataclasses.replace(state.actor_critics, critics=critics))


def test_no_critic_is_heeded_beyond_what_rewards_and_costs_allow(after_expansion):
    """Critics that promise 10,000 everywhere, where rewards of -1 to 2 over 1 - 0.99 come to at most 200."""
    agent, first, *_ = after_expansion
    released = make_agent(actor_critic=dataclasses.replace(SETTINGS.actor_critic, is_value_bounded=False))
    state, key = boasting(first, 1e4), jax.random.key(0)
    recorded = Recorded(*(jnp.asarray(value, jnp.float32) for value in (-1.0, 2.0, [3.0])))

    def measured(agent, recorded):
        return jax.jit(lambda recorded: agent.update(state, make_rows(key), key, recorded)[1])(recorded)

    bounded, unknown, free = measured(agent, recorded), measured(agent, None), measured(released, recorded)
    for name in ("task/return", "exploration/return", "task/cost_return_0", "exploration/cost_return_0"):
        assert free[name] > 9000.0
    # At the last of two steps r + 0.99 · 200, at the first a mixture of that and of what it leads to, all near 200.
    assert 190.0 < bounded["task/return"] < 205.0
    # The critic is taught what is possible, not what it said: half the squared error is that of 10,000 and 200.
    np.testing.assert_allclose(bounded["task/critic_loss"], 0.5 * 9800.0**2, rtol=0.03)
    # Costs of at most 3, and a thousandth of an uncertainty of about 1: near 300.
    for name in ("task", "exploration"):
        assert 290.0 < bounded[f"{name}/cost_return_0"] < 310.0
    # What is not recorded bounds neither a reward nor a cost; uncertainty needs no record, as dreams show it: 10 times
    # the largest, which is no less than the mean, over 1 - 0.99.
    for name in ("task/return", "task/cost_return_0", "exploration/cost_return_0"):
        assert unknown[name] == free[name]
    assert 1000.0 * unknown["exploration/uncertainty"] < unknown["exploration/return"] < 9000.0
    assert bounded["exploration/return"] == unknown["exploration/return"]


def test_no_critic_of_costs_pays_for_breaking_a_budget(after_expansion):
    """Critics of costs that promise -10,000: returns are the costs of two decisions, and at least 0."""
    agent, first, *_ = after_expansion
    key = jax.random.key(0)
    measured = jax.jit(lambda state: agent.update(state, make_rows(key), key)[1])(boasting(first, -1e4))
    for name in ("task", "exploration"):
        # R_1 = c_1,  R_0 = c_0 + 0.99 · 0.95 c_1: with c_0 = c_1 = c on average 1.47 c.
        cost = float(measured[f"{name}/pessimistic_cost_0"])
        assert float(measured[f"{name}/cost_return_0"]) == pytest.approx(1.47 * cost, rel=0.02)
    # Nor does one of uncertainty promise less than none; of the task's reward nothing was recorded.
    assert measured["exploration/return"] >= 0.0
    assert measured["task/return"] < -9000.0


class Charging(Objective):
    """An objective of one's own: rewards count twice, and uncertainty 7 as a cost."""

    def weights(self, role, uncertainty):
        return super().weights(role, uncertainty)._replace(task=2.0 * (role is Role.TASK), pessimism=7.0)


def test_an_objective_of_ones_own_weighs_otherwise_and_its_bound_follows():
    row = dataclasses.replace(ALGORITHMS["actsafe"], objective=Charging())
    agent = SETTINGS.make(HERE, row, SCHEDULE)
    found = agent.objective_weights
    np.testing.assert_allclose(found.task, [2.0, 0.0])
    np.testing.assert_allclose(found.uncertainty, [0.0, 10.0])
    np.testing.assert_allclose(found.pessimism, [7.0, 7.0])
    # Rewards of at most 2, twice, over 1 - 0.99; and costs of 3 with 7 times an uncertainty of 0.5.
    held = agent._held_to(found, Recorded(-1.0, 2.0, jnp.asarray([3.0])))
    task = jax.tree.map(lambda leaf: leaf[TASK], held)
    bounds = value_bounds(SETTINGS.actor_critic, task, jnp.asarray([0.0]), 0.5)
    np.testing.assert_allclose(bounds.highest, [400.0, 650.0], rtol=1e-5)
    np.testing.assert_allclose(bounds.lowest, [-200.0, 0.0], rtol=1e-5)


def test_rewards_are_recorded_as_they_are_learned():
    agent = make_agent(reward_scale=10.0)
    held = agent._held_to(agent.objective_weights, Recorded(-1.0, 2.0, jnp.asarray([3.0]))).recorded
    np.testing.assert_array_equal(held.lowest_reward, [-10.0, -10.0])
    np.testing.assert_array_equal(held.highest_reward, [20.0, 20.0])
    np.testing.assert_array_equal(held.highest_costs, [[3.0], [3.0]])


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
    """Of a batch of two the second sequence is recent: where dreams from the first begin changes no cost, and no loss
    unless all dreams make the loss."""
    settings = {"": {}, "recent": {"recent_rows": 8}, "mixed": {"recent_rows": 8, "is_loss_recent": False}}
    agents, (_, _, state, _, _) = [make_agent(**each) for each in settings.values()], after_expansion
    # Neighbours are of different sequences: every second one is of the second.
    moved = jax.tree.map(lambda leaf: leaf.at[0::2].add(1.0), state.starts)
    states = [dataclasses.replace(state, starts=starts) for starts in (state.starts, moved)]
    key = jax.random.key(4)
    (whole, whole_moved), (recent, recent_moved), (mixed, mixed_moved) = (
        [jax.jit(agent.update)(state, make_rows(key), key)[1] for state in states] for agent in agents
    )
    for name in ("task/loss", "exploration/loss"):
        assert float(mixed[name]) == pytest.approx(float(whole[name]), rel=1e-6)
        assert float(mixed[name]) != pytest.approx(float(mixed_moved[name]), rel=1e-3)
    assert float(mixed["task/cost_return_0"]) == pytest.approx(float(recent["task/cost_return_0"]), rel=1e-6)
    counted = ("task/cost_0", "task/cost_return_0", "exploration/margin_0", "task/uncertainty")
    for name in (*counted, "task/loss", "exploration/loss"):
        assert float(recent[name]) == pytest.approx(float(recent_moved[name]), rel=1e-6)
        assert float(whole[name]) != pytest.approx(float(whole_moved[name]), rel=1e-3)
        assert float(whole[name]) != pytest.approx(float(recent[name]), rel=1e-3)
    assert float(recent["task/reward"]) == pytest.approx(float(whole["task/reward"]), rel=1e-6)
    assert float(recent["task/reward"]) != pytest.approx(float(recent_moved["task/reward"]), rel=1e-3)


def test_acting(after_expansion):
    agent, _, state, _, _ = after_expansion
    observation = jnp.ones((50, 3), jnp.float32)
    nothing = jnp.zeros(50, jnp.float32), jnp.zeros((50, 1), jnp.float32)

    def policy(role, is_greedy=False):
        return agent.policy(state.policy_weights, ActMode(role, is_greedy=is_greedy))

    begun = policy(Role.TASK).begin(50, jax.random.key(3))

    def act(role, is_greedy=False, is_first=True, memory=begun):
        acting = policy(role, is_greedy)
        percept = Percept(*nothing, jnp.full(50, is_first))
        decision, memory = acting.act(memory, acting.encode(observation), percept)
        assert not np.any(decision.is_certified | decision.is_fallback)
        assert np.all(np.isnan(decision.predicted_cost))
        return decision.action, memory

    uniform, _ = act(Role.UNIFORM)
    assert uniform.min() < -0.8
    assert uniform.max() > 0.8
    task, remembered = act(Role.TASK)
    explored, _ = act(Role.EXPLORATION)
    assert np.all(np.abs(task) <= 1.0)
    assert not np.allclose(task, explored)
    np.testing.assert_array_equal(remembered.action, task)
    # What was remembered does not count where an episode begins, and does elsewhere; draws are the same.
    remembered = remembered._replace(key=begun.key)
    first = act(Role.TASK)[1].state
    np.testing.assert_array_equal(act(Role.TASK, memory=remembered)[1].state.deterministic, first.deterministic)
    onward = act(Role.TASK, memory=remembered, is_first=False)[1].state
    assert not np.allclose(onward.deterministic, first.deterministic)
    greedy, _ = act(Role.TASK, is_greedy=True)
    assert np.std(np.asarray(greedy)) < np.std(np.asarray(task))


def test_every_constraint_has_a_margin_of_its_own_and_rewards_have_a_scale():
    two = HERE._replace(cost_names=("cost", "other"), budgets=(25.0, 5.0))
    agent = make_agent("greedy", two, reward_scale=3.0)
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
    _, (_, parts) = jax.jit(lambda model: model.loss(larger, model_key))(state.model.tree)
    assert float(metrics["model/reward_loss"]) == pytest.approx(float(parts["reward_loss"]), rel=1e-5)


def test_bad_settings_say_what_to_do():
    with pytest.raises(ValueError, match="float32, bfloat16, got 'float16'"):
        WorldModelAgentSettings(precision="float16")
    with pytest.raises(ValueError, match=r"agent\.batch_size must be at least 2, got 1"):
        WorldModelAgentSettings(batch_size=1, recent_rows=500)
    with pytest.raises(ValueError, match=r"agent\.actor_critic\.horizon must be at least 1, got 0"):
        ActorCriticSettings(horizon=0)
    with pytest.raises(ValueError, match=r"agent\.model\.num_members must be at least 1, got 0"):
        WorldModelSettings(num_members=0)
    with pytest.raises(ValueError, match="member_noise_on must be one of all, linear, independent, got 'gru'"):
        WorldModelSettings(member_noise_on="gru")
    with pytest.raises(ValueError, match=r"agent\.model\.open_loop_steps must be at least 0, got -1"):
        WorldModelSettings(open_loop_steps=-1)


def test_who_acts_is_the_average_where_there_is_one(after_expansion):
    """Actions of a state whose newest actor is another: they change only where no average is kept."""
    _, first, *_ = after_expansion
    agent = make_agent(actor_critic=dataclasses.replace(SETTINGS.actor_critic, actor_average=0.9))
    averaging = jax.jit(agent.init)(jax.random.key(0))

    def acted(state, role):
        policy = agent.policy(state.policy_weights, ActMode(role, is_greedy=True))
        percept = Percept(jnp.zeros(4, jnp.float32), jnp.zeros((4, 1), jnp.float32), jnp.ones(4, bool))
        decision, _ = policy.act(
            policy.begin(4, jax.random.key(3)), policy.encode(jnp.ones((4, 3), jnp.float32)), percept
        )
        return decision.action

    for state, is_average in ((averaging, True), (first, False)):
        learned = state.actor_critics
        moved = dataclasses.replace(
            learned, actor=dataclasses.replace(learned.actor, vector=learned.actor.vector + 1.0)
        )
        other = dataclasses.replace(state, actor_critics=moved)
        for role in (Role.TASK, Role.EXPLORATION):
            assert np.array_equal(acted(other, role), acted(state, role)) is is_average
    kept = {id(leaf) for leaf in jax.tree.leaves(agent.acting_part(averaging))}
    assert id(averaging.actor_critics.average_actor.vector) in kept
    assert id(averaging.actor_critics.actor.vector) not in kept
