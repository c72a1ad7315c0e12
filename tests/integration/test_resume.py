"""A run that is killed at any moment and resumed is, bit for bit, the run that was not."""

import itertools
import json
import random
import signal
import subprocess
from pathlib import Path

import pytest

from actsafe.cli import progress
from actsafe.training.results import entries
from actsafe.training.run import RunFolder

HERE = Path(__file__).parent


def test_a_commit_killed_at_any_touch_of_a_file_leaves_it_whole_or_absent(start, tmp_path):
    """Every single point at which a commit can be cut off, in forked processes that are really killed."""
    process = start(tmp_path, program=(str(HERE / "killed_commits.py"),))
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert int(output) > 50


def test_killed_runs_resume_to_the_same_bits(start, tiny_run, tmp_path, assert_same_run):
    """Killed at random touches of its files, then by the clock, until it is done."""
    randomness = random.Random(2)
    path = tmp_path / "run"
    # In the commit of the first planned epoch, while the run is taken up again, and in that commit once more.
    killed_at = [randomness.randint(125, 165), randomness.randint(3, 60), randomness.randint(75, 110)]
    for touch in killed_at:
        begin = ("resume", path) if (path / "config.json").exists() else ("train", "--preset", "tiny", "--out", path)
        process = start("SIGKILL", path, touch, *begin, program=(str(HERE / "killed.py"),))
        output, errors = process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL, (touch, output, errors)

    process = start("resume", path)
    try:
        process.communicate(timeout=randomness.uniform(2.0, 5.0))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()

    process = start("resume", path)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, (killed_at, output, errors)
    assert_same_run(path, tiny_run)
    assert_ledger_is_complete(path)
    assert not list(path.rglob(".*")), "what interrupted writes left has been cleared"


def assert_ledger_is_complete(path: Path) -> None:
    config = json.loads((path / "config.json").read_text())["config"]
    epochs = range(1 + config["schedule"]["expansion"] + config["schedule"]["exploitation"])
    for name in ("metrics.jsonl", "ledger.jsonl"):
        rows = [json.loads(line) for line in (path / name).read_text().splitlines()]
        assert [(row["epoch"], row["seed"]) for row in rows] == list(itertools.product(epochs, config["seeds"]))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_request_to_stop_is_met_cleanly(
    actsafe, unfinished, tiny_run, tree_of, assert_same_run, monkeypatch, number, code
):
    before = tree_of(unfinished / "epochs")
    with monkeypatch.context() as patch:
        # In this thread: one sent to the process may reach another first, and this one too late.
        patch.setattr(progress.Display, "steps", lambda self, count: signal.raise_signal(number))
        got, _, errors = actsafe("resume", unfinished)
    assert got == code
    assert "1 of 2 epochs are kept" in errors
    assert f"actsafe resume {unfinished}" in errors
    assert tree_of(unfinished / "epochs") == before
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "the handlers are put back"

    assert actsafe("resume", unfinished)[0] == 0
    assert_same_run(unfinished, tiny_run)


def test_sigterm_ends_a_process_with_its_code(start, unfinished):
    """As a scheduler sees it."""
    process = start("SIGTERM", unfinished, 40, "resume", unfinished, program=(str(HERE / "killed.py"),))
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 143
    assert f"Go on with: actsafe resume {unfinished}" in errors


def test_resuming_a_finished_run_changes_nothing(actsafe, finished, tree_of):
    before = tree_of(finished)
    code, output, _ = actsafe("resume", finished)
    assert code == 0
    assert f"{finished} is finished; nothing is left to do" in output
    assert tree_of(finished) == before


def test_a_run_resumed_elsewhere_names_both_machines(actsafe, unfinished):
    path = unfinished / "provenance.json"
    sessions = json.loads(path.read_text())
    sessions[0]["machine"]["cpu"] = "a processor of another time"
    path.write_text(json.dumps(sessions))

    assert actsafe("resume", unfinished)[0] == 0
    folder = RunFolder.open(unfinished)
    assert [session["first_epoch"] for session in folder.sessions()] == [0, 2]
    entry = entries(folder)[0]
    assert entry["machine"]["cpu"] == "a processor of another time"
    assert [machine["cpu"] for machine in entry["also_computed_on"]] == [folder.sessions()[1]["machine"]["cpu"]]


