"""Calibration and certificates as a user meets them: measured, refused, certified, verified, altered."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.agents.algorithms import Role
from actsafe.agents.base import Estimate
from actsafe.agents.safe_set.archive import Counts
from actsafe.agents.safe_set.canary import CERTIFIED
from actsafe.agents.safe_set.settings import NO_PART
from actsafe.agents.safe_set.state import ROLES
from actsafe.cli.main import main
from actsafe.evidence.certificate import sealed
from actsafe.evidence.ledger import ledger_rows
from actsafe.training.config import AGENTS, Config
from actsafe.training.episodes import EpisodeOutcome
from actsafe.training.loop import Loop, make_loop
from actsafe.training.presets import PRESETS
from actsafe.training.run import RunFolder, UnitRecord
from actsafe.training.storage import file_sha256
from actsafe.training.study import frozen_episodes

NEWEST = Path("epochs/0002")


@pytest.fixture(scope="module")
def certified_run(tiny_run, shared_programs, tmp_path_factory) -> Path:
    """A finished run with a calibration and a certificate. Copy it before changing anything."""
    path = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("certified") / "run"))
    assert main(["calibrate", str(path), "--episodes", "3"]) == 0
    assert main(["certify", str(path)]) == 0
    return path


@pytest.fixture
def certified(certified_run, tmp_path) -> Path:
    return Path(shutil.copytree(certified_run, tmp_path / "run"))


@pytest.fixture
def unfinished(certified) -> Path:
    """Stopped before its last episode; its calibration is of a model that it no longer has."""
    shutil.rmtree(certified / NEWEST)
    RunFolder.open(certified).refresh()
    return certified


def flip_a_bit(path: Path, position: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))


def edit(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_rows(run: Path, epoch: int, what: str, change) -> None:
    """Alter every row of an epoch's metrics or ledger, and its manifest with it: what the run might have recorded."""
    unit = run / f"epochs/{epoch:04d}"
    rows = json.loads((unit / f"{what}.json").read_text())
    for row in rows:
        change(row)
    (unit / f"{what}.json").write_text(json.dumps(rows))
    manifest = json.loads((unit / "manifest.json").read_text())
    manifest["sha256"][f"{what}.json"] = file_sha256(unit / f"{what}.json")
    (unit / "manifest.json").write_text(json.dumps(manifest))


def paper_of(run: Path) -> dict:
    return json.loads((run / "certificate.json").read_text())


def test_calibration_is_written_and_said(actsafe, certified):
    content = json.loads((certified / "calibration.json").read_text())
    # Three episodes of two tasks, 50 decisions each, in windows of five.
    assert content["episodes"] == 6
    assert [step["num_predictions"] for step in content["claims"]["plans"]["steps"]] == [60] * 5
    assert content["coordinates"] == ["cos", "sin", "speed"]
    shares = np.array([step["coverage"] for step in content["claims"]["model"]["steps"]])
    assert shares.shape == (5, 3, 5)
    assert np.all(np.diff(shares, axis=-1) >= 0)
    assert content["verdict"] in ("calibrated", "underconfident")
    code, output, _ = actsafe("calibrate", certified, "--episodes", "1", "--horizon", "2")
    assert code == 0
    assert "verdict, the worse of plans near and far" in output
    assert (
        json.loads((certified / "calibration.json").read_text())["claims"]["model"]["steps"][0]["num_predictions"]
        == 2 * 25
    )
    assert actsafe("calibrate", certified, "--episodes", "0")[0] == 2
    assert "50 decisions" in actsafe("calibrate", certified, "--horizon", "51")[2]


def test_the_same_episodes_give_the_same_calibration(actsafe, certified):
    before = (certified / "calibration.json").read_bytes()
    assert actsafe("calibrate", certified, "--episodes", "3")[0] == 0
    assert (certified / "calibration.json").read_bytes() == before


