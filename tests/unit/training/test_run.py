"""A run folder keeps what was committed, says what is damaged, and touches nothing that is not its own."""

import json
import os
import shutil
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import LedgerRow
from actsafe.training import run as run_folder
from actsafe.training import storage
from actsafe.training.epochs import MANIFEST, UnitRecord
from actsafe.training.locking import locked
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError, file_sha256, replacing, write_folder, write_json, write_text

SPEC = EnvSpec("pendulum", (2,), 1, ("cost",), (0.0,), 50)
LIKE = {"weights": np.zeros(50)}


def unit(number):
    row = LedgerRow(number, 0, "expansion", "exploration", "cost", 0.0, 1, 0, 0.0, 0.0, None, number / 3).to_json()
    return UnitRecord([{"epoch": number, "seed": 0}], [row], {"states": np.ones((1, 5)) * number}, {"seconds": 1.0})


def commit(folder, number):
    folder.commit(number, unit(number), {"weights": np.arange(50.0) * number})


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    folder = RunFolder.create(tmp_path_factory.mktemp("committed") / "run", tiny(), SPEC)
    for number in range(3):
        commit(folder, number)
    return folder.path


@pytest.fixture
def run(committed, tmp_path):
    return RunFolder.open(shutil.copytree(committed, tmp_path / "run"))


@pytest.fixture
def seal():
    """Write a file of an epoch and make the manifest match, as nothing but intent can."""

    def _seal(path, text):
        path.write_text(text)
        manifest = path.parent / MANIFEST
        content = json.loads(manifest.read_text())
        content["sha256"][path.name] = file_sha256(path)
        manifest.write_text(json.dumps(content))

    return _seal


def reading(run):
    """Everything that a command may read of a run."""
    return run.rows("metrics"), run.rows("ledger"), run.timing(), [run.trajectory(number) for number in range(3)]


def test_what_was_committed_comes_back(run):
    metrics, ledger, timing, trajectories = reading(run)
    assert metrics == [{"epoch": number, "seed": 0} for number in range(3)]
    assert [LedgerRow.from_json(row).epoch for row in ledger] == [0, 1, 2]
    assert timing == [{"seconds": 1.0}] * 3
    np.testing.assert_array_equal(trajectories[2]["states"], np.full((1, 5), 2.0))
    number, state = run.restore(LIKE)
    assert number == 2
    np.testing.assert_array_equal(state["weights"], np.arange(50.0) * 2)
    assert not (run.path / "epochs" / "0000" / "checkpoint").exists(), "two checkpoints are kept"


# 1. What is not ours is not deleted.


def test_only_what_our_writes_leave_is_cleared(run):
    units = run.path / "epochs"
    ours = [run.path / ".metrics.jsonl.0123456789ab.jsonl", units / ".0003.0123456789ab", run.path / ".x.0123456789ab"]
    others = [run.path / ".eslintrc.json.bak", units / ".dvc", units / ".0003.tmp", run.path / ".ledger.json.old"]
    for path in (ours[1], others[1]):
        path.mkdir()
        (path / "file").write_text("")
    for path in (ours[0], ours[2], others[0], *others[2:]):
        path.write_text("")
    run.refresh()
    assert [path.exists() for path in (*ours, *others)] == [False] * 3 + [True] * 4


@pytest.mark.parametrize("linked", ["epochs", "epochs/0001"])
def test_a_link_is_refused_before_anything_is_changed(run, tmp_path, tree_of, linked):
    """resume once deleted hidden folders of whatever was linked to."""
    home = tmp_path / "home"
    (run.path / linked).rename(home)
    for name in (".ssh", ".0003.0123456789ab"):
        (home / name).mkdir()
    (run.path / linked).symlink_to(home)
    before = tree_of(tmp_path)
    for act in (run.refresh, lambda: run.restore(LIKE, to_go_on=True)):
        with pytest.raises(StorageError, match=r"is a link, and actsafe works only on folders of its own"):
            act()
    assert tree_of(tmp_path) == before
    assert run.restore(LIKE)[0] == 2, "reading is fine"


