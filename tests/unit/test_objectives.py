"""Imagined particles, rewards, pessimistic costs and feedback against numbers worked by hand."""

import dataclasses
import functools
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jaxtyping import Array

from actsafe.models.base import Model, Prediction, TrueDynamics
from actsafe.objectives.feedback import Tracking, no_tracking, track
from actsafe.objectives.imagination import ParticleNoise, imagine
from actsafe.objectives.pessimism import Constraint, Objective
from actsafe.objectives.rewards import InformationGain, Mixture, TaskReward, UncertaintyNorm
from actsafe.planning.icem import ICEMSettings, Memory, search
from actsafe.problems import Cartpole, Pendulum
from actsafe.problems.base import Problem


class Plane(Problem):
    """Two coordinates and one push; the first coordinate must stay within 1.2, and the second pays, less the push."""

    name: ClassVar[str] = "plane"
    state_names: ClassVar[tuple[str, ...]] = ("x", "y")
    action_names: ClassVar[tuple[str, ...]] = ("push",)
    state_scale: ClassVar[tuple[float, ...]] = (0.5, 2.0)
    change_scale: ClassVar[tuple[float, ...]] = (1.0, 1.0)

    num_decisions: int = eqx.field(default=5, static=True)
    action_repeat: int = eqx.field(default=1, static=True)
    budget: float = eqx.field(default=0.0, static=True)
    process_noise_std: float = eqx.field(default=0.0, static=True)

    def reset(self, key):
        return jnp.zeros(2)

    def simulate(self, state, action):
        return state

    def cost(self, state, margin=0.0):
        return jnp.maximum(jnp.abs(state[0]) - (1.2 - margin), 0.0)

    def project(self, state):
        return state

    @property
    def tasks(self):
        return {"rise": lambda state, action: state[1] - action[0] ** 2}

    def is_goal(self, state):
        return state[1] > 1.0


class Linear(Model):
    """s' = A s + B u with the same doubt everywhere."""

    slope: Array
    push: Array
    epistemic_std: Array
    aleatoric_std: Array

    def predict(self, state, action):
        return Prediction(self.slope @ state + self.push @ action, self.epistemic_std, self.aleatoric_std)


PLANE = Plane()
MODEL = Linear(
    jnp.array([[1.0, 0.5], [0.0, 2.0]]), jnp.array([[0.0], [1.0]]), jnp.array([0.1, 0.2]), jnp.array([0.01, 0.02])
)
START, PLAN, MULTIPLIER = jnp.array([1.0, 0.0]), jnp.array([[0.5], [-0.5]]), jnp.array([3.0, 2.0])
NOISE = ParticleNoise(
    epistemic=jnp.array([[[0.0, 0.0], [0.0, 0.0]], [[1.0, -1.0], [0.0, 1.0]]]),
    aleatoric=jnp.array([[[0.0, 0.0], [0.0, 0.0]], [[2.0, 1.0], [-1.0, 0.0]]]),
)
OPEN_LOOP = no_tracking(PLANE, 2).gains

imagine_plane = jax.jit(
    lambda gains, multiplier: imagine(PLANE, MODEL, START, PLAN, gains=gains, noise=NOISE, multiplier=multiplier)
)


def close(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=0.0, atol=1e-14)


def test_particles_by_hand():
    """s' = A s + B u + beta sigma e_1 + sigma_noise e_2, and the first particle has no noise."""
    particles = imagine_plane(OPEN_LOOP, MULTIPLIER)
    # First particle: (1 + 0.5 * 0, 2 * 0 + 0.5) = (1, 0.5), then (1 + 0.25, 1 - 0.5) = (1.25, 0.5).
    close(particles.next_states[0], [[1.0, 0.5], [1.25, 0.5]])
    # Second: (1, 0.5) + (3 * 0.1 * 1 + 0.01 * 2, 2 * 0.2 * -1 + 0.02 * 1) = (1.32, 0.12); then A s + B u =
    # (1.32 + 0.06, 0.24 - 0.5) = (1.38, -0.26), plus (3 * 0.1 * 0 - 0.01, 2 * 0.2 * 1 + 0) = (1.37, 0.14).
    close(particles.next_states[1], [[1.32, 0.12], [1.37, 0.14]])
    close(particles.states[:, 0], [START, START])
    close(particles.states[:, 1], particles.next_states[:, 0])
    close(particles.actions, [PLAN, PLAN])
    close(particles.predictions.mean[1], [[1.0, 0.5], [1.38, -0.26]])
    close(particles.predictions.epistemic_std, np.broadcast_to([0.1, 0.2], (2, 2, 2)))


