"""Bad input gets one clear message and exit code 2, and leaves what was there untouched."""

import errno
import json
import os
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.problems import PROBLEMS, Pendulum
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder

TINY = ("train", "--preset", "tiny")
PLAINEST = (
    "--set",
    "agent.planning.search.horizon=2",
    "agent.planning.search.num_iterations=1",
    "agent.planning.feedback_effort=null",
)
"""Settings that compile fast, where the planner does not matter."""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def refused(actsafe):
    """Run a command that must be refused: one message on stderr, exit code 2. Gives the message."""

    def _refused(*arguments: object) -> str:
        code, _, errors = actsafe(*arguments)
        assert code == 2, errors
        assert "Traceback" not in errors
        return errors

    return _refused


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("trian",), "train"),
        ((*TINY, "--problem", "pendulm"), "pendulum"),
        ((*TINY, "--algorithm", "actsave"), "actsafe"),
        (("train", "--preset", "gp-pendlum"), "gp-pendulum"),
        ((*TINY, "--budgt", "1"), "--budget"),
        ((*TINY, "--confidence", "calibratd"), "calibrated"),
        ((*TINY, "--set", "agent.planning.search.horizn=3"), "agent.planning.search.horizon"),
        ((*TINY, "--set", "planning.search.horizon=3"), "agent.planning.search.horizon"),
        ((*TINY, "--set", "agent.gp.kernel=matern"), "matern52"),
        (("reproduce", "gp-cartpol"), "gp-cartpole"),
        (("reproduce", "tiny", "--algorithms", "opx"), "opax"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(refused, arguments, nearest):
    assert nearest in refused(*arguments)
    assert not list(Path().iterdir()), "nothing was made"


def test_an_unknown_task_is_answered_with_the_nearest(refused, finished, tree_of):
    before = tree_of(finished)
    assert "'swing_up'" in refused("evaluate", finished, "--task", "swingup")
    assert "has no policy to draw from" in refused("evaluate", finished, "--draws")
    assert "state vectors, which cannot be shown" in refused("evaluate", finished, "--predict", "x.gif")
    assert tree_of(finished) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--budget", "-1"), "budget must be a finite number of at least 0, got -1"),
        (("--env", "cartpole_swingup", "--out", "run"), "choose the agent with a world model"),
        (("--budget", "nan"), "budget must be a finite number"),
        (("--budget", "inf"), "budget must be a finite number"),
        (("--budget", "much"), "--budget"),
        (("--budget", "1_0"), "--budget: got '1_0'; expected a number"),
        (("--set", "options.process_noise_std=-0.1", "--out", "run"), "process_noise_std"),
        (("--episodes", "0"), "must have an episode, got 0"),
        (("--expansion", "99999999999999999999"), "--expansion: got '99999999999999999999'; expected a whole number"),
        (("--seeds", "1", "1"), "seeds must be"),
        (("--seeds",), "seeds must be"),
        (("--seeds", "\N{ARABIC-INDIC DIGIT THREE}"), "--seeds: got '\N{ARABIC-INDIC DIGIT THREE}'; expected a whole"),
        (("--seeds= 3",), "--seeds: got ' 3'; expected a whole number"),
        (("--set", "schedule.seed_decisions=0", "--out", "run"), "schedule.seed_decisions must be at least 1"),
        (("--set", "agent.planning.search.horizon=2.5"), "agent.planning.search.horizon must be a whole number"),
        (
            ("--set", "schedule.expansion=99999999999999999999999"),
            "schedule.expansion must be a whole number of at most",
        ),
        (("--set", f"agent.gp.kernel={'[' * 5000}"), "nested too deeply"),
        (("--set", f"agent.gp.kernel={'[' * 500}{']' * 500}"), "nested more than 20 deep"),
        (("--set", "agent.gp=3"), "agent.gp"),
        (("--set", "agent.gp.fit=3"), "agent.gp.fit must be an object"),
        (("--set", "agent.gp.noise_std=NaN"), "agent.gp.noise_std must be a finite number"),
        (("--set", "horizon"), "expected KEY.PATH=VALUE"),
        (("--set",), "--set got nothing; expected KEY.PATH=VALUE"),
        (("--multiplier", "2", "--confidence", "theory"), "expected one of the two"),
        (("--multiplier", "-2"), "confidence.value must be at least 0"),
        (("--out", "/proc/nowhere/run"), "/proc/nowhere"),
    ],
)
def test_a_value_that_will_not_do_is_refused(refused, arguments, said):
    assert said in refused(*TINY, *arguments)
    assert not list(Path().iterdir()), "nothing was made"


