"""A ledger's rows are checked when they are read."""

import dataclasses
import json

import pytest

from actsafe.evidence.ledger import LedgerRow

ROW = LedgerRow(1, 0, "expansion", "task", "cost", 5.0, 2, 1, 3.5, 6.0, None, None)


def test_rows_come_back_as_they_were():
    assert LedgerRow.from_json(json.loads(json.dumps(ROW.to_json()))) == ROW


@pytest.mark.parametrize(
    "changes",
    [
        {"num_over": 3},
        {"num_over": 0},
        {"num_episodes": 0},
        {"num_episodes": -1},
        {"num_episodes": 2.5},
        {"max_cost": 4.0},
        {"max_cost": 10**400},
        {"mean_cost": float("nan")},
        {"mean_cost": float("inf")},
        {"budget": None},
        {"budget": -1.0},
        {"num_decisions": 10**30},
        {"epoch": True},
        {"phase": "holiday"},
        {"another": 1},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_row_that_contradicts_itself_is_refused(changes):
    with pytest.raises(ValueError, match=r"ledger's row|holiday") as refused:
        LedgerRow.from_json(ROW.to_json() | changes)
    assert len(str(refused.value)) < 200


WHO = {"num_by_candidate": 1, "num_by_certified": 0, "num_by_seed_policy": 1}
FALLBACKS = {"num_taken_over": 1, "num_fallback_episodes": 2}


def test_who_acted_comes_back():
    row = dataclasses.replace(ROW, **WHO, **FALLBACKS)
    assert LedgerRow.from_json(json.loads(json.dumps(row.to_json()))) == row


@pytest.mark.parametrize(
    "changes",
    [
        {"num_by_candidate": None},
        {"num_fallback_episodes": None},
        {"num_by_certified": 1},
        {"num_by_seed_policy": 0},
        {"num_taken_over": 3},
        {"num_fallback_episodes": 0},
        {"num_fallback_episodes": 3},
        {"num_taken_over": 1.5},
        {"num_taken_over": -1},
    ],
    ids=str,
)
def test_who_acted_must_add_up(changes):
    with pytest.raises(ValueError, match="ledger's row"):
        LedgerRow.from_json(ROW.to_json() | WHO | FALLBACKS | changes)


def test_a_row_of_before_there_was_a_safe_set_is_refused():
    before = {name: value for name, value in ROW.to_json().items() if name != "num_taken_over"}
    with pytest.raises(ValueError, match="num_taken_over"):
        LedgerRow.from_json(before)


def test_a_cost_that_is_not_known_is_over():
    assert LedgerRow.from_json(ROW.to_json() | {"max_cost": None}).num_over == 1
    with pytest.raises(ValueError, match="0 of 2 episodes over"):
        LedgerRow.from_json(ROW.to_json() | {"max_cost": None, "num_over": 0})
