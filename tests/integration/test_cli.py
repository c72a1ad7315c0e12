"""The commands, used as a user would, on a tiny run."""

import dataclasses
import hashlib
import io
import json
import re
import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from actsafe.cli import demo as demo_command
from actsafe.cli import doctor, progress, tables
from actsafe.cli.main import COMMANDS
from actsafe.report.statistics import mean, stratified_bootstrap
from actsafe.training import provenance
from actsafe.training.config import Config
from actsafe.training.presets import PRESETS, own_state, tiny
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_a_command_does(actsafe, command):
    code, output, _ = actsafe(command, "--help")
    assert code == 0
    assert COMMANDS[command] in " ".join(output.split())


def test_the_overview_names_every_command(actsafe):
    code, output, _ = actsafe("--help")
    assert code == 0
    assert all(f"  {command} " in output for command in COMMANDS)
    assert actsafe()[0] == 2
    assert metadata.version("actsafe") in actsafe("--version")[1]


def test_options_change_the_settings_that_they_name(actsafe):
    options = "--env cartpole --algorithm opax --seeds 3 4 --budget 1 --episodes 7 --exploitation 2 --multiplier 2.5"
    more = (
        "--evaluate-every 0 --set agent.gp.kernel=matern52 agent.planning.search.horizon=9 --set "
        "agent.gp.subset_size=null options.process_noise_std=0.01"
    )
    code, output, _ = actsafe("train", "--preset", "tiny", *options.split(), *more.split(), "--dry-run")
    assert code == 0
    config = json.loads(output)
    expected = tiny().to_json()
    expected |= {"env": "cartpole", "algorithm": "opax", "seeds": [3, 4], "budget": 1.0}
    expected |= {"evaluate_every": 0, "options": {"process_noise_std": 0.01}}
    expected["agent"]["confidence"] = {"kind": "fixed", "value": 2.5}
    expected["schedule"] |= {"expansion": 7, "exploitation": 2}
    expected["agent"]["gp"] |= {"kernel": "matern52", "subset_size": None}
    expected["agent"]["planning"]["search"]["horizon"] = 9
    assert config == expected
    assert not list(Path().iterdir())


def test_another_confidence_rule_starts_from_its_defaults(actsafe):
    _, output, _ = actsafe("train", "--confidence", "theory", "--set", "agent.confidence.delta=0.05", "--dry-run")
    assert json.loads(output)["agent"]["confidence"] == {"kind": "theory", "delta": 0.05, "norm_bound": 10.0}


def test_another_kind_of_agent_starts_from_a_small_one(actsafe):
    change = ("--set", "agent.kind=rssm", "agent.batch_size=3")
    _, output, _ = actsafe("train", "--preset", "tiny", *change, "--dry-run")
    expected = dataclasses.replace(own_state(), agent=dataclasses.replace(own_state().agent, batch_size=3))
    assert json.loads(output) == expected.to_json()


def test_another_environment_has_its_own_task_budget_and_options(actsafe):
    """Nothing that a preset says of its own environment is held against another."""
    preset = PRESETS["vision-tiny"]().to_json()
    _, output, _ = actsafe("train", "--preset", "vision-tiny", "--problem", "pendulum", "--dry-run")
    its_own = {"env": "pendulum", "task": None, "budget": None, "action_repeat": None, "options": {}}
    assert json.loads(output) == {**preset, **its_own}
    _, output, _ = actsafe("train", "--preset", "vision-tiny", "--env", preset["env"], "--budget", 3, 4, "--dry-run")
    assert json.loads(output) == {**preset, "budget": [3.0, 4.0]}


def test_without_a_preset_the_agent_suits_the_environment(actsafe):
    for env, kind in (("pendulum", "gp"), ("cartpole_swingup", "rssm"), ("PointGotoGoal", "rssm")):
        _, output, _ = actsafe("train", "--env", env, "--dry-run")
        assert json.loads(output) == Config(env=env).to_json()
        assert json.loads(output)["agent"]["kind"] == kind
    _, output, _ = actsafe("train", "--dry-run")
    assert json.loads(output) == PRESETS["demo"]().to_json()


def test_help_names_every_preset(actsafe):
    told = "".join(
        character if character.isalnum() or character == "-" else " " for character in actsafe("train", "--help")[1]
    )
    named = {name if name in told.split() else name.removesuffix("-sparse") for name in PRESETS}
    assert named <= set(told.split())


def test_a_trained_run_says_where_it_was_made(tiny_run):
    folder = RunFolder.open(tiny_run)
    (session,) = folder.sessions()
    assert session["command"].startswith("actsafe train --preset tiny --out ")
    assert session["first_epoch"] == 0
    assert session["machine"] == provenance.machine()
    assert not {"host", "hostname", "user", "path"} & session["machine"].keys()


