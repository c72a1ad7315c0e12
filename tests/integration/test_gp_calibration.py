"""Calibration takes what the run has recorded before it makes episodes of its own."""

import json

from actsafe.training import runner


def test_one_episode_needs_no_planner(actsafe, finished, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("an evaluation was made")

    monkeypatch.setattr(runner.Trainer, "evaluate", refuse)
    code, _, errors = actsafe("calibrate", finished, "--episodes", "1")
    assert code in (0, 1), errors
    content = json.loads((finished / "calibration.json").read_text())
    # Two tasks of 50 decisions, in windows of five.
    assert content["episodes"] == 2
    assert content["claims"]["plans"]["steps"][0]["num_predictions"] == 20


def test_evaluations_that_were_not_recorded_are_made(actsafe, unfinished, monkeypatch):
    """A run whose newest episode was not evaluated."""
    made = []
    original = runner.Trainer.evaluate
    monkeypatch.setattr(runner.Trainer, "evaluate", lambda self, *a, **k: made.append(k) or original(self, *a, **k))
    monkeypatch.setattr("actsafe.training.config.Config.is_evaluated", lambda self, episode: False)
    assert actsafe("calibrate", unfinished, "--episodes", "1")[0] in (0, 1)
    assert len(made) == 1
