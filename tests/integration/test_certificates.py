"""Calibration and certificates as a user meets them: measured, refused, certified, verified, altered."""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from actsafe.cli.main import main
from actsafe.evidence.certificate import sealed
from actsafe.training.run import Episode, RunFolder
from actsafe.training.vision_presets import vision_tiny
from actsafe.training.vision_runner import VisionTrainer

NEWEST = Path("episodes/0002")


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
    assert content["schema"] == 1
    assert content["standing"] == "held"
    assert content["budget"] == 0.0
    assert [estimate["task"] for estimate in content["promise"]["estimates"]] == ["swing_up", "keep_down"]
    assert all(estimate["pessimistic_cost"] <= 0.0 for estimate in content["promise"]["estimates"])
    assert content["promise"]["particles"] == 6
    (violations,) = content["violations"]
    assert (violations["over_budget"], violations["episodes"]) == (0, 2)
    # None of two: 1 - 0.025^(1/2) = 1 - 0.158114.
    assert violations["interval"] == pytest.approx([0.0, 0.841886], abs=1e-6)
    assert len(content["does_not_promise"]) > 3


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
        (NEWEST / "checkpoint.npz", "fingerprints.model"),
        (NEWEST / "checkpoint.json", "fingerprints.model"),
        (NEWEST / "trajectory.npz", "fingerprints.data"),
        (Path("episodes/0001/ledger.json"), "fingerprints.data"),
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
    forged = json.loads(paper.read_text()) | {"budget": 5e-324}
    paper.write_text(json.dumps(sealed(forged)))
    code, _, errors = actsafe("verify", paper, certified)
    assert code == 1
    assert errors.splitlines() == ["budget: the certificate has 5e-324, the run gives 0.0"]
    config = certified / "config.json"
    content = json.loads(config.read_text())
    content["config"]["budget"] = 0.5
    config.write_text(json.dumps(content))
    errors = actsafe("verify", paper, certified)[2]
    assert "fingerprints.settings: " in errors
    assert "budget: the certificate has 5e-324, the run gives 0.5" in errors


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
    content["promise"]["estimates"][0]["pessimistic_cost"] += 1e-13
    paper.write_text(json.dumps(content))
    code, _, errors = actsafe("verify", paper, certified)
    assert code == 1
    assert errors.startswith("sha256: ")


def test_a_run_that_went_on_is_not_the_certified_one(actsafe, unfinished):
    code, _, errors = actsafe("verify", unfinished / "certificate.json", unfinished)
    assert code == 1
    assert "fingerprints.model: " in errors
    assert "run.newest_episode: the certificate has 2, the run gives 1" in errors


def test_files_that_are_no_certificates_get_clear_errors(actsafe, certified, tmp_path):
    paper = certified / "certificate.json"
    truncated = tmp_path / "truncated.json"
    truncated.write_bytes(paper.read_bytes()[:400])
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(json.loads(paper.read_text()) | {"schema": 2}))
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\x00\x80")
    for path, said in [
        (tmp_path / "missing.json", "is no file"),
        (tmp_path, "is no file"),
        (truncated, "truncated"),
        (binary, "no certificate"),
        (certified / "config.json", "is not a certificate"),
        (certified / "episodes/0001/ledger.json", "is not a certificate"),
        (certified / "calibration.json", "is not a certificate"),
        (newer, "schema 2"),
    ]:
        code, _, errors = actsafe("verify", path, certified)
        assert code == 2
        assert str(path) in errors and said in errors
    assert "is not a run folder" in actsafe("verify", paper, tmp_path / "nowhere")[2]
    assert "is not a run folder" in actsafe("certify", tmp_path)[2]


def test_a_damaged_model_is_not_certified(actsafe, certified):
    flip_a_bit(certified / NEWEST / "checkpoint.npz", 300)
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


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 1, "kind": "calibration"}', '{"schema": 9, "kind": "x"}'])
def test_a_damaged_calibration_stops_a_safe_run(actsafe, unfinished, content):
    (unfinished / "calibration.json").write_text(content)
    code, _, errors = actsafe("resume", unfinished)
    assert code == 2
    assert "calibration.json" in errors


def test_understated_noise_is_flagged_refused_and_not_certified(actsafe, tmp_path):
    """The simulator's noise is ten times what the model assumes."""
    path = tmp_path / "bold"
    settings = ("--process-noise", "0.02", "--multiplier", "1", "--evaluate-every", "0", "--set", "gp.noise_std=0.002")
    code, output, errors = actsafe("train", "--preset", "tiny", *settings, "--out", path)
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


@pytest.fixture
def vision_run(shared_programs, tmp_path) -> Iterator[Path]:
    """A run from vectors with a world model that has seen nothing: quick to make, and it can be measured."""
    jax.config.update("jax_enable_x64", False)
    config = dataclasses.replace(vision_tiny(), observation="state")
    folder = RunFolder.create(tmp_path / "vision", config)
    trainer = VisionTrainer(folder)
    with contextlib.closing(trainer.fleet):
        folder.commit(0, Episode([], [], {}, {"seconds": 0.0}), eqx.filter_jit(trainer._beginning)())
    yield folder.path
    jax.config.update("jax_enable_x64", True)


def test_world_models_are_measured_and_certified_too(actsafe, vision_run):
    """One that has learned nothing has no promise to make; its files are guarded all the same."""
    code, _, errors = actsafe("calibrate", vision_run, "--episodes", "30", "--horizon", "21")
    assert code == 0, errors
    content = json.loads((vision_run / "calibration.json").read_text())
    assert content["coordinates"] == ["reward", "cost"]
    assert [step["num_predictions"] for step in content["claims"]["model"]["steps"]] == [30] * 21
    assert content["deciding_claim"] == "model"
    assert "--horizon got 22" in actsafe("calibrate", vision_run, "--horizon", "22")[2]
    assert actsafe("certify", vision_run)[0] == 1
    paper = json.loads((vision_run / "certificate.json").read_text())
    assert paper["reasons"] == ["a pessimistic cost is over its budget, or not known"]
    assert actsafe("verify", vision_run / "certificate.json", vision_run)[0] == 0
    part = next(file for file in sorted((vision_run / "epochs/0000/checkpoint").rglob("*")) if file.stat().st_size > 64)
    flip_a_bit(part)
    code, _, errors = actsafe("verify", vision_run / "certificate.json", vision_run)
    assert code == 1
    assert errors.startswith("fingerprints.model: ")
