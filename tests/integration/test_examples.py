"""Every example runs, says what it found, and is short enough to be read."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    """The folder of the examples, as it is for a script in it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


def say(capsys, name, *arguments):
    """What an example prints."""
    importlib.import_module(name).main(*map(str, arguments))
    return capsys.readouterr().out


def test_train_then_load_and_act(tmp_path, capsys):
    said = say(capsys, "train", tmp_path / "run", "--quick")
    assert "0 of 2 episodes over budget: rate in [0.00, 0.84]" in said
    assert "swing_up: return -" in said
    assert (tmp_path / "run" / "summary.png").stat().st_size > 1000
    said = say(capsys, "load_and_act", tmp_path / "run")
    assert said.startswith("return -")
    assert "cost 0.00" in said


def test_own_problem_whose_task_nobody_thought_of(tmp_path, capsys):
    """Trained, evaluated, drawn and reported by the planner, with no file of ours touched."""
    said = say(capsys, "own_problem", tmp_path / "run", "--quick")
    assert "moor_at_the_jetty" in said
    assert "num_over=" in said
    actsafe = importlib.import_module("actsafe")
    assert [row["task"] for row in actsafe.evaluate(tmp_path / "run", episodes=1)] == ["moor_at_the_jetty"]
    run = actsafe.Run(tmp_path / "run")
    assert {"summary", "ledger"} <= set(run.figures())
    assert "moor" in run.report().read_text()


def test_own_environment_under_both_agents(tmp_path, capsys):
    said = say(capsys, "own_environment", tmp_path / "run", "--quick")
    assert "world-model: cost_speed over 5.0 in " in said
    assert "world-model: cost_torque over 10.0 in " in said
    assert "planner: cost_speed over 5.0 in " in said


def test_own_algorithm(tmp_path, capsys):
    say(capsys, "own_algorithm", tmp_path / "run", "--quick")
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["algorithm"] == "own_algorithm:SWITCHING"
    # The step's own weights were used: the loss alone, or one cost alone.
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    learned = [row["learning"] for row in rows if "task/multiplier" in row["learning"]]
    assert learned
    assert all(row["task/multiplier"] == pytest.approx(1.0 - row["task/is_feasible"], abs=1e-6) for row in learned)


def test_many_seeds(tmp_path, capsys):
    said = say(capsys, "many_seeds", tmp_path / "run", "--quick")
    assert "seed 0: 0 of 2 episodes over budget" in said
    assert "all seeds: 0 of 4 over" in said


def test_a_script_runs_by_itself(tmp_path):
    """As a script, whose row is imported a second time under the name of its file."""
    command = [sys.executable, str(EXAMPLES / "load_and_act.py"), str(tmp_path / "nothing")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "is not a run folder" in found.stderr


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) < 60