def test_a_certificate_says_what_it_rests_on(certified):
    content = json.loads((certified / "certificate.json").read_text())
    assert content["schema"] == 2
    assert content["standing"] == "held"
    assert content["budgets"] == {"cost": 0.0}
    assert [estimate["task"] for estimate in content["promise"]["estimates"]] == ["swing_up", "keep_down"]
    assert all(estimate["cost"] <= estimate["bound"] == 0.0 for estimate in content["promise"]["estimates"])
    assert content["promise"]["particles"] == 6
    # It says for how long costs were computed, and what comes after that.
    assert content["promise"]["horizon"] == 6
    assert "ends after 6 decisions, an episode has 50" in content["promise"]["afterwards"]
    (violations,) = content["violations"]
    assert (violations["over_budget"], violations["episodes"]) == (0, 2)
    # None of two: 1 - 0.025^(1/2) = 1 - 0.158114.
    assert violations["interval"] == pytest.approx([0.0, 0.841886], abs=1e-6)
    assert len(content["does_not_promise"]) > 3
    assert any("plans anew at every decision" in each for each in content["does_not_promise"])


def test_a_certificate_is_verified_against_its_run_and_its_copies(actsafe, certified, tmp_path):
    code, output, errors = actsafe("verify", certified / "certificate.json", certified)
    assert code == 0, errors
    assert "verified: held" in output
    other = tmp_path / "elsewhere.json"
    assert actsafe("certify", certified, "--out", other)[0] == 0
    assert other.read_bytes() == (certified / "certificate.json").read_bytes()


@pytest.mark.parametrize(
    ("file", "field"),
    [
        (NEWEST / "checkpoint/manifest.ocdbt", "fingerprints.model"),
        (NEWEST / "checkpoint/_METADATA", "fingerprints.model"),
        (NEWEST / "manifest.json", "fingerprints.data"),
        (NEWEST / "trajectory.npz", "fingerprints.data"),
        (Path("epochs/0001/ledger.json"), "fingerprints.data"),
        (Path("config.json"), "fingerprints.settings"),
    ],
)
@pytest.mark.parametrize("position", [0, 200, -1])
def test_one_bit_of_the_run_is_found(actsafe, certified, file, field, position):
    flip_a_bit(certified / file, position if abs(position) < (certified / file).stat().st_size else 1)
    code, output, errors = actsafe("verify", certified / "certificate.json", certified)
    assert code == 1
    assert f"{field}: the certificate has '" in errors
    assert "differ" in output


def test_another_budget_is_found_in_the_run_and_in_the_certificate(actsafe, certified):
    """The next number above the budget of 0 will do; a forger who seals anew is found out all the same."""
    paper = certified / "certificate.json"
    forged = json.loads(paper.read_text()) | {"budgets": {"cost": 5e-324}}
    paper.write_text(json.dumps(sealed(forged)))
    code, _, errors = actsafe("verify", paper, certified)
    assert code == 1
    assert errors.splitlines() == ["budgets.cost: the certificate has 5e-324, the run gives 0.0"]
    config = certified / "config.json"
    content = json.loads(config.read_text())
    content["spec"]["budgets"] = [0.5]
    config.write_text(json.dumps(content))
    errors = actsafe("verify", paper, certified)[2]
    assert "fingerprints.settings: " in errors
    assert "budgets.cost: the certificate has 5e-324, the run gives 0.5" in errors


def test_an_altered_certificate_is_found(actsafe, certified):
    """Fields that were altered are named; a number within rounding is not, but breaks the seal."""
    paper = certified / "certificate.json"
    content = json.loads(paper.read_text())
    content["promise"]["particles"] = 600
    content["violations"][0]["rate"] = 0.5
    paper.write_text(json.dumps(content))
    errors = actsafe("verify", paper, certified)[2]
    assert "promise.particles: the certificate has 600, the run gives 6" in errors
    assert "violations[0].rate: the certificate has 0.5, the run gives 0.0" in errors
    content = json.loads((certified / "certificate.json").read_text())
    content["promise"]["particles"], content["violations"][0]["rate"] = 6, 0.0
    content["promise"]["estimates"][0]["cost"] += 1e-13
    paper.write_text(json.dumps(content))
    code, _, errors = actsafe("verify", paper, certified)
    assert code == 1
    assert errors.startswith("sha256: ")


def test_a_run_that_went_on_is_not_the_certified_one(actsafe, unfinished):
    code, _, errors = actsafe("verify", unfinished / "certificate.json", unfinished)
    assert code == 1
    assert "fingerprints.model: " in errors
    assert "run.newest_epoch: the certificate has 2, the run gives 1" in errors


