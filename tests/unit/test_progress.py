"""How long is left is judged by the pace of late, not by how long the beginning took."""

import itertools

import pytest

from actsafe.cli import progress
from actsafe.cli.progress import Pace


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_beginning_counts_until_there_is_more(clock):
    """10 of 100 take 100 s, with what was compiled, and the next 10 take 10 s."""
    pace = Pace()
    assert pace.speed == 0.0
    clock[0] = 100.0
    pace.mark(10)
    assert pace.seconds_left(100) == pytest.approx(900.0)
    clock[0] = 110.0
    pace.mark(20)
    assert (pace.speed, pace.seconds_left(100)) == pytest.approx((1.0, 80.0))
    clock[0] = 130.0
    assert pace.seconds_left(100) == pytest.approx(60.0)
    clock[0] = 1000.0
    assert pace.seconds_left(100) == 0.0


def test_only_the_last_marks_count(clock):
    """Five marks that are 10 s apart, then five that are 20 s apart, of 10 each."""
    pace = Pace()
    speeds = []
    for number, seconds in enumerate(itertools.chain([10.0] * 5, [20.0] * 5), start=1):
        clock[0] += seconds
        pace.mark(10 * number)
        speeds.append(pace.speed)
    assert speeds[:5] == pytest.approx([1.0] * 5)
    assert speeds[5:] == pytest.approx([50 / 60, 50 / 70, 50 / 80, 50 / 90, 50 / 100])


def test_side_by_side_each_has_its_beginning(clock):
    """Two that begin with 100 s each, at the same time, and then take 10 s for each of theirs."""
    pace = Pace(4, num_side_by_side=2)
    for number, now in enumerate([100.0, 100.0, 110.0, 110.0], start=5):
        clock[0] = now
        pace.mark(number)
    assert pace.speed == pytest.approx(2 / 10)
    assert pace.seconds_left(18) == pytest.approx(50.0)
