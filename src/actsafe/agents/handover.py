"""When the task's policy may act in place of the one that explores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.agents.algorithms import Algorithm, Role

AT_THE_BOUNDARY = 0.25
"""Of a budget. Steps go back and forth across the boundary, so that a mean over many may lie a little beyond it."""


def may_take_over(algorithm: Algorithm, planner_budgets: Sequence[float], learned: Mapping[str, Any]) -> bool:
    """Whether the task's policy may act in place of the exploration's, going by what an epoch's updates measured.

    It may where it keeps to its budgets in its own imagination, and where the exploration's policy would break them as
    badly. What is not known, or not finite, is as bad as can be. A row that keeps to no budget, or does not explore,
    has nothing to wait for.
    """
    if not (algorithm.is_constrained and algorithm.explores):
        return True
    task, exploration = (_least_margin(planner_budgets, role, learned) for role in (Role.TASK, Role.EXPLORATION))
    return task > -AT_THE_BOUNDARY or task >= exploration


def _least_margin(planner_budgets: Sequence[float], role: Role, learned: Mapping[str, Any]) -> float:
    """Of all constraints, what was left of the planner's budget in imagination, as a share of it."""
    shares = []
    for number, budget in enumerate(planner_budgets):
        margin = learned.get(f"{role.value}/margin_{number}")
        shares.append(-np.inf if margin is None or not np.isfinite(margin) else margin / max(budget, 1e-9))
    return min(shares, default=np.inf)
