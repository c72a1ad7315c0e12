"""Who may take over, whatever is known of it."""

import pytest

from actsafe.agents.algorithms import ALGORITHMS
from actsafe.agents.phases import Schedule
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.envs.spec import EnvSpec


@pytest.mark.parametrize(
    ("task", "exploration", "expected"),
    [
        # The planner's budgets are 20 and 40.
        ((1.0, 2.0), (3.0, 3.0), True),
        ((-4.9, -9.9), (3.0, 3.0), True),  # less than a quarter over: at the boundary
        ((1.0, -10.1), (3.0, 3.0), False),  # one of two is broken by more
        ((-15.0, 2.0), (2.0, -31.0), True),  # the other policy would break one by more, 31 of 40
        ((-15.0, 2.0), (2.0, -29.0), False),
        ((-15.0, 2.0), (-14.0, 2.0), False),
        ((float("nan"), 1.0), (0.5, 1.0), False),
        ((None, 1.0), (-90.0, 1.0), False),
        ((None, 1.0), (None, 1.0), False),  # nothing is known of either
        ((-15.0, 2.0), (None, 2.0), False),  # nor is a policy better than one of which nothing is known
        ((float("inf"), 1.0), (1.0, 1.0), False),
    ],
)
def test_the_task_takes_over_where_its_own_dreams_let_it(task, exploration, expected):
    here = EnvSpec("here", (5,), 1, ("one", "other"), budgets=(5.0, 10.0), num_decisions=25)
    learned = {f"task/margin_{k}": margin for k, margin in enumerate(task)}
    learned |= {f"exploration/margin_{k}": margin for k, margin in enumerate(exploration)}

    def may_exploit(name, **changes):
        return WorldModelAgentSettings(**changes).make(here, ALGORITHMS[name], Schedule()).may_exploit(learned)

    assert may_exploit("actsafe") is expected
    assert may_exploit("actsafe", is_handover_checked=False)
    for name in ("opax", "greedy"):  # one keeps to no budget, of the other there is but one policy
        assert may_exploit(name)


@pytest.mark.parametrize(
    ("largest", "expected"), [(0.0, False), (1e-3, True), (-2.0, False), (float("nan"), False), (None, False)]
)
def test_nobody_takes_over_before_a_reward_was_recorded(largest, expected):
    here = EnvSpec("here", (5,), 1, ("one",), budgets=(5.0,), num_decisions=25)
    learned = {"task/margin_0": 1.0, "exploration/margin_0": 1.0, "largest_reward": largest}

    def may_exploit(name, learned=learned, **changes):
        return WorldModelAgentSettings(**changes).make(here, ALGORITHMS[name], Schedule()).may_exploit(learned)

    assert may_exploit("actsafe", handover_reward=0.0) is expected
    assert may_exploit("opax", handover_reward=0.0) is expected  # it explores for that reward too
    assert may_exploit("greedy", handover_reward=0.0)
    assert may_exploit("actsafe"), "no reward is asked for"
    assert may_exploit("actsafe", handover_reward=0.0, is_handover_checked=False)
    broken = learned | {"task/margin_0": -15.0}
    assert not may_exploit("actsafe", broken, handover_reward=0.0), "a reward does not make up for a broken budget"


def test_only_rows_that_explore_within_budgets_hand_back():
    here = EnvSpec("here", (5,), 1, ("one",), budgets=(5.0,), num_decisions=25)

    def hands_back(name, **changes):
        return WorldModelAgentSettings(**changes).make(here, ALGORITHMS[name], Schedule()).hands_back

    assert hands_back("actsafe")
    assert not hands_back("actsafe", is_handover_final=True)
    assert not hands_back("actsafe", is_handover_checked=False)
    assert not hands_back("opax")
    assert not hands_back("greedy")


@pytest.mark.parametrize("reward", [-1.0, float("nan"), float("inf")])
def test_a_reward_that_no_replay_can_tell_is_refused(reward):
    with pytest.raises(ValueError, match=r"agent\.handover_reward must be a finite number of at least 0, or null"):
        WorldModelAgentSettings(handover_reward=reward)
