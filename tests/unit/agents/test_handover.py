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
        ((None, 1.0), (None, 1.0), True),  # nothing is known of either
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
