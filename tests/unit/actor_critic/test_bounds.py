"""What values can be, slow copies, averages and ranges: against hand-worked numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.bounds import Bounds, ObjectiveMemory, value_bounds
from actsafe.actor_critic.losses import ImaginedObjective
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.actor_critic.update import averaged
from actsafe.models.base import Outcome
from actsafe.models.packing import Packed
from actsafe.objectives.uncertainty import EpistemicNorm, UncertaintySettings
from actsafe.objectives.weights import ObjectiveWeights, Recorded

HALF = ActorCriticSettings(horizon=2, discount=0.5, cost_discount=0.75, trace=0.5)
"""What every decision brings counts for 2 decisions of rewards, 1 / (1 - 0.5), and for 4 of costs."""
RECORDED = Recorded(-1.0, 3.0, jnp.asarray([2.0, 5.0]))
NOTHING = ObjectiveMemory()


def bounds(weights, *, dreamt=(0.0, 0.0), largest_uncertainty=0.5):
    return value_bounds(HALF, weights, jnp.asarray(dreamt), largest_uncertainty)


def test_bounds_by_hand():
    # Reward: 2 · [-1, 3] and a bonus of 10 · [0, 0.5], for 2 decisions: [-4, 22].
    # Costs: 2 + 4 · 0.5 and 5 + 4 · 0.5, for 4 decisions: 16 and 28.
    found = bounds(ObjectiveWeights(2.0, 10.0, 4.0, RECORDED))
    np.testing.assert_allclose(found.lowest, [-4.0, 0.0, 0.0])
    np.testing.assert_allclose(found.highest, [22.0, 16.0, 28.0])


def test_an_exploration_is_bounded_by_the_largest_uncertainty_alone():
    """10 · 0.5 for 2 decisions, whether anything was recorded or not."""
    for recorded in (RECORDED, Recorded()):
        found = bounds(ObjectiveWeights(0.0, 10.0, 4.0, recorded))
        assert (found.lowest[0], found.highest[0]) == (0.0, 10.0)


@pytest.mark.parametrize("unknown", [jnp.inf, 0.0, jnp.nan, -1.0])
def test_a_largest_cost_that_is_not_known_bounds_nothing_from_above(unknown):
    recorded = RECORDED._replace(highest_costs=jnp.asarray([unknown, 5.0]))
    found = bounds(ObjectiveWeights(1.0, 0.0, 4.0, recorded))
    np.testing.assert_allclose(found.lowest[1:], [0.0, 0.0])
    np.testing.assert_allclose(found.highest[1:], [jnp.inf, 28.0])


def test_no_critic_is_held_below_what_the_model_expects():
    """A dreamt cost of 3, where 2 was the largest recorded: (3 + 4 · 0.5) · 4 = 20. Of the other 5 stays the larger."""
    found = bounds(ObjectiveWeights(1.0, 0.0, 4.0, RECORDED), dreamt=(3.0, 1.0))
    np.testing.assert_allclose(found.highest[1:], [20.0, 28.0])


def test_values_are_clipped_each_by_its_own_bounds():
    found = Bounds(jnp.asarray([-1.0, 0.0]), jnp.asarray([1.0, 9.0])).clip(jnp.full((2, 1, 1), -5.0).at[1].set(99.0))
    np.testing.assert_array_equal(found, [[[-1.0]], [[9.0]]])


def test_a_negative_value_of_a_cost_pays_for_nothing():
    """One row, two decisions that cost 1 each, and critics of costs that promise -100 and 100 where 2 was recorded."""
    weights = ObjectiveWeights(1.0, 0.0, 0.0, Recorded(-1.0, 3.0, jnp.asarray([2.0])))
    outcome = Outcome(jnp.zeros((2, 1)), jnp.ones((2, 1, 1)))

    def cost_return(value, settings=HALF):
        objective, values = ImaginedObjective(settings, EpistemicNorm()), jnp.zeros((2, 3, 1)).at[1].set(value)
        return objective.evaluate(weights, NOTHING, outcome, jnp.zeros((2, 1)), values)[1].returns[1, :, 0]

    # V = 0: R_1 = 1 and R_0 = 1 + 0.75 · 0.5 · R_1.
    np.testing.assert_allclose(cost_return(-100.0), [1.375, 1.0])
    # V = 2 · 4 = 8: R_1 = 1 + 0.75 · 8 = 7 and R_0 = 1 + 0.75 · (0.5 · 8 + 0.5 · 7).
    np.testing.assert_allclose(cost_return(100.0), [6.625, 7.0])
    # As released: R_1 = 1 - 75 and R_0 = 1 + 0.75 · (0.5 · -100 + 0.5 · -74).
    np.testing.assert_allclose(cost_return(-100.0, dataclasses.replace(HALF, is_value_bounded=False)), [-64.25, -74.0])


def test_the_loss_counts_the_rows_that_costs_count():
    """Rewards of 1, 2, 3 and 4 in four rows of one decision, every second of which counts; costs are ten times that.

    Returns are rewards, as no critic promises anything: of rows 2 and 4 the mean is 3, of all 2.5.
    """
    settings = dataclasses.replace(HALF, horizon=1)
    reward = jnp.asarray([[1.0, 2.0, 3.0, 4.0]])
    outcome, weights = Outcome(reward, 10.0 * reward[..., None]), ObjectiveWeights(1.0, 0.0, 0.0)

    def outputs(**choices):
        objective = ImaginedObjective(settings, EpistemicNorm(), **choices)
        return objective.evaluate(weights, NOTHING, outcome, jnp.zeros((1, 4)), jnp.zeros((2, 2, 4)))[0]

    np.testing.assert_allclose(outputs(), [-2.5, 25.0])
    np.testing.assert_allclose(outputs(is_counted=(False, True)), [-3.0, 30.0])
    np.testing.assert_allclose(outputs(is_counted=(False, True), is_loss_counted=False), [-2.5, 30.0])


def test_the_largest_uncertainty_is_remembered_and_fades():
    memory = ObjectiveMemory(2.0).with_uncertainty(jnp.asarray([[0.5, 1.0]]))
    assert memory.largest_uncertainty == pytest.approx(1.998)
    assert memory.with_uncertainty(jnp.asarray([[3.0, 1.0]])).largest_uncertainty == 3.0


def test_the_range_of_returns_by_hand():
    # 0, 1, ..., 20: the 5th percentile is 1 and the 95th 19.
    returns = jnp.arange(21.0)[None]
    assert NOTHING.with_returns(returns).return_range == pytest.approx(18.0)
    # 0.99 · 8 + 0.01 · 18
    assert ObjectiveMemory(0.0, 8.0).with_returns(returns).return_range == pytest.approx(8.1)


def test_what_is_not_finite_is_not_remembered():
    broken = ObjectiveMemory(jnp.asarray(jnp.nan), jnp.asarray(4.0))
    assert broken.or_before(ObjectiveMemory(jnp.asarray(1.0), jnp.asarray(2.0))) == (1.0, 4.0)


@pytest.mark.parametrize(
    ("weights", "smallest", "expected"),
    [
        (ObjectiveWeights(0.0, 1.0, 0.0), 0.01, -10.0 / 18.0),  # the mean of 0 to 20 over their range
        (ObjectiveWeights(0.0, 1.0, 0.0), 40.0, -10.0 / 40.0),  # and over no less than this
        (ObjectiveWeights(0.0, 1.0, 0.0), None, -10.0),
        (ObjectiveWeights(1.0, 1.0, 0.0), 0.01, -10.0),  # a task's reward is in the task's own unit
    ],
)
def test_only_an_explorations_loss_is_normalised(weights, smallest, expected):
    """Twenty-one rows of one decision, whose uncertainty is 0 to 20; nothing else is earned, and nothing costs."""
    objective = ImaginedObjective(dataclasses.replace(HALF, horizon=1), EpistemicNorm(), smallest_range=smallest)
    outcome = Outcome(jnp.zeros((1, 21)), jnp.zeros((1, 21, 1)))
    outputs, imagined = objective.evaluate(weights, NOTHING, outcome, jnp.arange(21.0)[None], jnp.zeros((2, 2, 21)))
    np.testing.assert_allclose(outputs, [expected, 0.0], rtol=1e-6)
    # Critics learn returns as they are.
    np.testing.assert_allclose(imagined.returns[0, 0], jnp.arange(21.0))


def test_averages_by_hand():
    before, newest = (Packed.of(jnp.asarray(value)) for value in ([1.0, 2.0], [5.0, -2.0]))
    # 0.75 · (1, 2) + 0.25 · (5, -2)
    np.testing.assert_allclose(averaged(before, newest, 0.75).vector, [2.0, 1.0])
    assert averaged(None, newest, 0.75) is None


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"critic_average must be at least 0 and below 1, got 1\.0"):
        ActorCriticSettings(critic_average=1.0)
    with pytest.raises(ValueError, match=r"actor_average must be at least 0 and below 1, got -0\.1"):
        ActorCriticSettings(actor_average=-0.1)
    with pytest.raises(ValueError, match="smallest_range must be positive, got 0"):
        UncertaintySettings(smallest_range=0.0)


def test_bounds_are_a_program(key):
    """Of several policies at once, with what each remembers."""
    weights = jax.tree.map(
        lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]),
        *2 * [ObjectiveWeights(1.0, 0.0, 4.0, RECORDED)],
    )
    found = jax.jit(jax.vmap(lambda weights, u: value_bounds(HALF, weights, jnp.zeros(2), u)))(
        weights, jnp.asarray([0.5, 0.0])
    )
    np.testing.assert_allclose(found.highest, [[6.0, 16.0, 28.0], [6.0, 8.0, 20.0]])
