"""Runs from pixels, from the command to the files: trained, killed, resumed, evaluated and drawn on a tiny example."""

import dataclasses
import json
import shutil
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageSequence

from actsafe.agents import world_model
from actsafe.agents.phases import Phase
from actsafe.agents.world_model import WorldModelAgent
from actsafe.cli import progress, working
from actsafe.cli.main import main
from actsafe.training import collecting
from actsafe.training.loop import TrainState, make_loop
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer

HERE = Path(__file__).parent
TINY = ("train", "--preset", "vision-tiny", "--algorithm", "actsafe_released")
LAST = 4
PARTS = ("checkpoint", "rows")


@pytest.fixture(scope="module", autouse=True)
def quick_programs(shared_programs):
    """Programs that compile fast, here and in processes that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def whole_run(quick_programs, tmp_path_factory) -> Path:
    """A finished run that was never interrupted. Copy it before changing anything."""
    path = tmp_path_factory.mktemp("vision") / "run"
    assert main([*TINY, "--out", str(path)]) == 0
    return path


@pytest.fixture
def finished(whole_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run, tmp_path / "finished"))


@pytest.fixture
def unfinished(finished: Path) -> Path:
    """Stopped before its last epoch."""
    shutil.rmtree(finished / "epochs" / f"{LAST:04d}")
    RunFolder.open(finished).refresh()
    return finished


def assert_same(got: Path, expected: Path, of=lambda state: state) -> None:
    """Metrics and ledger byte for byte, the newest train state (or this part of it) and the replay bit for bit."""
    for name in ("metrics.jsonl", "ledger.jsonl"):
        assert (got / name).read_bytes() == (expected / name).read_bytes(), name
    left, right = (Trainer(RunFolder.open(path)) for path in (got, expected))
    parts = [("checkpoint", of(left.newest()[1]), of(right.newest()[1]))]
    parts += [(f"rows {n}", left.folder.read_rows(n), right.folder.read_rows(n)) for n in range(LAST - 2, LAST + 1)]
    for part, *trees in parts:
        ours, theirs = (list(map(plain, jax.tree.leaves(tree))) for tree in trees)
        assert len(ours) == len(theirs) > 0
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            np.testing.assert_array_equal(mine, other, err_msg=f"{part}, leaf {number}")


def plain(leaf):
    """A leaf of a checkpoint as numbers."""
    is_key = jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def test_a_run_leaves_its_record(whole_run):
    content = json.loads((whole_run / "config.json").read_text())
    assert content["config"]["agent"]["kind"] == "rssm"
    metrics = [json.loads(line) for line in (whole_run / "metrics.jsonl").read_text().splitlines()]
    assert [row["phase"] for row in metrics] == ["warm_up", "expansion", "exploitation", "exploitation"]
    # 2 environments x 25 decisions x 2 steps in an epoch; 100 updates in 1000 steps, five in a call.
    assert [row["steps"] for row in metrics] == [100, 200, 300, 400]
    assert [row["updates"] for row in metrics] == [10, 20, 30, 40]
    assert [row["episodes"] for row in metrics] == [2, 2, 2, 2]
    assert [row["learning"]["skipped_updates"] for row in metrics] == [0, 0, 0, 0]
    assert [list(row["evaluation"]) for row in metrics] == [[], ["swing_up"], [], ["swing_up"]]
    assert all(np.isfinite(row["learning"]["model/loss"]) for row in metrics)
    ledger = [json.loads(line) for line in (whole_run / "ledger.jsonl").read_text().splitlines()]
    assert [row["role"] for row in ledger] == ["uniform", "exploration", "task", "task"]
    assert [row["predicted_pessimistic_cost"] is None for row in ledger] == [True, False, False, False]
    # 5 / 25 decisions / (1 - 0.99).
    assert {round(row["planner_budget"], 6) for row in ledger} == {20.0}
    folder = RunFolder.open(whole_run)
    (session,) = folder.sessions()
    assert session["first_epoch"] == 0
    # Two agents, and the rows of the epochs that fill either's replay: 50 of each environment, 26 in an epoch.
    kept = {part: [path.parent.name for path in sorted(whole_run.glob(f"epochs/*/{part}"))] for part in PARTS}
    assert kept == {"checkpoint": ["0003", "0004"], "rows": ["0002", "0003", "0004"]}
    rows = folder.read_rows(LAST)
    assert rows.observation.shape == (2, 26, 16, 16, 3)
    assert rows.is_first.sum() == 2


def records(run, name):
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def test_the_expansion_goes_on_until_the_task_may_take_over(whole_run, tmp_path, monkeypatch):
    """Asked after each epoch with what its updates reported."""
    asked = []

    def at_third_asking(agent, learned):
        asked.append(learned)
        return len(asked) == 3

    monkeypatch.setattr(WorldModelAgent, "may_exploit", at_third_asking)
    run = tmp_path / "run"
    assert main([*TINY, "--out", str(run)]) == 0
    metrics, ledger = records(run, "metrics"), records(run, "ledger")
    phases = ["warm_up", "expansion", "expansion", "exploitation"]
    assert [row["phase"] for row in metrics] == [row["phase"] for row in ledger] == phases
    assert [row["role"] for row in ledger] == ["uniform", "exploration", "exploration", "task"]
    assert asked == [row["learning"] for row in metrics]
    # The exploration's policy learns for as long as it acts.
    assert ["exploration/loss" in row["learning"] for row in metrics] == [True, True, True, False]
    # Before it mattered, this was the run in which the task takes over in time.
    assert metrics[:2] == records(whole_run, "metrics")[:2]


def test_who_has_taken_over_is_not_asked_again(unfinished, whole_run, monkeypatch):
    monkeypatch.setattr(WorldModelAgent, "may_exploit", lambda agent, learned: False)
    assert main(["resume", str(unfinished)]) == 0
    assert_same(unfinished, whole_run, of=lambda state: state._replace(may_hand_over=None))


@pytest.mark.parametrize(("is_checked", "expected"), [(True, Phase.EXPANSION), (False, Phase.EXPLOITATION)])
def test_nobody_is_asked_where_the_settings_say_so(whole_run, monkeypatch, is_checked, expected):
    config = RunFolder.open(whole_run).config
    settings = dataclasses.replace(config.agent, is_handover_checked=is_checked)
    monkeypatch.setattr(world_model, "may_take_over", lambda *arguments, **settings: False)
    loop = make_loop(dataclasses.replace(config, agent=settings))
    before = TrainState(None, None, False, loop.agent.may_exploit({}), 200, 20)
    assert loop._phase(3, before) is expected


def test_a_run_killed_in_a_checkpoint_resumes_to_the_same_bits(start, actsafe, whole_run, tmp_path):
    """A process that is really killed, at the twelfth touch of what becomes its second epoch's folder."""
    path = tmp_path / "run"
    touch = (path / "epochs" / ".0002", 12)
    process = start("SIGKILL", *touch, *TINY, "--out", path, program=(str(HERE / "killed.py"),))
    output, errors = process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL, (output, errors)
    (begun,) = (path / "epochs").glob(".0002*")
    assert any(entry.name.startswith("checkpoint") for entry in begun.iterdir()), "within the checkpoint"
    assert not (begun / "checkpoint.json").exists()

    code, output, errors = actsafe("resume", path)
    assert code == 0, errors
    assert f"1 of {LAST} epochs are done" in output
    assert f"epoch {LAST} of {LAST}  exploitation" in output
    assert_same(path, whole_run)
    assert not list(path.rglob(".00*")), "what the interrupted write left has been cleared"
    assert [session["first_epoch"] for session in RunFolder.open(path).sessions()] == [0, 2]