def test_a_process_has_the_exit_code_too(start):
    process = start("train", "--budget", "-1")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors.startswith("error: budget must be")
    assert len(errors.splitlines()) == 1


def test_debugging_shows_where_an_error_is_from(actsafe, monkeypatch):
    monkeypatch.setenv("ACTSAFE_DEBUG", "1")
    with pytest.raises(ValueError, match="budget"):
        actsafe(*TINY, "--budget", "-1")


class NotANumber(Pendulum):
    """The first observation is not a number."""

    def reset(self, key):
        return jnp.array([-1.0, 0.0, jnp.nan])


class Unbounded(Pendulum):
    """The speed becomes infinite."""

    def simulate(self, state, action):
        return jnp.array([-1.0, 0.0, jnp.inf])


class NotANumberOnceItActs(Pendulum):
    """The seed policy sees nothing of the fault."""

    def simulate(self, state, action):
        return jnp.where(jnp.abs(action[0]) > 0.0, jnp.nan, Pendulum.simulate(self, state, action))


class Rewarding(Pendulum):
    """A cost below zero."""

    def cost(self, state, margin=0.0):
        return Pendulum.cost(self, state, margin) - 0.25


class FastFromTheStart(Pendulum):
    """Zero input is not safe."""

    def reset(self, key):
        return jnp.array([-1.0, 0.0, 7.0])


class Still(Pendulum):
    """It never moves: all data points are the same but for the action."""

    def simulate(self, state, action):
        return state


@pytest.mark.parametrize(
    ("problem", "said", "epochs_kept"),
    [
        (NotANumber, "expected a finite number", None),
        (Unbounded, "expected a finite number", None),
        (NotANumberOnceItActs, "in epoch 1: pendulum: the observation of", 1),
        (Rewarding, "is -0.25, expected a finite number of at least 0", None),
        (FastFromTheStart, "zero input) is not safe", 0),
    ],
)
def test_a_problem_that_is_none_is_refused(refused, monkeypatch, problem, said, epochs_kept):
    """Where its first step shows what is wrong, no folder is made."""
    monkeypatch.setitem(PROBLEMS, "broken", problem)
    errors = refused(*TINY, *PLAINEST, "--env", "broken", "--out", "run")
    assert errors.startswith("error: ")
    assert said in errors
    assert (RunFolder.open(Path("run")).num_committed if Path("run").exists() else None) == epochs_kept


def test_a_system_that_never_moves_is_learned_all_the_same(actsafe, monkeypatch):
    monkeypatch.setitem(PROBLEMS, "still", Still)
    code, _, errors = actsafe(*TINY, *PLAINEST, "--env", "still", "--episodes", "1", "--out", "run")
    assert code == 0, errors
    folder = RunFolder.open(Path("run"))
    assert [row["max_cost"] for row in folder.rows("ledger")] == [0.0, 0.0]
    states = folder.trajectory(1)["observation"]
    np.testing.assert_array_equal(states, np.broadcast_to([-1.0, 0.0, 0.0], states.shape))
    assert np.all(np.isfinite(folder.trajectory(1)["predicted_cost"]))


def test_a_multiplier_for_an_agent_without_one_is_refused_by_the_name_that_was_typed(refused):
    for option in (("--multiplier", "2"), ("--confidence", "theory")):
        said = refused("train", "--preset", "vision-tiny", *option)
        assert said.startswith(f"error: {option[0]} does not apply to vision-tiny")
        assert len(said.splitlines()) == 1


ARM = """
import gymnasium
import numpy as np


class Arm(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {"speed": 0.0, "reach": 0.0}


gymnasium.register("Limb-v0", Arm, max_episode_steps=20)
"""
BOTH = ("--set", 'options.cost_names=["speed", "reach"]')


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--env", "Limb-v0"), "module:Limb-v0"),
        (("--env", "armless:Limb-v0"), "the module armless"),
        (("--env", "limb:Limb-v0"), "budget: 'limb:Limb-v0' does not say what it allows"),
        (("--env", "limb:Limb-v0", "--budget", 1), "['reach', 'speed']: name those with cost_names"),
        (("--env", "limb:Limb-v0", "--budget", 1, "--preset", "vision-tiny"), "--set observation=state"),
        (
            ("--env", "limb:Limb-v0", "--budget", 1, 2, "--preset", "own-gp", *BOTH),
            "add the costs up in the environment",
        ),
        (("--env", "limb:Limb-v0", "--budget", 1, 2, 3, *BOTH), "one for each of the costs"),
    ],
)
def test_the_first_tries_with_an_environment_of_ones_own(refused, monkeypatch, options, said):
    """Each is told what to write, and leaves nothing behind: not even where a cost is missing from the first step."""
    Path("limb.py").write_text(ARM)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    errors = refused("train", *options, "--out", "run")
    assert said in errors
    assert len(errors.splitlines()) == 1
    assert not Path("run").exists()


