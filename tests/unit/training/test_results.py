"""What a results file comes to, with numbers by hand."""

import json
import math
import re

import pytest
from scipy.stats import binom

from actsafe.evidence.ledger import WHO_ACTED, LedgerRow
from actsafe.training import provenance, results
from actsafe.training.config import Config
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError

PHASES = ("warm_up", "expansion", "exploitation", "exploitation")
ROLES = ("uniform", "exploration", "task", "task")
RETURNS = (-1.0, 0.0, 2.0, 4.0)
COSTS = {"near": (90.0, 20.0, 10.0, None), "far": (10.0, 30.0, 5.0, 12.0)}
WORST = {"near": (90.0, 26.0, 10.0, None), "far": COSTS["far"]}
BUDGETS = {"near": 25.0, "far": 15.0}
OVER = {"near": (5, 1, 0, 5), "far": (0, 5, 0, 0)}


class Folder(RunFolder):
    """What a run folder tells, without one, of a run of four epochs of five episodes."""

    def __init__(self, config, metrics, ledger):
        self.config, self.told = config, {"metrics": metrics, "ledger": ledger}
        names, budgets = tuple(BUDGETS), tuple(BUDGETS.values())
        self.spec = type("Spec", (), {"task": "reach", "cost_names": names, "budgets": budgets})

    def rows(self, what):
        return self.told[what]

    def timing(self):
        # Two processes: the first was stopped after its third epoch.
        return [{"seconds": 0.0}, *({"seconds": 30.0, "process_seconds": since} for since in (40.0, 75.0, 110.0, 45.0))]

    def sessions(self):
        return [{"command": "actsafe train", "machine": {"cpu": "x"}}]


def make_folder(seed=3, algorithm="actsafe"):
    evaluation = {"episodes": 5, "return": 5.0, "costs": {"near": 1.0, "far": 2.0}, "over": 1, "goals": None}
    evaluation |= {"fallbacks": 0, "uncertified": None}
    seed_row = {"epoch": 0, "phase": "seed", "role": "seed", "steps": 2, "updates": 0, "return": None, "evaluation": {}}
    metrics = [
        {**seed_row, "seed": seed, "learning": {"confidence_multiplier": [3.0]}},
        *(
            {
                "epoch": n,
                "seed": seed,
                "phase": PHASES[n - 1],
                "role": ROLES[n - 1],
                "steps": 100 * n,
                "updates": 10 * n,
                "return": RETURNS[n - 1],
                "evaluation": {"reach": evaluation} if n == 3 else {},
                "learning": {
                    "confidence_multiplier": [3.0 + n],
                    "task/is_feasible": 0.1 * n,
                    "exploration/is_feasible": 0.5,
                },
            }
            for n in range(1, 5)
        ),
    ]
    ledger = [
        LedgerRow(
            epoch=n,
            seed=seed,
            phase=PHASES[n - 1] if n else "seed",
            role=ROLES[n - 1] if n else "seed",
            constraint=name,
            budget=BUDGETS[name],
            num_episodes=5 if n else 1,
            num_over=OVER[name][n - 1] if n else 0,
            mean_cost=costs[n - 1] if n else 0.0,
            max_cost=WORST[name][n - 1] if n else 0.0,
            predicted_cost=None,
            predicted_pessimistic_cost=2.0,
            planner_budget=2.5,
            num_decisions=50,
            num_fallbacks=10 if n == 4 else 0,
            num_uncertified=5 if n > 2 else 0,
        ).to_json()
        for n in range(5)
        for name, costs in COSTS.items()
    ]
    return Folder(Config(seeds=(seed,), algorithm=algorithm), metrics, ledger)


def test_an_entry_says_what_every_epoch_brought():
    (entry,) = results.entries(make_folder())
    assert [epoch["phase"] for epoch in entry["epochs"]] == list(PHASES), "the seed is left out"
    assert [epoch["mean_cost"]["near"] for epoch in entry["epochs"]] == [90.0, 20.0, 10.0, None]
    assert [epoch["mean_cost"]["far"] for epoch in entry["epochs"]] == [10.0, 30.0, 5.0, 12.0]
    assert [epoch["episodes_over"]["far"] for epoch in entry["epochs"]] == [0, 5, 0, 0]
    assert [epoch["is_feasible"] for epoch in entry["epochs"]] == [None, 0.5, pytest.approx(0.3), pytest.approx(0.4)]
    assert entry["epochs"][2]["evaluation"]["reach"]["costs"] == {"near": 1.0, "far": 2.0}
    assert [epoch["multiplier"] for epoch in entry["epochs"]] == [[3.0], [4.0], [5.0], [6.0]], "what it planned with"
    assert (entry["seconds"], entry["wall_seconds"]) == (120.0, 110.0 + 45.0)
    assert (entry["seed"], entry["algorithm"], entry["env"], entry["task"]) == (3, "actsafe", "pendulum", "reach")
    assert (entry["agent"], entry["steps"], entry["budgets"]) == ("gp", 400, BUDGETS)
    assert entry["command"] == "actsafe train"


