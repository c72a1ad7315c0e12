"""What a planner reaches that knows the dynamics."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.problems import Pendulum
from actsafe.training.presets import PRESETS
from actsafe.training.reference import reference_returns


@pytest.fixture(scope="module")
def found():
    return reference_returns(dataclasses.replace(PRESETS["tiny"](), options={"num_decisions": 8}), 3)


def test_every_task_is_planned_with_the_constraint_and_without_it(found):
    assert found["num_episodes"] == 3
    assert set(found["tasks"]) == {"swing_up", "keep_down"}
    for by_rule in found["tasks"].values():
        assert set(by_rule) == {"constrained", "unconstrained"}
        for each in by_rule.values():
            assert (len(each["returns"]), len(each["costs"])) == (3, 3)
            assert each["median_return"] == np.median(each["returns"])
            assert all(cost >= 0.0 for cost in each["costs"])
            assert each["goals"] == 0, "eight decisions do not swing a pendulum up"


def test_it_knows_that_hanging_still_is_best_for_staying_down(found):
    # At rest the reward is zero, the most there is: the pendulum's own equations, without a planner.
    with jax.enable_x64(True):
        problem, state = Pendulum(), jnp.array([-1.0, 0.0, 0.0])
        step = problem.step(state, jnp.zeros(1), jax.random.key(0))
        best = 8 * float(step.rewards[list(problem.tasks).index("keep_down")])
    for each in found["tasks"]["keep_down"].values():
        np.testing.assert_allclose(each["returns"], best, atol=1e-6)
        assert each["costs"] == [0.0] * 3


def test_environments_have_random_streams_of_their_own(found):
    assert len(set(found["tasks"]["swing_up"]["constrained"]["returns"])) == 3


def test_agents_that_do_not_plan_have_none():
    config = dataclasses.replace(PRESETS["vision-tiny"](), observation="state")
    assert reference_returns(config, 1) is None
