"""Calibration of a run's model: measured on episodes that it has not seen, written beside it, asked for before it acts.

    calibration.json       what was measured, of which model, and the verdict

A run that is to keep to a budget acts on its model's word. Where that word is known to promise too much, the run is
refused unless told otherwise.
"""

import contextlib
import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

import actsafe
from actsafe.agents.base import Forecasts
from actsafe.data.rows import Rows
from actsafe.evidence.fingerprints import fingerprints
from actsafe.evidence.reliability import FAMILY_CONFIDENCE, GRID, LEVELS, Assessment, Verdict, assess
from actsafe.training.errors import UserError
from actsafe.training.loop import TrainState
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.settings import ConfigError
from actsafe.training.storage import StorageError, file_sha256, read_json, write_json

CALIBRATION = "calibration.json"
SCHEMA_VERSION = 2
FIRST_STREAM = 2000
"""Random streams of held-out episodes, from here on; training and evaluations use those below."""

WORST_FIRST = (Verdict.OVERCONFIDENT, Verdict.UNKNOWN, Verdict.UNDERCONFIDENT, Verdict.CALIBRATED)


class UncalibratedError(UserError, RuntimeError):
    """A run that is asked to be safe has a model that is known to promise too much."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """One way to read a model's uncertainty, and how far that reading is right, 1 step ahead, 2 steps, and so on."""

    meaning: str
    """What the std of its intervals is."""
    steps: tuple[Assessment, ...]

    @classmethod
    def of(
        cls,
        meaning: str,
        scores: Float[np.ndarray, "n time coordinate"],
        is_safety: Bool[np.ndarray, " coordinate"] | None = None,
    ) -> "Claim":
        """Of scores by steps ahead. Coordinates that are not of `is_safety` have no part in the verdict."""
        steps = np.moveaxis(scores, 1, 0)
        return cls(meaning, tuple(assess(step, num_verdicts=2, is_safety=is_safety) for step in steps))

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

    epoch: int
    """The newest that the model had learned from."""
    num_episodes: int
    claims: Mapping[str, Claim]
    forecasts: Forecasts


def measure(folder: RunFolder, *, num_episodes: int | None = None, horizon: int | None = None) -> Measured:
    """How far the newest models of a run are off on episodes that nothing was learned from, all seeds together.

    There are `num_episodes` of every task and seed, by default so many that all seeds together have as many as is usual
    for the agent. Each is forecast 1 to `horizon` decisions ahead. Raises `ConfigError` where an episode is too short.
    """
    trainer = Trainer(folder)
    agent, seeds = trainer.agent, folder.config.seeds
    with contextlib.closing(trainer.loop.envs), agent.precision():
        longest = folder.spec.num_decisions + 1 - agent.num_seen
        horizon = min(agent.usual_horizon, longest) if horizon is None else horizon
        if not 1 <= horizon <= longest:
            rows = "first row of an episode, which is" if agent.num_seen == 1 else f"{agent.num_seen} rows that are"
            raise ConfigError(
                f"--horizon got {horizon}, and {longest} decisions follow the {rows} seen first; choose at most as many"
            )
        if num_episodes is None:
            num_episodes = -(-agent.usual_episodes // len(seeds))
        epoch, newest = trainer.newest()
        episodes = list(_held_out(trainer, epoch, newest, num_episodes))
        key = jax.random.fold_in(jax.random.key(seeds[0]), FIRST_STREAM)
        found = agent.forecasts(trainer.loop.learner, newest.agent, episodes, horizon=horizon, key=key)
    is_safety = np.array(found.is_safety, bool)
    claims = {name: Claim.of(meaning, found.scores[name], is_safety) for name, meaning in found.meanings.items()}
    return Measured(epoch, num_episodes * len(agent.tasks) * len(seeds), claims, found)


def _held_out(trainer: Trainer, epoch: int, newest: TrainState, num_episodes: int) -> Iterator[Rows]:
    """Rows (seed, environment, time) of episodes of every task, an episode of every environment at a time.

    The evaluation that was recorded with the newest epoch, where there is one, counts among them: nothing was learned
    from it either, and a planner would take long to make another.
    """
    loop, config, tasks = trainer.loop, trainer.config, trainer.agent.tasks
    num_recorded = 0
    if not trainer.agent.keeps_rows and config.is_evaluated(epoch):
        recorded, num_recorded = trainer.folder.trajectory(epoch), min(num_episodes, config.evaluation_episodes)
        for task in tasks:
            yield Rows(*(recorded[f"{task}/{name}"][:, :, : loop.ticks_of(num_recorded)] for name in Rows._fields))
    for number in range(-(-(num_episodes - num_recorded) // config.num_envs)):
        for place, task in enumerate(tasks):
            stream = FIRST_STREAM + number * len(tasks) + place
            rollout, _ = loop.evaluate(newest, task, config.num_envs, epoch=epoch, stream=stream)
            yield rollout.rows


def record(folder: RunFolder, measured: Measured) -> dict[str, Any]:
    """What is written to calibration.json."""
    claims, found = {name: claim.to_json() for name, claim in measured.claims.items()}, measured.forecasts
    content = {
        "schema": SCHEMA_VERSION,
        "kind": "calibration",
        "actsafe": actsafe.__version__,
        "fingerprints": fingerprints(folder.path),
        "newest_epoch": measured.epoch,
        "verdict": claims[found.deciding]["verdict"],
        "deciding_claim": found.deciding,
        "has_power": found.has_power,
        "episodes": measured.num_episodes,
        "seeds": list(folder.config.seeds),
        "coordinates": list(found.coordinates),
        "is_safety": list(found.is_safety),
        "levels": list(LEVELS),
        "grid": list(GRID),
        "confidence": FAMILY_CONFIDENCE,
        **found.details,
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
    has_power: bool = False
    """Whether it could have failed: else passing is no evidence."""
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
        settings, model, has_power = measured["settings"], measured["model"], content["has_power"]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is damaged ({error!r}). {advice}") from error
    found = fingerprints(folder.path)
    if settings != found["settings"]:
        raise StorageError(f"{path} was measured with other settings than the run has now. {advice}")
    return Known(verdict, model == found["model"], has_power is True, multiplier, file_sha256(path))


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
        f"be.{factor} Train anew {folder.config.agent.more_cautious}, measure again ({calibrate}), or act all the "
        "same: --uncalibrated"
    )