def test_the_ledger_comes_back_from_an_entry():
    folder = make_folder()
    (entry,) = results.entries(folder)
    written = [LedgerRow.from_json(row) for row in folder.rows("ledger") if row["epoch"]]
    assert results.ledger(json.loads(json.dumps(entry))) == written


ACTED = {"num_by_candidate": 1, "num_by_certified": 3, "num_by_seed_policy": 1}
FALLBACKS = {"num_taken_over": 2, "num_fallback_episodes": 3}


def guarded_folder(seed=3):
    """The same run with a deployment of a safe set in each of the last two epochs: the candidate went wrong once."""
    folder = make_folder(seed)
    for row in folder.told["ledger"]:
        row.update({**ACTED, **FALLBACKS} if row["epoch"] > 2 else {})
    for row in folder.told["metrics"]:
        candidate = {"episodes": 1, "over": row["epoch"] == 4, "taken_over": 0, "costs": [4.0, 1.0]}
        certified = {"episodes": 4, "over": 0, "taken_over": 1, "costs": [2.0, 1.0]}
        why = "recalled" if row["epoch"] == 4 else "certified"
        said = {"score": [5.0 * row["epoch"], 1.0], "upper": [21.0, 2.0], "margin": [0.0, 0.0], "is_new": True}
        told = {**said, "candidate": why, "came": {"candidate": candidate, "certified": certified}}
        row["deployments"] = [told] if row["epoch"] > 2 else []
    return folder


def test_an_entry_says_who_acted_and_what_came_of_deployments():
    (entry,) = results.entries(guarded_folder())
    assert [epoch["fallback_episodes"] for epoch in entry["epochs"]] == [None, None, 3, 3]
    assert [epoch["num_by_certified"] for epoch in entry["epochs"]] == [None, None, 3, 3]
    assert [len(epoch["deployments"]) for epoch in entry["epochs"]] == [0, 0, 1, 1]
    folder = guarded_folder()
    written = [LedgerRow.from_json(row) for row in folder.rows("ledger") if row["epoch"]]
    assert results.ledger(json.loads(json.dumps(entry))) == written


def test_the_summary_takes_the_deployments_of_all_seeds_together():
    runs = [entry for seed in (3, 4) for entry in results.entries(guarded_folder(seed))]
    deployed = results.summarise(runs)["actsafe"]["deployed"]
    assert (deployed["canaries"], deployed["recalled"], deployed["certified"], deployed["auroc"]) == (4, 2, 2, 1.0)
    assert deployed["learned"]["episodes"] == 2 * (1 + 4 + 1 + 4)
    assert (deployed["learned"]["over"], deployed["fallback_episodes"]) == (2, 4)
    assert results.summarise(results.entries(make_folder()))["actsafe"]["deployed"] is None


def test_files_of_before_there_was_a_safe_set_are_read_all_the_same():
    (entry,) = results.entries(make_folder())
    before = {"fallback_episodes", "deployments", *(name for name in WHO_ACTED if name != "num_fallback_episodes")}
    old = [{name: value for name, value in epoch.items() if name not in before} for epoch in entry["epochs"]]
    assert len(old[0]) == len(entry["epochs"][0]) - 6
    read = results.ledger({**entry, "epochs": old})
    assert read == results.ledger(entry)
    assert all(row.num_fallback_episodes is None for row in read)
    assert results.deployments({**entry, "epochs": old}) == []


def test_what_is_not_known_is_over_budget():
    (entry,) = results.entries(make_folder())
    found = results.summarise([entry])["actsafe"]
    near, far = found["costs"]["near"], found["costs"]["far"]
    # After the warm-up: 20, 10 and unknown against 25; 30, 5 and 12 against 15.
    assert (near["epochs"], near["epochs_over"], far["epochs_over"]) == (3, 1, 1)
    assert (near["episodes"], near["episodes_over"], far["episodes_over"]) == (15, 6, 5)
    assert (near["seeds_over"], near["worst_cost"], far["worst_cost"]) == (1, math.inf, 30.0)
    assert (near["total_cost_max"], far["total_cost_max"]) == (math.inf, 5 * (30.0 + 5.0 + 12.0))
    # Six hits of 15 are as rare as 2.5 % where the probability is at the interval's ends.
    low, high = near["interval"]
    assert binom.sf(5, 15, low) == pytest.approx(0.025)
    assert binom.cdf(6, 15, high) == pytest.approx(0.025)
    assert found["random_return"] == -1.0
    assert found["late_return"] == 4.0
    assert near["late_cost"] is None
    assert found["evaluation"]["reach"]["return_median"] == 5.0
    assert (found["num_decisions"], found["share_fallbacks"]) == (150, pytest.approx(10 / 150))
    assert found["share_uncertified"] == pytest.approx(10 / 150)
    assert found["minutes"] == [155.0 / 60.0]
    assert found["different_settings"] == 1


