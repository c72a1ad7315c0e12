"""The problems' rewards, costs and steps against numbers worked by hand."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.problems import Cartpole, CartpoleParams, Pendulum, PendulumParams
from actsafe.problems.base import angle, on_unit_circle, wrap

PI = math.pi


def pendulum_state(theta, speed=0.0):
    return jnp.array([math.cos(theta), math.sin(theta), speed])


def cartpole_state(position, theta, velocity=0.0, speed=0.0):
    return jnp.array([position, math.cos(theta), math.sin(theta), velocity, speed])


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0.0, 0.0), (PI, -PI), (-PI, -PI), (1.5 * PI, -0.5 * PI), (-1.5 * PI, 0.5 * PI), (7.0, 7.0 - 2 * PI), (3.0, 3.0)],
)
def test_wrap(given, expected):
    np.testing.assert_allclose(wrap(jnp.array(given)), expected, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("theta", [0.0, 1.0, -2.0, PI])
def test_angle_undoes_cosine_and_sine(theta):
    np.testing.assert_allclose(angle(jnp.cos(theta), jnp.sin(theta)), theta, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize(
    ("given", "expected"), [((3.0, 4.0), (0.6, 0.8)), ((0.0, -0.1), (0.0, -1.0)), ((0.0, 0.0), (1.0, 0.0))]
)
def test_on_unit_circle(given, expected):
    np.testing.assert_allclose(on_unit_circle(*map(jnp.array, given)), expected, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize(
    ("task", "theta", "speed", "action", "expected"),
    [
        # (pi/3)^2 + 0.1 * 2^2 + 0.02 * 0.5^2 = 1.0966227 + 0.4 + 0.005
        ("swing_up", PI / 3, 2.0, 0.5, -1.5016227112),
        # From the bottom the same angle is 2 pi/3 away: 4.3864908 + 0.4 + 0.005
        ("keep_down", PI / 3, 2.0, 0.5, -4.7914908449),
        ("swing_up", PI, 0.0, 0.0, -(PI**2)),
        ("keep_down", PI, 0.0, 0.0, 0.0),
        # 3 pi/2 is a quarter turn from the top, not three: (pi/2)^2 + 0.02
        ("swing_up", 1.5 * PI, 0.0, -1.0, -2.4874011003),
        ("swing_up", 0.0, -3.0, 0.0, -0.9),
    ],
)
def test_pendulum_reward(task, theta, speed, action, expected):
    reward = Pendulum().tasks[task](pendulum_state(theta, speed), jnp.array([action]))
    np.testing.assert_allclose(reward, expected, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("task", "state", "action", "expected"),
    [
        # Upright is th = pi, so pi/3 is 2 pi/3 away: 4.3864908 + 0.5^2 + 0.1 (2^2 + 1^2) + 0.01 * 0.5^2
        ("swing_up", cartpole_state(0.5, PI / 3, 2.0, -1.0), 0.5, -5.1389908449),
        # 1.0966227 + 0.25 + 0.5 + 0.0025
        ("keep_down", cartpole_state(0.5, PI / 3, 2.0, -1.0), 0.5, -1.8491227112),
        ("swing_up", cartpole_state(0.0, 0.0), 0.0, -(PI**2)),
        ("swing_up", cartpole_state(-2.0, PI), -1.0, -4.01),
        ("keep_down", cartpole_state(0.0, 0.0), 0.0, 0.0),
    ],
)
def test_cartpole_reward(task, state, action, expected):
    np.testing.assert_allclose(Cartpole().tasks[task](state, jnp.array([action])), expected, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("problem", "coordinate", "value", "margin", "expected"),
    [
        (Pendulum(), 2, 0.0, 0.0, 0.0),
        (Pendulum(), 2, 6.0, 0.0, 0.0),
        (Pendulum(), 2, 6.25, 0.0, 0.25),
        (Pendulum(), 2, 8.0, 0.0, 2.0),
        (Pendulum(), 2, 5.75, 0.25, 0.0),
        (Pendulum(), 2, 6.0, 0.25, 0.25),
        (Pendulum(params=PendulumParams(speed_limit=4.0)), 2, 6.0, 0.0, 2.0),
        (Cartpole(), 0, 0.0, 0.0, 0.0),
        (Cartpole(), 0, 0.5, 0.0, 0.0),
        (Cartpole(), 0, 0.75, 0.0, 0.25),
        (Cartpole(), 0, 0.25, 0.25, 0.0),
        (Cartpole(), 0, 0.5, 0.25, 0.25),
        (Cartpole(params=CartpoleParams(position_limit=1.5)), 0, 2.0, 0.0, 0.5),
    ],
)
def test_cost_is_what_lies_beyond_the_limit(problem, coordinate, value, margin, expected, sign, key):
    # All numbers here are sums of powers of two, so that the comparison is exact.
    state = problem.reset(key).at[coordinate].set(sign * value)
    assert float(problem.cost(state, margin)) == expected


@pytest.mark.parametrize(("problem", "coordinate", "limit"), [(Pendulum(), 2, 6.0), (Cartpole(), 0, 0.5)])
def test_the_first_number_above_the_limit_costs(problem, coordinate, limit, key):
    above = np.nextafter(limit, np.inf)
    state = problem.reset(key)
    assert float(problem.cost(state.at[coordinate].set(above))) == above - limit > 0.0
    assert float(problem.cost(state.at[coordinate].set(np.nextafter(limit, 0.0)))) == 0.0


def test_resets_hang_at_rest(key):
    for each in jax.random.split(key, 3):
        np.testing.assert_array_equal(Pendulum().reset(each), [-1.0, 0.0, 0.0])
        np.testing.assert_array_equal(Cartpole().reset(each), [0.0, 1.0, 0.0, 0.0, 0.0])


def test_pendulum_decision_by_hand(key):
    problem = Pendulum()
    step = problem.step(problem.reset(key), jnp.array([1.0]), key)
    # First: torque 2, acceleration 3 * 2 = 6, speed 0.05 * 6 = 0.3, angle pi + 0.05 * 0.3 = pi + 0.015.
    # Second: acceleration 1.5 * 9.81 * sin(pi + 0.015) + 6 = 6 - 14.715 sin(0.015).
    speed = 0.3 + 0.05 * (6.0 - 14.715 * math.sin(0.015))
    beyond = 0.015 + 0.05 * speed
    np.testing.assert_allclose(step.state, [-math.cos(beyond), -math.sin(beyond), speed], rtol=0.0, atol=1e-14)
    assert float(step.cost) == float(step.inner_cost) == 0.0


def test_cartpole_decision_by_hand(key):
    problem = Cartpole()
    step = problem.step(problem.reset(key), jnp.array([1.0]), key)
    # First: [6 1; 1 1] [p''; th''] = [15; 0], so p'' = 3, th'' = -3; explicit Euler moves the speeds alone, to +-0.15.
    # Second: the pole still hangs straight, so the accelerations are the same; position +-0.05 * 0.15 = +-0.0075.
    expected = [0.0075, math.cos(0.0075), -math.sin(0.0075), 0.3, -0.3]
    np.testing.assert_allclose(step.state, expected, rtol=0.0, atol=1e-14)


def test_pendulum_speed_is_clipped(key):
    state = Pendulum().step(pendulum_state(PI / 2, 7.9), jnp.array([1.0]), key).state
    assert float(state[2]) == 8.0


@pytest.mark.parametrize("problem", [Pendulum(), Cartpole()], ids=lambda problem: problem.name)
def test_an_action_beyond_its_range_is_the_range(problem, key):
    step, state = jax.jit(problem.step), problem.reset(key)
    for given, applied in ((3.0, 1.0), (-1.5, -1.0), (1.0 + 1e-9, 1.0)):
        clipped = step(state, jnp.array([given]), key)
        np.testing.assert_array_equal(clipped.state, step(state, jnp.array([applied]), key).state)


@pytest.mark.parametrize("problem", [Pendulum(), Cartpole()], ids=lambda problem: problem.name)
@pytest.mark.parametrize("action_repeat", [1, 2, 5])
def test_action_repeat_holds_the_action(problem, action_repeat, key):
    action = jnp.array([0.6])
    state = problem.reset(key)
    step = dataclasses.replace(problem, action_repeat=action_repeat).step(state, action, key)
    for _ in range(action_repeat):
        state = problem.simulate(state, action)
    np.testing.assert_allclose(step.state, state, rtol=0.0, atol=1e-14)


def test_inner_cost_sees_a_peak_between_decisions(key):
    """At 0.6 rad before the bottom gravity beats a full brake (14.715 sin 0.6 > 6), a step later it does not."""
    problem = Pendulum()
    state, brake = pendulum_state(PI - 0.6, 5.9), jnp.array([-1.0])
    step = problem.step(state, brake, key)
    peak = 5.9 + 0.05 * (14.715 * math.sin(0.6) - 6.0)
    assert float(step.cost) == 0.0
    np.testing.assert_allclose(step.inner_cost, peak - 6.0, rtol=0.0, atol=1e-13)
    assert peak > 6.0


def test_process_noise_has_its_std_once_per_decision(key):
    """Five standard errors of a std from n draws, std / sqrt(2 n), whatever the action repeat."""
    std, num_draws = 0.01, 20_000
    for action_repeat in (1, 4):
        problem = Cartpole(process_noise_std=std, action_repeat=action_repeat)
        keys = jax.random.split(key, num_draws)
        draw = jax.jit(jax.vmap(lambda each, p=problem: p.step(p.reset(each), jnp.zeros(1), each).state))
        states = np.asarray(draw(keys))
        # Cosine and sine are put back on the circle, which leaves the sine's share: the angle turns by the noise.
        noise = states[:, [0, 2, 3, 4]]
        tolerance = 5.0 * std / math.sqrt(2 * num_draws)
        np.testing.assert_allclose(noise.std(axis=0), std, rtol=0.0, atol=tolerance)
        np.testing.assert_allclose(noise.mean(axis=0), 0.0, rtol=0.0, atol=5.0 * std / math.sqrt(num_draws))
        correlation = np.corrcoef(noise.T) - np.eye(4)
        np.testing.assert_allclose(correlation, 0.0, rtol=0.0, atol=5.0 / math.sqrt(num_draws))
        np.testing.assert_allclose(np.hypot(states[:, 1], states[:, 2]), 1.0, rtol=0.0, atol=1e-12)


def test_noise_counts_towards_both_costs(key, compiled_as_in_use):
    """The cost is that of the noisy state a learner sees, and the inner cost is never below it."""
    problem = Pendulum(process_noise_std=5.0)
    step_from = jax.vmap(lambda each: problem.step(problem.reset(each), jnp.zeros(1), each))
    draw = jax.jit(step_from, compiler_options=compiled_as_in_use)
    step = draw(jax.random.split(key, 200))
    np.testing.assert_array_equal(step.cost, np.maximum(np.abs(np.asarray(step.state)[:, 2]) - 6.0, 0.0))
    np.testing.assert_array_equal(step.inner_cost, step.cost)
    assert np.any(step.cost > 0.0)


def test_goals():
    pendulum, cartpole = Pendulum(), Cartpole()
    within, outside = math.acos(0.951), math.acos(0.949)
    assert bool(pendulum.is_goal(pendulum_state(within, 0.99)))
    assert not bool(pendulum.is_goal(pendulum_state(outside, 0.0)))
    assert not bool(pendulum.is_goal(pendulum_state(0.0, -1.0)))
    assert not bool(pendulum.is_goal(pendulum_state(PI)))
    assert bool(cartpole.is_goal(cartpole_state(0.0, PI - within, 0.0, -0.99)))
    assert not bool(cartpole.is_goal(cartpole_state(0.0, PI - outside)))
    assert not bool(cartpole.is_goal(cartpole_state(0.0, PI, 0.0, 1.0)))
    assert not bool(cartpole.is_goal(cartpole_state(0.0, 0.0)))


def test_parameters_are_a_pytree_that_can_be_batched(key):
    """A batch of masses is a batch of problems: from rest speed' = dt * 3 * 2 / m = 0.3 / m."""

    def simulate(mass):
        problem = eqx.tree_at(lambda p: p.params.mass, Pendulum(), mass)
        return problem.simulate(problem.reset(key), jnp.ones(1))

    states = jax.jit(jax.vmap(simulate))(jnp.array([0.5, 1.0, 2.0, 3.0]))
    np.testing.assert_allclose(states[:, 2], [0.6, 0.3, 0.15, 0.1], rtol=0.0, atol=1e-14)


