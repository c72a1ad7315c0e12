"""What a results file of runs from pixels comes to, with numbers by hand."""

import math

import pytest

from actsafe.training import provenance, results, vision_results
from actsafe.training.run import RunFolder


class Folder(RunFolder):
    """What a run folder tells, without one, of a run of four epochs."""

    def __init__(self, config, metrics, ledger):
        self.config, self.told = config, {"metrics": metrics, "ledger": ledger}

    def rows(self, name):
        return self.told[name]

    def timing(self):
        # Two processes: the first was stopped after its third epoch.
        return [{"seconds": 0.0}, *({"seconds": 30.0, "process_seconds": since} for since in (40.0, 75.0, 110.0, 45.0))]

    def sessions(self):
        return [{"command": "actsafe train", "machine": {"cpu": "x"}}]


class Config:
    seed, algorithm, subject = 3, "actsafe", "somewhere"

    def to_json(self):
        return {"seed": self.seed, "a": 1}


PHASES = ("warm_up", "expansion", "exploitation", "exploitation")
RETURNS = (-1.0, 0.0, 2.0, 4.0)
COSTS = {"near": (90.0, 20.0, 10.0, None), "far": (10.0, 30.0, 5.0, 12.0)}
BUDGETS = {"near": 25.0, "far": 15.0}


def make_folder():
    metrics = [
        {
            "epoch": n,
            "phase": phase,
            "steps": 100 * n,
            "updates": 10 * n,
            "return": value,
            "evaluation_return": 5.0 if n == 3 else None,
            "evaluation_costs": {"near": 1.0, "far": 2.0} if n == 3 else None,
            "learning": {"task/is_feasible": 0.1 * n, "exploration/is_feasible": 0.5},
        }
        for n, (phase, value) in enumerate(zip(PHASES, RETURNS, strict=True), start=1)
    ]
    ledger = [
        {
            "epoch": n,
            "phase": phase,
            "policy": {"warm_up": "uniform", "expansion": "exploration"}.get(phase, "task"),
            "constraint": name,
            "budget": BUDGETS[name],
            "planner_budget": 2.5,
            "realised_mean_cost": costs[n - 1],
            "realised_max_cost": costs[n - 1],
            "share_over_budget": 0.0,
            "predicted_pessimistic_cost_return": 2.0,
        }
        for n, phase in enumerate(PHASES, start=1)
        for name, costs in COSTS.items()
    ]
    return Folder(Config(), metrics, ledger)


def test_the_constraint_that_is_worst_off_speaks_for_an_epoch():
    (entry,) = vision_results.entries(make_folder())
    # 90 - 25 and 10 - 15; 20 - 25 and 30 - 15; 10 - 25 and 5 - 15; nothing is known of the last epoch's first.
    assert entry["cost"] == [90.0, 30.0, 5.0, None]
    assert entry["is_feasible"] == [None, 0.5, pytest.approx(0.3), pytest.approx(0.4)]
    assert entry["evaluation_cost"] == [None, None, 2.0, None]
    assert (entry["seconds"], entry["wall_seconds"]) == (120.0, 110.0 + 45.0)
    assert (entry["seed"], entry["algorithm"], entry["problem"]) == (3, "actsafe", "somewhere")
    assert entry["command"] == "actsafe train"


def test_what_is_not_known_is_over_budget():
    (entry,) = vision_results.entries(make_folder())
    found = vision_results.summarise([{**entry, "budget": 25.0}])["actsafe"]
    # After the warm-up 30, 5 and unknown, against 25.
    assert (found["epochs_after_warm_up"], found["epochs_over_budget"]) == (3, 2)
    assert found["share_of_epochs_within_budget"] == pytest.approx(1 / 3)
    assert found["random_return"] == -1.0
    assert found["late_return"] == 4.0
    assert found["late_cost"] is None
    assert found["last_evaluation_return"] == 5.0
    assert found["minutes"] == [155.0 / 60.0]
    assert found["different_settings"] == 1


def test_algorithms_are_in_the_order_of_their_table_and_seeds_are_one_setting():
    (entry,) = vision_results.entries(make_folder())
    other = {**entry, "algorithm": "greedy"}
    again = {**entry, "seed": 4, "settings": {"seed": 4, "a": 1}, "return": [math.nan] * 3 + [2.0]}
    summary = vision_results.summarise([other, entry, again])
    assert list(summary) == ["actsafe", "greedy"]
    assert summary["actsafe"]["seeds"] == 2
    assert summary["actsafe"]["different_settings"] == 1
    assert summary["actsafe"]["late_return"] == 3.0


def test_runs_that_did_not_say_how_long_they_took_are_summed_up_all_the_same(monkeypatch):
    folder = make_folder()
    monkeypatch.setattr(folder, "timing", lambda: [{"seconds": 30.0}] * 5)
    (entry,) = vision_results.entries(folder)
    assert entry["wall_seconds"] is None
    assert vision_results.summarise([entry])["actsafe"]["minutes"] == [None]


def test_the_file_names_the_machine_that_computed_and_not_the_one_that_watched(tmp_path):
    (entry,) = vision_results.entries(make_folder())
    path = tmp_path / "results.json"
    content = results.merge(path, [entry], command="", kind=vision_results.VISION)
    assert content["machine"] == {"cpu": "x"}
    other = {**entry, "seed": 4, "machine": {"cpu": "y"}}
    assert results.merge(path, [other], command="", kind=vision_results.VISION)["machine"] == provenance.machine()