def test_the_multiplier_scales_doubt_and_not_noise():
    """With beta = (0, 10) the first step of the second particle is (1 + 0 + 0.02, 0.5 - 10 * 0.2 + 0.02)."""
    particles = imagine_plane(OPEN_LOOP, jnp.array([0.0, 10.0]))
    close(particles.next_states[1, 0], [1.02, -1.48])
    close(particles.next_states[0], [[1.0, 0.5], [1.25, 0.5]])


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        # After one step the second particle is off by (0.32, -0.38): -0.5 + 0.5 * 0.32 - 0.25 * 0.38 = -0.435.
        ([0.5, 0.25], -0.435),
        # -0.5 - 0.32 - 2 * 0.38 = -1.58 is no action: clipped.
        ([-1.0, 2.0], -1.0),
        # -0.5 + 4 * 0.32 + 3 * 0.38 = 1.92
        ([4.0, -3.0], 1.0),
    ],
)
def test_a_particle_answers_to_its_deviation_from_the_mean(gain, expected):
    gains = jnp.array([[[7.0, 7.0]], [gain]])
    particles = imagine_plane(gains, MULTIPLIER)
    # At the start all particles stand where the mean does, so that the first gain answers to nothing.
    close(particles.actions[:, 0, 0], [0.5, 0.5])
    close(particles.actions[:, 1, 0], [-0.5, expected])
    close(particles.next_states[0], [[1.0, 0.5], [1.25, 0.5]])
    # As without feedback, but for the push.
    close(particles.next_states[1, 1], [1.37, 0.14 + (expected + 0.5)])


def test_particles_are_put_back_among_possible_states():
    """A pendulum's cosine and sine after any drift lie on the circle; the speed is left alone."""
    model = Linear(jnp.eye(3), jnp.zeros((3, 1)), jnp.full(3, 0.4), jnp.zeros(3))
    noise = ParticleNoise(jnp.array([[[0.0, 0.0, 0.0]], [[1.0, 2.0, -1.0]]]), jnp.zeros((2, 1, 3)))
    state = jnp.array([0.6, 0.8, 1.0])
    problem = Pendulum()
    particles = jax.jit(functools.partial(imagine, problem, model))(
        state, jnp.zeros((1, 1)), gains=no_tracking(problem, 1).gains, noise=noise, multiplier=jnp.full(3, 0.5)
    )
    # (0.6 + 0.2, 0.8 + 0.4) = (0.8, 1.2), whose length is sqrt(2.08); 1 - 0.2.
    close(particles.next_states[:, 0], [state, [0.8 / math.sqrt(2.08), 1.2 / math.sqrt(2.08), 0.8]])


def test_drawn_noise_is_standard_normal_but_for_the_first_particle(key):
    noise = ParticleNoise.draw(key, 2001, 3, 2)
    assert noise.epistemic.shape == noise.aleatoric.shape == (2001, 3, 2)
    assert not np.any(noise.epistemic[0])
    assert not np.any(noise.aleatoric[0])
    both = np.concatenate([np.asarray(each[1:]).reshape(2000, 6) for each in noise], axis=-1)
    # Five standard errors: of a mean 1/sqrt(n), of a variance sqrt(2/n), of a covariance 1/sqrt(n).
    np.testing.assert_allclose(both.mean(axis=0), 0.0, atol=5.0 / math.sqrt(2000))
    np.testing.assert_allclose(both.T @ both / 2000, np.eye(12), atol=5.0 * math.sqrt(2 / 2000))


def prediction(epistemic, aleatoric):
    return Prediction(jnp.zeros(2), jnp.array(epistemic), jnp.array(aleatoric))


def test_information_gain_by_hand():
    """log(1 + (0.3/0.1)^2) + log(1 + (0.2/0.2)^2) = log 10 + log 2 = log 20."""
    reward = InformationGain()
    close(reward(START, PLAN[0], prediction([0.3, 0.2], [0.1, 0.2])), math.log(20.0))
    close(reward(START, PLAN[0], prediction([0.0, 0.0], [0.1, 0.2])), 0.0)
    # Where the noise is below the floor of 1e-4 the floor stands for it: log(1 + (3e-4/1e-4)^2) + 0.
    close(reward(START, PLAN[0], prediction([3e-4, 0.0], [1e-9, 0.0])), math.log(10.0))
    close(InformationGain(noise_floor=1.0)(START, PLAN[0], prediction([3.0, 0.0], [0.1, 0.1])), math.log(10.0))


