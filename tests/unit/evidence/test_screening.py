"""Deployments from a safe set, counted by hand, and the screen's AUROC beside that of scikit-learn."""

import math

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from actsafe.evidence.screening import Episodes, auroc, by_seed, calibration, described, relative_score, tally, trials

BUDGET = (10.0,)
NOBODY = {"episodes": 0, "over": 0, "taken_over": 0}


def deployment(why="goes on", score: float | None = 4.0, *, is_new=True, margin=0.0, upper=None, **came):
    """One under one constraint; `came` has episodes, how many were over, taken over, and the mean cost, by level."""
    names = ("episodes", "over", "taken_over", "costs")
    return {
        "role": "task",
        "stage": None if why == "refused by the screen" else 0,
        "is_new": is_new,
        "candidate": why,
        "score": [score],
        "upper": [score if upper is None else upper],
        "share_unknown": 0.0,
        "margin": [margin],
        "came": {level: dict(zip(names, (*counts[:3], [counts[3]]), strict=True)) for level, counts in came.items()},
    }


REFUSED = "refused by the screen"
SEQUENCE = [
    deployment(REFUSED, 12.0, seed=(4, 0, 0, 0.0)),
    deployment("goes on", 4.0, candidate=(1, 0, 0, 5.0), seed=(3, 0, 0, 0.0)),
    # The margin has grown since it passed, and by it the same score would not.
    deployment("certified", 4.0, is_new=False, margin=9.0, candidate=(2, 0, 0, 3.0), seed=(2, 0, 0, 0.0)),
    deployment("recalled", 6.0, candidate=(1, 1, 0, 40.0), certified=(3, 0, 1, 2.0)),
    deployment("recalled", 2.0, candidate=(1, 0, 1, 9.0), certified=(3, 1, 0, 4.0)),
]


def test_deployments_are_counted_by_hand():
    found = tally(SEQUENCE, BUDGET)
    assert (found.deployments, found.screened, found.refused, found.canaries) == (5, 4, 1, 4)
    assert found.candidates == 3, "the first acted twice"
    assert (found.passed, found.passed_over, found.recalled, found.certified) == (4, 2, 2, 1)
    assert found.by_level == {"seed": (9, 0, 0), "certified": (6, 1, 1), "candidate": (5, 1, 1)}
    assert found.learned == (11, 2, 2)
    assert found.all == (20, 2, 2)
    assert found.fallback_episodes == 9 + 2
    # Wrong 6 and 2, right 4 and 4: 6 is above both, 2 above none.
    assert found.auroc == 0.5


def test_the_interval_is_exact():
    low, high = tally(SEQUENCE, BUDGET).learned.interval
    assert binom.sf(1, 11, low) == pytest.approx(0.025)
    assert binom.cdf(2, 11, high) == pytest.approx(0.025)
    assert tally([], BUDGET).learned.interval == (0.0, 1.0)


def test_no_deployment_is_a_tally_of_nothing():
    found = tally([], BUDGET)
    assert found.by_level == dict.fromkeys(("seed", "certified", "candidate"), Episodes(0, 0, 0))
    assert (found.deployments, found.screened, found.auroc) == (0, 0, None)


def test_an_advisory_screen_lets_act_what_it_does_not_pass():
    ran = [
        deployment("recalled", 30.0, candidate=(1, 1, 0, 90.0)),
        deployment("certified", 3.0, candidate=(1, 0, 0, 1.0)),
    ]
    found = tally(ran, BUDGET)
    assert (found.canaries, found.passed, found.passed_over, found.auroc) == (2, 1, 0, 1.0)


@pytest.mark.parametrize(
    ("said", "has_passed"),
    [
        ({"score": 10.0}, True),
        ({"score": 10.1}, False),
        ({"score": 8.0, "margin": 2.5}, False),
        ({"score": 8.0, "upper": 11.0}, False),
        ({"score": None}, False),
        ({"score": 1.0, "upper": math.inf}, False),
        ({"score": 1.0, "margin": math.nan}, False),
    ],
)
def test_what_passes_is_within_the_budget_with_its_margin_and_known(said, has_passed):
    (trial,) = trials([deployment(candidate=(1, 0, 0, 0.0), **said)], BUDGET)
    assert trial.has_passed is has_passed


