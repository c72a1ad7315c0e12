"""What every problem that ships must satisfy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actsafe.problems import PROBLEMS

every_problem = pytest.mark.parametrize("name", PROBLEMS)
coordinates = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.fixture(params=PROBLEMS)
def problem(request):
    """Each problem with process noise, so that the key matters."""
    return dataclasses.replace(PROBLEMS[request.param](), process_noise_std=0.01)


def random_inputs(problem, key, num=8):
    """A batch of (states, actions, keys), some actions beyond their range."""
    rng = np.random.default_rng(0)
    states = jax.jit(jax.vmap(problem.project))(2.0 * rng.normal(size=(num, problem.state_dim)))
    return states, jnp.asarray(rng.uniform(-1.5, 1.5, (num, problem.action_dim))), jax.random.split(key, num)


def assert_same(ours, theirs, *, atol=1e-12):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.0, atol=atol), ours, theirs)


def test_describes_itself(problem):
    assert PROBLEMS[problem.name]().name == problem.name
    assert len(problem.change_scale) == problem.state_dim == len(set(problem.state_names))
    assert problem.action_dim == len(set(problem.action_names)) >= 1
    assert all(scale > 0.0 for scale in problem.change_scale)
    assert problem.num_decisions >= 1
    assert problem.action_repeat >= 1
    assert problem.budget >= 0.0
    assert problem.tasks


def every_method(problem, state, action, key):
    rewards = {name: reward(state, action) for name, reward in problem.tasks.items()}
    step = problem.step(state, action, key)
    return problem.reset(key), step, problem.cost(state), problem.project(state), problem.is_goal(state), rewards


def test_jit_changes_nothing(problem, key):
    (state,), (action,), _ = random_inputs(problem, key, num=1)
    assert_same(jax.jit(every_method)(problem, state, action, key), every_method(problem, state, action, key))


def test_vmap_is_a_loop(problem, key):
    states, actions, keys = random_inputs(problem, key)
    batch = jax.jit(jax.vmap(every_method, in_axes=(None, 0, 0, 0)))(problem, states, actions, keys)
    one = jax.jit(every_method)
    loop = [one(problem, *inputs) for inputs in zip(states, actions, keys, strict=True)]
    assert_same(batch, jax.tree.map(lambda *leaves: np.stack(leaves), *loop))


@pytest.mark.parametrize("std", [0.0, 0.01])
def test_same_key_same_step(problem, std, key):
    problem = dataclasses.replace(problem, process_noise_std=std)
    states, actions, keys = random_inputs(problem, key)
    step = jax.jit(jax.vmap(problem.step))
    once, again, other = (step(states, actions, each) for each in (keys, keys, keys[::-1]))
    assert_same(once, again, atol=0.0)
    if std == 0.0:
        assert_same(once, other, atol=0.0)
    else:
        assert np.all(np.any(np.asarray(once.state) != np.asarray(other.state), axis=1))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_shapes_and_dtypes_stay(problem, dtype, key):
    state = jax.eval_shape(problem.reset, key)
    assert state.shape == (problem.state_dim,)
    state = jax.ShapeDtypeStruct(state.shape, dtype)
    action = jax.ShapeDtypeStruct((problem.action_dim,), dtype)
    _, step, cost, projected, is_goal, rewards = jax.eval_shape(every_method, problem, state, action, key)
    for vector in (step.state, projected):
        assert (vector.shape, vector.dtype) == (state.shape, dtype)
    for scalar in (cost, step.cost, step.inner_cost, *rewards.values()):
        assert (scalar.shape, scalar.dtype) == ((), dtype)
    assert (is_goal.shape, is_goal.dtype) == ((), jnp.bool_)


def test_an_episode_is_finite_and_its_inner_cost_covers_its_cost(problem, key):
    def decide(state, each):
        action_key, step_key = jax.random.split(each)
        action = jax.random.uniform(action_key, (problem.action_dim,), minval=-1.0, maxval=1.0)
        step = problem.step(state, action, step_key)
        return step.state, (step, {name: reward(state, action) for name, reward in problem.tasks.items()})

    run = jax.jit(lambda each: jax.lax.scan(decide, problem.reset(each), jax.random.split(each, problem.num_decisions)))
    project = jax.jit(jax.vmap(problem.project))
    for each in jax.random.split(key, 5):
        _, (steps, rewards) = run(each)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((steps, rewards)))
        most = problem.action_repeat if problem.is_summed else 1
        assert np.all(most * steps.inner_cost >= steps.cost)
        # A state that was stepped to is a state that can exist.
        assert_same(project(steps.state), steps.state)


def test_tasks_are_finite_and_differ(problem, key):
    states, actions, _ = random_inputs(problem, key, num=100)
    evaluate = jax.jit(jax.vmap(lambda state, action: [reward(state, action) for reward in problem.tasks.values()]))
    rewards = [np.asarray(reward) for reward in evaluate(states, actions)]
    assert all(np.all(np.isfinite(reward)) for reward in rewards)
    for i, reward in enumerate(rewards):
        assert all(not np.allclose(reward, other) for other in rewards[i + 1 :])


@every_problem
def test_doing_nothing_from_the_start_is_safe(name, key):
    """The safe seed S_0: an agent that knows nothing may always wait."""
    problem = PROBLEMS[name]()
    start = problem.reset(key)

    def wait(state, _):
        step = problem.step(state, jnp.zeros(problem.action_dim), key)
        return step.state, step

    _, steps = jax.jit(lambda: jax.lax.scan(wait, start, length=problem.num_decisions))()
    assert np.all(steps.inner_cost == 0.0)
    # Where resets are random, it swings a little.
    atol = 1e-9 if np.array_equal(start, problem.reset(jax.random.key(7))) else 0.2
    assert_same(steps.state, np.broadcast_to(start, steps.state.shape), atol=atol)
    assert float(problem.cost(start)) == 0.0


@every_problem
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_cost_is_never_negative_and_a_margin_never_lowers_it(name, data):
    problem = PROBLEMS[name]()
    state = jnp.array(data.draw(st.lists(coordinates, min_size=problem.state_dim, max_size=problem.state_dim)))
    small, large = sorted(data.draw(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0))))
    cost, tighter, tightest = (float(problem.cost(state, margin)) for margin in (0.0, small, large))
    assert 0.0 <= cost <= tighter <= tightest
    # Beyond the limit a margin is paid in full, up to rounding of numbers of this size.
    if cost > 0.0 and not problem.is_summed:
        assert math.isclose(tightest - cost, large, abs_tol=1e-9)


@every_problem
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_projecting_twice_is_projecting_once(name, data):
    problem = PROBLEMS[name]()
    state = jnp.array(data.draw(st.lists(coordinates, min_size=problem.state_dim, max_size=problem.state_dim)))
    once = problem.project(state)
    assert np.all(np.isfinite(once))
    assert_same(problem.project(once), once)


@every_problem
def test_no_input_turns_nan_into_a_safe_cost(name):
    """Fail closed: where the constrained coordinate is not a number, neither is the cost."""
    problem = PROBLEMS[name]()
    assert not math.isfinite(float(problem.cost(jnp.full(problem.state_dim, jnp.nan))))
