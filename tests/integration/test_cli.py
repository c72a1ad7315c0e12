"""The commands, used as a user would, on a tiny run."""

import io
import json
import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from actsafe.cli import demo as demo_command
from actsafe.cli import doctor, progress, reproduce
from actsafe.cli.intervals import bootstrap_interval
from actsafe.cli.main import COMMANDS
from actsafe.training import presets, provenance, results
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.storage import StorageError


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
    options = (
        "--problem cartpole --algorithm opax --seeds 3 4 --budget 1 --episodes 7 --multiplier 2.5 --process-noise 0.01"
    )
    more = "--evaluate-every 0 --set gp.kernel=matern52 planning.search.horizon=9 --set gp.subset_size=null"
    code, output, _ = actsafe("train", "--preset", "tiny", *options.split(), *more.split(), "--dry-run")
    assert code == 0
    config = json.loads(output)
    expected = tiny().to_json()
    expected |= {"problem": "cartpole", "algorithm": "opax", "seeds": [3, 4], "budget": 1.0, "process_noise_std": 0.01}
    expected |= {"evaluate_every": 0, "confidence": {"kind": "fixed", "value": 2.5}}
    expected["schedule"]["num_expansion"] = 7
    expected["gp"] |= {"kernel": "matern52", "subset_size": None}
    expected["planning"]["search"]["horizon"] = 9
    assert config == expected
    assert not list(Path().iterdir())


def test_another_confidence_rule_starts_from_its_defaults(actsafe):
    _, output, _ = actsafe("train", "--confidence", "theory", "--set", "confidence.delta=0.05", "--dry-run")
    assert json.loads(output)["confidence"] == {"kind": "theory", "delta": 0.05, "norm_bound": 10.0}


def test_a_trained_run_says_where_it_was_made(tiny_run):
    folder = RunFolder.open(tiny_run)
    (session,) = folder.sessions()
    assert session["command"].startswith("actsafe train --preset tiny --out ")
    assert session["first_episode"] == 0
    assert session["machine"] == provenance.machine()
    assert not {"host", "hostname", "user", "path"} & session["machine"].keys()


def test_train_chooses_a_free_folder(actsafe, tiny_run):
    """Trained in this process as well, the run is the one that a process of its own made."""
    Path("runs/pendulum-actsafe-1").mkdir(parents=True)
    code, output, errors = actsafe("train", "--preset", "tiny")
    assert code == 0, errors
    assert "2 exploration episodes, cost 0 in every one" in output
    assert "episode 2 of 2  cost 0" in output, "a line per episode where there is no terminal"
    made = Path("runs/pendulum-actsafe-2")
    assert (made / "metrics.jsonl").read_bytes() == (tiny_run / "metrics.jsonl").read_bytes()


def test_a_terminal_shows_a_bar(unfinished):
    """Episode, rate, time left, last cost."""
    written = io.StringIO()
    trainer = Trainer(RunFolder.open(unfinished))
    with progress.shown(trainer, Console(file=written, force_terminal=True, width=110), "actsafe") as display:
        display.decisions(50)
        display.episode([{"episode": 1, "exploration_cost": 0.25}])
    text = written.getvalue()
    assert "episode 2 of 2" in text
    assert "last cost 0.25" in text
    assert " 33%" in text, "50 of 150 decisions: the episode and two evaluations"


@pytest.mark.parametrize(("seconds", "said"), [(3.4, "3 s"), (75.0, "1 min 15 s"), (7260.0, "2 h 1 min")])
def test_durations_are_for_people(seconds, said):
    assert progress.duration(seconds) == said


def test_evaluate_gives_returns_costs_and_endings(actsafe, finished, tree_of):
    before = tree_of(finished)
    code, output, _ = actsafe("evaluate", finished, "--episodes", "2")
    assert code == 0
    assert "1 seed(s) x 2 episode(s)" in output
    assert "swing_up" in output and "keep_down" in output
    assert tree_of(finished) == before
    assert actsafe("evaluate", finished, "--episodes", "0")[0] == 2


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
    assert "2 exploration episodes, cost 0 in every one" in output
    assert "does not end upright" in output
    assert "The demo did not succeed: it is not upright." in output
    assert Path("demo/phase_plane.png").is_file() and Path("demo/swing_up.png").is_file()

    alter(Path("demo/actsafe/episodes/0002/metrics.json"), upright=True)
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 0
    assert "zero-shot swing-up ends upright" in output

    alter(Path("demo/actsafe/episodes/0002/metrics.json"), swing_up_cost=0.125)
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 1
    assert "ends upright, return -" in output and "cost 0.125" in output

    alter(Path("demo/actsafe/episodes/0001/ledger.json"), realised_cost=0.5)
    alter(Path("demo/actsafe/episodes/0001/metrics.json"), exploration_cost=0.5)
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 1
    assert "1 OVER the budget 0" in output


