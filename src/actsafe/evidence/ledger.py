"""The safety ledger: for every epoch, seed and constraint, what was allowed, what was predicted, and what came.

A row counts episodes. Whether an episode is over its budget is decided here and nowhere else.
"""

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.agents.phases import Phase
from actsafe.agents.safe_set.canary import CANDIDATE, CERTIFIED, SEED
from actsafe.evidence.binomial import Interval, clopper_pearson


def is_over(cost: float | None, budget: float) -> bool:
    """Whether an episode of this cost is over its budget. A cost that is not known, or not a number, is."""
    return cost is None or not float(cost) <= float(budget)


@dataclasses.dataclass(frozen=True)
class LedgerRow:
    """One epoch of one seed under one constraint. Costs are sums over an episode."""

    epoch: int
    seed: int
    phase: str
    role: str
    """Who acted: `actsafe.agents.algorithms.Role`."""
    constraint: str
    budget: float
    num_episodes: int
    num_over: int
    """Episodes over the budget, those that were cut off included where they are over it already."""
    mean_cost: float | None
    """Of episodes that ended; None where none did."""
    max_cost: float | None
    """Of all episodes."""
    predicted_cost: float | None
    """By the mean of the model."""
    predicted_pessimistic_cost: float | None
    """By the worst of the plausible models, or with a charge for uncertainty: what the constraint relies on."""
    predicted_return: float | None = None
    """The discounted pessimistic cost return that was held against `planner_budget`, where there is such a bound."""
    planner_budget: float | None = None
    num_decisions: int = 0
    num_fallbacks: int = 0
    """Decisions in which something else than the search's choice was executed."""
    num_uncertified: int | None = None
    """Decisions that were executed although no check found them within the budget; None where nothing is checked."""
    inner_cost: float | None = None
    """The largest cost at any simulator step, between decisions included."""
    num_by_candidate: int | None = None
    """Episodes that a candidate began: a policy whose own episodes do not vouch for it yet. These five are None where
    there is no safe set, or its policies did not act."""
    num_by_certified: int | None = None
    """Episodes that a certified policy began."""
    num_by_seed_policy: int | None = None
    """Episodes that S_0 began."""
    num_taken_over: int | None = None
    """Episodes that a fallback took over from what began them."""
    num_fallback_episodes: int | None = None
    """Episodes in which a fallback acted at any time: S_0 began them, or they were taken over."""

    @property
    def is_judged(self) -> bool:
        """Whether the agent answers for this row: neither S_0 nor random actions are its choice."""
        return Phase(self.phase).is_judged

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "LedgerRow":
        """The row that was written; `ValueError` where an entry is missing, unknown or of another kind, or where two
        contradict each other."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown, missing = sorted(set(row) - set(fields)), sorted(set(fields) - set(row))
        if unknown or missing:
            raise ValueError(
                f"a ledger's row has the wrong entries: {unknown or 'none'} unknown, {missing or 'none'} missing"
            )
        for name, value in row.items():
            wanted = str if name in ("phase", "role", "constraint") else (int, float, type(None))
            if not isinstance(value, wanted) or isinstance(value, bool) or not _is_in_range(name, value):
                raise ValueError(f"a ledger's row has {name} = {str(value)[:40]}")
        Phase(row["phase"])
        read = cls(**row)
        is_broken = read.num_episodes > 0 and is_over(read.max_cost, read.budget)
        if read.num_over > read.num_episodes or is_broken != (read.num_over > 0):
            raise ValueError(
                f"a ledger's row has {read.num_over} of {read.num_episodes} episodes over a budget of {read.budget:g}, "
                f"and a largest cost of {read.max_cost}"
            )
        read._require_who_acted()
        return read

    def _require_who_acted(self) -> None:
        """Raise ValueError unless every episode was begun by one of those who act, or nobody says by whom."""
        said = [getattr(self, name) for name in WHO_ACTED]
        begun = self.num_by_candidate, self.num_by_certified, self.num_by_seed_policy
        taken, fallback = self.num_taken_over, self.num_fallback_episodes
        known = [count for count in said if count is not None]
        is_sound = not known
        if len(known) == len(said) and taken is not None and fallback is not None:
            seeded = self.num_by_seed_policy or 0
            is_sound = sum(each or 0 for each in begun) == self.num_episodes
            is_sound &= max(seeded, taken) <= fallback <= min(seeded + taken, self.num_episodes)
        if not is_sound:
            counts = ", ".join(f"{name} {count}" for name, count in zip(WHO_ACTED, said, strict=True))
            raise ValueError(f"a ledger's row of {self.num_episodes} episodes contradicts itself: {counts}"[:190])


COUNTS = ("epoch", "seed", "num_episodes", "num_over", "num_decisions", "num_fallbacks")
WHO_ACTED = ("num_by_candidate", "num_by_certified", "num_by_seed_policy", "num_taken_over", "num_fallback_episodes")
"""Counts of episodes that are None where there is no safe set."""


def _is_in_range(name: str, value: Any) -> bool:
    """Whether a number is finite, a count one, and the budget known."""
    if name in COUNTS:
        return type(value) is int and 0 <= value < 2**62
    if name in WHO_ACTED:
        return value is None or (type(value) is int and 0 <= value < 2**62)
    if name == "budget":
        return value is not None and 0.0 <= value <= sys.float_info.max
    return value is None or isinstance(value, str) or abs(value) <= sys.float_info.max


def ledger_rows(
    heading: Mapping[str, Any],
    outcomes: Sequence[Any],
    constraints: Sequence[Mapping[str, Any]],
    *,
    is_certifying: bool,
) -> list[LedgerRow]:
    """A row per constraint: what was allowed and predicted, which `constraints` say, and what episodes cost.

    Episodes that were cut off by the end of the epoch count towards the largest cost and those over the budget, as they
    may have broken it already, not towards the mean.
    """
    shared = {
        "num_episodes": len(outcomes),
        "num_decisions": sum(outcome.num_decisions for outcome in outcomes),
        "num_fallbacks": sum(outcome.num_fallbacks for outcome in outcomes),
        "num_uncertified": sum(outcome.num_uncertified for outcome in outcomes) if is_certifying else None,
        "inner_cost": max((o.inner_cost for o in outcomes if o.inner_cost is not None), default=None),
        **_who_acted(outcomes),
    }
    rows = []
    for index, constraint in enumerate(constraints):
        paid = [float(outcome.costs[index]) for outcome in outcomes]
        ended = [float(outcome.costs[index]) for outcome in outcomes if outcome.is_ended]
        counted = {
            "num_over": sum(is_over(cost, constraint["budget"]) for cost in paid),
            "mean_cost": float(np.mean(ended)) if ended else None,
            "max_cost": max(paid, default=None),
        }
        rows.append(LedgerRow(**heading, **constraint, **shared, **counted))
    return rows


def _who_acted(outcomes: Sequence[Any]) -> dict[str, int]:
    """Episodes by the level that began them, and those in which a fallback acted; nothing where no level is known."""
    levels = [outcome.level for outcome in outcomes]
    if not levels or None in levels:
        return {}
    taken = [outcome.num_taken_over > 0 for outcome in outcomes]
    fallback = [level == SEED or is_taken for level, is_taken in zip(levels, taken, strict=True)]
    counts = (levels.count(CANDIDATE), levels.count(CERTIFIED), levels.count(SEED), sum(taken), sum(fallback))
    return dict(zip(WHO_ACTED, counts, strict=True))


@dataclasses.dataclass(frozen=True)
class Violations:
    """Episodes against one budget, over some rows of a ledger."""

    constraint: str
    budget: float
    num_over: int
    num_episodes: int
    worst: float
    """The largest cost of an episode; infinite where one is not known."""
    num_epochs: int
    num_epochs_over: int
    """Epochs whose mean cost is over the budget, or not known."""

    @property
    def interval(self) -> Interval:
        """Exact bounds on the probability that an episode is over (Clopper and Pearson, 95 %)."""
        return clopper_pearson(self.num_over, self.num_episodes)


def violations(rows: Iterable[LedgerRow]) -> list[Violations]:
    """Of the rows that the agent answers for, by constraint in the order of the ledger."""
    found: dict[str, list[LedgerRow]] = {}
    for row in rows:
        found.setdefault(row.constraint, [])
        if row.is_judged:
            found[row.constraint].append(row)
    return [
        Violations(
            constraint,
            own[-1].budget if own else float("nan"),
            sum(row.num_over for row in own),
            sum(row.num_episodes for row in own),
            max((np.inf if row.max_cost is None else row.max_cost for row in own if row.num_episodes), default=0.0),
            len(own),
            sum(is_over(row.mean_cost, row.budget) for row in own),
        )
        for constraint, own in found.items()
    ]