def test_algorithms_are_in_the_order_of_their_table_and_seeds_are_one_setting():
    (entry,), (other,), (again,) = (results.entries(make_folder(*each)) for each in ((3,), (3, "greedy"), (4,)))
    again["epochs"][-1]["mean_return"] = 2.0
    summary = results.summarise([other, entry, again])
    assert list(summary) == ["actsafe", "greedy"]
    assert summary["actsafe"]["seeds"] == 2
    assert summary["actsafe"]["different_settings"] == 1
    assert summary["actsafe"]["late_return"] == 3.0


def test_runs_that_did_not_say_how_long_they_took_are_summed_up_all_the_same(monkeypatch):
    folder = make_folder()
    monkeypatch.setattr(folder, "timing", lambda: [{"seconds": 30.0}] * 5)
    (entry,) = results.entries(folder)
    assert entry["wall_seconds"] is None
    assert results.summarise([entry])["actsafe"]["minutes"] == [None]


def test_the_file_names_the_machine_that_computed_and_not_the_one_that_watched(tmp_path):
    (entry,) = results.entries(make_folder())
    path = tmp_path / "results.json"
    content = results.merge(path, [entry], command="")
    assert content["machine"] == {"cpu": "x"}
    other = {**entry, "seed": 4, "machine": {"cpu": "y"}}
    assert results.merge(path, [other], command="")["machine"] == provenance.machine()


def test_runs_are_replaced_by_algorithm_and_seed_and_a_line_is_an_epoch(tmp_path):
    (entry,), (other,) = (results.entries(make_folder(seed)) for seed in (3, 4))
    path = tmp_path / "results.json"
    results.merge(path, [entry, other], command="first", reference={"num_episodes": 1})
    content = results.merge(path, [{**entry, "seconds": 7.0}], command="second")
    assert [(run["seed"], run["seconds"]) for run in content["runs"]] == [(3, 7.0), (4, 120.0)]
    assert (content["command"], content["reference"]) == ("second", {"num_episodes": 1})
    assert results.read(path) == json.loads(path.read_text()) == json.loads(json.dumps(content))
    assert sum('"phase"' in line for line in path.read_text().splitlines()) == 8


def test_rows_are_flat_and_one_per_seed_and_epoch(tmp_path):
    path = tmp_path / "results.json"
    results.merge(path, [entry for seed in (3, 4) for entry in results.entries(make_folder(seed))], command="")
    found = results.rows(path)
    assert [(row["seed"], row["epoch"]) for row in found] == [(seed, n) for seed in (3, 4) for n in (1, 2, 3, 4)]
    assert [row["mean_cost/far"] for row in found[:4]] == [10.0, 30.0, 5.0, 12.0]
    assert (found[2]["evaluation/reach/over"], found[2]["multiplier/0"], found[2]["budgets/near"]) == (1, 5.0, 25.0)
    assert not any(isinstance(value, dict | list) for row in found for value in row.values())


def test_what_does_not_belong_together_is_refused(tmp_path):
    (entry,) = results.entries(make_folder())
    path = tmp_path / "results.json"
    results.merge(path, [entry], command="")
    for other in ({"env": "cartpole"}, {"task": "stay"}, {"agent": "rssm"}):
        with pytest.raises(StorageError, match="expected one environment, task and agent"):
            results.merge(path, [{**entry, **other, "seed": 9}], command="")
    assert len(results.read(path)["runs"]) == 1


@pytest.mark.parametrize(
    "break_it",
    [
        lambda run: run.pop("budgets"),
        lambda run: run["epochs"][0].pop("max_cost"),
        lambda run: run["epochs"][1]["mean_cost"].update(near="much"),
        lambda run: run.update(epochs=7),
    ],
)
def test_a_damaged_file_is_told_in_one_line(tmp_path, break_it):
    path = tmp_path / "results.json"
    results.merge(path, results.entries(make_folder()), command="")
    content = json.loads(path.read_text())
    break_it(content["runs"][0])
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"results\.json is damaged"):
        results.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"schema": 1, "runs": []}, "has results schema 1, of actsafe 0.1"),
        ({"schema": 3, "runs": []}, "has results schema 3, and this actsafe writes 2"),
        ({"schema": 2}, "lacks a list of runs"),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path, content, message):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))
    (entry,) = results.entries(make_folder())
    with pytest.raises(StorageError, match=re.escape(message)):
        results.merge(path, [entry], command="")
    assert json.loads(path.read_text()) == content