def test_demo_goes_on_and_starts_afresh_beside(actsafe, unfinished, monkeypatch, tree_of):
    monkeypatch.setattr(demo_command, "demo", tiny)
    shutil.copytree(unfinished, "demo/actsafe")
    code, output, _ = actsafe("demo", "--no-comparison")
    assert code == 1
    assert "episode 2 of 2" in output
    before = tree_of(Path("demo"))
    actsafe("demo", "--no-comparison", "--fresh")
    assert RunFolder.open(Path("demo-2/actsafe")).is_finished
    assert tree_of(Path("demo")) == before


def alter(path: Path, **changes: object) -> None:
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([{**row, **changes} for row in rows]))


def test_reproduce_resumes_writes_results_and_figures(actsafe, unfinished):
    shutil.copytree(unfinished, "out/actsafe")
    arguments = ("reproduce", "tiny", "--algorithms", "actsafe", "--out", "out", "--results", "results/tiny.json")
    code, output, errors = actsafe(*arguments)
    assert code == 0, errors
    assert "0 of 2" in output
    content = json.loads(Path("results/tiny.json").read_text())
    assert content.keys() == {"schema", "command", "machine", "notes", "summary", "reference", "runs"}
    assert content["command"] == " ".join(("actsafe", *arguments))
    (run,) = content["runs"]
    assert (run["algorithm"], run["problem"], run["seed"]) == ("actsafe", "pendulum", 0)
    assert run["settings"] == tiny().to_json()
    for key in ("exploration_cost", "swing_up_return", "keep_down_return", "upright", "swing_up_cost"):
        assert len(run[key]) == 2, key
    for key in ("exploration_inner_cost", "confidence_multiplier", "fallbacks", "uncertified"):
        assert len(run[key]) == 2, key
    assert run["seconds"] == run["seconds_batch"] / run["seeds_in_batch"]
    assert content["summary"]["actsafe"]["episodes_over_budget"] == 0
    reference = content["reference"]["swing_up"]
    assert len(reference["constrained"]["returns"]) == reproduce.REFERENCE_EPISODES
    assert max(reference["constrained"]["costs"]) == 0.0
    assert reference["constrained"]["median_return"] > run["swing_up_return"][-1], "knowing the truth is better"
    assert {path.name for path in Path("out/figures").iterdir()} == {
        "phase_plane.png",
        "summary.png",
        "ledger_actsafe.png",
    }


def test_results_replace_the_same_seed_and_keep_the_others(tiny_run, tree_of):
    path = Path("results.json")
    (entry,) = results.entries(RunFolder.open(tiny_run))
    others = [
        {**entry, "seed": 1},
        {**entry, "algorithm": "opax", "exploration_cost": [0.0, 2.0], "upright": [None, True]},
    ]
    results.merge(path, [entry, *others], command="first", kind=results.GP, reference={"swing_up": -177.0})
    changed = {**entry, "exploration_cost": [0.0, 0.5], "settings": {**entry["settings"], "budget": 1.0}}
    content = results.merge(path, [changed], command="second", kind=results.GP)

    assert content == json.loads(path.read_text())
    assert [(run["algorithm"], run["seed"]) for run in content["runs"]] == [("actsafe", 0), ("actsafe", 1), ("opax", 0)]
    assert content["command"] == "second"
    assert content["reference"] == {"swing_up": -177.0}
    summary = content["summary"]["actsafe"]
    assert (summary["seeds"], summary["episodes"], summary["episodes_over_budget"]) == (2, 4, 1)
    assert (summary["seeds_with_violation"], summary["total_cost_max"], summary["different_settings"]) == (1, 0.5, 2)
    assert content["summary"]["opax"]["upright"] == 1
    assert [path.name for path in Path().iterdir()] == ["results.json"], "written in one step"


@pytest.mark.parametrize("content", ["[]", "{}", '{"schema": 99, "runs": []}', "not JSON"])
def test_results_of_another_kind_are_not_overwritten(tiny_run, content):
    path = Path("results.json")
    path.write_text(content)
    with pytest.raises(StorageError):
        results.merge(path, results.entries(RunFolder.open(tiny_run)), command="", kind=results.GP)
    assert path.read_text() == content


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
    low, high = bootstrap_interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(50), rel=0.1)