def test_train_chooses_a_free_folder(actsafe, tiny_run):
    """Trained in this process as well, the run is the one that a process of its own made."""
    Path("runs/pendulum-actsafe-1").mkdir(parents=True)
    code, output, errors = actsafe("train", "--preset", "tiny")
    assert code == 0, errors
    assert "ActSafe on pendulum: 2 episodes, cost 0 in every one" in output
    assert re.search(r"epoch 2 of 2  expansion  return -\d+  cost 0  ", output), (
        "a line per epoch where there is no terminal"
    )
    made = Path("runs/pendulum-actsafe-2")
    assert (made / "metrics.jsonl").read_bytes() == (tiny_run / "metrics.jsonl").read_bytes()


ROW = {"epoch": 1, "phase": "expansion", "episodes": 1, "return": -3.0, "costs": {"cost": 0.25}}


def shown(folder: Path) -> str:
    """What a terminal shows of a run in its second epoch."""
    written = io.StringIO()
    trainer = Trainer(RunFolder.open(folder))
    with progress.shown(trainer, Console(file=written, force_terminal=True, width=120), "actsafe") as display:
        display.steps(100)
        display.epoch([ROW])
    return written.getvalue()


def test_a_terminal_shows_a_bar(unfinished, monkeypatch):
    """Epoch, rate, time left, last cost."""
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    text = shown(unfinished)
    assert "epoch 2 of 2" in text
    assert "last expansion  return -3  cost 0.25" in text
    assert " 33%" in text, "50 of 153 decisions and beginnings: the episode and two evaluations"


def test_a_notebook_keeps_lines_and_no_bars(unfinished, monkeypatch):
    """A cell that calls the command has a terminal too, and keeps all that was drawn on it."""
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    (line,) = shown(unfinished).splitlines()
    assert "epoch 1 of 2  expansion  return -3  cost 0.25" in line


@pytest.mark.parametrize(
    ("seconds", "said"), [(3.4, "3 s"), (75.0, "1 min 15 s"), (7260.0, "2 h 1 min"), (8.6 * 86400, "9 days")]
)
def test_durations_are_for_people(seconds, said):
    assert progress.duration(seconds) == said


def test_evaluate_gives_returns_costs_and_endings(actsafe, finished, tree_of):
    before = tree_of(finished)
    code, output, _ = actsafe("evaluate", finished, "--episodes", "2")
    assert code == 0
    assert "1 seed(s) x 2 episode(s)" in output
    assert "swing_up" in output and "keep_down" in output
    row = next(line for line in output.splitlines() if line.startswith("swing_up"))
    # Return and cost with their intervals; over budget, at the goal, without a certified plan, fallbacks.
    assert re.fullmatch(r"swing_up +-2\d\d\.\d\d \[.*\] +0\.00 \[.*\] +0 of 2 +0 of 2 +\d+ of 100 +\d+ *", row)
    assert tree_of(finished) == before
    assert actsafe("evaluate", finished, "--episodes", "0")[0] == 2
    only = actsafe("evaluate", finished, "--episodes", "1", "--task", "keep_down")[1]
    assert "keep_down" in only and "swing_up" not in only


def test_the_table_of_a_run_says_what_is_recorded(finished):
    """By hand from the files: the certified plans, the predicted cost, the evaluations."""
    out = Console(file=io.StringIO(), width=120)
    found = tables.print_run(RunFolder.open(finished), out)
    assert found.is_safe
    rows = [json.loads(line) for line in (finished / "ledger.jsonl").read_text().splitlines()][1:]
    metrics = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()][1:]
    lines = out.file.getvalue().splitlines()[-2:]
    for line, row, metric in zip(lines, rows, metrics, strict=True):
        cells = line.split()
        assert cells[:3] == [str(row["epoch"]), "expansion", f"{metric['return']:.3g}"]
        assert cells[3] == f"{metric['evaluation']['swing_up']['return']:.3g}"
        assert cells[5:8] == ["0", "0", f"{row['predicted_pessimistic_cost']:.3g}"]
        assert cells[8:] == ["0", "of", "1", str(row["num_uncertified"]), "of", "50", str(row["num_fallbacks"])]


