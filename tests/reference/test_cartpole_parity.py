"""Our cartpole against Lagrange's equation, derived here from the energies alone, and against SciPy's integrator."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from actsafe.problems import Cartpole, CartpoleParams

TOLERANCE = 1e-10
OTHER_PARAMS = CartpoleParams(
    cart_mass=0.8, pole_mass=0.3, pole_length=0.6, gravity=3.7, max_force=4.0, time_step=0.013
)


def energies(coordinates, rates, params):
    """(kinetic, potential) of a cart at p and a point mass at (p + l sin th, -l cos th)."""
    p = params

    def pole_end(coordinates):
        position, theta = coordinates
        return jnp.stack([position + p.pole_length * jnp.sin(theta), -p.pole_length * jnp.cos(theta)])

    end, end_velocity = jax.jvp(pole_end, (coordinates,), (rates,))
    kinetic = 0.5 * p.cart_mass * rates[0] ** 2 + 0.5 * p.pole_mass * jnp.sum(end_velocity**2)
    return kinetic, p.pole_mass * p.gravity * end[1]


@jax.jit
def lagrange_terms(coordinates, rates, params):
    """(M, h) of Lagrange's equation M q'' = force + h, h = dL/dq - (d/dq dL/dq') q'."""

    def lagrangian(coordinates, rates):
        kinetic, potential = energies(coordinates, rates, params)
        return kinetic - potential

    momentum = jax.grad(lagrangian, argnums=1)
    mass_matrix = jax.jacobian(momentum, argnums=1)(coordinates, rates)
    drift = jax.jacobian(momentum, argnums=0)(coordinates, rates) @ rates
    return mass_matrix, jax.grad(lagrangian, argnums=0)(coordinates, rates) - drift


def accelerations(coordinates, rates, force, params):
    """(p'', th'') from the Lagrangian, solved in NumPy."""
    mass_matrix, rest = lagrange_terms(jnp.asarray(coordinates), jnp.asarray(rates), params)
    return np.linalg.solve(np.asarray(mass_matrix), np.asarray(rest) + np.array([force, 0.0]))


def total_energy(state, params):
    position, cos, sin, velocity, speed = state
    coordinates = jnp.stack([position, jnp.arctan2(sin, cos)])
    return float(sum(energies(coordinates, jnp.stack([velocity, speed]), params)))


def hold(problem, state, action, *, duration, num_steps):
    """The state after `duration` under a constant action, in `num_steps` Euler steps."""
    params = dataclasses.replace(problem.params, time_step=duration / num_steps)
    problem = dataclasses.replace(problem, params=params, action_repeat=num_steps)
    return jax.jit(problem.step)(state, jnp.array([action]), jax.random.key(0)).state


def exact(state, force, duration, params):
    """The same ODE by SciPy at tight tolerance, in our state's coordinates."""
    position, cos, sin, velocity, speed = np.asarray(state)

    def derivative(_, y):
        return np.concatenate([y[2:], accelerations(y[:2], y[2:], force, params)])

    start = [position, np.arctan2(sin, cos), velocity, speed]
    end = solve_ivp(derivative, (0.0, duration), start, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    return np.array([end[0], np.cos(end[1]), np.sin(end[1]), end[2], end[3]])


MOVING = jnp.array([0.1, np.cos(2.0), np.sin(2.0), -0.4, 1.5])


@pytest.mark.parametrize("params", [CartpoleParams(), OTHER_PARAMS], ids=["the paper's constants", "others"])
def test_one_step_is_an_euler_step_of_lagranges_equation(params):
    rng = np.random.default_rng(0)
    problem = Cartpole(params=params)
    num_states = 300
    theta, action = rng.uniform(-10.0, 10.0, num_states), rng.uniform(-1.0, 1.0, num_states)
    position, velocity, speed = rng.uniform([[-2.0], [-4.0], [-9.0]], [[2.0], [4.0], [9.0]], (3, num_states))
    states = jnp.stack([position, jnp.cos(theta), jnp.sin(theta), velocity, speed], axis=-1)
    ours = jax.jit(jax.vmap(problem.simulate))(states, jnp.asarray(action)[:, None])

    dt = params.time_step
    for i in range(num_states):
        coordinates, rates = np.array([position[i], theta[i]]), np.array([velocity[i], speed[i]])
        acceleration = accelerations(coordinates, rates, params.max_force * action[i], params)
        next_position, next_theta = coordinates + dt * rates
        next_rates = rates + dt * acceleration
        expected = [next_position, np.cos(next_theta), np.sin(next_theta), *next_rates]
        np.testing.assert_allclose(ours[i], expected, rtol=0.0, atol=TOLERANCE)


@pytest.mark.parametrize("action", [0.0, 0.7])
def test_small_steps_converge_to_the_exact_motion_at_first_order(action):
    problem, duration = Cartpole(), 1.0
    truth = exact(MOVING, problem.params.max_force * action, duration, problem.params)
    coarse, fine, finest = (
        np.asarray(hold(problem, MOVING, action, duration=duration, num_steps=n)) for n in (10_000, 20_000, 40_000)
    )
    error, half_error, quarter_error = (np.max(np.abs(x - truth)) for x in (coarse, fine, finest))
    assert error < 3e-3
    np.testing.assert_allclose([error / half_error, half_error / quarter_error], 2.0, rtol=5e-3)
    # Richardson's extrapolation cancels the first and second order: what is left would show another ODE at once.
    extrapolated = (8.0 * finest - 6.0 * fine + coarse) / 3.0
    np.testing.assert_allclose(extrapolated, truth, rtol=0.0, atol=1e-8)


def test_energy_is_kept_to_the_integrators_order():
    """Without force the drift is global error O(dt) over a second and local error O(dt^2) over one step."""
    problem = Cartpole()
    before = total_energy(MOVING, problem.params)

    def drift(*, duration, num_steps):
        return total_energy(hold(problem, MOVING, 0.0, duration=duration, num_steps=num_steps), problem.params) - before

    global_drift = [drift(duration=1.0, num_steps=n) for n in (10_000, 20_000)]
    assert abs(global_drift[0]) < 1e-2
    np.testing.assert_allclose(global_drift[0] / global_drift[1], 2.0, rtol=5e-3)
    local_drift = [drift(duration=dt, num_steps=1) for dt in (1e-3, 5e-4)]
    np.testing.assert_allclose(local_drift[0] / local_drift[1], 4.0, rtol=1e-2)
