"""The augmented Lagrangian against numbers worked by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.constrained.augmented_lagrangian import AugmentedLagrangian, MultiplierState
from actsafe.constrained.base import Linearisation

STEP = AugmentedLagrangian(initial_multiplier=0.3, initial_penalty=0.5, penalty_growth=0.1)
# Cost gradients (0, 2) and (1, 0), loss gradient (3, 3).
GRADIENTS = jnp.array([3.0, 3.0]), jnp.array([[0.0, 2.0], [1.0, 0.0]])


def point(*margins):
    return Linearisation(jnp.asarray(7.0), jnp.array(margins), *GRADIENTS)


def test_each_constraint_takes_its_own_branch():
    # f = -margins = (0.4, -2): 0.3 + 0.5·0.4 = 0.5 > 0 and 0.3 - 0.5·2 = -0.7, so 0.
    # Direction (3, 3) + 0.5 (0, 2) = (3, 4).
    direction, state, info = STEP.direction(STEP.init(2), point(-0.4, 2.0))
    np.testing.assert_allclose(direction, [3.0, 4.0], rtol=1e-12)
    np.testing.assert_allclose(state.multipliers, [0.5, 0.0], rtol=1e-12)
    reported = {name: pytest.approx(float(value)) for name, value in info.items()}
    expected = {
        "is_feasible": 0,
        "is_skipped": 0,
        "step_size": 1,
        "gradient_norm": 5,
        "multiplier": 0.5,
        "penalty": 0.5,
    }
    assert reported == expected


def test_multipliers_and_penalty_over_several_steps():
    # c: 0.5, 0.55, 0.605. μ of the first constraint with f = 0.4, 0.4, -1: 0.5, then 0.5 + 0.22 = 0.72, then 0.115.
    state, seen, penalties = STEP.init(1), [], []
    for margin in (-0.4, -0.4, 1.0):
        linearisation = Linearisation(jnp.asarray(0.0), jnp.array([margin]), GRADIENTS[0], GRADIENTS[1][:1])
        _, state, info = STEP.direction(state, linearisation)
        seen.append(float(state.multipliers[0]))
        penalties.append(float(info["penalty"]))
    np.testing.assert_allclose(seen, [0.5, 0.72, 0.115], rtol=1e-12)
    np.testing.assert_allclose(penalties, [0.5, 0.55, 0.605], rtol=1e-12)


def test_the_penalty_stops_at_1():
    # 0.5 · 1.1^7 = 0.974, 0.5 · 1.1^8 = 1.07
    assert STEP.penalty(MultiplierState(jnp.zeros(1), jnp.asarray(7))) == pytest.approx(0.9743586)
    assert STEP.penalty(MultiplierState(jnp.zeros(1), jnp.asarray(8))) == 1.0


@pytest.mark.parametrize("parameters", [(1.4, 0.2), (0.1, 0.3)], ids=["over budget", "under budget"])
def test_the_direction_is_the_gradient_of_the_augmented_loss(parameters):
    x, multiplier, penalty = jnp.array(parameters), 0.3, 0.5

    def loss(x):
        return jnp.sum((x - 2.0) ** 2)

    def excess(x):
        return jnp.sum(x**2) - 1.0

    def augmented(x):
        f = excess(x)
        active = multiplier * f + penalty * f**2 / 2
        return loss(x) + jnp.where(multiplier + penalty * f > 0, active, -(multiplier**2) / (2 * penalty))

    linearisation = Linearisation(loss(x), -excess(x)[None], jax.grad(loss)(x), jax.grad(excess)(x)[None])
    direction, _, _ = STEP.direction(STEP.init(1), linearisation)
    np.testing.assert_allclose(direction, jax.grad(augmented)(x), rtol=1e-12)


def test_a_wrong_number_of_margins_is_refused():
    with pytest.raises(ValueError, match=r"margins: got shape \(2,\), expected \(1,\)"):
        STEP.direction(STEP.init(1), point(1.0, 1.0))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial_penalty", 0.0),
        ("initial_penalty", 2.0),
        ("initial_penalty", math.nan),
        ("initial_multiplier", -1.0),
        ("penalty_growth", -0.1),
    ],
)
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"AugmentedLagrangian\.{field}: got {value}"):
        AugmentedLagrangian(**{field: value})
