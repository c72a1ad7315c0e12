"""Calibration takes what the run has recorded before it makes episodes of its own."""

import dataclasses
import json

import numpy as np

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode
from actsafe.agents.phases import Phase
from actsafe.evidence.calibration import measure, record
from actsafe.training.loop import Loop, Rollout, make_loop
from actsafe.training.presets import PRESETS
from actsafe.training.run import RunFolder, UnitRecord


def refuse(*arguments, **options):
    raise AssertionError("an evaluation was made")


def test_one_episode_needs_no_planner(actsafe, finished, monkeypatch):
    monkeypatch.setattr(Loop, "evaluate", refuse)
    code, _, errors = actsafe("calibrate", finished, "--episodes", "1")
    assert code in (0, 1), errors
    content = json.loads((finished / "calibration.json").read_text())
    # Two tasks of 50 decisions, in windows of five.
    assert content["episodes"] == 2
    assert content["claims"]["plans"]["steps"][0]["num_predictions"] == 20


def test_evaluations_that_were_not_recorded_are_made(actsafe, unfinished, monkeypatch):
    """A run whose newest epoch was not evaluated."""
    made = []
    original = Loop.evaluate
    monkeypatch.setattr(Loop, "evaluate", lambda self, *a, **k: made.append(a[1]) or original(self, *a, **k))
    monkeypatch.setattr("actsafe.training.config.Config.is_evaluated", lambda self, epoch: False)
    assert actsafe("calibrate", unfinished, "--episodes", "1")[0] in (0, 1)
    assert made == ["swing_up", "keep_down"]


def test_all_seeds_together_have_the_usual_episodes(shared_programs, tmp_path, monkeypatch):
    """Five of a task for two seeds: three each, which here were recorded, one after the other in one rollout."""
    config = dataclasses.replace(PRESETS["tiny"](), seeds=(3, 5), evaluation_episodes=3)
    loop = make_loop(config)
    folder = RunFolder.create(tmp_path / "run", config, loop.envs.spec)
    with loop.agent.precision():
        state = loop.begin()
        for epoch in range(3):
            mode, num_ticks = ActMode(Role.UNIFORM), loop.ticks_of(3 if epoch else 1)
            rollout = Rollout(tuple(loop.rollout(state, mode, num_ticks, epoch=epoch, stream=0)))
            if epoch == 0:
                session = loop.learner.epoch(state.agent, 0, state.keys, Phase.SEED)
                session.finish(None, rollout.rows, 0, 0)
                state = state._replace(agent=session.agent)
            arrays = rollout.arrays()
            evaluations = {f"{task}/{name}": value for task in loop.agent.tasks for name, value in arrays.items()}
            folder.commit(epoch, UnitRecord([], [], evaluations, {"seconds": 0.0}), state)
    monkeypatch.setattr(Loop, "evaluate", refuse)
    content = record(folder, measure(folder))
    assert content["episodes"] == 2 * 2 * 3
    assert content["seeds"] == [3, 5]
    # Windows of five of 50 decisions, none from one episode to the next.
    assert [step["num_predictions"] for step in content["claims"]["model"]["steps"]] == [12 * 10] * 5
    np.testing.assert_array_equal(content["confidence_multiplier"], np.full((2, 3), 3.0))