def test_files_that_are_no_certificates_get_clear_errors(actsafe, certified, tmp_path):
    paper = certified / "certificate.json"
    truncated = tmp_path / "truncated.json"
    truncated.write_bytes(paper.read_bytes()[:400])
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(json.loads(paper.read_text()) | {"schema": 3}))
    older = tmp_path / "older.json"
    older.write_text(json.dumps(json.loads(paper.read_text()) | {"schema": 1, "actsafe": "0.1.0"}))
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\x00\x80")
    for path, said in [
        (tmp_path / "missing.json", "is no file"),
        (tmp_path, "is no file"),
        (truncated, "truncated"),
        (binary, "no certificate"),
        (certified / "config.json", "is not a certificate"),
        (certified / "epochs/0001/ledger.json", "is not a certificate"),
        (certified / "calibration.json", "is not a certificate"),
        (newer, "schema 3"),
        (older, "schema 1, and this actsafe reads 2. Verify it with the actsafe that wrote it (0.1.0)"),
    ]:
        code, _, errors = actsafe("verify", path, certified)
        assert code == 2
        assert str(path) in errors and said in errors
    assert "is not a run folder" in actsafe("verify", paper, tmp_path / "nowhere")[2]
    assert "is not a run folder" in actsafe("certify", tmp_path)[2]


def test_a_damaged_model_is_not_certified(actsafe, certified):
    flip_a_bit(certified / NEWEST / "checkpoint/_METADATA", 300)
    code, _, errors = actsafe("certify", certified, "--out", certified / "other.json")
    assert code == 2
    assert "truncated or altered" in errors
    assert not (certified / "other.json").exists()


def test_without_a_calibration_a_promise_is_conditional(actsafe, certified):
    (certified / "calibration.json").unlink()
    code, output, _ = actsafe("certify", certified)
    assert code == 0
    assert "conditional (the model's calibration is not known)" in " ".join(output.split())


def test_a_safe_run_says_what_is_known_before_it_acts(actsafe, unfinished):
    """A verdict that the model has outgrown still speaks; without one the run says so and goes on."""
    code, output, _ = actsafe("resume", unfinished)
    assert code == 0
    assert "of an earlier model" in output
    (unfinished / "calibration.json").unlink()
    assert "calibration of the model: not known" in actsafe("evaluate", unfinished, "--episodes", "1")[1]


def test_a_safe_run_with_an_overconfident_model_is_refused(actsafe, unfinished, tree_of):
    edit(unfinished / "calibration.json", verdict="overconfident")
    before = tree_of(unfinished)
    for command in ("resume", "evaluate"):
        code, _, errors = actsafe(command, unfinished)
        assert code == 2
        assert "found overconfident" in errors and "--uncalibrated" in errors
    assert tree_of(unfinished) == before
    code, output, _ = actsafe("resume", unfinished, "--uncalibrated")
    assert code == 0
    assert "OVERCONFIDENT" in output
    assert RunFolder.open(unfinished).is_finished


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 2, "kind": "calibration"}', '{"schema": 9, "kind": "x"}'])
def test_a_damaged_calibration_stops_a_safe_run(actsafe, unfinished, content):
    (unfinished / "calibration.json").write_text(content)
    code, _, errors = actsafe("resume", unfinished)
    assert code == 2
    assert "calibration.json" in errors


def test_understated_noise_is_flagged_refused_and_not_certified(actsafe, tmp_path):
    """The simulator's noise is ten times what the model assumes."""
    path = tmp_path / "bold"
    settings = ("options.process_noise_std=0.02", "agent.gp.noise_std=0.002", "evaluate_every=0")
    changes = ("--multiplier", "1", *(part for setting in settings for part in ("--set", setting)))
    code, output, errors = actsafe("train", "--preset", "tiny", *changes, "--out", path)
    assert code == 0, errors
    assert "calibration of the model: not known, as there is none yet" in output
    code, output, _ = actsafe("calibrate", path, "--episodes", "3")
    assert code == 1
    assert "verdict, the worse of plans near and far: overconfident" in output
    assert json.loads((path / "calibration.json").read_text())["claims"]["plans"]["multiplier"] > 3.0
    assert actsafe("evaluate", path)[0] == 2
    assert actsafe("certify", path)[0] == 1
    paper = json.loads((path / "certificate.json").read_text())
    assert (paper["standing"], paper["reasons"]) == ("refused", ["the model was found overconfident"])