def test_a_link_with_the_name_of_a_leftover_is_left(run, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (run.path / "epochs" / ".0003.0123456789ab").symlink_to(victim)
    run.refresh()
    assert victim.is_dir()


@pytest.fixture
def tree_of():
    def _tree_of(path):
        return {str(each): file_sha256(each) if each.is_file() else None for each in sorted(path.rglob("*"))}

    return _tree_of


# 5, 9. Every file has a checksum, and is what it should be beyond that.


@pytest.mark.parametrize("name", ["metrics.json", "ledger.json", "timing.json", "trajectory.npz"])
def test_every_altered_byte_is_noticed(run, name):
    path = run.path / "epochs" / "0001" / name
    content = path.read_bytes()
    for place in {0, len(content) // 3, len(content) // 2, len(content) - 2}:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(StorageError, match="0001"):
            reading(run)
    for damaged in (b"", content[:-5], b"null", b"[[]]"):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match="0001"):
            reading(run)
    path.unlink()
    with pytest.raises(StorageError, match="0001"):
        reading(run)


def test_a_manifest_without_sense_is_noticed(run):
    path = run.path / "epochs" / "0001" / MANIFEST
    content = json.loads(path.read_text())
    others = [{}, content | {"config": "0"}, *(content | {"sha256": value} for value in (None, 5, [], {}))]
    for text in (*map(json.dumps, others), "", path.read_text()[:-9], "null", "[[]]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(StorageError, match="0001"):
            reading(run)


OTHER_JSON = ["null", "5", "{}", "[[]]", "[5]", '["a"]', "[" * 100_000]


@pytest.mark.parametrize("name", ["metrics.json", "ledger.json", "timing.json"])
@pytest.mark.parametrize("content", OTHER_JSON, ids=[text[:9] for text in OTHER_JSON])
def test_json_of_another_kind_is_refused_whatever_its_checksum(run, seal, name, content):
    if (name, content) == ("timing.json", "{}"):
        return
    seal(run.path / "epochs" / "0001" / name, content)
    with pytest.raises(StorageError, match=r"0001.*damaged"):
        reading(run)


@pytest.mark.parametrize("content", [*OTHER_JSON[:3], '[{"machine": 5}]', "[{}]"])
def test_a_record_of_sessions_of_another_kind_is_refused(run, content):
    (run.path / "provenance.json").write_text(content)
    with pytest.raises(StorageError, match=r"provenance\.json is damaged"):
        run.sessions()


@pytest.mark.parametrize("content", OTHER_JSON, ids=[text[:9] for text in OTHER_JSON])
def test_a_config_of_another_kind_is_refused(run, content):
    path = run.path / "config.json"
    whole = json.loads(path.read_text())
    texts = [content]
    if len(content) < 9:
        texts += [json.dumps(whole | {name: json.loads(content)}) for name in ("schema", "config", "spec")]
    for text in texts:
        path.write_text(text)
        with pytest.raises(StorageError, match=r"config\.json|epochs|has schema 5"):
            reading(RunFolder.open(run.path))


def test_an_archive_that_actsafe_does_not_write_is_refused(run, seal):
    path = run.path / "epochs" / "0001" / "trajectory.npz"
    for write, arrays in ((np.savez_compressed, {"a": np.zeros(9)}), (np.savez, {"a": np.array([None])})):
        write(path, **arrays)
        manifest = path.parent / MANIFEST
        content = json.loads(manifest.read_text())
        content["sha256"][path.name] = file_sha256(path)
        manifest.write_text(json.dumps(content))
        with pytest.raises(StorageError, match=r"trajectory\.npz"):
            run.trajectory(1)


def test_a_budget_that_the_environment_does_not_have_is_refused(run, seal):
    """A report would call a run safe that was held against a budget of a thousand million."""
    path = run.path / "epochs" / "0002" / "ledger.json"
    rows = json.loads(path.read_text())
    rows[0]["budget"] = 1e9
    path.write_text(json.dumps(rows))
    with pytest.raises(StorageError, match="checksum"):
        run.rows("ledger")
    seal(path, json.dumps(rows))
    with pytest.raises(StorageError, match=r"cost has the budget 1000000000.0, config.json has 0.0"):
        run.rows("ledger")


def test_other_settings_or_another_budget_are_noticed(run):
    path = run.path / "config.json"
    content = json.loads(path.read_text())
    for change in ({"spec": content["spec"] | {"budgets": [9.0]}}, {"config": content["config"] | {"seeds": [7]}}):
        path.write_text(json.dumps(content | change))
        with pytest.raises(StorageError, match="belongs to other settings"):
            RunFolder.open(run.path).rows("metrics")


# 6. The newest epoch that was not left whole is set aside, and what was before it goes on.


@pytest.mark.parametrize("name", ["metrics.json", "ledger.json", "timing.json", "trajectory.npz", MANIFEST])
def test_a_newest_epoch_without_a_file_is_set_aside(run, name):
    """Without metrics.json the run once could never go on."""
    (run.path / "epochs" / "0002" / name).unlink()
    assert run.restore(LIKE)[0] == 1
    assert (run.path / "epochs" / "0002").is_dir(), "reading changes nothing"
    assert run.restore(LIKE, to_go_on=True)[0] == 1
    assert (run.path / "epochs" / "damaged-0002-1").is_dir()
    run.refresh()
    commit(run, 2)
    assert len(reading(run)[0]) == 3


def test_what_comes_after_a_gap_is_set_aside_too(run):
    for number in (3, 4):
        commit(run, number)
    shutil.rmtree(run.path / "epochs" / "0003" / "checkpoint")
    (run.path / "epochs" / "0003" / "checkpoint").mkdir()
    shutil.move(run.path / "epochs" / "0004", run.path / "epochs" / "0005")
    with pytest.raises(StorageError, match="no sound checkpoint"):
        run.restore(LIKE, to_go_on=True)
    shutil.rmtree(run.path / "epochs" / "0003")
    with pytest.raises(StorageError, match="no sound checkpoint"):
        run.restore(LIKE, to_go_on=True)
    commit(run, 2 + 1)
    assert run.restore(LIKE, to_go_on=True)[0] == 3
    assert sorted(path.name for path in (run.path / "epochs").iterdir())[-1] == "damaged-0005-1"


# 7. Of two that start in one folder one succeeds.


def test_two_starts_at_once_make_one_run(tmp_path, monkeypatch):
    """Both have looked, and found nothing, before either has written."""
    path, barrier, outcomes = tmp_path / "run", threading.Barrier(2), []
    monkeypatch.setattr(run_folder, "_is_blank", lambda path: True)
    write = storage.write_new

    def together(*arguments):
        barrier.wait(timeout=10)
        write(*arguments)

    monkeypatch.setattr(storage, "write_new", together)

    def start(seed):
        try:
            outcomes.append(RunFolder.create(path, replace(tiny(), seeds=(seed,)), SPEC))
        except StorageError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=start, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [each for each in outcomes if isinstance(each, RunFolder)]
    (message,) = [each for each in outcomes if isinstance(each, str)]
    assert "exists already and is left as it is" in message
    assert RunFolder.open(path).config == winner.config


@pytest.mark.parametrize("has_links", [True, False])
def test_an_existing_folder_is_never_touched(tmp_path, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *paths: (_ for _ in ()).throw(PermissionError(1, "no links here")))
    path = tmp_path / "run"
    RunFolder.create(path, tiny(), SPEC)
    before = (path / "config.json").read_bytes()
    with pytest.raises(StorageError, match=f"exists already.*actsafe resume {path}"):
        RunFolder.create(path, replace(tiny(), seeds=(3,)), SPEC)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(StorageError, match="exists already"):
        RunFolder.create(tmp_path / "other", tiny(), SPEC)
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["thesis.tex"]
    monkeypatch.setattr(run_folder, "_is_blank", lambda path: True)
    with pytest.raises(StorageError, match="exists already"):
        RunFolder.create(path, replace(tiny(), seeds=(3,)), SPEC)
    assert (path / "config.json").read_bytes() == before


def test_a_start_that_was_cut_off_does_not_block_the_folder(tmp_path):
    path = tmp_path / "run"
    (path / "epochs").mkdir(parents=True)
    (path / ".config.json.0123456789ab").write_text("{")
    assert RunFolder.create(path, tiny(), SPEC).num_committed == 0


def test_a_start_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "write_new", full)
    with pytest.raises(StorageError, match="the disk is full"):
        RunFolder.create(tmp_path / "new" / "run", tiny(), SPEC)
    assert not (tmp_path / "new" / "run").exists()
    (tmp_path / "made").mkdir()
    with pytest.raises(StorageError, match="the disk is full"):
        RunFolder.create(tmp_path / "made", tiny(), SPEC)
    assert list((tmp_path / "made").iterdir()) == [], "one that was there stays"


# 8. A run that is moved, deleted or replaced while it is worked on.


@pytest.mark.parametrize("deed", ["moved", "deleted", "replaced"])
def test_nothing_is_written_where_the_run_no_longer_is(run, tmp_path, deed):
    with run.locked():
        if deed == "deleted":
            shutil.rmtree(run.path)
        else:
            run.path.rename(tmp_path / "elsewhere")
        if deed == "replaced":
            RunFolder.create(run.path, replace(tiny(), seeds=(5,)), SPEC)
        with pytest.raises(StorageError, match=r"was moved, deleted or replaced.*epoch 3 was not kept"):
            commit(run, 3)
    assert run.path.exists() == (deed == "replaced")
    assert not (run.path / "epochs" / "0003").exists()
    if deed == "moved":
        assert RunFolder.open(tmp_path / "elsewhere").num_committed == 3


def test_a_unit_makes_no_parents(tmp_path):
    with pytest.raises(StorageError, match="could not be written"):
        write_folder(tmp_path / "gone" / "0003", lambda folder: None)
    assert not (tmp_path / "gone").exists()


# 13. Names in a manifest stay below the folder.


@pytest.mark.parametrize(
    "name", ["checkpoint/../../x", "/dev/zero", "checkpoint//dev/zero", "C:\\x", "checkpoint/pipe"]
)
def test_names_in_a_manifest_lead_nowhere_else(run, name, tmp_path):
    """/dev/zero was read for ever, and so is a pipe that nobody writes to."""
    folder = run.path / "epochs" / "0002"
    (run.path / "epochs" / "x").write_text("secret")
    os.mkfifo(folder / "checkpoint" / "pipe")
    manifest = folder / MANIFEST
    content = json.loads(manifest.read_text())
    key = name if name.startswith("checkpoint/") else f"checkpoint/{name}"
    for each in {key, name}:
        content["sha256"][each] = file_sha256(run.path / "epochs" / "x")
    manifest.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=r"damaged"):
        run.read_part(2, "checkpoint", LIKE)
    with pytest.raises(StorageError, match=r"damaged"):
        run._unit(2).checked(name)


