"""Where the model is unsure, and how far exploration went."""

import numpy as np
import pytest

from actsafe.figures import unsure
from actsafe.figures.coordinates import view
from actsafe.figures.panels import Span


@pytest.mark.parametrize("name", list(unsure.PLACES))
def test_states_of_the_plane_lie_where_they_should(name):
    plane = view(name)
    angles, values, states = unsure.plane_states(name, reach=2.0)
    assert states.shape == (unsure.RESOLUTION, unsure.RESOLUTION, plane.state_dim)
    inner = slice(1, -1)  # At the edges +180 and -180 degrees are the same.
    np.testing.assert_allclose(
        plane.angle(states)[:, inner], np.broadcast_to(angles[inner], (len(values), len(angles) - 2))
    )
    np.testing.assert_allclose(plane.constrained(states), np.broadcast_to(values[:, None], states.shape[:2]))


def test_visited_cells_add_up_and_what_is_outside_does_not_count():
    plane = view("pendulum")
    hanging, outside, upright = [-1.0, 0.0, 0.0], [-1.0, 0.0, 7.0], [1.0, 0.0, 0.1]
    episodes = [np.array([hanging, hanging]), np.array([outside, hanging]), np.array([hanging, upright])]
    cell = 1.0 / unsure.CELLS**2
    np.testing.assert_allclose(unsure.visited_share(plane, episodes), [cell, cell, 2 * cell])


def test_slices_are_drawn_over_what_was_visited():
    states = np.array([[-1.0, 0.0, 0.0], [0.0, -1.0, 2.0], [1.0, 0.0, 1.0]])
    doubt = np.linspace(0.0, 1.0, unsure.RESOLUTION**2).reshape(unsure.RESOLUTION, unsure.RESOLUTION)
    figure = unsure.doubt_slice("pendulum", doubt, [states], title="no input", reach=8.6)
    (axes,) = figure.axes
    visited = axes.get_lines()[-1]
    np.testing.assert_allclose(visited.get_xdata()[:2], [0.0, 90.0], atol=1e-12)
    # Six levels of doubt, from 2 % on.
    assert len(axes.collections[0].get_paths()) == len(unsure.LEVELS) - 1
    assert unsure.visited_over_time("pendulum", [[states]], [Span("expansion", 0.5, 1.5)]).axes


def test_the_plane_reaches_as_far_as_was_visited():
    plane = view("cartpole")
    far = np.zeros((2, 5))
    far[1, 0] = 2.5 * plane.limit
    assert unsure.reach_of(plane, []) == plane.reach
    assert unsure.reach_of(plane, [far]) == pytest.approx(1.06 * 2.5 * plane.limit)
    assert unsure.reach_of(plane, [10 * far]) == 3.0 * plane.limit
