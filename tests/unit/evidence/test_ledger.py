"""A ledger's rows are checked when they are read."""

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


def test_a_cost_that_is_not_known_is_over():
    assert LedgerRow.from_json(ROW.to_json() | {"max_cost": None}).num_over == 1
    with pytest.raises(ValueError, match="0 of 2 episodes over"):
        LedgerRow.from_json(ROW.to_json() | {"max_cost": None, "num_over": 0})
