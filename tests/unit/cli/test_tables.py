"""Tables of a run: who acted is shown where there is a safe set, and nowhere else."""

import numpy as np
import pytest

from actsafe.cli.evaluate import outcome_table
from actsafe.cli.reproduce import algorithm_table
from actsafe.cli.tables import run_table, verdict
from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import LedgerRow
from actsafe.training.episodes import EpisodeOutcome
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder

ACTED = {"num_by_candidate": 1, "num_by_certified": 2, "num_by_seed_policy": 4, "num_taken_over": 3}
CAME = {"candidate": {"episodes": 1, "over": 1, "taken_over": 0, "costs": [9.0]}}
TOLD = {"score": [2.0], "upper": [2.0], "margin": [0.0], "is_new": True, "candidate": "recalled", "came": CAME}


class Folder(RunFolder):
    """A run of two epochs; the policies of a safe set act in the second, if there is one."""

    def __init__(self, *, is_guarded: bool) -> None:
        self.config, self.path, self._is_guarded = tiny(), "run", is_guarded
        self.spec = EnvSpec("own", (3,), 1, ("cost",), (5.0,), 50)

    @property
    def num_committed(self):
        return 3

    def rows(self, what):
        return [self._metrics(n) if what == "metrics" else self._ledger(n) for n in (1, 2)]

    def _metrics(self, n):
        told = [TOLD] if self._is_guarded and n == 2 else []
        return {"epoch": n, "seed": 0, "phase": "expansion", "return": 1.0, "evaluation": {}, "deployments": told}

    def _ledger(self, n):
        acted = {**ACTED, "num_fallback_episodes": 6} if self._is_guarded and n == 2 else {}
        row = LedgerRow(n, 0, "expansion", "task", "cost", 5.0, 7, 1, 2.0, 9.0, 3.0, 4.0, **acted)
        return row.to_json() | {"num_decisions": 70, "num_uncertified": 11}


def test_a_guarded_runs_table_says_who_began_episodes():
    table = run_table(Folder(is_guarded=True))
    heads = [column.header for column in table.columns]
    assert heads[-2:] == ["begun by S_0,\ncertified, new", "taken\nover"]
    assert "no plan\ncertified" not in heads
    assert [list(column.cells) for column in table.columns[-2:]] == [["", "4, 2, 1"], ["", "3"]]


def test_another_runs_table_does_not():
    table = run_table(Folder(is_guarded=False))
    assert [column.header for column in table.columns][-2:] == ["no plan\ncertified", "fall-\nbacks"]
    assert list(table.columns[-2].cells) == ["11 of 70"] * 2


def test_a_guarded_runs_verdict_has_a_line_about_deployments():
    (line,) = verdict(Folder(is_guarded=True)).deployed
    assert line.startswith("deployed: 1 of 1 episodes of learned policies over a budget (2.5 to 100 %); candidates: 1 ")
    assert verdict(Folder(is_guarded=False)).deployed == ()


@pytest.mark.parametrize(("levels", "expected"), [((0, 1, 1), ["1", "2"]), ((None, None, None), ["3 of 9", "6"])])
def test_an_evaluations_table_says_who_acted(levels, expected):
    def outcome(level, taken):
        return EpisodeOutcome({"reach": 1.0}, np.array([1.0]), True, None, None, 3, 2, 1, taken, level, None, None)

    found = {"reach": [[outcome(level, taken) for level, taken in zip(levels, (0, 2, 1), strict=True)]]}
    table = outcome_table(found, Folder(is_guarded=True), is_certifying=True)
    assert [next(iter(column.cells)) for column in table.columns[-2:]] == expected


def test_algorithms_with_a_safe_set_have_columns_of_their_own():
    paid = {
        "episodes_over": 1,
        "episodes": 50,
        "interval": (0.01, 0.1),
        "total_cost_median": 1.0,
        "total_cost_max": 2.0,
    }
    row = {"seeds": 1, "costs": {"cost": paid}, "late_return": 1.0, "evaluation": {}, "share_fallbacks": 0.0}
    row |= {"share_uncertified": None, "deployed": None}
    learned = {"episodes": 40, "over": 1, "taken_over": 2, "interval": [0.25, 0.5]}
    guarded = row | {"deployed": {"learned": learned, "candidates": 9, "recalled": 3, "refused": 4}}
    table = algorithm_table({"actsafe": guarded, "greedy": row}, "reach")
    assert [list(column.cells) for column in table.columns[-2:]] == [["1 of 40\n(25 to 50 %)", ""], ["9, 3, 4", ""]]
    assert "learned" not in "".join(str(column.header) for column in algorithm_table({"greedy": row}, "reach").columns)
