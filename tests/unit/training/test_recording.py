"""Episodes are added up over blocks, and the ledger says what was predicted and what came."""

import dataclasses
import math

import numpy as np
import pytest

from actsafe.agents.algorithms import ALGORITHMS, Role
from actsafe.agents.gp import GPAgent, GPAgentSettings
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.safe_set.canary import CANDIDATE, CERTIFIED, SEED
from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import WHO_ACTED, LedgerRow, is_over, ledger_rows
from actsafe.training.collecting import Block
from actsafe.training.episodes import EpisodeOutcome, Episodes
from actsafe.training.loop import Epoch, TrainState
from actsafe.training.recording import ledger_of, metrics_rows

HEADING = {"epoch": 3, "seed": 0, "phase": "expansion", "role": "exploration"}
BOUND = {"constraint": "cost", "budget": 1.5, "predicted_cost": None, "predicted_pessimistic_cost": 1.25}
SPEC = EnvSpec("grid", (1,), 1, ("cost",), (1.5,), num_decisions=4)


def block(reward, cost, first, last, decisions=None, info=None) -> Block:
    """One seed, two environments, one cost."""
    return Block(
        observations=lambda: None,
        view=lambda tick: None,
        action=np.zeros((1, 2, len(reward[0]), 1), np.float32),
        reward=np.array([reward], np.float32),
        costs=np.array([cost], np.float32)[..., None],
        is_first=np.array([first], bool),
        is_last=np.array([last], bool),
        info={name: np.array([values]) for name, values in (info or {}).items()},
        decisions={name: np.array([values]) for name, values in (decisions or {}).items()},
    )


@pytest.fixture
def episodes() -> Episodes:
    """Environment 0 ends at tick 2 and begins anew; environment 1 goes on over both blocks and ends at the last."""
    episodes = Episodes(SPEC)
    episodes.add(
        block([[0, 1, 2], [0, 10, 20]], [[0, 1, 0], [0, 0, 3]], [[1, 0, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 0]])
    )
    episodes.add(block([[0, 5], [30, 40]], [[0, 2], [0, 4]], [[1, 0], [0, 0]], [[0, 0], [0, 1]]))
    return episodes


def test_an_episode_ends_where_it_says(episodes):
    ended = [[outcome for outcome in of_env if outcome.is_ended] for of_env in episodes.by_env[0]]
    assert [[outcome.returns["task"] for outcome in own] for own in ended] == [[3.0], [100.0]]
    (outcomes,) = episodes.outcomes()
    assert [outcome.costs.tolist() for outcome in outcomes] == [[1.0], [7.0], [2.0]]
    assert [outcome.is_ended for outcome in outcomes] == [True, True, False]
    assert [outcome.num_decisions for outcome in outcomes] == [2, 4, 1]


def test_an_episode_of_which_there_is_nothing_but_the_beginning_is_none():
    episodes = Episodes(SPEC)
    episodes.add(block([[0, 1, 0], [0, 1, 2]], [[0, 0, 0]] * 2, [[1, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 0, 0]]))
    assert [[each.num_decisions for each in of_env] for of_env in episodes.by_env[0]] == [[1], [2]]


def test_costs_are_added_up_in_double_precision():
    """Of the nearest numbers of single precision: a hundred times 0.01 is no more than 1 + 1e-6, nor exactly 1."""
    cost = [0.0, *[0.01] * 100]
    rows = np.zeros((2, 101)).tolist()
    episodes = Episodes(SPEC)
    episodes.add(block(rows, [cost, cost], [[1] + [0] * 100] * 2, [[0] * 100 + [1]] * 2))
    assert episodes.outcomes()[0][0].costs[0] == pytest.approx(100 * float(np.float32(0.01)), rel=1e-14)


def test_as_many_episodes_of_each_environment_are_taken(episodes):
    """Environment 0 ends one at tick 1 and one at tick 2 of a third block, environment 1 none: of two, one each."""
    more = block([[1, 7, 0], [0, 1, 1]], [[0, 0, 0], [0, 0, 0]], [[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 0, 0]])
    episodes.add(more)
    assert [outcome.returns["task"] for outcome in episodes.first(2)[0]] == [3.0, 100.0]
    assert [outcome.returns["task"] for outcome in episodes.first(3)[0]] == [3.0, 100.0, 13.0]


def test_what_was_said_of_decisions_is_counted_by_hand():
    """A row's decision is the one that followed it: those of an episode's last row, at ticks 2, are nobody's."""
    yes, no = True, False
    decisions = {
        "value": [[1.0, 3.0, 9.0], [2.0, math.nan, 9.0]],
        "predicted_cost": [[0.5, 0.25, 9.0], [math.nan, math.nan, 9.0]],
        "is_certified": [[yes, no, no], [yes, yes, no]],
        "is_fallback": [[no, yes, yes], [no, no, yes]],
    }
    episodes = Episodes(SPEC)
    info = {"inner_cost": [[0.0, 0.75, 0.5], [0.0, 0.0, 0.0]]}
    episodes.add(block([[0, 1, 2]] * 2, [[0, 0, 0]] * 2, [[1, 0, 0]] * 2, [[0, 0, 1]] * 2, decisions, info))
    first, second = episodes.outcomes()[0]
    assert (first.num_uncertified, first.num_fallbacks, first.predicted_cost, first.value) == (1, 1, 0.5, 2.0)
    assert (second.num_uncertified, second.num_fallbacks, second.predicted_cost, second.value) == (0, 0, None, None)
    assert (first.inner_cost, second.inner_cost) == (0.75, 0.0)
    (row,) = ledger_rows(HEADING, [first, second], [BOUND], is_certifying=True)
    assert (row.num_decisions, row.num_fallbacks, row.num_uncertified, row.inner_cost) == (4, 1, 1, 0.75)
    (row,) = ledger_rows(HEADING, [first, second], [BOUND], is_certifying=False)
    assert row.num_uncertified is None


