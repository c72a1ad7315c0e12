"""Entries of a study's results file, by hand."""

import numpy as np
import pytest

from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import LedgerRow
from actsafe.training.config import Config
from actsafe.training.episodes import EpisodeOutcome
from actsafe.training.run import RunFolder
from actsafe.training.study import screen_entry, study_entries

PHASES = ("warm_up", "expansion", "exploitation")
COSTS = (9.0, 2.0, 4.0)


class Folder(RunFolder):
    """Of a run of one seed: three epochs of two episodes, of returns 1, 2, 3, under a budget of 5 a cost."""

    def __init__(self, names=("cost",)):
        self.config, self.path = Config(seeds=(3,)), "run"
        self.spec = EnvSpec("own", (3,), 1, names, (5.0,) * len(names), 50, task="reach")

    def rows(self, what):
        return [row for n in (1, 2, 3) for row in getattr(self, f"{what}_of")(n)]

    def metrics_of(self, n):
        heading = {"epoch": n, "seed": 3, "phase": PHASES[n - 1], "role": "task", "steps": 100 * n, "updates": n}
        came = {"candidate": {"episodes": 2, "over": int(n == 3), "taken_over": 0, "costs": [COSTS[n - 1]]}}
        said = {"score": [float(n)], "upper": [float(n)], "margin": [0.0], "is_new": True, "candidate": "certified"}
        told = [{**said, "came": came}] if n > 1 else []
        return [{**heading, "return": float(n), "evaluation": {}, "learning": {}, "deployments": told}]

    def ledger_of(self, n):
        acted = (2, 0, 0, 1, 1) if n > 1 else (None,) * 5
        over = 2 if n == 1 else int(n == 3)
        known = (COSTS[n - 1], 9.0 if over else 3.0, None, None, None, None, 100, 0, 0, None)
        heading = (n, 3, PHASES[n - 1], "task")
        return [LedgerRow(*heading, name, 5.0, 2, over, *known, *acted).to_json() for name in self.spec.cost_names]

    def timing(self):
        return [{"seconds": 1.0, "process_seconds": 1.0}] * 4

    def sessions(self):
        return [{"command": "actsafe train", "machine": {"cpu": "x"}}]


def frozen(*costs, taken=0):
    return [EpisodeOutcome({"reach": c}, np.array([c]), True, None, None, 1, 0, 0, taken, 1, None, None) for c in costs]


def test_an_entry_has_what_came_after_the_warm_up():
    (entry,) = study_entries(Folder(), [[*frozen(1.0, 5.0), *frozen(6.0, np.nan, taken=2)]])
    heading = {"algorithm": "actsafe", "seed": 3, "steps": 300, "budget": 5.0, "command": "actsafe train"}
    assert entry.items() >= heading.items()
    assert (entry["machine"], entry["settings"]["seeds"]) == ({"cpu": "x"}, [3])
    assert [epoch["phase"] for epoch in entry["epochs"]] == ["expansion", "exploitation"]
    assert [epoch["episodes"] for epoch in entry["epochs"]] == [2, 2]
    assert [epoch["episodes_over"] for epoch in entry["epochs"]] == [0, 1]
    assert [epoch["mean_cost"] for epoch in entry["epochs"]] == [2.0, 4.0]
    assert [epoch["mean_return"] for epoch in entry["epochs"]] == [2.0, 3.0]
    assert [epoch["fallback_episodes"] for epoch in entry["epochs"]] == [1, 1]
    assert entry["late_return"] == 3.0
    # 1 and 5 are within 5; 6 and what is not known are over.
    assert (entry["frozen_episodes"], entry["frozen_over"], entry["frozen_taken_over"]) == (4, 2, 2)
    assert (entry["deployed"]["canaries"], entry["deployed"]["passed_over"], entry["deployed"]["auroc"]) == (2, 1, 1.0)


def test_several_constraints_go_by_name():
    folder = Folder(("near", "far"))
    folder.metrics_of = lambda n: [{**Folder.metrics_of(folder, n)[0], "deployments": []}]
    (entry,) = study_entries(folder, [[]])
    assert entry["budget"] == {"near": 5.0, "far": 5.0}
    assert entry["epochs"][0]["mean_cost"] == {"near": 2.0, "far": 2.0}
    assert (entry["frozen_episodes"], entry["deployed"]) == (0, None)


def test_frozen_episodes_of_other_seeds_are_refused():
    with pytest.raises(ValueError, match="got frozen episodes of 2 seeds; expected the 1 of run"):
        study_entries(Folder(), [[], []])


def test_the_screen_is_judged_over_all_runs():
    runs = [entry for _ in range(2) for entry in study_entries(Folder(), [[]])]
    found = screen_entry(runs, (5.0,))
    # Of each run scores of 2 and 3, and costs of 2 and 4; the second went wrong.
    assert (found["deployments"], found["passed"], found["passed_over"], found["auroc"]) == (4, 4, 2, 1.0)
    assert (found["mean_residual"], found["share_above"]) == ([0.5], [0.5])
