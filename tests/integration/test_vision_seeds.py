"""Several seeds of a run from pixels in one command: a process each, stopped, resumed and failing by itself."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from actsafe.cli import processes
from actsafe.cli import sweep as sweep_command
from actsafe.cli.evaluate import Evaluate
from actsafe.cli.main import main
from actsafe.cli.processes import Processes, Task
from actsafe.cli.stopping import Stopped, StopRequests
from actsafe.training.presets import vision_tiny
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.sweep import SweepFolder, open_runs

LAST = 2
SEEDS = (0, 1)
TASK = """
import gymnasium
import numpy as np


class Drift(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=2).astype(np.float32)
        return self.state, {}

    def step(self, action):
        self.state = (0.9 * self.state + 0.1 * np.asarray(action, np.float32)).astype(np.float32)
        return self.state, float(self.state[0]), False, False, {"cost": float(self.state[1] > 0.5)}


gymnasium.register("Drift-v0", Drift, max_episode_steps=25)
"""
# From state, one phase, one update in an epoch: what compiles fastest and still learns. Not pure, so that each seed has
# a process of its own.
SETTINGS = (
    "observation=state agent.decisions_per_cycle=25 agent.updates_per_1000_steps=20 schedule.warm_up=4 "
    "schedule.expansion=0 schedule.exploitation=0 schedule.episodes_per_epoch=2"
)
TINY = (
    *("train", "--preset", "vision-tiny", "--env", "drift:Drift-v0", "--budget", "5", "--evaluate-every", "0"),
    *("--set", *SETTINGS.split()),
)


@pytest.fixture(scope="module", autouse=True)
def quick_programs(shared_programs, tmp_path_factory):
    """Programs that compile fast, and an environment that is not pure, here and in the processes of the seeds."""
    folder = tmp_path_factory.mktemp("task")
    (folder / "drift.py").write_text(TASK)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def alone(quick_programs, tmp_path_factory) -> dict[int, Path]:
    """For each seed a run of that seed alone."""
    runs = {seed: tmp_path_factory.mktemp("alone") / f"run-{seed}" for seed in SEEDS}
    for seed, path in runs.items():
        assert main([*TINY, "--seeds", str(seed), "--out", str(path)]) == 0
    return runs


class Trial(NamedTuple):
    """A sweep that was stopped after its first seed had begun, one at a time, and resumed."""

    path: Path
    stop_code: int
    told: str
    logs: dict[str, str]
    """Of the seeds when it had stopped."""
    code: int


@pytest.fixture(scope="module")
def trial(alone, tmp_path_factory) -> Trial:
    """Copy its folder before changing anything."""
    path = tmp_path_factory.mktemp("sweep") / "sweep"
    told = io.StringIO()

    def once_begun(self) -> None:
        # The first epoch takes seconds to compile: this is in its midst.
        if (path / "seed-0" / "epochs" / "0000").exists():
            signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(told):
        patch.setattr(sweep_command._Watch, "look", once_begun)
        stop_code = main([*TINY, "--seeds", "0", "1", "--jobs", "1", "--out", str(path)])
    logs = {file.parent.name: file.read_text() for file in path.rglob("log.txt")}
    return Trial(path, stop_code, told.getvalue(), logs, main(["resume", str(path)]))


@pytest.fixture
def sweep(trial: Trial, tmp_path: Path) -> Path:
    """A finished sweep of the test's own."""
    return Path(shutil.copytree(trial.path, tmp_path / "sweep"))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A sweep of which nothing is computed."""
    configs = [dataclasses.replace(vision_tiny(), seeds=(seed,)) for seed in SEEDS]
    with contextlib.closing(configs[0].make_envs()) as envs:
        return SweepFolder.create(tmp_path / "made", configs, envs.spec, command="actsafe train").path


def cut(run: Path) -> None:
    """Take the last epoch away."""
    shutil.rmtree(run / "epochs" / f"{LAST:04d}")
    RunFolder.open(run).refresh()


def assert_same(got: Path, expected: Path) -> None:
    """Settings, metrics and ledger byte for byte, the newest agent and its rows bit for bit."""
    for name in ("config.json", "metrics.jsonl", "ledger.jsonl"):
        assert (got / name).read_bytes() == (expected / name).read_bytes(), name
    left, right = (Trainer(RunFolder.open(path)) for path in (got, expected))
    for ours, theirs in (
        (left.newest()[1], right.newest()[1]),
        (left.folder.read_rows(LAST), right.folder.read_rows(LAST)),
    ):
        mine, other = ([plain(leaf) for leaf in jax.tree.leaves(tree)] for tree in (ours, theirs))
        assert len(mine) == len(other) > 0
        for number, (array, wanted) in enumerate(zip(mine, other, strict=True)):
            np.testing.assert_array_equal(array, wanted, err_msg=f"leaf {number}")


def plain(leaf):
    """A leaf of a checkpoint as numbers."""
    is_key = jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def test_every_seed_is_the_run_that_it_would_have_been_alone(trial, alone):
    assert trial.code == 0
    content = json.loads((trial.path / "sweep.json").read_text())
    assert (content["schema"], content["seeds"]) == (1, [0, 1])
    assert content["command"].startswith("actsafe train --preset vision-tiny")
    assert {path.name for path in trial.path.iterdir()} == {"sweep.json", "seed-0", "seed-1"}
    for seed, run in alone.items():
        ours = trial.path / f"seed-{seed}"
        assert_same(ours, run)
        assert {path.name for path in ours.iterdir()} == {"log.txt", *(path.name for path in run.iterdir())}
        assert f"epoch {LAST} of {LAST}" in (ours / "log.txt").read_text()
    returns = [RunFolder.open(path).rows("metrics")[0]["return"] for path in alone.values()]
    assert returns[0] != returns[1]


def test_a_sweep_stops_when_asked_to_and_says_how_to_go_on(trial, actsafe, tree_of):
    assert trial.stop_code == 143
    assert f"0 of {LAST} epochs of seed 0, 0 of {LAST} epochs of seed 1 are kept in {trial.path}" in trial.told
    assert f"Go on with: actsafe resume {trial.path}" in trial.told
    assert trial.logs.keys() == {"seed-0"}, "one at a time: the other had not begun"
    assert f"stopped: 0 of {LAST} epochs are kept" in trial.logs["seed-0"], "by itself, between compiled calls"
    before = tree_of(trial.path)
    code, output, _ = actsafe("resume", trial.path)
    assert code == 0
    assert "is finished; nothing is left to do" in output
    assert tree_of(trial.path) == before


def test_a_seed_that_fails_does_not_stop_the_others(actsafe, sweep, alone):
    for run in open_runs(sweep):
        cut(run.path)
    for file in (sweep / "seed-1").rglob("checkpoint/_METADATA"):
        file.write_text("{}")
    code, output, errors = actsafe("resume", sweep)
    assert code == 1
    assert f"seed 0  epoch {LAST} of {LAST}" in output
    assert "seed 1 failed (exit code 2)" in errors
    assert str(sweep / "seed-1" / "log.txt") in errors
    assert "has no sound checkpoint left" in errors, "the end of its log"
    assert f"actsafe resume {sweep}" in errors
    assert_same(sweep / "seed-0", alone[0])


def test_plot_and_evaluate_take_a_sweep_as_they_take_its_runs(actsafe, sweep):
    code, output, errors = actsafe("plot", sweep, "--format", "svg")
    assert code == 0, errors
    drawn = {Path(line) for line in output.splitlines()}
    names = ("summary", "ledger")
    assert drawn == {sweep / "figures" / f"{name}.svg" for name in names}
    code, output, errors = actsafe("evaluate", sweep, "--episodes", 1)
    assert code == 0, errors
    assert "seed 0, after 2 of 2 epochs" in output
    assert "seed 1, after 2 of 2 epochs" in output


def test_videos_of_seeds_have_names_of_their_own():
    asked = Evaluate(Path("sweep"), video=Path("seen.gif"))._of_seed(7)
    assert (asked.video, asked.predict) == (Path("seen-seed-7.gif"), None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seeds", "1", "1"), "seeds must be one or more different numbers from 0 to 2^32 - 1, got [1, 1]"),
        (("--seeds",), "seeds must be one or more different numbers from 0 to 2^32 - 1, got []"),
        (("--seeds", "0", "1", "--set", "seeds=[3, 3]"), "different numbers from 0 to 2^32 - 1, got [3, 3]"),
        (("--seeds", "0", "-1"), "different numbers from 0 to 2^32 - 1, got [0, -1]"),
        (("--seeds", "0", "1", "--jobs", "0"), "--jobs must be at least 1, got 0"),
        (("--seeds", "0", "1", "--log", "tensorbord"), "'tensorboard'"),
        (("--seeds", "0", "1", "--problem", "PointGotoGaol"), "'PointGotoGoal'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(actsafe, tmp_path, options, said):
    code, _, errors = actsafe(*TINY, *options, "--out", tmp_path / "run")
    assert code == 2, errors
    assert "Traceback" not in errors
    assert said in errors
    assert not (tmp_path / "run").exists(), "nothing was made"


def test_a_dry_run_prints_the_settings_of_every_seed(actsafe):
    configs = json.loads(actsafe(*TINY, "--seeds", 4, 2, "--dry-run")[1])
    assert [config.pop("seeds") for config in configs] == [[4], [2]]
    assert configs[0] == configs[1]
    assert json.loads(actsafe(*TINY, "--seeds", 4, "--dry-run")[1]) == {**configs[0], "seeds": [4]}
    # What is pure has one program for all.
    one = json.loads(actsafe("train", "--preset", "vision-tiny", "--seeds", 4, 2, "--dry-run")[1])
    assert one == {**vision_tiny().to_json(), "seeds": [4, 2]}


def test_a_folder_that_is_taken_is_left_as_it_is(actsafe, made, tree_of):
    before = tree_of(made)
    asked = (*TINY, "--seeds", 0, 1, "--out")
    assert f"or go on with it: actsafe resume {made}" in actsafe(*asked, made)[2]
    assert "exists already" in actsafe(*asked, made / "sweep.json")[2]
    assert "exists already" in actsafe(*TINY, "--out", made)[2]
    assert tree_of(made) == before


def _drop(path: Path) -> None:
    shutil.rmtree(path / "seed-1")


def _swap(path: Path) -> None:
    shutil.copyfile(path / "seed-0" / "config.json", path / "seed-1" / "config.json")


def _retune(path: Path) -> None:
    file = path / "seed-1" / "config.json"
    file.write_text(file.read_text().replace('"num_envs": 2', '"num_envs": 3'))


def _add(path: Path) -> None:
    shutil.copytree(path / "seed-1", path / "seed-2")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_drop, "lists the seed 1, and"),
        (_swap, "(seeds differs); expected seed 1"),
        (_retune, "(num_envs differs)"),
        (_add, "beside them there is seed-2"),
        ({"schema": 2, "seeds": [0, 1]}, "install a newer actsafe"),
        ({"seeds": [0, 1]}, "was not written by actsafe"),
        ({"schema": 1, "seeds": "all"}, "was not written by actsafe"),
        ({"schema": 1, "seeds": [0, 0]}, "one or more different numbers, got [0, 0]"),
        ({"schema": 1, "seeds": []}, "got []"),
        ({"schema": 1, "seeds": [0, True]}, "whole numbers of at least 0"),
    ],
)
@pytest.mark.parametrize("command", ["resume", "plot"])
def test_a_sweep_that_is_not_whole_is_refused(actsafe, made, tree_of, command, change, said):
    if callable(change):
        change(made)
    else:
        (made / "sweep.json").write_text(json.dumps(change))
    before = tree_of(made)
    code, _, errors = actsafe(command, made)
    assert code == 2
    assert "Traceback" not in errors
    assert said in errors
    assert tree_of(made) == before


def test_two_processes_do_not_work_on_one_sweep(actsafe, made):
    with SweepFolder.open(made).locked():
        code, _, errors = actsafe("resume", made)
    assert code == 2
    assert f"another process is working on {made}" in errors


def test_a_disk_that_is_too_small_for_all_is_noticed_first(actsafe, made, monkeypatch):
    # Enough for either seed, too little for both.
    size, free = 2**40, shutil.disk_usage(made)._replace(free=3 * 2**39)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    monkeypatch.setattr(Trainer, "disk_bytes", size)
    code, _, errors = actsafe("resume", made)
    assert code == 2
    assert "2 seeds may need 2048.0 GiB" in errors
    assert "1536.0 GiB free" in errors
    assert not list(made.rglob("log.txt"))


def test_a_bar_counts_the_epochs_of_all_seeds(sweep, monkeypatch):
    """One is there from the start, one is computed, and one was damaged: set aside and computed again."""
    last = [sweep / f"seed-{seed}" / "epochs" / f"{LAST:04d}" for seed in SEEDS]
    away = last[0].rename(sweep.parent / "away")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    text = io.StringIO()
    out = Console(file=text, force_terminal=True, width=120, color_system=None)
    with sweep_command.watched(SweepFolder.open(sweep), out) as look:
        look()
        aside = last[1].rename(sweep.parent / "aside")
        look()
        away.rename(last[0])
        aside.rename(last[1])
        look()
    shown = [line.rstrip() for line in text.getvalue().splitlines()]
    assert sum(f"seed 0  epoch {LAST} of {LAST}  warm-up" in line for line in shown) == 1
    assert sum(f"seed 1  epoch {LAST} of {LAST}  warm-up" in line for line in shown) == 1
    # Two seeds of two epochs; three epochs were there.
    assert any("4 of 4 epochs" in line and "all done" in line for line in shown)


def test_processes_share_the_machine_unless_the_user_says_otherwise(monkeypatch):
    for name in processes.SHARE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
    variables = processes.environment(3)
    assert variables["XLA_PYTHON_CLIENT_PREALLOCATE"] == "true"
    assert variables["XLA_CLIENT_MEM_FRACTION"] == "0.250"  # 0.75 / 3
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")
    variables = processes.environment(3)
    assert variables["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert "XLA_CLIENT_MEM_FRACTION" not in variables, "JAX refuses both"


def script(log: Path, *lines: str) -> Task:
    return Task([sys.executable, "-S", "-c", "\n".join(("import os, signal, sys, time", *lines))], log)


def test_tasks_wait_for_their_turn_and_fail_alone(tmp_path):
    line = 'print("begins", flush=True); time.sleep(0.2); print("ends", flush=True); sys.exit({})'
    tasks = {number: script(tmp_path / "log", line.format(code)) for number, code in enumerate((0, 3, 0))}
    team = Processes(tasks, 1)
    team.work(lambda: None)
    assert team.exit_codes == {0: 0, 1: 3, 2: 0}
    assert (tmp_path / "log").read_text().split() == ["begins", "ends"] * 3
    assert tasks[0].last_words() == "\n".join(["begins", "ends"] * 3)


def test_tasks_work_side_by_side(tmp_path):
    """Each waits for the others to begin, which two at a time would never see."""
    log = tmp_path / "log"
    lines = (
        'print("begins", flush=True)',
        "until = time.monotonic() + 20",
        f"while open({str(log)!r}).read().count('begins') < 3 and time.monotonic() < until: time.sleep(0.05)",
        "sys.exit(time.monotonic() > until)",
    )
    team = Processes(dict.fromkeys(range(3), script(log, *lines)), 3)
    team.work(lambda: None)
    assert team.exit_codes == {0: 0, 1: 0, 2: 0}


DEAF = (
    "def note(number, frame):",
    "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))",
    "    print('noted', flush=True)",
    "signal.signal(signal.SIGTERM, note)",
    "print('ready', flush=True)",
    "for _ in range(600): time.sleep(0.1)",
)
"""Is told to stop, but not at once."""


def test_a_request_to_stop_is_handed_on_and_so_is_the_next(tmp_path):
    log = tmp_path / "log"
    team = Processes({0: script(log, *DEAF), 1: script(tmp_path / "other", "print('begins')")}, 1)

    def stop_once_more() -> None:
        while "noted" not in log.read_text():
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    with StopRequests() as requests:

        def look() -> None:
            if "ready" in log.read_text():
                threading.Thread(target=stop_once_more).start()
                signal.raise_signal(signal.SIGTERM)
            requests.check()

        with pytest.raises(Stopped):
            team.work(look)
    assert team.exit_codes == {0: 7}
    assert not (tmp_path / "other").exists(), "who waits for his turn does not begin"


def test_whatever_ends_the_watcher_ends_the_tasks(tmp_path):
    log = tmp_path / "log"

    def look() -> None:
        if "ready" in log.read_text():
            raise OSError("the terminal is gone")

    team = Processes({0: script(log, "print('ready', flush=True)", "time.sleep(60)")}, 1)
    with pytest.raises(OSError, match="terminal"):
        team.work(look)
    assert team.exit_codes == {0: -signal.SIGTERM}


def test_losing_the_terminal_is_a_request_to_stop():
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with StopRequests(is_patient=True) as requests, processes.hanging_up_stops():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(Stopped):
                requests.check()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopRequests(is_patient=True) as requests, processes.hanging_up_stops():
            signal.raise_signal(signal.SIGHUP)
            requests.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_lies_about_is_not_imported(tmp_path):
    (tmp_path / "tyro.py").write_text("raise SystemExit('took what was lying about')")
    command = processes.actsafe_command("--version")
    done = subprocess.run(
        command, cwd=tmp_path, env=processes.environment(1), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
