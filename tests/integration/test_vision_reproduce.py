"""`actsafe reproduce` from pixels: what is missing is trained, and one results file has all."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "vision_results.sh"
SETTINGS = [
    "observation=state",
    "decisions_per_cycle=25",
    "evaluate_every=0",
    "updates_per_1000_steps=10",
    "schedule.warm_up=100",
    "schedule.expansion=100",
    "schedule.total=200",
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
    assert (run["algorithm"], run["seed"], run["phase"]) == ("greedy", 0, ["warm_up", "exploitation"])
    assert run["steps"] == [100, 200]
    assert run["settings"]["schedule"]["total"] == 200
    assert run["machine"]["python"]
    assert content["summary"]["greedy"]["epochs_after_warm_up"] == 1
    assert content["command"].startswith("actsafe reproduce vision-tiny")
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == {"learning_curves.png", "ledger.png"}
    assert "Greedy" in output

    before = tree_of(tmp_path / "out" / "greedy")
    assert reproduce("--algorithms", "greedy", "--results", "results/tiny.json")[0] == 0
    assert tree_of(tmp_path / "out" / "greedy") == before, "what is finished is not computed again"

    code, _, errors = reproduce("--algorithms", "greedy", "--seeds", "7")
    assert code == 2
    assert "other settings or seeds" in errors
    assert tree_of(tmp_path / "out" / "greedy") == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--algorithms", "greedi"), "greedy"),
        (("--quick",), "--quick does not apply"),
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
    assert json.loads(printed)["environment"] in ("PointGotoGoal", "cartpole_swingup")
