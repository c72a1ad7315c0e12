"""Where the model is uncertain, and how far exploration went."""

import numpy as np
import pytest

from actsafe.figures import uncertainty
from actsafe.figures.coordinates import require_view
from actsafe.figures.panels import Span
from actsafe.problems import Cartpole, Pendulum


@pytest.mark.parametrize("problem", [Pendulum(), Cartpole()])
def test_states_of_the_plane_lie_where_they_should(problem):
    view = require_view(problem)
    x, y, states = uncertainty.plane_states(view, tuple(np.pi if c.is_angle else 2.0 for c in view.plane[:2]))
    assert states.shape == (uncertainty.RESOLUTION, uncertainty.RESOLUTION, view.state_dim)
    for coordinate, values in ((view.plane.x, x[None, :]), (view.plane.y, y[:, None])):
        # At the edges +180 and -180 degrees are the same.
        inner = (slice(1, -1), slice(1, -1))
        read, wanted = coordinate.read(states), np.broadcast_to(values, states.shape[:2])
        np.testing.assert_allclose(read[inner], wanted[inner])


def test_visited_cells_add_up_and_what_is_outside_does_not_count():
    view = require_view(Pendulum())
    hanging, outside, upright = [-1.0, 0.0, 0.0], [-1.0, 0.0, 7.0], [1.0, 0.0, 0.1]
    episodes = [np.array([hanging, hanging]), np.array([outside, hanging]), np.array([hanging, upright])]
    cell = 1.0 / uncertainty.CELLS**2
    np.testing.assert_allclose(uncertainty.visited_share(view, episodes), [cell, cell, 2 * cell])


def test_slices_are_drawn_over_what_was_visited():
    view = require_view(Pendulum())
    states = np.array([[-1.0, 0.0, 0.0], [0.0, -1.0, 2.0], [1.0, 0.0, 1.0]])
    found = np.linspace(0.0, 1.0, uncertainty.RESOLUTION**2).reshape(uncertainty.RESOLUTION, uncertainty.RESOLUTION)
    figure = uncertainty.uncertainty_slice(view, found, [states], title="no input", reaches=(np.pi, 8.6))
    (axes,) = figure.axes
    visited = axes.get_lines()[-1]
    np.testing.assert_allclose(visited.get_xdata()[:2], [0.0, 90.0], atol=1e-12)
    # Six levels of uncertainty, from 2 % on.
    assert len(axes.collections[0].get_paths()) == len(uncertainty.LEVELS) - 1
    assert uncertainty.visited_over_time(view, [[states]], [Span("expansion", 0.5, 1.5)]).axes


def test_the_plane_reaches_as_far_as_was_visited():
    view = require_view(Cartpole())
    limit, least = view.plane.x.limit, view.plane.x.reach
    far = np.zeros((2, 5))
    far[1, 0] = 2.5 * limit
    assert view.reaches([]) == (least, np.pi)
    assert view.reaches([far])[0] == pytest.approx(1.06 * 2.5 * limit)
    assert view.reaches([10 * far])[0] == 3.0 * limit