def test_a_linked_file_is_refused(run, tmp_path):
    path = run.path / "epochs" / "0002" / "metrics.json"
    path.rename(tmp_path / "metrics.json")
    path.symlink_to(tmp_path / "metrics.json")
    with pytest.raises(StorageError, match="no regular file"):
        run.rows("metrics")


# 17. What an interrupted write left is cleared by the next.


def test_the_next_write_of_a_file_clears_what_the_last_one_left(tmp_path):
    old, fresh = tmp_path / ".report.html.0123456789ab.html", tmp_path / ".report.html.0123456789ac.html"
    other = tmp_path / ".figure.png.0123456789ab.png"
    for path in (old, fresh, other):
        path.write_text("")
    long_ago = time.time() - 3600
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    write_text(tmp_path / "report.html", "page")
    assert [path.exists() for path in (old, fresh, other)] == [False, True, True], "a fresh one may be under way"


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": None}
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    with (
        pytest.raises(StorageError, match=r"could not be written \(Permission denied\).*repeat the command"),
        replacing(path) as temporary,
    ):
        raise PermissionError(13, "Permission denied")
    assert json.loads(path.read_text()) == {"a": None}
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_no_new_folder(tmp_path):
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "new" / "folder" / "file.json"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(StorageError, match="no regular file and is left as it is"):
            write_text(path, "text")
    assert (tmp_path / "pipe").is_fifo()