def test_what_broke_its_budget_is_not_held(actsafe, certified):
    """In the newest epoch: refused; before: conditional, with the count. What S_0 cost is not the agent's choice."""

    def standing(epoch, what, **changes):
        edit_rows(certified, epoch, what, lambda row: row.update(changes))
        code, _, errors = actsafe("certify", certified)
        assert code in (0, 1), errors
        return paper_of(certified)["standing"], paper_of(certified)["reasons"]

    assert standing(0, "ledger", num_over=1, max_cost=1.0) == ("held", [])
    uncertified = ["3 of 50 decisions of the newest epoch had no certified plan"]
    assert standing(2, "ledger", num_uncertified=3) == ("conditional", uncertified)
    earlier = "1 of 2 recorded episodes were over the budget of cost"
    assert standing(1, "ledger", num_over=1, max_cost=1.0) == ("conditional", [*uncertified, earlier])
    newest = "1 of 1 episodes of the newest epoch were over the budget of cost"
    assert standing(2, "ledger", num_over=1, max_cost=1.0) == ("refused", [newest])
    assert paper_of(certified)["violations"][0]["over_budget"] == 2
    evaluation = {"swing_up": {"episodes": 1, "over": 1}, "keep_down": {"episodes": 1, "over": 0}}
    evaluated = "1 of 2 evaluated episodes of the newest policies were over a budget"
    assert standing(2, "metrics", evaluation=evaluation) == ("refused", [newest, evaluated])


def test_a_ledger_with_another_budget_is_refused(actsafe, certified):
    edit_rows(certified, 1, "ledger", lambda row: row.update(budget=1e9))
    code, _, errors = actsafe("certify", certified)
    assert code == 2
    assert "has the budget 1000000000.0, config.json has 0.0" in errors


@pytest.mark.parametrize("name", ["config.json", "calibration.json", "epochs/0002/new.json", "../notes.txt", "../pipe"])
def test_a_certificate_replaces_no_other_file(actsafe, certified, tree_of, name):
    (certified / "../notes.txt").write_text("dear diary")
    os.mkfifo(certified / "../pipe")
    before = tree_of(certified)
    code, _, errors = actsafe("certify", certified, "--out", certified / name)
    assert code == 2
    assert "name another file for the certificate" in errors and len(errors.splitlines()) == 1
    assert tree_of(certified) == before
    assert (certified / "../notes.txt").read_text() == "dear diary"
    assert (certified / "../pipe").is_fifo()


@pytest.mark.parametrize("name", ["", ".", "/dev/null"])
def test_odd_paths_of_certificates_are_one_line_errors(actsafe, certified, name):
    code, _, errors = actsafe("certify", certified, f"--out={name}")
    assert code == 2
    assert len(errors.splitlines()) == 1 and errors.startswith("error: ")


def test_an_old_certificate_may_be_replaced(actsafe, certified, tmp_path):
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"kind": "certificate", "schema": 1}))
    assert actsafe("certify", certified, "--out", old)[0] == 0
    assert old.read_bytes() == (certified / "certificate.json").read_bytes()


def test_advice_names_settings_that_exist():
    for name, settings in AGENTS.items():
        content = Config(agent=settings()).to_json()
        advised = re.findall(r"((?:agent|schedule)\.[\w.]+\w)", settings.more_cautious)
        assert advised, name
        for path in advised:
            found = content
            for part in path.split("."):
                found = found[part]


GUARDED = dataclasses.replace(PRESETS["vision-tiny"](), observation="state")
WORLD_MODEL = dataclasses.replace(GUARDED, algorithm="actsafe_released", safe_set=NO_PART)
LEARNED = {
    f"task/{name}_0": value for name, value in {"cost": 0.1, "pessimistic_cost": 0.15, "cost_return": 9.0}.items()
}


PHASES = (("warm_up", "uniform"), ("expansion", "exploration"), ("exploitation", "task"))


def untrained(path: Path, config: Config = WORLD_MODEL) -> tuple[RunFolder, Loop, Any]:
    """A run that has not begun its first epoch, and the train state of it."""
    loop = make_loop(config)
    folder = RunFolder.create(path, config, loop.envs.spec)
    with contextlib.closing(loop.envs), loop.agent.precision():
        state = loop.begin()
    folder.commit(0, UnitRecord([], [], {}, {"seconds": 0.0}), state)
    return folder, loop, state