def test_a_logger_that_is_not_there_is_missed_before_a_folder_is_made(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert "pip install 'actsafe[tensorboard]'" in refused(*TINY, "--log", "tensorboard")
    assert not list(Path().iterdir())


def test_output_that_cannot_be_written_is_told_in_a_line(start):
    """A full disk, and no standard output at all."""
    with open("/dev/full", "w") as full:
        process = start(*TINY, "--dry-run", stdout=full)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, len(errors.splitlines())) == (2, 1)
    assert "could not be written (No space left on device)" in errors
    program = "import sys; sys.stdout = None; from actsafe.cli.main import main; sys.exit(main(sys.argv[1:]))"
    process = start(*TINY, "--dry-run", program=("-c", program))
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")


def test_evaluating_without_data_is_refused(refused, tiny_run):
    RunFolder.create(Path("run"), tiny(), RunFolder.open(tiny_run).spec)
    assert "no committed epoch" in refused("evaluate", "run")
    assert "no epoch to draw yet" in refused("plot", "run")


def test_a_folder_that_is_taken_is_not_overwritten(refused, finished, tree_of):
    before = tree_of(finished)
    assert f"actsafe resume {finished}" in refused(*TINY, "--out", finished)
    assert "other settings (seeds differ)" in refused_after_move(refused, finished)
    assert tree_of(finished) == before


def refused_after_move(refused, finished: Path) -> str:
    """`reproduce` where the folder of its first run holds another."""
    Path("out").mkdir()
    (Path("out") / "actsafe").symlink_to(finished)
    return refused("reproduce", "tiny", "--algorithms", "actsafe", "--seeds", "5", "--out", "out")


def test_files_that_are_no_runs_are_left_alone(refused):
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    assert "exists already" in refused(*TINY, "--out", "notes")
    assert "exists already" in refused(*TINY, "--out", "file")
    assert "Not a directory" in refused(*TINY, "--out", "file/run")
    assert "no demo" in refused("demo", "--out", "notes")
    assert "no config.json" in refused("resume", "notes")
    assert "nothing of that name" in refused("resume", "nowhere")
    assert [str(path) for path in sorted(Path().rglob("*"))] == ["file", "notes", "notes/mine.txt"]


@pytest.mark.parametrize("command", ["resume", "evaluate", "plot"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config: {**config, "schema": 99}, "install a newer actsafe"),
        (lambda config: {"config": config["config"]}, "was not written by actsafe"),
        (lambda config: [], "was not written by actsafe"),
        (lambda config: {**config, "config": []}, "cannot be used"),
        (lambda config: {**config, "config": {**config["config"], "surprise": 1}}, "unknown setting 'surprise'"),
        (lambda config: {**config, "config": {**config["config"], "seeds": "all"}}, "seeds must be a list"),
        (lambda config: {"schema": 1, "kind": "gp", "config": {}}, "was made by actsafe 0.1"),
        (lambda config: "{ not JSON", "damaged"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(refused, finished, tree_of, command, change, said):
    path = finished / "config.json"
    changed = change(json.loads(path.read_text()))
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    before = tree_of(finished)
    assert said in refused(command, finished)
    assert tree_of(finished) == before


def test_a_trajectory_that_was_cut_short_is_named(refused, finished):
    path = finished / "epochs" / "0001" / "trajectory.npz"
    path.write_bytes(path.read_bytes()[:200])
    said = refused("plot", finished)
    assert f"{path} is damaged" in said
    assert "restore it from a copy" in said


def test_a_full_disk_stops_a_run_that_can_go_on_later(
    refused, actsafe, unfinished, tiny_run, tree_of, assert_same_run, monkeypatch
):
    before = tree_of(unfinished / "epochs")
    real_fsync, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 5:  # provenance.json, the two .jsonl files, and two files of the episode are still written
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        errors = refused("resume", unfinished)
    assert "the disk is full" in errors
    assert "actsafe resume" in errors
    assert tree_of(unfinished / "epochs") == before

    assert actsafe("resume", unfinished)[0] == 0
    assert_same_run(unfinished, tiny_run)


def test_a_disk_that_takes_no_more_bytes(start, unfinished, tree_of):
    """A real limit of the system on the size of files."""
    before = tree_of(unfinished / "epochs")
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
        "from actsafe.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    process = start("resume", unfinished, program=("-W", "ignore", "-c", program))
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2, errors
    assert "could not be written" in errors and "File too large" in errors, errors
    assert "Traceback" not in errors
    assert tree_of(unfinished / "epochs") == before