# Locks, with and without those of the system.


@pytest.mark.parametrize("has_system_locks", [True, False])
def test_a_run_has_one_process_at_a_time(run, monkeypatch, has_system_locks):
    if not has_system_locks:
        monkeypatch.setattr("actsafe.training.locking.fcntl", None)
    path = run.path / "config.json"
    with locked(path) as is_held:
        assert is_held()
        with pytest.raises(StorageError, match=f"another process is working on {run.path}"), locked(path):
            pass
        assert is_held()
    with locked(path) as is_held:
        assert is_held()
    assert not (run.path / ".config.json.lock").exists()


@pytest.mark.parametrize(
    ("holder", "is_stale"),
    [
        pytest.param("999999999 1.0", True, id="no such process"),
        pytest.param(f"{os.getpid()} 1.0", True, id="a process that began later"),
        pytest.param("1", False, id="half a mark"),
        pytest.param("", False, id="an empty mark"),
    ],
)
def test_a_mark_of_a_process_that_has_ended_does_not_block(run, monkeypatch, holder, is_stale):
    """Nor one whose number another process has by now; one that says nothing does."""
    monkeypatch.setattr("actsafe.training.locking.fcntl", None)
    mark = run.path / ".config.json.lock"
    mark.write_text(holder)
    if is_stale:
        with locked(run.path / "config.json") as is_held:
            assert is_held()
            mark.write_text("1 1.0")
            assert not is_held(), "another one took it"
    else:
        with pytest.raises(StorageError, match="another process"), locked(run.path / "config.json"):
            pass
    assert mark.exists()


# What Orbax says of a checkpoint that is not one is no traceback, and the one before is used.


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["_METADATA", "manifest.ocdbt", "_CHECKPOINT_METADATA"])
def test_a_checkpoint_that_orbax_cannot_read_falls_back_whatever_its_checksum(run, name):
    folder = run.path / "epochs" / "0002"
    path, manifest = folder / "checkpoint" / name, folder / MANIFEST
    path.write_text("{}")
    content = json.loads(manifest.read_text())
    content["sha256"][f"checkpoint/{name}"] = file_sha256(path)
    manifest.write_text(json.dumps(content))
    number, state = run.restore(LIKE)
    np.testing.assert_array_equal(state["weights"], np.arange(50.0) * number)
    if name != "_CHECKPOINT_METADATA":
        assert number == 1


def test_rows_that_are_something_else_are_refused(run):
    with pytest.raises(StorageError, match="no checksums of rows"):
        run.read_part(2, "rows", LIKE)
    with pytest.raises(StorageError, match=r"nothing for \['other'\]|for \['weights'\], expected nothing"):
        run.read_part(2, "checkpoint", {"other": np.zeros(50)})