def test_doubt_norm_by_hand():
    """|(0.6/0.2, 2/0.5)| = |(3, 4)| = 5, whatever the noise."""
    reward = UncertaintyNorm((0.2, 0.5))
    close(reward(START, PLAN[0], prediction([0.6, 2.0], [0.1, 9.0])), 5.0)


def test_task_reward_is_the_problems():
    close(TaskReward(PLANE, "rise")(jnp.array([9.0, 2.0]), jnp.array([0.5]), prediction([1.0, 1.0], [1.0, 1.0])), 1.75)
    state, action = jnp.array([0.6, 0.8, 2.0]), jnp.array([0.3])
    # theta = atan2(0.8, 0.6) = 0.92729522 from the top: 0.85987642 + 0.1 * 4 + 0.02 * 0.09; pi - theta from the bottom.
    for task, expected in {"swing_up": -1.26167642, "keep_down": -5.30491314}.items():
        ours = TaskReward(Pendulum(), task)(state, action, prediction([1.0, 1.0], [1.0, 1.0]))
        np.testing.assert_allclose(ours, expected, rtol=0.0, atol=1e-7)


def test_a_mixture_is_a_weighted_sum():
    """2 * |(3, 4)| - 1 * (2 - 0.25) = 8.25."""
    reward = Mixture((UncertaintyNorm((0.2, 0.5)), TaskReward(PLANE, "rise")), jnp.array([2.0, -1.0]))
    close(reward(jnp.array([0.0, 2.0]), jnp.array([0.5]), prediction([0.6, 2.0], [0.1, 0.1])), 8.25)


def evaluate(plans=None, *, budget=0.0, is_optimistic=True, constraint=None, model=MODEL, noise=NOISE):
    objective = Objective(
        TaskReward(PLANE, "rise"), num_particles=2, is_optimistic=is_optimistic, constraint=constraint
    )
    plans = PLAN[None] if plans is None else plans
    return compiled_evaluate(objective, model, plans, jnp.asarray(budget), noise)


@eqx.filter_jit
def compiled_evaluate(objective, model, plans, budget, noise=NOISE):
    return objective.evaluate(
        PLANE, model, START, plans, gains=OPEN_LOOP, noise=noise, multiplier=MULTIPLIER, budget=budget
    )


def test_value_and_cost_by_hand():
    """The particles are those of `test_particles_by_hand`: x = 1, 1.25 and x = 1.32, 1.37 against a limit of 1.2."""
    # Costs: 0 + 0.05, and 0.12 + 0.17 = 0.29: the worse particle counts.
    # Rewards y - u^2 before each action: (0 - 0.25, 0.5 - 0.25), mean 0; (0 - 0.25, 0.12 - 0.25), mean -0.19.
    optimistic = evaluate()
    close(optimistic.value, [0.0])
    close(optimistic.cost, [0.29])
    neutral = evaluate(is_optimistic=False)
    close(neutral.value, [-0.095])
    close(neutral.cost, [0.29])


def test_the_cost_is_that_of_one_particle_and_not_of_the_worst_at_every_step():
    """With e = -1 at its second step the second particle ends at 1.38 - 0.3 - 0.01 = 1.07, the mean at 1.25."""
    noise = NOISE._replace(epistemic=NOISE.epistemic.at[1, 1, 0].set(-1.0))
    # Costs 0 + 0.05 and 0.12 + 0; the worst of each step together would be 0.17.
    close(evaluate(noise=noise).cost, [0.12])