@pytest.mark.parametrize("seed", range(5))
def test_auroc_is_that_of_scikit_learn_ties_included(seed):
    random = np.random.default_rng(seed)
    scores, wrong = random.integers(0, 6, 40).astype(float), random.random(40) < 0.3
    assert auroc(scores.tolist(), wrong.tolist()) == pytest.approx(roc_auc_score(wrong, scores))


def test_auroc_by_hand():
    assert auroc([1.0, 2.0, 3.0], [False, False, True]) == 1.0
    assert auroc([1.0, 2.0, 3.0], [True, False, False]) == 0.0
    assert auroc([2.0, 2.0], [True, False]) == 0.5
    # The wrong 2 is above 1, level with 2 and below infinity: (1 + 1/2 + 0) / 3.
    assert auroc([1.0, 2.0, 2.0, math.inf], [False, False, True, False]) == 0.5


@pytest.mark.parametrize("wrong", [[], [True, True], [False]])
def test_one_outcome_alone_has_no_auroc(wrong):
    assert auroc([1.0] * len(wrong), wrong) is None


def test_without_a_screen_there_is_no_score_to_judge():
    ran = [deployment(score=None, candidate=(1, over, 0, 5.0)) for over in (0, 1)]
    found = tally(ran, BUDGET)
    assert (found.canaries, found.screened, found.passed, found.auroc) == (2, 0, 0, None)


def test_of_several_constraints_the_score_nearest_its_budget_counts():
    two = {**deployment(), "score": [5.0, 3.0]}
    assert relative_score(two, (10.0, 4.0)) == 0.75
    assert relative_score(two, (10.0, 0.0)) == math.inf
    assert relative_score({**two, "score": [5.0, 0.0]}, (10.0, 0.0)) == 0.5


def test_the_calibration_of_the_screen_is_of_scores_and_costs_that_are_known():
    """Of SEQUENCE, costs less scores: 5 - 4, 3 - 4, 40 - 6, 9 - 2; three of four are above 0."""
    unknown = deployment("recalled", None, candidate=(1, 1, 0, 7.0)), deployment(candidate=(1, 1, 0, math.nan))
    found = calibration([*SEQUENCE, *unknown])
    assert found.pairs == ((4.0, 5.0), (4.0, 3.0), (6.0, 40.0), (2.0, 9.0))
    assert (found.mean_residual, found.share_above) == (41.0 / 4, 0.75)
    assert calibration([]) == ((), None, None)


def test_deployments_are_those_of_their_seed_in_the_order_of_time():
    first, second, other = SEQUENCE[:3]
    rows = [{"seed": 0, "deployments": [first]}, {"seed": 1, "deployments": [other]}, {"seed": 2, "deployments": []}]
    found = by_seed([*rows, {"seed": 3}, {"seed": 0, "deployments": [second]}])
    assert found == {0: [first, second], 1: [other]}


def test_a_tally_in_one_line():
    assert described(tally(SEQUENCE, BUDGET)) == (
        "2 of 11 episodes of learned policies over a budget (2.28 to 51.8 %); candidates: 4 screened, 1 refused, "
        "3 tried, 2 recalled, 1 certified; 9 episodes by S_0, 2 taken over; AUROC of the screen 0.50"
    )
    assert "AUROC" not in described(tally(SEQUENCE[:1], BUDGET))


def test_a_tally_is_plain_values():
    found = tally(SEQUENCE, BUDGET).to_json()
    assert found["by_level"]["candidate"] == {"episodes": 5, "over": 1, "taken_over": 1}
    assert (found["learned"]["episodes"], found["fallback_episodes"], found["auroc"]) == (11, 11, 0.5)
    assert found["learned"]["interval"] == list(tally(SEQUENCE, BUDGET).learned.interval)