@pytest.mark.parametrize("part", PARTS)
def test_a_truncated_checkpoint_falls_back_to_the_one_before(actsafe, finished, whole_run, part):
    files = (file for file in (finished / "epochs" / f"{LAST:04d}" / part).rglob("*") if file.is_file())
    largest = max(files, key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    code, _, errors = actsafe("resume", finished)
    assert code == 0, errors
    assert_same(finished, whole_run)
    assert (finished / "epochs" / f"damaged-{LAST:04d}-1").is_dir(), "set aside, not deleted"


def test_what_no_environment_may_return_stops_the_run_and_loses_nothing(
    actsafe, unfinished, whole_run, tree_of, monkeypatch
):
    before = tree_of(unfinished / "epochs")
    collect = collecting.DeviceCollector.collect

    def broken(self, *arguments):
        block = collect(self, *arguments)
        return dataclasses.replace(block, reward=np.full_like(block.reward, np.nan))

    with monkeypatch.context() as patch:
        patch.setattr(collecting.DeviceCollector, "collect", broken)
        code, _, errors = actsafe("resume", unfinished)
    assert code == 2
    assert "Traceback" not in errors
    assert "in epoch 4: cartpole_swingup: the reward of environment 0 at tick 0 is nan" in errors
    assert "Nothing of this epoch was recorded" in errors
    assert tree_of(unfinished / "epochs") == before

    assert actsafe("resume", unfinished)[0] == 0
    assert_same(unfinished, whole_run)


def test_a_request_to_stop_is_met_between_compiled_calls(actsafe, unfinished, tree_of, monkeypatch):
    before = tree_of(unfinished / "epochs")
    monkeypatch.setattr(progress.Display, "steps", lambda self, count: signal.raise_signal(signal.SIGTERM))
    code, _, errors = actsafe("resume", unfinished)
    assert code == 143
    assert f"3 of {LAST} epochs are kept" in errors
    assert tree_of(unfinished / "epochs") == before


def test_a_run_that_takes_long_on_a_cpu_says_so_first(unfinished, monkeypatch):
    """By hand: 6 operations of each of the model's parameters and of 4 x 8 rows, in 100 updates of 1000 steps."""
    trainer = Trainer(RunFolder.open(unfinished))
    size = trainer.newest()[1].agent.model.vector.shape[-1]
    assert trainer.agent.operations(500) == 6 * size * 32 * 50
    assert working.long_notice(trainer) == ""
    # One epoch is left, of 26 ticks of 2 environments with 2 steps each: 104 in all, or 10.4 updates.
    monkeypatch.setattr(working, "_operations_per_second", lambda: 6 * size * 32 * 10.4 / (3 * 86400))
    assert "about 3 days or more on this CPU" in working.long_notice(trainer)


def test_a_disk_that_is_too_small_is_noticed_first(actsafe, unfinished, tree_of, monkeypatch):
    before = tree_of(unfinished)
    full = shutil.disk_usage(unfinished)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    monkeypatch.setattr(Trainer, "disk_bytes", 2**40)
    code, output, errors = actsafe("resume", unfinished)
    assert code == 2
    assert "checkpoints need up to 1024.0 GiB on the disk" in output
    assert "may need 1024.0 GiB" in errors
    assert tree_of(unfinished) == before


def test_evaluation_reports_and_shows_and_changes_nothing(actsafe, finished, tree_of, tmp_path):
    before = tree_of(finished)
    video, prediction = tmp_path / "seen.gif", tmp_path / "predicted.gif"
    options = ("--episodes", "3", "--video", video, "--predict", prediction, "--size", "32")
    code, output, errors = actsafe("evaluate", finished, *options)
    assert code == 0, errors
    assert "after 4 of 4 epochs (400 steps); 1 seed(s) x 3 episode(s)" in output
    assert "(budget 5)" in output and "0 of 3" in output
    assert tree_of(finished) == before
    # 26 observations of an episode, of which equal ones are joined in the file, 40 ms each.
    assert watched(video) == ((32, 32), 26 * 40)
    # Two environments side by side, what happened above what was predicted, enlarged to 128 pixels each.
    assert watched(prediction) == ((256, 256), 25 * 40)
    drawn = actsafe("evaluate", finished, "--episodes", "3", "--draws")[1]
    assert "3 episode(s), greedy" in output
    assert "3 episode(s), draws of the policy" in drawn
    numbers = [next(line for line in text.splitlines() if line.startswith("swing_up")) for text in (output, drawn)]
    assert numbers[0] != numbers[1]
    assert "exists" in actsafe("evaluate", finished, "--video", video)[2]
    assert "expected one of swing_up" in actsafe("evaluate", finished, "--task", "keep_down")[2]


def watched(path: Path) -> tuple[tuple[int, int], int]:
    """Size and milliseconds of a video."""
    with Image.open(path) as video:
        return video.size, sum(frame.info["duration"] for frame in ImageSequence.Iterator(video))


def test_plot_draws_what_the_folder_holds(actsafe, finished):
    code, output, errors = actsafe("plot", finished, "--format", "svg")
    assert code == 0, errors
    drawn = {path.name: path.read_text() for path in map(Path, output.splitlines())}
    assert drawn.keys() == {"summary.svg", "ledger.svg"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--problem", "PointGotoGaol"), "'PointGotoGoal'"),
        (("--algorithm", "actsaf"), "'actsafe'"),
        (("--multiplier", "3"), "--multiplier does not apply to vision-tiny"),
        (("--budget", "nan"), "budget must be a finite number"),
        (("--budget", "1", "2"), "one"),
        (("--warm-up", "-1"), "schedule.warm_up must be at least 0"),
        (
            ("--set", "schedule.episodes_per_epoch=2"),
            "schedule.warm_up must be a multiple of schedule.episodes_per_epoch = 2",
        ),
        (("--set", "image_size=17"), "17"),
        (("--set", "agent.replay_capacity=3"), "agent.replay_capacity must hold a sequence"),
        (("--set", "agent.recent_rows=3"), "agent.recent_rows must hold a sequence"),
        (("--set", "agent.model.stochastic=0"), "agent.model.stochastic must be at least 1"),
        (("--set", "agent.model.stochastik=8"), "agent.model.stochastic"),
        (("--set", "options.lenght=3"), "lenght"),
        (("--log", "tensorbord"), "'tensorboard'"),
    ],
)
def test_settings_that_will_not_do_are_refused(actsafe, tmp_path, options, said):
    code, _, errors = actsafe(*TINY, *options, "--out", tmp_path / "run")
    assert code == 2, errors
    assert "Traceback" not in errors
    assert said in errors
    assert not (tmp_path / "run").exists(), "nothing was made"
