"""`actsafe reproduce` from pixels: what is missing is trained, and one results file has all."""

import copy
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from actsafe.agents.algorithms import ALGORITHMS
from actsafe.cli import reproduce as command
from actsafe.cli.reproduce import Reproduce, algorithm_table, quick
from actsafe.cli.working import console
from actsafe.training import results
from actsafe.training.presets import PRESETS
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError
from actsafe.training.storage import StorageError

RESULTS = Path(__file__).parents[2] / "benchmarks" / "vision_results.sh"
SETTINGS = [
    "observation=state",
    "evaluate_every=0",
    "schedule.warm_up=1",
    "schedule.expansion=1",
    "schedule.exploitation=1",
    "agent.decisions_per_cycle=26",
    "agent.updates_per_1000_steps=10",
]


@pytest.fixture
def reproduce(actsafe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

    def run(*arguments):
        return actsafe("reproduce", "vision-tiny", "--out", "out", *arguments, "--set", *SETTINGS)

    return run


def test_runs_results_and_pictures(reproduce, tmp_path, tree_of):
    code, output, errors = reproduce("--algorithms", "greedy", "--results", "results/tiny.json")
    assert code == 0, errors
    content = json.loads((tmp_path / "results" / "tiny.json").read_text())
    (run,) = content["runs"]
    phases = [epoch["phase"] for epoch in run["epochs"]]
    assert (run["algorithm"], run["seed"], phases) == ("greedy", 0, ["warm_up", "expansion", "exploitation"])
    assert [epoch["steps"] for epoch in run["epochs"]] == [100, 200, 300]
    assert [epoch["role"] for epoch in run["epochs"]] == ["uniform", "task", "task"]
    assert run["settings"]["schedule"]["exploitation"] == 1
    assert run["machine"]["python"]
    assert content["summary"]["greedy"]["costs"]["cost"]["epochs"] == 2, "the warm-up is not held against it"
    assert content["command"].startswith("actsafe reproduce vision-tiny")
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == {"summary.png", "ledger.png"}
    assert "Greedy" in output

    before = tree_of(tmp_path / "out" / "greedy")
    assert reproduce("--algorithms", "greedy", "--results", "results/tiny.json")[0] == 0
    assert tree_of(tmp_path / "out" / "greedy") == before, "what is finished is not computed again"

    code, _, errors = reproduce("--algorithms", "greedy", "--seeds", "7")
    assert code == 2
    assert "other settings (seeds differ)" in errors
    assert tree_of(tmp_path / "out" / "greedy") == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--algorithms", "greedi"), "greedy"),
        (("--quick",), "got --quick and --set"),
        (("--seeds", "1", "1"), "different"),
        (("--jobs", "0"), "--jobs must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(reproduce, tmp_path, arguments, said):
    code, _, errors = reproduce(*arguments)
    assert code == 2
    assert said in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", re.findall(r"^([a-z-]+)\)", RESULTS.read_text(), flags=re.MULTILINE))
def test_the_runs_behind_results_have_settings_that_exist(actsafe, name, tmp_path):
    """What the script asks for, which echo takes in place of the command, is a run that could begin."""
    asked = subprocess.run(
        ["bash", RESULTS, name, tmp_path],
        env=os.environ | {"ACTSAFE": "echo"},
        capture_output=True,
        text=True,
        check=True,
    )
    command, experiment, *rest = asked.stdout.split()
    assert command == "reproduce"
    assert f"# {name} " in RESULTS.read_text(), "the head of the script lists it"
    settings = rest[rest.index("--set") + 1 :]
    code, printed, errors = actsafe("train", "--preset", experiment, "--dry-run", "--set", *settings)
    assert code == 0, errors
    assert json.loads(printed)["env"] in ("PointGotoGoal", "cartpole_swingup")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_an_experiment_with_the_rows_that_its_agent_can_have(name):
    configs = Reproduce(experiment=name, seeds=(3, 4)).configs()
    kind = PRESETS[name]().agent.kind
    assert [config.algorithm for config in configs] == [each for each, row in ALGORITHMS.items() if row.takes(kind)]
    assert {config.seeds for config in configs} == {(3, 4)}


def test_quick_is_the_demos_planner_with_the_experiments_horizon():
    found, experiment, demo = quick(PRESETS["gp-pendulum"]()), PRESETS["gp-pendulum"](), PRESETS["demo"]()
    assert found.agent.gp == demo.agent.gp
    search = experiment.agent.planning.search
    assert (
        found.agent.planning.search.num_candidates == demo.agent.planning.search.num_candidates < search.num_candidates
    )
    assert found.agent.planning.search.horizon == search.horizon
    assert (found.seeds, found.schedule) == (experiment.seeds, experiment.schedule)
    with pytest.raises(ConfigError, match="--quick does not apply to an agent that does not plan"):
        quick(PRESETS["vision-tiny"]())


def test_the_table_says_how_many_decisions_had_no_certified_plan(capsys):
    cost = {"episodes_over": 1, "episodes": 20, "interval": [0.0013, 0.2487]}
    cost |= {"total_cost_median": 0.0, "total_cost_max": None}
    evaluation = {"return_median": -160.2, "return_quartiles": [-162.0, -158.0], "goals": 9, "episodes": 10}
    row = {"seeds": 10, "late_return": None, "share_uncertified": 1 / 3, "share_fallbacks": 0.5}
    row |= {"costs": {"cost": cost}, "evaluation": {"reach": evaluation}}
    console().print(algorithm_table({"actsafe": row}, "reach"), soft_wrap=False)
    printed = capsys.readouterr().out
    for cell in ("decisions", "certified plan", "33.3 %", "(50 %)", "1 of 20", "(0.13 to 24.9 %)", "0, unbounded"):
        assert cell in printed
    assert "9 of 10" in printed and "(-162, -158)" in printed
    console().print(algorithm_table({"actsafe": {**row, "share_uncertified": None}}, "reach"), soft_wrap=False)
    assert "certified" not in capsys.readouterr().out, "where nothing is checked, nothing is claimed"


def test_a_run_that_was_stopped_is_carried_on_and_told_in_full(actsafe, unfinished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "REFERENCE_EPISODES", 4)
    shutil.copytree(unfinished, "out/actsafe")
    arguments = ("reproduce", "tiny", "--algorithms", "actsafe", "--out", "out", "--results", "results/tiny.json")
    code, output, errors = actsafe(*arguments)
    assert code == 0, errors
    assert "0 of 2" in output
    content = json.loads(Path("results/tiny.json").read_text())
    assert content.keys() == {"schema", "command", "machine", "notes", "summary", "reference", "runs"}
    assert content["command"] == " ".join(("actsafe", *arguments))
    (run,) = content["runs"]
    assert (run["algorithm"], run["env"], run["task"], run["seed"]) == ("actsafe", "pendulum", "swing_up", 0)
    assert run["settings"] == PRESETS["tiny"]().to_json()
    assert len(run["epochs"]) == 2
    for epoch in run["epochs"]:
        assert epoch["mean_cost"] == epoch["max_cost"] == {"cost": 0.0}
        assert set(epoch["evaluation"]) == {"swing_up", "keep_down"}
        assert all(found["goals"] == 0 for found in epoch["evaluation"].values())
        assert epoch["evaluation"]["swing_up"]["costs"] == {"cost": 0.0}
        assert (epoch["num_decisions"], len(epoch["multiplier"])) == (50, 3)
        assert epoch["num_fallbacks"] >= 0 and epoch["num_uncertified"] >= 0 and epoch["inner_cost"] == 0.0
    assert run["seconds"] > 0 and run["seeds_in_batch"] == 1
    assert content["summary"]["actsafe"]["costs"]["cost"]["episodes_over"] == 0
    reference = content["reference"]["tasks"]["swing_up"]
    assert len(reference["constrained"]["returns"]) == 4
    assert max(reference["constrained"]["costs"]) == 0.0
    last = run["epochs"][-1]["evaluation"]["swing_up"]["return"]
    assert reference["constrained"]["median_return"] > last, "knowing the truth is better"
    names = {"phase_plane.png", "summary.png", "ledger.png", "swing_up.png"}
    assert {path.name for path in Path("out/figures").iterdir()} == names

    code, output, errors = actsafe("plot", "results/tiny.json", "--out", "again")
    assert code == 0, errors
    assert {path.name for path in Path("again").iterdir()} == {"summary.png", "ledger.png"}
    code, _, errors = actsafe("plot", "results/tiny.json", "--seed", "0")
    assert code == 2
    assert "is a results file, which has no trajectories" in errors


def test_results_replace_the_same_seed_and_keep_the_others(tiny_run, tmp_path):
    path = tmp_path / "new" / "results.json"
    (entry,) = results.entries(RunFolder.open(tiny_run))

    def changed(**changes):
        run = copy.deepcopy(entry)
        run["epochs"][-1] |= {name: {"cost": value} for name, value in changes.items()}
        return run

    opax = {**changed(mean_cost=2.0, max_cost=2.0, episodes_over=1), "algorithm": "opax"}
    opax["epochs"][-1]["evaluation"]["swing_up"]["goals"] = 1
    results.merge(path, [entry, {**entry, "seed": 1}, opax], command="first", reference={"num_episodes": 3})
    costly = changed(mean_cost=0.5, max_cost=0.5, episodes_over=1)
    costly["settings"] = {**entry["settings"], "budget": 1.0}
    content = results.merge(path, [costly], command="second")

    assert content == json.loads(path.read_text())
    assert [(run["algorithm"], run["seed"]) for run in content["runs"]] == [("actsafe", 0), ("actsafe", 1), ("opax", 0)]
    assert content["command"] == "second"
    assert content["reference"] == {"num_episodes": 3}
    summary = content["summary"]["actsafe"]
    paid = summary["costs"]["cost"]
    assert (summary["seeds"], paid["episodes"], paid["episodes_over"]) == (2, 4, 1)
    assert (paid["seeds_over"], paid["total_cost_max"], summary["different_settings"]) == (1, 0.5, 2)
    assert content["summary"]["opax"]["evaluation"]["swing_up"]["goals"] == 1
    assert [path.name for path in path.parent.iterdir()] == ["results.json"], "written in one step"


@pytest.mark.parametrize("content", ["[]", "{}", '{"schema": 99, "runs": []}', '{"schema": 1, "runs": []}', "not JSON"])
def test_results_of_another_kind_are_not_overwritten(tiny_run, tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(StorageError):
        results.merge(path, results.entries(RunFolder.open(tiny_run)), command="")
    assert path.read_text() == content
