"""When the task's policy may act in place of the one that explores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.agents.algorithms import Algorithm, Role

AT_THE_BOUNDARY = 0.25
"""Of a budget. Steps go back and forth across the boundary, so that a mean over many may lie a little beyond it."""
LARGEST_REWARD = "largest_reward"
"""Of what an epoch's updates measured: the largest reward among the rows that they learned from."""


def may_take_over(
    algorithm: Algorithm,
    planner_budgets: Sequence[float],
    learned: Mapping[str, Any],
    *,
    least_reward: float | None = None,
) -> bool:
    """Whether the task's policy may act in place of the exploration's, going by what an epoch's updates measured.

    It may where it keeps to its budgets in its own imagination, and where the exploration's policy would break them as
    badly; and not before a larger reward than `least_reward` was recorded, unless that is None. A margin or a reward
    that is not known, or not finite, is none: it lets nobody take over. A row that does not explore has nothing to wait
    for, and one that keeps to no budget waits for the reward alone.
    """
    if not algorithm.explores:
        return True
    if least_reward is not None and not _known(learned.get(LARGEST_REWARD)) > least_reward:
        return False
    if not algorithm.is_constrained:
        return True
    task, exploration = (_least_margin(planner_budgets, role, learned) for role in (Role.TASK, Role.EXPLORATION))
    return task > -AT_THE_BOUNDARY or task >= exploration > -np.inf


def _least_margin(planner_budgets: Sequence[float], role: Role, learned: Mapping[str, Any]) -> float:
    """Of all constraints, what was left of the planner's budget in imagination, as a share of it."""
    shares = [
        _known(learned.get(f"{role.value}/margin_{number}")) / max(budget, 1e-9)
        for number, budget in enumerate(planner_budgets)
    ]
    return min(shares, default=np.inf)


def _known(value: float | None) -> float:
    """The value; -inf where it is not known or not finite."""
    return -np.inf if value is None or not np.isfinite(value) else value
