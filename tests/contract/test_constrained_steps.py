"""What every constrained step must satisfy."""

import functools
import math

import jax
import numpy as np
import pytest

from actsafe.constrained.augmented_lagrangian import AugmentedLagrangian
from actsafe.constrained.base import Linearisation
from actsafe.constrained.lbsgd import LBSGD, StrictLBSGD
from actsafe.constrained.unconstrained import Unconstrained

CONSTRAINED = (LBSGD(), StrictLBSGD(), AugmentedLagrangian())
SHARED_KEYS = {"is_feasible", "is_skipped", "step_size", "gradient_norm", "multiplier"}
NOT_FINITE = (math.nan, math.inf, -math.inf)


@pytest.fixture(params=(*CONSTRAINED, Unconstrained()), ids=lambda step: type(step).__name__)
def step(request):
    return request.param


@pytest.fixture(params=CONSTRAINED, ids=lambda step: type(step).__name__)
def constrained_step(request):
    return request.param


@functools.cache
def compiled(step):
    """Compiled once per shape for all tests of this file."""
    return jax.jit(step.direction)


def points(num, *, num_constraints=2, dtype=np.float32):
    """A batch of linearisations, some with a negative margin."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.normal(size=(num, *shape)).astype(dtype)

    gradient, costs = ({"a": draw(*lead, 3), "b": draw(*lead, 2, 2)} for lead in ((), (num_constraints,)))
    return Linearisation(draw(), draw(num_constraints) + dtype(0.5), gradient, costs)


def point(margins=(1.0, 2.0)):
    return row(points(1), 0)._replace(margins=np.array(margins, np.float32))


def changed(gradient, leaf, index, value):
    """The gradient with one entry replaced."""
    copy = gradient[leaf].copy()
    copy[index] = value
    return gradient | {leaf: copy}


def row(batch, index):
    return jax.tree.map(lambda leaf: leaf[index], batch)


def assert_same(ours, theirs, *, rtol=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), ours, theirs)


def assert_skipped(step, linearisation):
    state = step.init(2)
    direction, after, info = compiled(step)(state, linearisation)
    assert_same(direction, jax.tree.map(np.zeros_like, linearisation.loss_gradient), rtol=0.0)
    assert_same(after, state, rtol=0.0)
    assert (info["is_skipped"], info["is_feasible"], info["step_size"]) == (1.0, 0.0, 0.0)
    assert all(math.isfinite(value) for value in info.values())


def test_jit_changes_nothing(step):
    linearisation = jax.tree.map(jax.numpy.asarray, point())
    assert_same(compiled(step)(step.init(2), linearisation), step.direction(step.init(2), linearisation))


def test_vmap_is_a_loop(step):
    batch, num = points(8), 8
    states = jax.tree.map(lambda leaf: np.stack([leaf] * num), step.init(2))
    together = jax.device_get(jax.jit(jax.vmap(step.direction))(states, batch))
    assert 0 < np.sum(together[2]["is_feasible"]) < num
    for i in range(num):
        assert_same(row(together, i), compiled(step)(step.init(2), row(batch, i)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shapes_and_dtypes_stay_so_that_steps_scan(step, dtype):
    batch = points(8, dtype=dtype)

    def one(state, linearisation):
        direction, state, info = step.direction(state, linearisation)
        return state, (direction, info)

    state, (directions, info) = jax.eval_shape(lambda batch: jax.lax.scan(one, step.init(2), batch), batch)
    like = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (step.init(2), batch.loss_gradient))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (state, directions)) == like
    assert set(info) >= SHARED_KEYS
    assert all(value.shape == (8,) and value.dtype == dtype for value in info.values())


def test_the_same_inputs_give_the_same_step(step):
    assert_same(compiled(step)(step.init(2), point()), compiled(step)(step.init(2), point()), rtol=0.0)


@pytest.mark.parametrize("margins", [(1.0, 2.0), (-1.0, 2.0)], ids=["feasible", "infeasible"])
def test_no_gradient_no_step(step, margins):
    still = jax.tree.map(np.zeros_like, (point().loss_gradient, point().cost_gradients))
    linearisation = Linearisation(point().loss, point(margins).margins, *still)
    direction, _, info = compiled(step)(step.init(2), linearisation)
    assert_same(direction, still[0], rtol=0.0)
    assert all(math.isfinite(value) for value in info.values())
    assert info["is_skipped"] == 0.0


def test_no_constraints_are_allowed(step):
    linearisation = row(points(1, num_constraints=0), 0)
    direction, _, info = compiled(step)(step.init(0), linearisation)
    assert_same(direction, jax.tree.map(lambda leaf: float(info["step_size"]) * leaf, linearisation.loss_gradient))
    assert info["is_feasible"] == 1.0
    assert info["step_size"] > 0.0


@pytest.mark.parametrize(("margins", "is_feasible"), [((1.0, 1.0), 1.0), ((1.0, -1.0), 0.0), ((1.0, 0.0), 0.0)])
def test_feasible_or_not_is_reported(step, margins, is_feasible):
    _, _, info = compiled(step)(step.init(2), point(margins))
    assert (info["is_feasible"], info["is_skipped"]) == (is_feasible, 0.0)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_loss_that_is_not_finite_skips_the_step(step, value):
    assert_skipped(step, point()._replace(loss=np.float32(value)))
    assert_skipped(step, point()._replace(loss_gradient=changed(point().loss_gradient, "b", (0, 1), value)))


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("other_margin", [1.0, -1.0], ids=["feasible", "infeasible"])
def test_costs_that_are_not_finite_skip_the_step(constrained_step, value, other_margin):
    assert_skipped(constrained_step, point((value, other_margin)))
    # The gradient of the constraint with room to spare, which has no weight where the other one is violated.
    costs = changed(point().cost_gradients, "a", (0, 2), value)
    assert_skipped(constrained_step, point((2.0, other_margin))._replace(cost_gradients=costs))


def test_a_skipped_step_leaves_the_parameters_where_they_are(step):
    optimiser, state = step.optimiser(1e-2), step.init(2)
    optimiser_state = optimiser.init(point().loss_gradient)
    direction, state, _ = compiled(step)(state, point())
    _, optimiser_state = optimiser.update(direction, optimiser_state)
    direction, state, _ = compiled(step)(state, point()._replace(loss=np.float32(math.nan)))
    change, after = optimiser.update(direction, optimiser_state)
    assert_same(change, jax.tree.map(np.zeros_like, change), rtol=0.0)
    assert_same(after, optimiser_state, rtol=0.0)