def epoch_of(outcomes, evaluations=None) -> Epoch:
    """An epoch of one seed with these numbers of steps and updates, in which nothing was measured."""
    state = TrainState(None, None, False, True, np.int32(40), np.int32(5))
    told = ([outcomes] if outcomes else [], evaluations or {}, [{}])
    return Epoch(3, state, None, Phase.EXPANSION, Role.EXPLORATION, *told, [], {}, 40, 5, {})


AGENT = GPAgent(SPEC, ALGORITHMS["actsafe"], GPAgentSettings(), Schedule())


def test_deployments_are_told_by_seed():
    epoch = dataclasses.replace(epoch_of([]), deployments=[[{"stage": 0}, {"stage": None}]])
    (row,) = metrics_rows(epoch, AGENT, [7])
    assert row["deployments"] == [{"stage": 0}, {"stage": None}]


def test_means_are_of_episodes_that_ended(episodes):
    (outcomes,) = episodes.outcomes()
    (row,) = metrics_rows(epoch_of(outcomes), AGENT, [7])
    assert row.items() >= {"epoch": 3, "seed": 7, "steps": 40, "updates": 5, "episodes": 2, "return": 51.5}.items()
    assert row["costs"] == {"cost": 4.0}
    (row,) = metrics_rows(epoch_of([]), AGENT, [7])
    assert row.items() >= {"episodes": 0, "return": None, "costs": {"cost": None}}.items()


def test_an_evaluation_counts_episodes_over_budget(episodes):
    """Costs of 1, 7 and 2 against 1.5."""
    (outcomes,) = episodes.outcomes()
    (row,) = metrics_rows(epoch_of([], evaluations={"task": [outcomes]}), AGENT, [0])
    found = row["evaluation"]["task"]
    assert (found["episodes"], found["over"], found["costs"]) == (3, 2, {"cost": pytest.approx(10 / 3)})


def test_the_ledger_counts_what_was_cut_off_against_the_budget(episodes):
    (outcomes,) = episodes.outcomes()
    (row,) = ledger_rows(HEADING, outcomes, [BOUND], is_certifying=False)
    assert row.num_episodes == 3
    assert row.mean_cost == 4.0  # (1 + 7) / 2
    assert row.max_cost == 7.0
    assert row.num_over == 2  # 7 and the unended 2


def outcome(cost, predicted=None, is_ended=True, level=None, num_taken_over=0) -> EpisodeOutcome:
    told = (1, 0, 0, num_taken_over, level, predicted, None)
    return EpisodeOutcome({"task": 0.0}, np.array([cost]), is_ended, None, None, *told)


def test_a_cost_that_is_not_a_number_counts_as_over_budget():
    (row,) = ledger_rows(HEADING, [outcome(np.nan)], [BOUND | {"budget": 1.0}], is_certifying=False)
    assert row.num_over == row.num_episodes == 1


def test_the_ledger_counts_who_began_episodes_and_which_were_taken_over():
    """Two by the candidate, one of them taken over; one by a certified policy, taken over; two by S_0."""
    begun = [(CANDIDATE, 0), (CANDIDATE, 3), (CERTIFIED, 1), (SEED, 0), (SEED, 0)]
    outcomes = [outcome(0.0, level=level, num_taken_over=taken) for level, taken in begun]
    (row,) = ledger_rows(HEADING, outcomes, [BOUND], is_certifying=True)
    assert (row.num_by_candidate, row.num_by_certified, row.num_by_seed_policy) == (2, 1, 2)
    assert (row.num_taken_over, row.num_fallback_episodes) == (2, 4)
    assert LedgerRow.from_json(row.to_json()) == row


@pytest.mark.parametrize("outcomes", [[], [outcome(0.0)]], ids=["nothing", "no safe set"])
def test_the_ledger_does_not_say_who_acted_where_nobody_asks(outcomes):
    (row,) = ledger_rows(HEADING, outcomes, [BOUND], is_certifying=True)
    assert [getattr(row, name) for name in WHO_ACTED] == [None] * 5


@pytest.mark.parametrize("cost", [None, math.nan, math.inf, float("-nan"), 1.0 + 1e-12])
def test_what_is_not_known_to_be_within_the_budget_is_over_it(cost):
    assert is_over(cost, 1.0)


@pytest.mark.parametrize(("cost", "budget"), [(0.0, 0.0), (1.0, 1.0), (0.5, 1.0), (-1.0, 0.0)])
def test_a_cost_of_the_whole_budget_is_within_it(cost, budget):
    assert not is_over(cost, budget)


def test_no_cost_is_within_a_budget_that_is_not_a_number():
    assert is_over(0.0, math.nan)


@pytest.mark.parametrize(("predicted", "expected"), [((0.25, 0.5), 0.5), ((None, None), None), ((0.5, math.inf), None)])
def test_the_ledger_has_the_largest_prediction_of_an_epochs_decisions(predicted, expected):
    outcomes = [outcome(0.0, each) for each in predicted]
    (row,) = ledger_of(epoch_of(outcomes), AGENT, [0])
    assert row.predicted_pessimistic_cost == expected