def test_parameters_can_be_differentiated(key):
    """d speed' / d m = -dt * 3 * 2 / m^2 = -0.3 at m = 1; p'' = F / M from rest, so d v' / d M = -dt * 15 / 25."""

    def pendulum_speed(mass):
        problem = eqx.tree_at(lambda p: p.params.mass, Pendulum(), mass)
        return problem.simulate(problem.reset(key), jnp.ones(1))[2]

    def cart_velocity(mass):
        problem = eqx.tree_at(lambda p: p.params.cart_mass, Cartpole(), mass)
        return problem.simulate(problem.reset(key), jnp.ones(1))[3]

    np.testing.assert_allclose(jax.jit(jax.grad(pendulum_speed))(1.0), -0.3, rtol=0.0, atol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.grad(cart_velocity))(5.0), -0.03, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pendulum(action_repeat=0), "pendulum: action_repeat must be at least 1, got 0"),
        (lambda: Cartpole(num_decisions=0), "cartpole: num_decisions must be at least 1, got 0"),
        (lambda: Cartpole(budget=-0.1), "cartpole: budget must be at least 0, got -0.1"),
        (lambda: Pendulum(budget=math.nan), "pendulum: budget must be at least 0, got nan"),
        (lambda: Pendulum(process_noise_std=-1.0), "pendulum: process_noise_std must be at least 0, got -1.0"),
        (lambda: PendulumParams(mass=0.0), "PendulumParams.mass must be positive and finite, got 0.0"),
        (lambda: CartpoleParams(pole_length=-1.0), "CartpoleParams.pole_length must be positive and finite, got -1.0"),
        (lambda: CartpoleParams(gravity=math.inf), "CartpoleParams.gravity must be positive and finite, got inf"),
    ],
)
def test_an_impossible_problem_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
