"""Safety-Gym under random actions, and its layouts, against samples of the simulator that the paper used.

The full comparison is `benchmarks/safety_gym_statistics.py`; this is what fits into a test.
"""

import numpy as np
import pytest

from actsafe.problems.safety_gym import Batch, SafetyGymSettings, Simulation

NUM_EPISODES = 20


def test_noise_alone_makes_point_tremble_as_it_did():
    # Without commands, the reference's joint velocities have these standard deviations.
    simulation = Simulation(SafetyGymSettings(num_hazards=0, num_vases=0, num_pillars=0))
    spreads = []
    for seed in range(4):
        simulation.reset(seed)
        velocities = []
        for _ in range(500):
            simulation.step(np.zeros(2))
            velocities.append(simulation.data.qvel[:3].copy())
        spreads.append(np.std(velocities, axis=0))
    x, y, yaw = np.mean(spreads, axis=0)
    assert x == pytest.approx(0.041, abs=0.012)
    assert y == pytest.approx(0.016, abs=0.002)
    assert yaw == pytest.approx(0.82, abs=0.01)


@pytest.mark.parametrize(
    ("task", "mean", "std", "goals"), [("GotoGoal", 0.12, 0.84, 0.10), ("GotoGoalSparse", 0.12, 0.35, 0.10)]
)
def test_random_returns_are_the_references_up_to_sampling_error(task, mean, std, goals):
    settings = SafetyGymSettings(task=task, reward="released", action_repeat=2)
    batch = Batch(settings, NUM_EPISODES, 1)
    batch.reset(list(range(NUM_EPISODES)))
    generator = np.random.default_rng(0)
    returns, costs, met = np.zeros((3, NUM_EPISODES))
    for _ in range(500):
        result = batch.step(generator.uniform(-1.0, 1.0, (NUM_EPISODES, 2)))
        returns += result.rewards
        costs += result.costs
        met += result.goals_met
    assert result.is_truncated.all() and not result.is_broken.any()
    error = np.hypot(np.std(returns, ddof=1), std) / np.sqrt(NUM_EPISODES)
    assert abs(np.mean(returns) - mean) < 3.0 * error
    # Goals are rare events; the reference had 2 in its 20 episodes.
    assert abs(np.sum(met) - goals * NUM_EPISODES) < 3.0 * np.sqrt(2.0 * max(goals * NUM_EPISODES, np.sum(met)))
    # Costs have a long tail: the reference's mean is 12.7, one episode may have hundreds.
    assert 0.0 < np.mean(costs) < 100.0 and np.all(costs <= 1000.0)


@pytest.mark.parametrize(("task", "share"), [("GotoGoal", 0.357), ("PushBox", 0.18), ("PushBoxSparse", 0.125)])
def test_goals_are_pushed_outwards_as_often_as_they_were(task, share):
    num_layouts = 400
    simulation = Simulation(SafetyGymSettings(task=task))
    goals, distances = [], []
    for seed in range(num_layouts):
        simulation.reset(seed)
        goals.append(simulation.goal)
        distances.append(np.linalg.norm(simulation.data.body("robot").xpos[:2] - simulation.goal))
    # The share of the reference is of 400 seeds too.
    error = np.sqrt(2.0 * share * (1.0 - share) / num_layouts)
    assert abs(np.mean(np.max(np.abs(goals), axis=1) > 1.1) - share) < 3.0 * error
    assert np.min(distances) >= 0.8
    if task == "GotoGoal":
        assert np.mean(distances) == pytest.approx(1.75, abs=0.15)


def test_every_button_is_drawn_alike():
    simulation = Simulation(SafetyGymSettings(task="PressButtons"))
    simulation.reset(0)
    counts = np.bincount([simulation.draw_button() for _ in range(4000)], minlength=4)
    # Four standard deviations of a binomial count with chance 1/4.
    assert np.all(np.abs(counts - 1000) < 4.0 * np.sqrt(4000 * 0.25 * 0.75))
