"""What an environment does wrong in the middle of a run is a `ProblemError` that says when."""

import pytest

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode
from actsafe.training.errors import ProblemError
from actsafe.training.loop import make_loop
from actsafe.training.presets import tiny


@pytest.fixture
def loop(monkeypatch):
    loop = make_loop(tiny())

    def fail(*arguments):
        raise ValueError("Bad-v0: reset() failed at tick 0.")

    monkeypatch.setattr(loop._collector, "begin", fail)
    monkeypatch.setattr(loop.learner, "policy", lambda *arguments: None)
    return loop


def test_a_reset_that_fails_later_is_explained(loop):
    state = loop.begin()
    with pytest.raises(ProblemError, match=r"in epoch 0: Bad-v0: reset\(\) failed at tick 0\. Nothing of this epoch"):
        loop.epoch(0, state, None)
    with pytest.raises(ProblemError, match=r"in the evaluation after epoch 3: Bad-v0: reset\(\) failed"):
        list(loop.rollout(state, ActMode(Role.TASK, "swing_up"), 4, epoch=3, stream=1))
