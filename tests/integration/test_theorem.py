"""`actsafe theorem`: what it writes and says is what came out."""

import json

import numpy as np
import pytest

from actsafe.figures import save
from actsafe.figures.theorem import Growth, safe_set_growth
from actsafe.theory.verdict import Tally


def test_it_writes_what_came_out_and_a_picture(actsafe, tmp_path):
    """An epsilon of 5 is reached in the first episode in which nothing joins; 30 episodes are not enough for 0.01."""
    target = tmp_path / "new" / "theorem.json"
    code, output, errors = actsafe("theorem", "--runs", 2, "--epsilon", 5.0, "--max-episodes", 30, "--out", target)
    content = json.loads(target.read_text())
    tally = Tally(**content["tally"])
    assert content["runs"] == tally.runs == 2
    assert content["violating_runs"] == tally.violating_runs
    assert content["contains_reachable_set"] is (tally.runs_with_reachable_set == 2)
    assert content["epsilon_optimal"] is (tally.epsilon_optimal_runs == 2)
    assert content["safe_set_shrank"] is (tally.shrinking_runs > 0)
    assert content["contradictions"] == tally.failures(content["delta"])
    assert code == (1 if content["contradictions"] else 0), errors
    assert tally.finished_runs == 2
    assert content["sizes"]["episodes_least_median_most"][2] < 30
    rows = {(row["multiplier"], row["distance"]): row for row in content["rows"]}
    assert rows.keys() == {("theory", "paper"), ("zero", "paper"), ("theory", "tight"), ("zero", "tight")}
    assert rows["theory", "paper"]["tally"] == content["tally"]
    for (multiplier, distance), row in rows.items():
        assert row["violating_runs"] == row["tally"]["violating_runs"]
        low, high = row["interval"]
        assert low <= row["violating_runs"] / 2 <= high
        assert row["contradictions"] == [] or multiplier == "theory"
        assert f"{distance} D" in output
    near, far = (content["constants"]["distance_of_neighbours"][name] for name in ("tight", "paper"))
    assert all(0.0 < small < large for small, large in zip(near, far, strict=True))
    assert content["command"].startswith("actsafe theorem --runs 2")
    assert content["machine"]["cores"] >= 1
    assert "Nothing in 2 runs contradicts the theorem." in output
    assert target.with_suffix(".png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--runs", 0), "--runs must be at least 1, got 0"),
        (("--delta", 1.5), "delta must lie strictly between 0 and 1, got 1.5"),
        (("--epsilon", 0), "epsilon must be positive, got 0.0"),
        (("--max-episodes", 0), "max_episodes must be at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(actsafe, options, message):
    code, _, errors = actsafe("theorem", *options)
    assert code == 2
    assert message in errors


def test_a_run_in_which_nothing_joined_can_be_drawn(tmp_path):
    """And one without unsafe policies, and with nothing reachable but the seed."""
    joined = np.full((5, 5), -1)
    joined[2, 2] = 0
    growth = Growth(np.linspace(-1.0, 1.0, 5), joined, joined == 0, np.zeros((5, 5), bool), np.full(3, 12), 12)
    assert save(safe_set_growth(growth), tmp_path / "growth.png").stat().st_size > 10_000