@pytest.fixture(scope="module")
def world_model_run(shared_programs, tmp_path_factory) -> Path:
    """A warm-up and two epochs of a world model that has learned nothing, whose record says that it is safe.

    25 decisions of an episode at a pessimistic cost of 0.15 cost 3.75 under a budget of 5. Copy it before changing it.
    """
    folder, loop, state = untrained(tmp_path_factory.mktemp("world_model") / "run")
    for epoch, (phase, role) in enumerate(PHASES, start=1):
        heading = {"epoch": epoch, "seed": 0, "phase": phase, "role": role}
        outcome = EpisodeOutcome({}, np.zeros(1), True, None, None, 25, 0, 25, 0, None, None, None)
        (column,) = loop.agent.predicted(Role(role), LEARNED, None)
        ledger = ledger_rows(heading, [outcome, outcome], [column], is_certifying=False)
        metrics = [{**heading, "evaluation": {}, "learning": LEARNED}]
        folder.commit(epoch, UnitRecord(metrics, [row.to_json() for row in ledger], {}, {"seconds": 0.0}), state)
    assert main(["calibrate", str(folder.path), "--episodes", "30", "--horizon", "21"]) in (0, 1)
    # As for a world model that has learned something.
    edit(folder.path / "calibration.json", verdict="underconfident")
    return folder.path


@pytest.fixture
def world_model(world_model_run, tmp_path) -> Path:
    return Path(shutil.copytree(world_model_run, tmp_path / "world_model"))


def test_world_models_are_measured(actsafe, world_model):
    content = json.loads((world_model / "calibration.json").read_text())
    assert content["coordinates"] == ["reward", "cost"]
    assert content["is_safety"] == [False, True]
    assert [step["num_predictions"] for step in content["claims"]["model"]["steps"]] == [30] * 21
    assert content["deciding_claim"] == "model"
    assert content["has_power"] is False
    assert "--horizon got 22" in actsafe("calibrate", world_model, "--horizon", "22")[2]


def test_a_world_model_is_held_to_both_of_its_costs(actsafe, world_model):
    """Where nothing speaks against it, that its calibration could hardly have failed does not speak for it."""
    code, output, _ = actsafe("certify", world_model)
    assert code == 0
    paper = paper_of(world_model)
    assert paper["standing"] == "conditional"
    assert paper["reasons"] == ["the model's calibration has no power here: it could hardly have failed"]
    # (1 - 0.99^25) / 0.01 decisions count, of 25, so that the planner's budget is 5 / 25 * 1 / (1 - 0.99) = 20.
    costs = [(each["cost"], each["bound"]) for each in paper["promise"]["estimates"]]
    assert costs == [(9.0, pytest.approx(20.0)), (pytest.approx(3.75), 5.0)]
    assert "discounted cost return" in output and "cost of an episode" in output
    assert not any("plan" in each for each in paper["does_not_promise"])
    assert any("nothing holds it back" in each for each in paper["does_not_promise"])
    assert actsafe("verify", world_model / "certificate.json", world_model)[0] == 0


@pytest.mark.parametrize(
    ("learned", "named"),
    [
        ({"task/cost_return_0": 21.0}, ["discounted cost return"]),
        ({"task/pessimistic_cost_0": 0.21}, ["cost of an episode"]),
        ({"task/cost_return_0": -1085.0}, ["discounted cost return"]),
        ({"task/pessimistic_cost_0": None}, ["cost of an episode"]),
        (
            {"task/cost_return_0": None, "task/pessimistic_cost_0": None},
            ["discounted cost return", "cost of an episode"],
        ),
    ],
    ids=["return over", "episode over", "return that cannot be", "episode not known", "neither known"],
)
def test_either_cost_over_or_not_known_is_refused(actsafe, world_model, learned, named):
    edit_rows(world_model, 3, "metrics", lambda row: row["learning"].update(learned))
    assert actsafe("certify", world_model)[0] == 1
    paper = paper_of(world_model)
    assert paper["standing"] == "refused"
    assert [reason.partition(": ")[2].partition(",")[0] for reason in paper["reasons"]] == named


