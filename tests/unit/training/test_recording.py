"""Episodes are added up over blocks, and the ledger says what was promised and what was paid."""

import numpy as np
import pytest

from actsafe.training.collecting import Block
from actsafe.training.recording import Outcome, Tally, ledger_rows, means


def block(reward, cost, first, last) -> Block:
    """Two environments; one cost."""
    return Block(
        observations=lambda: None,
        sight=lambda tick: None,
        action=np.zeros((2, len(reward[0]), 1), np.float32),
        reward=np.array(reward, np.float32),
        costs=np.array(cost, np.float32)[..., None],
        is_first=np.array(first, bool),
        is_last=np.array(last, bool),
    )


@pytest.fixture
def tally() -> Tally:
    """Environment 0 ends at tick 2 and begins anew; environment 1 goes on over both blocks and ends at the last."""
    tally = Tally(2, 1)
    tally.add(block([[0, 1, 2], [0, 10, 20]], [[0, 1, 0], [0, 0, 3]], [[1, 0, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 0]]))
    tally.add(block([[0, 5], [30, 40]], [[0, 2], [0, 4]], [[1, 0], [0, 0]], [[0, 0], [0, 1]]))
    return tally


def test_an_episode_ends_where_it_says(tally):
    assert [[outcome.reward for outcome in ended] for ended in tally.ended] == [[3.0], [100.0]]
    assert [outcome.costs.tolist() for outcome in tally.outcomes()] == [[1.0], [7.0], [2.0]]
    assert [outcome.is_ended for outcome in tally.outcomes()] == [True, True, False]


def test_means_are_of_episodes_that_ended(tally):
    found = means(tally.outcomes(), ["cost"], "evaluation_")
    assert found == {"evaluation_episodes": 2, "evaluation_return": 51.5, "evaluation_costs": {"cost": 4.0}}
    assert means([], ["cost"]) == {"episodes": 0, "return": None, "costs": {"cost": None}}


def test_the_ledger_counts_what_was_cut_off_against_the_budget(tally):
    (row,) = ledger_rows({"epoch": 3}, tally.outcomes(), [{"constraint": "cost", "budget": 1.5}])
    assert row["num_episodes"] == 3
    assert row["realised_mean_cost"] == 4.0  # (1 + 7) / 2
    assert row["realised_max_cost"] == 7.0
    assert row["share_over_budget"] == pytest.approx(2 / 3)  # 7 and the unended 2


def test_a_cost_that_is_not_a_number_counts_as_over_budget():
    outcome = Outcome(0.0, np.array([np.nan]))
    (row,) = ledger_rows({}, [outcome], [{"constraint": "cost", "budget": 1.0}])
    assert row["share_over_budget"] == 1.0
