"""Our pendulum against Gymnasium's own, an independent implementation, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from actsafe.problems import Pendulum, PendulumParams

TOLERANCE = 1e-10
NUM_STATES = 1000


def gymnasium_step(theta, speed, torque, **constants):
    """(theta', speed', reward) of Gymnasium's pendulum; its observation is float32, so the state itself is read."""
    env = PendulumEnv()
    for name, value in constants.items():
        assert hasattr(env, name)
        setattr(env, name, value)
    env.state = np.array([theta, speed])
    _, reward, *_ = env.step(np.array([torque]))
    return (*env.state, reward)


def random_situations(seed, *, num=NUM_STATES):
    """Angles beyond one turn, speeds up to the clip, torques up to twice the motor's."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-10.0, 10.0, num), rng.uniform(-8.0, 8.0, num), rng.uniform(-4.0, 4.0, num)


def as_state(theta, speed):
    return jnp.stack([jnp.cos(theta), jnp.sin(theta), jnp.asarray(speed)], axis=-1)


def decide(problem, states, torques, key):
    actions = jnp.asarray(torques)[:, None] / problem.params.max_torque
    return jax.jit(jax.vmap(lambda state, action: problem.step(state, action, key)))(states, actions)


def angular_distance(theta, state):
    """How far the angle of `state` is from theta, along the circle."""
    return np.abs(np.angle(np.exp(1j * (np.arctan2(state[:, 1], state[:, 0]) - theta))))


@pytest.mark.parametrize(
    ("params", "constants"),
    [
        (PendulumParams(gravity=10.0), {}),
        (PendulumParams(), {"g": 9.81}),
        (
            PendulumParams(gravity=3.7, mass=1.3, length=0.7, max_torque=2.5, max_speed=5.0, time_step=0.02),
            {"g": 3.7, "m": 1.3, "l": 0.7, "max_torque": 2.5, "max_speed": 5.0, "dt": 0.02},
        ),
    ],
    ids=["gymnasium's constants", "ours", "others"],
)
def test_one_step_is_gymnasiums(params, constants, key):
    theta, speed, torque = random_situations(1)
    ours = np.asarray(decide(Pendulum(params=params, action_repeat=1), as_state(theta, speed), torque, key).state)
    theirs = np.array([gymnasium_step(*each, **constants) for each in zip(theta, speed, torque, strict=True)])

    np.testing.assert_allclose(ours[:, 2], theirs[:, 1], rtol=0.0, atol=TOLERANCE)
    np.testing.assert_array_less(angular_distance(theirs[:, 0], ours), TOLERANCE)
    # The speed clip and the torque clip must both have been met, or the comparison would not cover them.
    assert np.any(np.abs(theirs[:, 1]) == params.max_speed)
    assert np.any(np.abs(torque) > params.max_torque)


def test_an_episode_of_held_actions_is_gymnasiums(key):
    problem = Pendulum(params=PendulumParams(gravity=10.0))
    env = PendulumEnv()
    torques = np.random.default_rng(2).uniform(-2.0, 2.0, problem.num_decisions)
    state = problem.reset(key)
    env.state = np.array([np.pi, 0.0])
    step = jax.jit(problem.step)
    for torque in torques:
        state = step(state, jnp.array([torque / 2.0]), key).state
        for _ in range(problem.action_repeat):
            env.step(np.array([torque]))
        theta, speed = env.state
        np.testing.assert_allclose(state, [np.cos(theta), np.sin(theta), speed], rtol=0.0, atol=TOLERANCE)


def test_swing_up_reward_is_gymnasiums_but_for_the_price_of_torque():
    theta, speed, torque = random_situations(3)
    torque = np.clip(torque, -2.0, 2.0)
    action = torque / 2.0
    reward = jax.vmap(Pendulum().tasks["swing_up"])(as_state(theta, speed), jnp.asarray(action)[:, None])
    theirs = np.array([gymnasium_step(*each)[2] for each in zip(theta, speed, torque, strict=True)])
    # Gymnasium charges 0.001 torque^2 = 0.001 (2 u)^2 = 0.004 u^2, the paper 0.02 u^2.
    np.testing.assert_allclose(reward, theirs - (0.02 - 0.004) * action**2, rtol=0.0, atol=TOLERANCE)