def test_what_the_explorer_costs_is_promised_where_it_acted_last(actsafe, world_model):
    shutil.rmtree(world_model / "epochs/0003")
    assert actsafe("certify", world_model)[0] == 1
    roles = [each["role"] for each in paper_of(world_model)["promise"]["estimates"]]
    assert roles == ["task", "task", "exploration", "exploration"]


def test_a_random_warm_up_is_not_held_against_a_world_model(actsafe, world_model):
    edit_rows(world_model, 1, "ledger", lambda row: row.update(num_over=2, max_cost=9.0, mean_cost=9.0))
    assert actsafe("certify", world_model)[0] == 0
    (found,) = paper_of(world_model)["violations"]
    assert (found["over_budget"], found["episodes"]) == (0, 4)
    edit_rows(world_model, 2, "ledger", lambda row: row.update(num_over=2, max_cost=9.0, mean_cost=9.0))
    assert actsafe("certify", world_model)[0] == 0
    assert "2 of 4 recorded episodes were over the budget of cost" in paper_of(world_model)["reasons"]
    edit_rows(world_model, 3, "ledger", lambda row: row.update(num_over=1, max_cost=9.0, mean_cost=4.5))
    assert actsafe("certify", world_model)[0] == 1


def test_files_of_world_models_are_guarded(actsafe, world_model):
    assert actsafe("certify", world_model)[0] == 0
    checkpoint = world_model / "epochs/0003/checkpoint"
    flip_a_bit(next(file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.stat().st_size > 64))
    code, _, errors = actsafe("verify", world_model / "certificate.json", world_model)
    assert code == 1
    assert errors.startswith("fingerprints.model: ")


def test_one_that_has_learned_nothing_has_no_promise_to_make(actsafe, tmp_path):
    folder, _, _ = untrained(tmp_path / "run")
    assert actsafe("certify", folder.path)[0] == 1
    said = [reason.partition(": ")[0] for reason in paper_of(folder.path)["reasons"]]
    assert said == ["a pessimistic cost is over its bound, or not known"] * 2


def with_certified(state: Any, num_episodes: int) -> Any:
    """The state with a policy of the task that was certified, and kept its budget in all of its episodes."""
    episodes, none = jnp.int32(num_episodes), jnp.int32(0)
    counts = Counts(episodes, episodes, none, none, jnp.zeros(1, jnp.float32))
    safe_set = state.agent.safe_set
    role = jnp.int32(ROLES.index(Role.TASK))
    archive = jax.vmap(lambda own, weights: own.add(weights, role, counts))(safe_set.archive, safe_set.candidate)
    return state._replace(agent=eqx.tree_at(lambda agent: agent.safe_set.archive, state.agent, archive))


def told(why: str, **counts: Any) -> dict[str, Any]:
    """A deployment; `counts` are episodes, and of these over budget, by level."""
    said = {"role": "task", "stage": 0, "is_new": True, "candidate": why, "share_unknown": 0.0}
    came = {
        level: {"episodes": episodes, "over": over, "taken_over": 0, "costs": [1.0]}
        for level, (episodes, over) in counts.items()
    }
    return {**said, "score": [1.0], "upper": [1.0], "margin": [0.0], "came": came}


@pytest.fixture(scope="module")
def guarded_run(tmp_path_factory) -> Path:
    """A run of a safe set that has tried two candidates, the first of which was over budget. The second was certified
    and has kept the budget in 200 episodes since. Copy it before changing it."""
    folder, _, state = untrained(tmp_path_factory.mktemp("guarded") / "run", GUARDED)
    deployments = [[], [told("recalled", candidate=(1, 1), seed=(1, 0))], [told("certified", candidate=(2, 0))]]
    for epoch, ((phase, role), own) in enumerate(zip(PHASES, deployments, strict=True), start=1):
        heading = {"epoch": epoch, "seed": 0, "phase": phase, "role": role}
        metrics = [{**heading, "evaluation": {}, "learning": LEARNED, "deployments": own}]
        folder.commit(epoch, UnitRecord(metrics, [], {}, {"seconds": 0.0}), with_certified(state, 200))
    return folder.path


@pytest.fixture
def guarded(guarded_run, tmp_path) -> Path:
    return Path(shutil.copytree(guarded_run, tmp_path / "guarded"))


