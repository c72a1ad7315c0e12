"""What strict LBSGD promises: every iterate feasible, and the constrained optimum in the end."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from actsafe.constrained.augmented_lagrangian import AugmentedLagrangian
from actsafe.constrained.base import Linearisation
from actsafe.constrained.lbsgd import LBSGD, Barrier, StrictLBSGD

TARGET = np.array([2.0, 1.0])


def linearise(evaluate, x):
    loss, margins = evaluate(x)
    loss_gradient, margin_gradients = jax.jacrev(evaluate)(x)
    return Linearisation(loss, margins, loss_gradient, -margin_gradients)


def disc(x):
    """Nearness to (2, 1) within the unit disc; loss and constraint bend by 2."""
    return jnp.sum((x - TARGET) ** 2), 1.0 - jnp.sum(x**2)[None]


def disc_and_wall(x):
    """The same with x₀ ≤ 0.6."""
    loss, margins = disc(x)
    return loss, jnp.concatenate([margins, 0.6 - x[:1]])


def descend(step, evaluate, start, *, num_steps, learning_rate=0.05):
    """All iterates and their margins."""
    optimiser = step.optimiser(learning_rate)

    def one(carry, _):
        x, step_state, optimiser_state = carry
        direction, step_state, _ = step.direction(step_state, linearise(evaluate, x))
        change, optimiser_state = optimiser.update(direction, optimiser_state, x)
        x = optax.apply_updates(x, change)
        return (x, step_state, optimiser_state), (x, evaluate(x)[1])

    carry = start, step.init(evaluate(start)[1].size), optimiser.init(start)
    return jax.jit(lambda carry: jax.lax.scan(one, carry, length=num_steps)[1])(carry)


STRICT = StrictLBSGD(Barrier(loss_smoothness=2.0, cost_smoothness=2.0, initial_weight=0.1, weight_decay=2e-3))


# On the disc the nearest point is (2, 1)/√5; with the wall the corner (0.6, √(1 - 0.36)) = (0.6, 0.8).
@pytest.mark.parametrize(
    ("evaluate", "optimum"), [(disc, TARGET / np.sqrt(5.0)), (disc_and_wall, np.array([0.6, 0.8]))]
)
def test_strict_lbsgd_stays_feasible_and_reaches_the_constrained_optimum(evaluate, optimum):
    iterates, margins = descend(STRICT, evaluate, jnp.array([-0.5, -0.5]), num_steps=4000)
    assert np.all(margins > 0.0)
    np.testing.assert_allclose(iterates[-1], optimum, atol=2e-4)


def test_strict_lbsgd_recovers_and_then_stays():
    _, margins = descend(STRICT, disc, jnp.array([-1.5, 1.0]), num_steps=1000)
    is_safe = np.asarray(margins[:, 0] > 0.0)
    first = np.argmax(is_safe)
    assert first > 0
    assert np.all(is_safe[first:])


def test_the_augmented_lagrangian_violates_on_the_way():
    step = AugmentedLagrangian(initial_penalty=0.05, penalty_growth=0.0)
    iterates, margins = descend(step, disc, jnp.array([-0.5, -0.5]), num_steps=4000)
    assert np.min(margins) < -1.0
    assert np.mean(np.asarray(margins) < 0.0) > 0.05
    np.testing.assert_allclose(iterates[-1], TARGET / np.sqrt(5.0), atol=2e-4)


def random_points(*, num, dim, num_constraints):
    """Quadratic losses and constraints of curvature at most 2 at the origin, with margins from 1e-6 to 1."""
    rng = np.random.default_rng(0)
    margins = 10.0 ** rng.uniform(-6.0, 0.0, (num, num_constraints))
    sizes = 10.0 ** rng.uniform(-2.0, 2.0, (num, 1 + num_constraints, 1))
    gradients = sizes * rng.normal(size=(num, 1 + num_constraints, dim))
    curvatures = rng.uniform(-2.0, 2.0, (num, num_constraints, dim))
    return Linearisation(np.zeros(num), margins, gradients[:, 0], gradients[:, 1:]), curvatures


def margins_after(step, linearisation, curvatures):
    """Exact margins after one plain step, for constraints fᵢ(x) = -αᵢ + ⟨∇fᵢ, x⟩ + Σⱼ curvatureᵢⱼ xⱼ² / 2."""
    direction, _, _ = step.direction(step.init(linearisation.margins.size), linearisation)
    growth = -linearisation.cost_gradients @ direction + curvatures @ direction**2 / 2
    return linearisation.margins - growth


@pytest.mark.parametrize("num_constraints", [1, 3])
def test_a_strict_step_leaves_half_of_every_margin_and_a_released_one_may_not(num_constraints):
    points, curvatures = random_points(num=1000, dim=4, num_constraints=num_constraints)
    barrier = Barrier(loss_smoothness=2.0, cost_smoothness=2.0, initial_weight=1e-3)
    after = jax.jit(jax.vmap(lambda *point: margins_after(StrictLBSGD(barrier), *point)))(points, curvatures)
    assert np.all(after >= points.margins / 2 - 1e-15)
    # The bound is no idle one: without 1/‖g‖, which the released form leaves out, steps leave the feasible set.
    released = LBSGD(barrier, unit_step=1.0)
    after = jax.jit(jax.vmap(lambda *point: margins_after(released, *point)))(points, curvatures)
    assert np.mean(np.any(after < 0.0, axis=1)) > 0.02
