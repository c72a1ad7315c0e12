"""LBSGD steps against numbers worked by hand. M₀ = 2 and M₁ = 4 throughout."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.constrained.base import Linearisation
from actsafe.constrained.lbsgd import LBSGD, Barrier, BarrierState, StrictLBSGD, barrier_weight

BARRIER = Barrier(loss_smoothness=2.0, cost_smoothness=4.0, initial_weight=0.5, weight_decay=0.25)
UNIT = 0.1


def released(weight=0.5):
    return LBSGD(dataclasses.replace(BARRIER, initial_weight=weight), unit_step=UNIT)


def strict(weight=0.5, **changes):
    return StrictLBSGD(dataclasses.replace(BARRIER, initial_weight=weight, **changes))


def point(margins, loss_gradient, cost_gradients):
    """Two parameters in two leaves, so that products must run over all leaves."""
    loss, costs = np.array(loss_gradient), np.array(cost_gradients)
    split = {"weight": loss[:1], "bias": loss[1:]}, {"weight": costs[:, :1], "bias": costs[:, 1:]}
    return Linearisation(np.asarray(7.0), np.array(margins), *split)


@functools.cache
def compiled(step):
    return jax.jit(step.direction)


def take(step, linearisation, state=None):
    """Direction as one vector, next state, report as floats."""
    state = step.init(linearisation.margins.size) if state is None else state
    direction, state, info = compiled(step)(state, linearisation)
    flat = np.concatenate([direction["weight"], direction["bias"]])
    return flat, state, {name: float(value) for name, value in info.items()}


# η = 0.5, margin 1: g = (3, 3) + 0.5 (0, 2) = (3, 4), ‖g‖ = 5, θ = 2·4/5 = 1.6.
# length = 1 / (3.2 + √4) = 1/5.2 = 0.192; M₂ = 2 + 10·0.5·4 + 8·0.5·1.6² = 2 + 20 + 10.24 = 32.24; 1/M₂ = 0.0310.
INSIDE = point([1.0], [3.0, 3.0], [[0.0, 2.0]])
# η = 1e-4, margin 0.01: g = (3, 3.9) + 0.01 (0, 10) = (3, 4), ‖g‖ = 5, θ = 10·4/5 = 8.
# length = 0.01 / (16 + √0.04) = 0.01/16.2 = 6.17e-4; M₂ = 2 + 10·1e-4·4/0.01 + 8·1e-4·800² = 2 + 0.4 + 512 = 514.4.
BOUNDARY = point([0.01], [3.0, 3.9], [[0.0, 10.0]])


def test_inside_curvature_bounds_both_forms():
    direction, _, info = take(released(), INSIDE)
    np.testing.assert_allclose(direction, np.array([3.0, 4.0]) / 32.24 / UNIT, rtol=1e-12)
    assert info["step_size"] == pytest.approx(1 / 32.24 / UNIT)
    # 0.192 / 5 = 0.0385 is still more than 1/M₂.
    direction, _, info = take(strict(), INSIDE)
    np.testing.assert_allclose(direction, np.array([3.0, 4.0]) / 32.24, rtol=1e-12)
    assert info["gradient_norm"] == pytest.approx(5.0)
    assert info["multiplier"] == pytest.approx(0.5)


def test_near_the_boundary_the_length_bounds():
    direction, _, _ = take(released(1e-4), BOUNDARY)
    np.testing.assert_allclose(direction, np.array([3.0, 4.0]) * 0.01 / 16.2 / UNIT, rtol=1e-12)
    # Strict: a length is divided by ‖g‖ = 5.
    direction, _, info = take(strict(1e-4), BOUNDARY)
    np.testing.assert_allclose(direction, np.array([3.0, 4.0]) * 0.01 / 16.2 / 5.0, rtol=1e-12)
    assert info["multiplier"] == pytest.approx(1e-4 / 0.01)


def test_the_sign_of_the_rate_does_not_matter_to_the_bounds():
    # Margin 1, η = 0.5: g = (3, -5) + 0.5 (0, 2) = (3, -4), θ = -1.6: costs fall, bounds as INSIDE.
    direction, _, _ = take(strict(), point([1.0], [3.0, -5.0], [[0.0, 2.0]]))
    np.testing.assert_allclose(direction, np.array([3.0, -4.0]) / 32.24, rtol=1e-12)


def test_two_constraints_add_their_curvature():
    # η = 0.5, margins (1, 0.25), weights (0.5, 2): g = (1, 3) + (0, 1) + (2, 0) = (3, 4), θ = (1.6, 0.6).
    # M₂ = 32.24 + 10·0.5·4/0.25 + 8·0.5·(0.6/0.25)² = 32.24 + 80 + 23.04 = 135.28.
    linearisation = point([1.0, 0.25], [1.0, 3.0], [[0.0, 2.0], [1.0, 0.0]])
    for step, unit in ((released(), UNIT), (strict(), 1.0)):
        direction, _, info = take(step, linearisation)
        np.testing.assert_allclose(direction, np.array([3.0, 4.0]) / 135.28 / unit, rtol=1e-12)
        assert info["multiplier"] == pytest.approx(2.0)


def test_two_constraints_take_the_shorter_length():
    # η = 1e-3, weights (0.001, 0.004): g = (2.996, 3.998) + (0, 0.002) + (0.004, 0) = (3, 4), θ = (1.6, 0.6).
    # lengths 1/5.2 = 0.192 and 0.25/(1.2 + √1) = 0.25/2.2 = 0.114; 1/M₂ = 1/2.27 = 0.44.
    linearisation = point([1.0, 0.25], [2.996, 3.998], [[0.0, 2.0], [1.0, 0.0]])
    direction, _, _ = take(released(1e-3), linearisation)
    np.testing.assert_allclose(direction, np.array([3.0, 4.0]) * 0.25 / 2.2 / UNIT, rtol=1e-12)
    direction, _, _ = take(strict(1e-3), linearisation)
    np.testing.assert_allclose(direction, np.array([3.0, 4.0]) * 0.25 / 2.2 / 5.0, rtol=1e-12)


@pytest.mark.parametrize("step", [released(), strict()])
def test_infeasible_descends_the_violated_constraints_alone(step):
    # Violated: -1 and 1e-8 (at the floor). 0.01 · ((0, 2) + (5, 1)) = (0.05, 0.03); neither ∇f₀ nor the second enters.
    linearisation = point([-1.0, 0.5, 1e-8], [30.0, 30.0], [[0.0, 2.0], [70.0, 70.0], [5.0, 1.0]])
    state = BarrierState(jnp.asarray(3, jnp.int32))
    direction, after, info = take(step, linearisation, state)
    np.testing.assert_allclose(direction, [0.05, 0.03], rtol=1e-12)
    assert after.num_feasible == 3
    assert (info["is_feasible"], info["is_skipped"], info["step_size"]) == (0.0, 0.0, pytest.approx(0.01))


def test_strict_recovery_is_short_enough_to_descend():
    # Two violated constraints of smoothness 400: 1 / (2·400) = 0.00125 < 0.01.
    linearisation = point([-1.0, -2.0], [30.0, 30.0], [[0.0, 2.0], [5.0, 1.0]])
    direction, _, _ = take(strict(cost_smoothness=400.0), linearisation)
    np.testing.assert_allclose(direction, np.array([5.0, 3.0]) / 800, rtol=1e-12)


@pytest.mark.parametrize(
    ("factor", "num_onwards", "slowest", "fastest"),
    [
        # Far inside, steps are (1/M₀) / lr = 1.0417 times the gradient, 1; 300 of them fill Adam's first moment. A step
        # of recovery leaves 0.9 of it: after n of them it is 1.0417 · 0.9ⁿ - factor (1 - 0.9ⁿ), which is first
        # negative at n = 45 for the released factor, and at n = 7 for 1.
        #
        # Its second moment forgets a thousandth a step. Of n + 300 squares the first 300 are 1.085, the others next to
        # nothing; their weighted mean is 0.771 after 100 steps of recovery and 0.462 after 300, so that 0.01 over its
        # root is 0.0114 and 0.0147 of a step. With a factor of 1 the others are 1, and it is 1 over 1.0 to 1.0417.
        (0.01, 44, 0.0113, 0.0148),
        (1.0, 6, 0.96, 1.0),
    ],
)
def test_how_soon_a_recovery_turns_round_and_how_fast_it_is(factor, num_onwards, slowest, fastest):
    """One parameter whose growth lowers both loss and margin: Adam goes on for a while, and weighs by the past."""
    step = LBSGD(Barrier(recovery_step=factor))
    inside = Linearisation(np.asarray(0.0), np.array([1e9]), np.array([-1.0]), np.array([[0.0]]))
    outside = Linearisation(np.asarray(0.0), np.array([-1.0]), np.array([-1.0]), np.array([[1.0]]))
    optimiser = step.optimiser(step.unit_step)

    def walk(carry, at):
        memory, state = carry
        direction, state, _ = step.direction(state, at)
        change, memory = optimiser.update(direction, memory)
        return (memory, state), change[0]

    path = jax.tree.map(lambda a, b: np.stack([a] * 300 + [b] * 300), inside, outside)
    _, changes = jax.jit(lambda path: jax.lax.scan(walk, (optimiser.init(jnp.zeros(1)), step.init(1)), path))(path)
    onwards, back = np.asarray(changes[:300]), np.asarray(changes[300:])
    assert np.all(onwards > 0)
    assert np.all(back[:num_onwards] > 0)
    assert np.all(back[num_onwards:] < 0)
    assert np.all(-back[100:] > slowest * onwards[-1])
    assert np.all(-back[100:] < fastest * onwards[-1])


@pytest.mark.parametrize("step", [released(), strict()])
def test_the_barrier_weight_decays_with_feasible_steps_only(step):
    state, weights = step.init(1), []
    outside = point([-1.0], [3.0, 3.0], [[0.0, 2.0]])
    unknown = point([math.nan], [3.0, 3.0], [[0.0, 2.0]])
    for linearisation in (INSIDE, outside, unknown, INSIDE, INSIDE):
        _, state, info = take(step, linearisation, state)
        weights.append(info["barrier_weight"])
    # Decay 0.25: 0.5, 0.5/1.25 = 0.4 (three times), 0.32.
    np.testing.assert_allclose(weights, [0.5, 0.4, 0.4, 0.4, 0.32], rtol=1e-12)


def test_the_barrier_weight_is_right_after_a_whole_run_in_single_precision():
    state = BarrierState(jnp.asarray(500_000, jnp.int32))
    weight = barrier_weight(Barrier(), state).astype(jnp.float32)
    # 0.1 · (1 + 8e-6)^-500000 ≈ 0.1 e^-4 = 0.00183
    np.testing.assert_allclose(weight, 0.1 * (1 + 8e-6) ** -500_000, rtol=1e-5)


def test_defaults_are_the_papers():
    # 1 / 1.2e4 = 8.33e-5, so that far from the boundary and with little weight the factor is 8.33e-5 / 8e-5 = 1.04.
    linearisation = point([1e6], [3.0, 4.0], [[0.0, 0.0]])
    assert take(LBSGD(), linearisation)[2]["step_size"] == pytest.approx(1.0417, rel=1e-4)
    assert take(StrictLBSGD(), linearisation)[2]["step_size"] == pytest.approx(1 / 1.2e4, rel=1e-4)


def test_strict_direction_is_the_step():
    optimiser = strict().optimiser(123.0)
    direction = {"weight": jnp.array([2.0]), "bias": jnp.array(-1.0)}
    change, _ = optimiser.update(direction, optimiser.init(direction))
    np.testing.assert_array_equal([change["weight"][0], change["bias"]], [-2.0, 1.0])


@pytest.mark.parametrize("field", ["loss_smoothness", "cost_smoothness", "initial_weight", "recovery_step"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"Barrier\.{field}: got {value}, expected a finite number above 0"):
        Barrier(**{field: value})


def test_more_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"Barrier\.weight_decay: got -1"):
        Barrier(weight_decay=-1.0)
    with pytest.raises(ValueError, match=r"LBSGD\.unit_step: got 0"):
        LBSGD(unit_step=0.0)