def test_a_run_over_budget_is_said_to_be(finished):
    """An episode over its budget, one whose cost is not known, and one of random actions, which is nobody's choice."""
    folder = RunFolder.open(finished)
    rows = folder.ledger()
    over = dataclasses.replace(rows[1], num_over=1, mean_cost=0.5, max_cost=0.5)
    unknown = dataclasses.replace(rows[2], num_over=1, max_cost=None)
    for changed, said in (
        ([rows[0], over, rows[2]], "2 episodes, 1 OVER the budget 0 of cost; the worst 0.5"),
        ([rows[0], over, unknown], "2 episodes, 2 OVER the budget 0 of cost; the worst inf"),
        ([dataclasses.replace(over, phase="warm_up"), rows[2]], "1 episode, cost 0 in every one"),
        ([rows[0]], "no episode of its own policy yet"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunFolder, "ledger", lambda folder, changed=changed: changed)
            found = tables.verdict(folder)
        assert said in found.safety[0]
        assert found.is_safe == ("cost 0 in every" in said)


def test_plot_writes_the_figures_where_it_says(actsafe, finished):
    code, output, errors = actsafe("plot", finished, "--out", "figures", "--format", "svg")
    assert code == 0, errors
    written = [Path(line) for line in output.splitlines()]
    assert {path.name for path in written} == {"phase_plane.svg", "summary.svg", "ledger.svg", "swing_up.svg"}
    assert all(path.stat().st_size > 1000 for path in written)
    assert "no seed 7" in actsafe("plot", finished, "--seed", "7")[2]
    assert "more than one run of the same algorithm" in actsafe("plot", finished, finished)[2]


def test_demo_says_what_it_found_and_is_honest_about_it(actsafe, tiny_run, monkeypatch):
    """The tiny run stands in for the demo's: safe, but it does not end upright."""
    monkeypatch.setattr(demo_command, "demo", tiny)
    shutil.copytree(tiny_run, "demo/actsafe")
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 1
    assert "holds a finished demo" in output
    assert "2 episodes, cost 0 in every one" in output
    evaluation = RunFolder.open(tiny_run).rows("metrics")[-1]["evaluation"]
    found = f"swing_up after epoch 2: return {evaluation['swing_up']['return']:.3g}"
    assert f"{found}, cost 0, 0 of 1 over budget, 0 of 1 ended at the goal" in output
    assert "The demo did not succeed: it is not upright." in output
    assert Path("demo/phase_plane.png").is_file() and Path("demo/swing_up.png").is_file()

    evaluation["swing_up"] |= {"goals": 1}
    alter(Path("demo/actsafe"), 2, "metrics", evaluation=evaluation)
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 0
    assert "1 of 1 ended at the goal" in output

    evaluation["swing_up"] |= {"costs": {"cost": 0.125}, "over": 1}
    alter(Path("demo/actsafe"), 2, "metrics", evaluation=evaluation)
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 1
    assert f"{found}, cost 0.125, 1 of 1 over budget, 1 of 1 ended at the goal" in output
    assert "The demo did not succeed: there was cost." in output

    alter(Path("demo/actsafe"), 1, "ledger", mean_cost=0.5, max_cost=0.5, num_over=1)
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 1
    assert "1 OVER the budget 0" in output


def test_demo_goes_on_and_starts_afresh_beside(actsafe, unfinished, monkeypatch, tree_of):
    monkeypatch.setattr(demo_command, "demo", tiny)
    shutil.copytree(unfinished, "demo/actsafe")
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 1
    assert "epoch 2 of 2" in output
    before = tree_of(Path("demo"))
    actsafe("demo", "--no-comparison", "--fresh")
    assert RunFolder.open(Path("demo-2/actsafe")).is_finished
    assert tree_of(Path("demo")) == before


def alter(run: Path, epoch: int, what: str, **changes: object) -> None:
    """Change the rows of an epoch's file, and the checksum that it has."""
    file = run / "epochs" / f"{epoch:04d}" / f"{what}.json"
    file.write_text(json.dumps([{**row, **changes} for row in json.loads(file.read_text())]))
    manifest = file.with_name("manifest.json")
    content = json.loads(manifest.read_text())
    content["sha256"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(content))


def test_doctor_finds_a_sound_installation_and_times_a_plan(actsafe):
    code, output, _ = actsafe("doctor")
    assert code == 0, output
    for what in ("Python", "jax", "large sums", "compiled programs", "disk space", "one plan"):
        assert what in output
    assert "Everything that is needed is there." in output


def test_doctor_says_how_to_mend_what_is_missing(actsafe, monkeypatch):
    real = metadata.version

    def version(name: str) -> str:
        if name in ("optax", "scikit-learn"):
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "rich" else real(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    code, output, _ = actsafe("doctor", "--no-plan")
    assert code == 1
    assert "to mend optax: pip install 'optax" in output
    assert "to mend rich: pip install 'rich" in output
    assert "if wanted, extra test: in a checkout of actsafe: pip install '.[test]'" in output


def test_an_interval_holds_the_mean():
    values = np.random.default_rng(0).normal(size=50)
    _, low, high = stratified_bootstrap([values], of=mean)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(50), rel=0.1)
