"""Episodes in motion."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from actsafe.figures.coordinates import require_view
from actsafe.problems import Cartpole, Pendulum
from actsafe.report import film


def frames_of(name: str, drawn: str) -> list[tuple[float, str]]:
    rules = drawn[drawn.index(f"@keyframes {name}{{") :]
    rules = rules[: rules.index("}}") + 1]
    return [(float(share), rule) for share, rule in re.findall(r"([\d.]+)%\{([^}]*)\}", rules)]


def test_the_rod_moves_as_the_states_say():
    # From hanging over the right to the top: 0, 90 and 180 degrees; the other way round, as y points down in SVG.
    states = np.array([[-1.0, 0.0, 0.0], [0.0, -1.0, 1.0], [1.0, 0.0, 7.0]])
    drawn = film.of_states("f1", require_view(Pendulum()), states, "a swing-up")
    moves = frames_of("f1-rod", drawn)
    assert [rule.partition(";")[0] for _, rule in moves] == [
        "transform:rotate(0.00deg)",
        "transform:rotate(-90.00deg)",
        "transform:rotate(-180.00deg)",
        "transform:rotate(-180.00deg)",
    ]
    # The last pose is held: 43 % is half of 86 %.
    assert [share for share, _ in moves] == [0.0, 43.0, 86.0, 100.0]
    # 7 rad/s is over the limit of 6.
    assert ["d55e00" in rule for _, rule in moves] == [False, False, True, True]


def test_angles_go_on_past_the_top():
    turns = np.linspace(0.0, 4.0 * np.pi, 30)
    states = np.stack([-np.cos(turns), -np.sin(turns), np.zeros_like(turns)], axis=1)
    moves = frames_of("f1-rod", film.of_states("f1", require_view(Pendulum()), states, "two turns"))
    angles = [float(re.findall(r"rotate\((-?[\d.]+)deg", rule)[0]) for _, rule in moves]
    assert angles[-1] == pytest.approx(-720.0)
    assert np.all(np.diff(angles) <= 0.0)


def test_carts_move_along_their_rail():
    plane = require_view(Cartpole())
    states = np.array([[0.0, 1.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, 0.0, 0.0]])
    moves = frames_of("f1-cart", film.of_states("f1", plane, states, "a push"))
    expected = 100.0 * plane.bases(states)[1]
    assert f"translate({expected:.2f}px,0)" in moves[1][1]


def test_pictures_lie_below_each_other():
    frames = np.zeros((3, 16, 16, 3), np.uint8)
    frames[0], frames[1], frames[2] = 0, 128, 255
    drawn = film.of_frames("f1", frames, 12, "three greys")
    assert "steps(3,jump-none)" in drawn
    assert "background-size:100% 300%" in drawn
    written = re.findall(r"data:image/webp;base64,([^)]+)\)", drawn)[0]
    strip = np.asarray(Image.open(io.BytesIO(base64.b64decode(written))))
    assert strip.shape == (48, 16, 3)
    np.testing.assert_allclose(strip[[8, 24, 40], 8, 0], [0, 128, 255], atol=6)


def test_long_films_of_large_pictures_are_thinned_and_shrunk():
    """Noise is the hardest to pack: 120 pictures of 100 by 128 would be too much, however long the film is."""
    frames = np.random.default_rng(0).integers(0, 255, (300, 200, 256, 3), dtype=np.uint8)
    drawn = film.of_frames("f1", frames, 12, "noise")
    assert len(drawn) < 1.4 * film.MOST_BYTES
    assert "aspect-ratio:256/200" in drawn
    # Every picture is shown longer: 300 at 12 a second are 25 seconds.
    assert "f1-frames 25.00s steps(" in drawn
    calm = film.of_frames("f1", np.zeros((300, 8, 8, 3), np.uint8), 12, "black")
    assert f"steps({film.MOST_FRAMES},jump-none)" in calm


@pytest.mark.parametrize("make", ["states", "frames"])
def test_labels_are_escaped_and_films_can_be_stopped(make):
    states = np.array([[-1.0, 0.0, 0.0], [0.0, -1.0, 1.0]])
    drawn = {
        "states": lambda: film.of_states("f1", require_view(Pendulum()), states, "<script>"),
        "frames": lambda: film.of_frames("f1", np.zeros((2, 8, 8, 3), np.uint8), 12, "<script>"),
    }[make]()
    assert "<script>" not in drawn
    assert '<input type="checkbox" id="f1-still" class="still">' in drawn
    assert 'for="f1-still"' in drawn
