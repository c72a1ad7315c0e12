"""The analytic swing-up cartpole against MuJoCo, and its rewards and costs at their edges."""

import math

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from actsafe.problems import CartpoleSwingup

XML = """
<mujoco>
  <option timestep="0.01" integrator="RK4" gravity="0 0 -9.81"><flag contact="disable"/></option>
  <worldbody>
    <body pos="0 0 1">
      <joint name="slider" type="slide" axis="1 0 0" damping="5e-4"/>
      <geom type="box" size="0.2 0.15 0.1" mass="1"/>
      <body>
        <joint name="hinge" type="hinge" axis="0 1 0" damping="2e-6"/>
        <geom type="capsule" fromto="0 0 0 0 0 1" size="0.045" mass="0.1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slider" gear="10" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
ONE_STEP = CartpoleSwingup(action_repeat=1)


def state_of(position=0.0, theta=0.0, velocity=0.0, speed=0.0):
    return jnp.array([position, math.cos(theta), math.sin(theta), velocity, speed])


def test_the_inertia_is_that_of_the_compiled_model():
    model = mujoco.MjModel.from_xml_string(XML)
    about_hinge = model.body_inertia[2].max() + 0.1 * 0.5**2
    np.testing.assert_allclose(float(ONE_STEP.params.pole_inertia), about_hinge, rtol=1e-14)
    # The published number.
    np.testing.assert_allclose(float(ONE_STEP.params.pole_inertia), 0.0344245928, atol=5e-10)


def test_a_hundred_steps_from_twenty_states_are_mujocos():
    """With new random actions at every step; as far as the rail has no end, which only the problem has."""
    rng = np.random.default_rng(0)
    model = mujoco.MjModel.from_xml_string(XML)
    starts = rng.uniform([-0.3, -np.pi, -0.5, -4.0], [0.3, np.pi, 0.5, 4.0], (20, 4))
    actions = rng.uniform(-1.0, 1.0, (20, 100, 1))
    theirs = np.empty((20, 100, 5))
    data = mujoco.MjData(model)
    for i, (position, theta, velocity, speed) in enumerate(starts):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = (position, theta), (velocity, speed)
        for t in range(100):
            data.ctrl[:] = actions[i, t]
            mujoco.mj_step(model, data)
            theirs[i, t] = data.qpos[0], np.cos(data.qpos[1]), np.sin(data.qpos[1]), *data.qvel
    assert np.max(np.abs(theirs[..., 0])) < 1.7, "an end of the rail was met; choose gentler starts"

    def roll(start, actions):
        def step(state, action):
            state = ONE_STEP.simulate(state, action)
            return state, state

        return jax.lax.scan(step, start, actions)[1]

    states = jnp.stack([state_of(*start) for start in starts])
    np.testing.assert_allclose(jax.jit(jax.vmap(roll))(states, jnp.asarray(actions)), theirs, rtol=0.0, atol=1e-9)


def test_the_rail_ends():
    """At 1.79 m and 3 m/s the next step would end at 1.82."""
    for side in (1.0, -1.0):
        end = ONE_STEP.simulate(state_of(side * 1.79, 0.3, side * 3.0), jnp.zeros(1))
        assert end[0] == side * 1.8
        assert end[3] == 0.0
    free = ONE_STEP.simulate(state_of(1.79, 0.3, -3.0), jnp.zeros(1))
    assert free[3] < -2.9


@pytest.mark.parametrize(
    ("position", "margin", "expected"),
    [
        (0.5, 0.0, 1.0),
        (-0.5, 0.0, 1.0),
        (np.nextafter(0.5, 0.0), 0.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.45, 0.1, 1.0),
        (math.inf, 0.0, 1.0),
    ],
)
def test_cost_is_one_from_the_limit_on(position, margin, expected):
    assert ONE_STEP.cost(jnp.array([position, 1.0, 0.0, 0.0, 0.0]), margin) == expected


@pytest.mark.parametrize(
    ("position", "cos", "expected"),
    [
        (0.25, 0.995, 1.0),
        (-0.25, 1.0, 1.0),
        (np.nextafter(0.25, 1.0), 1.0, 0.0),
        (0.0, np.nextafter(0.995, 0.0), 0.0),
        (0.0, -1.0, 0.0),
        (math.nan, 1.0, 0.0),
    ],
)
def test_sparse_reward_is_one_up_to_its_edges(position, cos, expected):
    state = jnp.array([position, cos, math.sqrt(1.0 - cos**2), 0.0, 0.0])
    assert ONE_STEP.tasks["swing_up_sparse"](state, jnp.zeros(1)) == expected


@pytest.mark.parametrize(
    ("action", "expected"),
    # 0.2 (1 - 0.1^(((|a| - 0.1) / 0.1)^2)): at 0.15 the exponent is 1/4, at 0.2 it is 1, at 0.3 it is 4.
    [
        (0.0, 0.0),
        (0.1, 0.0),
        (-0.1, 0.0),
        (0.15, 0.2 * (1.0 - 0.1**0.25)),
        (-0.2, 0.18),
        (0.3, 0.2 * (1.0 - 1e-4)),
        (1.0, 0.2),
    ],
)
def test_effort_by_hand(action, expected):
    hanging = state_of(theta=math.pi)
    ours = ONE_STEP.tasks["swing_up_sparse"](hanging, jnp.array([action]))
    np.testing.assert_allclose(ours, -expected, rtol=0.0, atol=1e-12)


def test_dense_reward_by_hand():
    free = CartpoleSwingup(action_cost=0.0)
    # Upright 1; at 2 m (1 + 0.1) / 2 = 0.55; full force 4/5; at 5 rad/s 0.55.
    ours = free.tasks["swing_up"](state_of(2.0, 0.0, 0.0, 5.0), jnp.ones(1))
    np.testing.assert_allclose(ours, 0.55 * 0.8 * 0.55, rtol=1e-12)
    # Level: 1/2; the rest at its best.
    np.testing.assert_allclose(free.tasks["swing_up"](state_of(0.0, math.pi / 2), jnp.zeros(1)), 0.5, rtol=1e-12)


def test_a_decision_sums_both_of_its_steps(key):
    """Moving out at 1 m/s from 0.485, the first 0.01 s end at 0.495 and the second at 0.505; one of two costs."""
    problem = CartpoleSwingup()
    step = problem.step(state_of(0.485, math.pi, 1.0), jnp.array([0.2]), key)
    np.testing.assert_allclose(step.state[0], 0.505, atol=1e-3)
    assert step.cost == 1.0
    assert step.inner_cost == 1.0
    farther = problem.step(state_of(0.6, math.pi, 1.0), jnp.array([0.2]), key)
    assert farther.cost == 2.0
    # Hanging pays nothing; the force 0.18 in each step. Kept down, both steps pay 1.
    np.testing.assert_allclose(step.rewards[0], -0.36, atol=1e-12)
    np.testing.assert_allclose(step.rewards[2], 2.0 - 0.36, atol=1e-12)


def test_resets_hang_near_the_middle(key):
    states = jax.vmap(ONE_STEP.reset)(jax.random.split(key, 2000))
    offsets = jnp.stack([states[:, 0], jnp.arctan2(states[:, 2], states[:, 1]) % (2 * jnp.pi) - jnp.pi, *states.T[3:]])
    np.testing.assert_allclose(jnp.std(offsets, axis=1), 0.01, rtol=0.1)
    np.testing.assert_allclose(jnp.mean(offsets, axis=1), 0.0, atol=0.001)