@pytest.mark.parametrize(
    ("margin", "budget", "cost", "value"),
    [
        # A margin of 0.1 makes the limit 1.1: 0 + 0.15, and 0.22 + 0.27 = 0.49.
        (0.0, 0.0, 0.29, -2.9),
        (0.0, 0.09, 0.29, -2.0),
        (0.0, 0.29, 0.29, 0.0),
        (0.0, 1.0, 0.29, 0.0),
        (0.1, 0.0, 0.49, -4.9),
        (0.1, 0.09, 0.49, -4.0),
        # More was spent than the budget allowed: whatever comes is too much.
        (0.0, -0.1, 0.29, -3.9),
    ],
)
def test_cost_beyond_the_budget_is_charged(margin, budget, cost, value):
    """The penalty is 10 per unit of cost above the budget; the margin tightens the limit."""
    ours = evaluate(budget=budget, constraint=Constraint(penalty=10.0, margin=margin))
    np.testing.assert_allclose(ours.cost, [cost], rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(ours.value, [value], rtol=0.0, atol=1e-12)


def test_plans_are_evaluated_each_on_its_own():
    plans = jnp.stack([PLAN, -PLAN, jnp.ones((2, 1))])
    together = evaluate(plans)
    close(together.value[:1], [0.0])
    for i in range(3):
        alone = evaluate(plans[i : i + 1])
        close(together.value[i], alone.value[0])
        close(together.cost[i], alone.cost[0])
    assert len(np.unique(together.cost)) == 3


@pytest.mark.parametrize("name", ["slope", "push", "epistemic_std", "aleatoric_std"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_that_is_not_finite_has_a_cost_that_is_not(name, value):
    """In every particle or, where only the noise is infinite, by way of infinity times the mean's zero."""
    model = eqx.tree_at(lambda m: getattr(m, name), MODEL, getattr(MODEL, name) * value)
    ours = evaluate(model=model, constraint=Constraint())
    assert ours.cost[0] == np.inf
    assert evaluate(model=model).cost[0] == np.inf


def test_a_lost_coordinate_that_the_cost_does_not_read_spoils_the_cost():
    """y leaves the numbers at the very last step, and the cost looks at x alone."""

    class Leaky(Model):
        def predict(self, state, action):
            return Prediction(
                jnp.stack([state[0], jnp.where(state[1] > 0.0, jnp.nan, 1.0)]), jnp.zeros(2), jnp.zeros(2)
            )

    lost = evaluate(jnp.zeros((1, 2, 1)), model=Leaky(), noise=jax.tree.map(jnp.zeros_like, NOISE))
    assert lost.cost[0] == np.inf
    assert np.isfinite(lost.value[0]), "the reward does not read the last state: the cost alone must speak up"


class CliffModel(Model):
    """Adds the push to x; beyond the cliff at 1.25 it knows nothing."""

    def predict(self, state, action):
        x = state[0] + action[0]
        unknown = jnp.where(state[0] > 1.25, jnp.nan, 0.0)
        return Prediction(jnp.stack([x + unknown, state[1]]), jnp.array([0.1, 0.0]), jnp.zeros(2))


def test_one_lost_particle_spoils_the_cost():
    """The second particle, at 1 + 3 * 0.1, is past the cliff and lost; the mean is not."""
    still = jnp.zeros((1, 2, 1))
    ours = evaluate(still, model=CliffModel(), constraint=Constraint())
    assert ours.cost[0] == np.inf
    assert not np.isfinite(ours.value[0])
    # Moving away first keeps all particles on this side.
    assert np.isfinite(evaluate(still - 0.5, model=CliffModel(), constraint=Constraint()).cost[0])


def test_a_search_treats_a_cost_that_is_not_a_number_as_infinite(key):
    """Doing nothing is worth most, but loses a particle to the cliff: it is never the plan chosen."""
    settings = ICEMSettings(horizon=2, num_candidates=16, num_elites=4, num_iterations=1)
    objective = Objective(TaskReward(PLANE, "rise"), num_particles=2, is_optimistic=True, constraint=None)

    def find(model):
        def evaluate(plans):
            return compiled_evaluate(objective, model, plans, jnp.zeros(()))

        return search(evaluate, Memory.empty(settings, 1), key, settings)

    found = eqx.filter_jit(find)(CliffModel())
    assert np.isfinite(found.best_value)
    assert np.isfinite(found.best_cost)
    assert found.best[0, 0] <= -0.05, "the first push must take the particle at 1.3 back behind the cliff"
    assert found.best_value < 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": 0.0}, "constraint.penalty must be positive, got 0.0"),
        ({"penalty": math.nan}, "constraint.penalty must be positive, got nan"),
        ({"margin": -0.1}, "constraint.margin must be at least 0, got -0.1"),
        ({"margin": math.nan}, "constraint.margin must be at least 0, got nan"),
    ],
    ids=str,
)
def test_a_wrong_constraint_is_named_with_what_was_expected(options, message):
    with pytest.raises(ValueError, match=message):
        Constraint(**options)


EFFORT = 0.3
track_jitted = jax.jit(functools.partial(track, effort=EFFORT))


def best_first_actions(slope, push, weight, horizon):
    """-K_0 by least squares on all actions at once, without a recursion: the response to each unit deviation."""
    dim, num_actions = push.shape
    powers = [np.linalg.matrix_power(slope, t) for t in range(horizon + 1)]
    root = np.sqrt(weight)
    rows = [
        np.concatenate(
            [root @ powers[t - 1 - i] @ push if i < t else np.zeros((dim, num_actions)) for i in range(horizon)], axis=1
        )
        for t in range(1, horizon + 1)
    ]
    left = np.concatenate([*rows, math.sqrt(EFFORT) * np.eye(horizon * num_actions)])
    right = np.concatenate(
        [*(-root @ powers[t] for t in range(1, horizon + 1)), np.zeros((horizon * num_actions, dim))]
    )
    return np.linalg.lstsq(left, right, rcond=None)[0][:num_actions]


def test_gains_are_those_of_the_best_response():
    """On a linear system the gain with t steps to go is that of a horizon of t; far from the end it is stationary."""
    horizon = 40
    gains = np.asarray(track_jitted(PLANE, MODEL, START, 0.3 * jnp.ones((horizon, 1))).gains)
    assert gains.shape == (horizon, 1, 2)
    slope, push = np.asarray(MODEL.slope), np.asarray(MODEL.push)
    weight = np.diag([1 / 0.5**2, 1 / 2.0**2])
    for steps_to_go in (1, 2, 5):
        expected = best_first_actions(slope, push, weight, steps_to_go)
        np.testing.assert_allclose(gains[-steps_to_go], expected, rtol=0.0, atol=1e-10)
    value = scipy.linalg.solve_discrete_are(slope, push, weight, EFFORT * np.eye(1))
    stationary = -np.linalg.solve(EFFORT * np.eye(1) + push.T @ value @ push, push.T @ value @ slope)
    np.testing.assert_allclose(gains[0], stationary, rtol=0.0, atol=1e-8)
    assert np.all(np.abs(np.linalg.eigvals(slope + push @ gains[0])) < 1.0), "the loop must be stable"


def numerical_slopes(function, state, action, step=1e-6):
    point = np.concatenate([state, action])

    def at(x):
        return np.asarray(function(jnp.asarray(x[: len(state)]), jnp.asarray(x[len(state) :])))

    columns = [(at(point + step * e) - at(point - step * e)) / (2 * step) for e in np.eye(len(point))]
    slopes = np.stack(columns, axis=-1)
    return slopes[:, : len(state)], slopes[:, len(state) :]


def test_gains_along_a_nonlinear_trajectory():
    """The pendulum's own dynamics, linearised by differences along the plan, and Riccati's recursion in NumPy."""
    problem = Pendulum()
    plan = jnp.array([[0.9], [-0.3], [0.5], [0.1]])
    state = jnp.array([math.cos(0.4), math.sin(0.4), -1.0])
    tracking = track_jitted(problem, TrueDynamics(problem), state, plan)
    gains = tracking.gains

    @jax.jit
    def step(state, action):
        return problem.step(problem.project(state), action, jax.random.key(0)).state

    slopes = []
    for t, action in enumerate(plan):
        np.testing.assert_allclose(tracking.states[t], state, rtol=0.0, atol=1e-12)
        slopes.append(numerical_slopes(step, np.asarray(state), np.asarray(action)))
        state = step(state, action)
    weight = np.diag([1 / 0.5**2, 1 / 0.5**2, 1 / 2.0**2])
    value = weight
    for t in reversed(range(4)):
        a, b = slopes[t]
        inverse = np.linalg.inv(EFFORT * np.eye(1) + b.T @ value @ b)
        np.testing.assert_allclose(gains[t], -inverse @ b.T @ value @ a, rtol=0.0, atol=1e-6)
        value = weight + a.T @ value @ a - a.T @ value @ b @ inverse @ b.T @ value @ a
    # A longer rod cannot occur, so that nothing answers to it.
    close(gains[0] @ jnp.array([math.cos(0.4), math.sin(0.4), 0.0]), [0.0])


def test_a_trajectory_that_is_not_finite_gets_no_feedback():
    model = eqx.tree_at(lambda m: m.slope, MODEL, jnp.full((2, 2), math.nan))
    np.testing.assert_array_equal(track_jitted(PLANE, model, START, jnp.zeros((40, 1))).gains, np.zeros((40, 1, 2)))
    for problem in (PLANE, Cartpole()):
        np.testing.assert_array_equal(no_tracking(problem, 3).gains, np.zeros((3, 1, problem.state_dim)))


def test_following_a_trajectory_by_hand():
    """The mean model, a plan of (0.5, -0.5, 0.9) from (1, 0), and a pull towards a trajectory that stays at (1, 1)."""
    tracking = Tracking(jnp.ones((3, 2)), jnp.array([[[0.0, -0.25]], [[-0.5, 0.5]], [[0.0, -1.0]]]))
    # 0.5 - 0.25 (0 - 1) = 0.75, to (1, 0.75); -0.5 - 0.5 (1 - 1) + 0.5 (0.75 - 1) = -0.625, to (1.375, 0.875);
    # 0.9 - (0.875 - 1) = 1.025, clipped.
    plan = jnp.array([[0.5], [-0.5], [0.9]])
    close(tracking.follow(PLANE, MODEL, START, plan)[:, 0], [0.75, -0.625, 1.0])
    # The trajectory of a plan, held by its own gains, asks for that plan.
    own = track_jitted(PLANE, MODEL, START, plan)
    close(own.follow(PLANE, MODEL, START, plan), plan)


def test_following_a_trajectory_stays_among_possible_states():
    """A model that doubles the pendulum's state leaves the unit circle, and is put back before the next gain acts."""

    class Doubling(Model):
        def predict(self, state, action):
            return Prediction(2.0 * state, jnp.zeros(3), jnp.zeros(3))

    tracking = Tracking(jnp.zeros((2, 3)), jnp.array([[[0.5, 0.0, 0.0]], [[1.0, 0.0, 0.1]]]))
    # 0.5 * 0.6 = 0.3; then (1.2, 1.6, 2) is (0.6, 0.8, 2) on the circle: 0.6 + 0.1 * 2 = 0.8.
    actions = tracking.follow(Pendulum(), Doubling(), jnp.array([0.6, 0.8, 1.0]), jnp.zeros((2, 1)))
    close(actions[:, 0], [0.3, 0.8])


def test_the_true_dynamics_as_a_model_are_the_mean_and_the_noise():
    state, action = jnp.array([0.6, 0.8, 1.0]), jnp.array([0.5])
    prediction = TrueDynamics(Pendulum(process_noise_std=0.25)).predict(state, action)
    close(prediction.mean, Pendulum().step(state, action, jax.random.key(1)).state)
    close(prediction.epistemic_std, [0.0] * 3)
    close(prediction.aleatoric_std, [0.25] * 3)


def test_an_objective_without_particles_is_refused():
    with pytest.raises(ValueError, match="at least 1 particle, got num_particles=0"):
        Objective(TaskReward(PLANE, "rise"), num_particles=0, is_optimistic=True, constraint=None)


def test_feedback_shrinks_the_spread_of_an_unstable_system(key):
    """y doubles at every step: its spread grows as 2^t without feedback, and hardly with it."""
    horizon = 8
    noise = ParticleNoise.draw(key, 64, horizon, 2)
    plan = jnp.zeros((horizon, 1))
    model = dataclasses.replace(MODEL, epistemic_std=jnp.array([0.01, 0.02]))

    def spread(gains):
        particles = imagine(PLANE, model, START * 0.0, plan, gains=gains, noise=noise, multiplier=jnp.ones(2))
        return jnp.std(particles.next_states[1:], axis=0)

    open_loop, closed_loop = jax.jit(
        lambda: (
            spread(no_tracking(PLANE, horizon).gains),
            spread(track(PLANE, model, START * 0.0, plan, effort=EFFORT).gains),
        )
    )()
    # y_8 = sum_t 2^(8-t) e_t: its std is sqrt((4^8 - 1) / 3) = 148 times one step's, hypot(0.02, 0.02).
    np.testing.assert_allclose(open_loop[-1, 1], 148 * math.hypot(0.02, 0.02), rtol=0.3)
    assert np.all(closed_loop[-1] < 0.05 * open_loop[-1])
    np.testing.assert_allclose(closed_loop[0], open_loop[0], rtol=1e-12)