def test_two_processes_do_not_work_on_one_run(actsafe, unfinished, tree_of):
    before = tree_of(unfinished)
    with RunFolder.open(unfinished).locked():
        code, _, errors = actsafe("resume", unfinished)
    assert code == 2
    assert "another process" in errors
    assert tree_of(unfinished) == before


def test_a_truncated_checkpoint_falls_back_to_the_one_before(actsafe, finished, tiny_run, assert_same_run):
    truncate(finished, 2)
    assert actsafe("resume", finished)[0] == 0
    assert_same_run(finished, tiny_run)
    assert (finished / "epochs" / "damaged-0002-1").is_dir(), "set aside, not deleted"


def test_an_altered_checkpoint_falls_back_to_the_one_before(actsafe, finished, tiny_run, assert_same_run):
    path = newest_data(finished, 2)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    assert actsafe("resume", finished)[0] == 0
    assert_same_run(finished, tiny_run)


def test_without_a_sound_checkpoint_nothing_is_touched(actsafe, finished, tree_of):
    truncate(finished, 1)
    truncate(finished, 2)
    before = tree_of(finished)
    for command in ("resume", "evaluate"):
        code, _, errors = actsafe(command, finished)
        assert code == 2
        assert errors.startswith("error: ")
        assert "no sound checkpoint" in errors
        assert "truncated" in errors
        assert tree_of(finished) == before


def test_evaluation_with_a_damaged_checkpoint_uses_the_one_before_and_changes_nothing(actsafe, finished, tree_of):
    truncate(finished, 2)
    before = tree_of(finished)
    code, output, _ = actsafe("evaluate", finished, "--episodes", "1", "--task", "swing_up")
    assert code == 0
    assert "after 1 of 2 epochs" in output
    assert tree_of(finished) == before


def newest_data(path: Path, epoch: int) -> Path:
    """The largest file of an epoch's checkpoint."""
    folder = path / "epochs" / f"{epoch:04d}" / "checkpoint"
    return max((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)


def truncate(path: Path, epoch: int) -> None:
    file = newest_data(path, epoch)
    file.write_bytes(file.read_bytes()[:-100])


def test_a_newest_epoch_without_its_metrics_is_computed_again(actsafe, finished, tiny_run, assert_same_run):
    """Once it was computed and could not be written, again and again."""
    (finished / "epochs" / "0002" / "metrics.json").unlink()
    code, output, _ = actsafe("resume", finished)
    assert code == 0
    assert f"{finished} is finished, but its newest epoch is damaged and is computed again" in output
    assert_same_run(finished, tiny_run)
    assert (finished / "epochs" / "damaged-0002-1").is_dir()


def test_resume_leaves_alone_what_a_link_leads_to(actsafe, finished, tmp_path, tree_of):
    home = tmp_path / "home"
    (finished / "epochs").rename(home)
    (home / ".ssh").mkdir()
    (finished / "epochs").symlink_to(home)
    before = tree_of(tmp_path)
    code, _, errors = actsafe("resume", finished)
    assert code == 2
    assert "is a link" in errors
    assert tree_of(tmp_path) == before


def test_a_run_of_an_older_actsafe_is_refused_with_a_way_to_go_on(actsafe, finished, tree_of):
    path = finished / "config.json"
    path.write_text(json.dumps({"schema": 1, "kind": "gp", "config": {}}))
    before = tree_of(finished)
    for command in ("resume", "evaluate", "report", "plot", "certify", "calibrate"):
        code, _, errors = actsafe(command, finished)
        assert code == 2
        assert "was made by actsafe 0.1 (schema 1)" in errors
        assert "go on with it in an environment that has actsafe 0.1, or train anew in another folder" in errors
        assert tree_of(finished) == before


def test_a_run_resumed_with_other_cores_says_so(actsafe, unfinished):
    path = unfinished / "provenance.json"
    sessions = json.loads(path.read_text())
    sessions[0]["machine"]["cores"] += 1
    path.write_text(json.dumps(sessions))
    code, output, _ = actsafe("resume", unfinished)
    assert code == 0
    assert f"and {sessions[0]['machine']['cores']} in the session before" in output
