"""Calibration of a run's model: measured on episodes that it has not seen, written beside it, asked for before it acts.

    calibration.json       what was measured, of which model, and the verdict

A run that is to keep to a budget acts on its model's word. Where that word is known to promise too much, the run is
refused unless told otherwise.
"""

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

import actsafe
from actsafe.evidence.fingerprints import fingerprints
from actsafe.evidence.reliability import FAMILY_CONFIDENCE, GRID, LEVELS, Assessment, Verdict, assess
from actsafe.training.errors import UserError
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError, file_sha256, read_json, write_json

CALIBRATION = "calibration.json"
SCHEMA_VERSION = 1

WORST_FIRST = (Verdict.OVERCONFIDENT, Verdict.UNKNOWN, Verdict.UNDERCONFIDENT, Verdict.CALIBRATED)


class UncalibratedError(UserError, RuntimeError):
    """A run that is asked to be safe has a model that is known to promise too much."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """One way to read a model's doubt, and how far that reading is right, 1 step ahead, 2 steps, and so on."""

    meaning: str
    """What the std of its intervals is."""
    steps: tuple[Assessment, ...]

    @classmethod
    def of(cls, meaning: str, scores: Float[np.ndarray, "n time coordinate"]) -> "Claim":
        return cls(meaning, tuple(assess(scores[:, step], num_verdicts=2) for step in range(scores.shape[1])))

    @property
    def verdict(self) -> Verdict:
        """The worse of two: one step ahead, which the theory assumes, and at the farthest, which plans rely on."""
        return min((self.steps[0].verdict, self.steps[-1].verdict), key=WORST_FIRST.index)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "meaning": self.meaning,
            "verdict": self.verdict.value,
            "multiplier": max(self.steps[0].multiplier, self.steps[-1].multiplier),
            "steps": [
                {"step": number, **dataclasses.asdict(step), "verdict": step.verdict.value}
                for number, step in enumerate(self.steps, start=1)
            ],
        }


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was found on held-out episodes."""

    unit_number: int
    """Of the newest episode, or epoch, that the model had learned from."""
    num_episodes: int
    coordinates: tuple[str, ...]
    claims: Mapping[str, Claim]
    deciding: str
    """The claim whose verdict is the run's."""
    details: Mapping[str, Any]


def record(folder: RunFolder, measured: Measured) -> dict[str, Any]:
    """What is written to calibration.json."""
    claims = {name: claim.to_json() for name, claim in measured.claims.items()}
    content = {
        "schema": SCHEMA_VERSION,
        "kind": "calibration",
        "actsafe": actsafe.__version__,
        "fingerprints": fingerprints(folder.path),
        f"newest_{folder.config.unit}": measured.unit_number,
        "verdict": claims[measured.deciding]["verdict"],
        "deciding_claim": measured.deciding,
        "episodes": measured.num_episodes,
        "coordinates": list(measured.coordinates),
        "levels": list(LEVELS),
        "grid": list(GRID),
        "confidence": FAMILY_CONFIDENCE,
        **measured.details,
        "claims": claims,
    }
    write_json(folder.path / CALIBRATION, content)
    return content


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known of the calibration of a run's model."""

    verdict: Verdict
    is_current: bool
    """Whether that is about the model as it is now."""
    multiplier: float | None = None
    """The factor on every std that restores coverage; None where that is not known."""
    sha256: str | None = None
    """Of calibration.json."""

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "verdict": self.verdict.value}


def known(folder: RunFolder) -> Known:
    """What calibration.json says; not known without one. `StorageError` where it is damaged or of another run."""
    path = folder.path / CALIBRATION
    if not path.is_file():
        return Known(Verdict.UNKNOWN, is_current=False)
    content = read_json(path)
    advice = f"Measure again: actsafe calibrate {shlex.quote(str(folder.path))}"
    if not isinstance(content, dict) or content.get("kind") != "calibration" or "schema" not in content:
        raise StorageError(f"{path} is no calibration that actsafe wrote. {advice}")
    if content["schema"] != SCHEMA_VERSION:
        raise StorageError(f"{path} has schema {content['schema']!r}, expected {SCHEMA_VERSION}. {advice}")
    try:
        verdict, measured = Verdict(content["verdict"]), content["fingerprints"]
        multiplier = content["claims"][content["deciding_claim"]]["multiplier"]
        settings, model = measured["settings"], measured["model"]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error!r}). {advice}") from error
    found = fingerprints(folder.path)
    if settings != found["settings"]:
        raise StorageError(f"{path} was measured with other settings than the run has now. {advice}")
    return Known(verdict, model == found["model"], multiplier, file_sha256(path))


def require_calibrated(folder: RunFolder, *, is_allowed: bool = False) -> str:
    """What to say before the run acts; empty where it is not asked to be safe.

    `UncalibratedError` where its model was found overconfident, unless that `is_allowed`. Such a verdict stands, even
    if the model has learned since, until it is measured again. What is not known is said and not refused: a new run
    cannot know, and it is for its confidence rule to be cautious.
    """
    if not folder.config.row.is_constrained:
        return ""
    calibrate = f"actsafe calibrate {shlex.quote(str(folder.path))}"
    if folder.num_committed <= 1 and not (folder.path / CALIBRATION).exists():
        return f"calibration of the model: not known, as there is none yet. Once it has learned: {calibrate}"
    found = known(folder)
    aged = "" if found.is_current else ", of an earlier model"
    if found.verdict is Verdict.UNKNOWN:
        return f"calibration of the model: not known. To measure it: {calibrate}"
    if found.verdict is not Verdict.OVERCONFIDENT:
        return f"calibration of the model: {found.verdict.value}{aged}"
    if is_allowed:
        return f"calibration of the model: OVERCONFIDENT{aged}; acts all the same, as told"
    factor = f" Its intervals should be {found.multiplier:.3g} times as wide." if found.multiplier is not None else ""
    raise UncalibratedError(
        f"{folder.path} is asked to be safe, and its model was found overconfident{aged}: what it calls safe may not "
        f"be.{factor} Train anew with wider doubt (--multiplier, --set gp.noise_std=...), measure again ({calibrate}), "
        "or act all the same: --uncalibrated"
    )