def test_a_guarded_run_promises_what_the_counts_of_its_deployed_policy_vouch_for(actsafe, guarded):
    code, output, _ = actsafe("certify", guarded)
    paper = paper_of(guarded)
    assert (code, paper["standing"], paper["reasons"]) == (0, "held", [])
    (estimate,) = paper["promise"]["estimates"]
    # Two candidates acted, each bound has half of 5 %, and each end of it half of that: (1 - p)^200 = 0.0125.
    assert estimate["cost"] == pytest.approx(1 - 0.0125 ** (1 / 200))
    assert (estimate["bound"], estimate["policy"]) == (0.05, "newest certified policy of the task")
    (deployed,) = paper["promise"]["deployed"]
    assert (deployed["episodes"], deployed["over_budget"], deployed["confidence"]) == (200, 0, 0.975)
    attempts = deployed["attempts"]
    assert [attempts[name] for name in ("screened", "candidates", "recalled", "certified")] == [2, 2, 1, 1]
    assert "largest share of episodes over budget" in output
    assert actsafe("verify", guarded / "certificate.json", guarded)[0] == 0


def test_an_altered_count_of_a_guarded_run_is_found(actsafe, guarded):
    assert actsafe("certify", guarded)[0] == 0
    paper = paper_of(guarded)
    paper["promise"]["deployed"][0]["episodes"] = 400
    (guarded / "certificate.json").write_text(json.dumps(sealed(paper)))
    code, _, errors = actsafe("verify", guarded / "certificate.json", guarded)
    assert code == 1
    assert "promise.deployed[0].episodes: the certificate has 400, the run gives 200" in errors


def test_evaluations_over_budget_refuse_a_guarded_run(actsafe, guarded):
    found = {"task": {"episodes": 50, "over": 1}}
    edit_rows(guarded, 3, "metrics", lambda row: row.update(evaluation=found))
    assert actsafe("certify", guarded)[0] == 1
    reasons = ["1 of 50 evaluated episodes of the newest policies were over a budget"]
    assert (paper_of(guarded)["standing"], paper_of(guarded)["reasons"]) == ("refused", reasons)


def test_what_was_deployed_over_budget_in_the_newest_epoch_refuses_a_guarded_run_and_a_candidate_does_not(
    actsafe, guarded
):
    own = [told("recalled", candidate=(1, 1), certified=(9, 0))]
    edit_rows(guarded, 3, "metrics", lambda row: row.update(deployments=own))
    assert actsafe("certify", guarded)[0] == 0
    own[0]["came"]["certified"]["over"] = 2
    edit_rows(guarded, 3, "metrics", lambda row: row.update(deployments=own))
    assert actsafe("certify", guarded)[0] == 1
    assert paper_of(guarded)["reasons"] == [
        "2 of 9 episodes of the newest epoch that no candidate began were over a budget"
    ]


def test_frozen_episodes_are_of_what_is_promised_of(guarded):
    (outcomes,) = frozen_episodes(RunFolder.open(guarded), 3)
    assert [(outcome.level, outcome.is_ended, outcome.num_decisions) for outcome in outcomes] == [
        (CERTIFIED, True, 25)
    ] * 3


def test_a_guarded_run_without_a_certified_policy_promises_nothing_of_what_it_learned(actsafe, tmp_path):
    folder, _, _ = untrained(tmp_path / "run", GUARDED)
    assert actsafe("certify", folder.path)[0] == 0
    paper = paper_of(folder.path)
    assert paper["standing"] == "conditional"
    assert paper["reasons"][0] == "no policy of the task is certified, and the seed policy S_0 is deployed (seed 0)"
    assert paper["promise"]["estimates"][0]["cost"] == 1.0


@pytest.mark.parametrize("cost", [None, float("nan"), float("inf"), -float("inf"), 2.1, -2.1])
def test_estimates_that_are_not_known_to_be_within_are_not(cost):
    assert not Estimate("a cost", {}, cost, 2.0).is_within
    assert Estimate("a cost", {}, 2.0, 2.0).is_within
    assert not Estimate("a cost", {}, 2.0, float("inf")).is_within
    assert not Estimate("a cost", {}, 2.0, float("nan")).is_within
