"""What steps refuse, the step without constraints, and what is applied to directions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from actsafe.constrained.base import Linearisation
from actsafe.constrained.lbsgd import LBSGD
from actsafe.constrained.optimisers import clipped_adam
from actsafe.constrained.unconstrained import Unconstrained


def test_without_constraints_the_gradient_is_the_direction():
    linearisation = Linearisation(jnp.asarray(1.0), jnp.array([-3.0]), jnp.array([3.0, -4.0]), jnp.array([[9.0, 9.0]]))
    direction, state, info = Unconstrained().direction((), linearisation)
    np.testing.assert_array_equal(direction, [3.0, -4.0])
    assert state == ()
    expected = {"is_feasible": 0.0, "is_skipped": 0.0, "step_size": 1.0, "gradient_norm": 5.0, "multiplier": 0.0}
    assert {name: float(value) for name, value in info.items()} == expected


def test_without_constraints_costs_that_are_not_finite_do_not_matter():
    costs = jnp.array([jnp.nan]), jnp.array([[jnp.nan, jnp.inf]])
    linearisation = Linearisation(jnp.asarray(1.0), costs[0], jnp.array([3.0, -4.0]), costs[1])
    direction, _, info = Unconstrained().direction((), linearisation)
    np.testing.assert_array_equal(direction, [3.0, -4.0])
    assert (info["is_feasible"], info["is_skipped"]) == (0.0, 0.0)


def test_gradients_that_do_not_fit_the_margins_are_refused():
    linearisation = Linearisation(jnp.asarray(1.0), jnp.ones(2), jnp.ones(3), jnp.ones((1, 3)))
    with pytest.raises(ValueError, match=r"got a leaf of shape \(1, 3\), expected \(2, 3\)"):
        LBSGD().direction(LBSGD().init(2), linearisation)


def test_adam_is_optax_adam_behind_a_clip():
    ours = clipped_adam(0.1)
    theirs = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(0.1, eps=1e-5))
    parameters = {"a": jnp.zeros(2)}
    states = ours.init(parameters), theirs.init(parameters)
    for direction in ([300.0, -400.0], [0.003, 0.0], [-1.0, 2.0]):
        found, ours_state = ours.update({"a": jnp.array(direction)}, states[0], parameters)
        expected, theirs_state = theirs.update({"a": jnp.array(direction)}, states[1], parameters)
        states = ours_state, theirs_state
        np.testing.assert_array_equal(found["a"], expected["a"])


def test_adam_stands_still_where_the_direction_is_zero():
    optimiser = clipped_adam(0.1)
    _, before = optimiser.update(jnp.array([1.0, -2.0]), optimiser.init(jnp.zeros(2)))
    change, after = optimiser.update(jnp.zeros(2), before)
    np.testing.assert_array_equal(change, [0.0, 0.0])
    jax.tree.map(np.testing.assert_array_equal, after, before)
