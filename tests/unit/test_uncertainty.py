"""Disagreement, the two measures of uncertainty, and the budget conversion, against hand-worked numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.objectives.uncertainty import Disagreement, EpistemicNorm, LogRatio, UncertaintySettings, planner_budget

# Two members, two features. Means (1, 2) and (3, 2): variances 1 and 0. Stds (1, 2) and (1, 0): mean squares 1 and 2.
MEANS = jnp.array([[1.0, 2.0], [3.0, 2.0]])
STDS = jnp.array([[1.0, 2.0], [1.0, 0.0]])


def test_disagreement_by_hand():
    found = Disagreement.among(MEANS, STDS, axis=0)
    np.testing.assert_allclose(found.epistemic_var, [1.0, 0.0])
    np.testing.assert_allclose(found.aleatoric_var, [1.0, 2.0])


def test_norm_by_hand():
    # √(1 + 0) = 1; with variances 9 and 16, √25 = 5.
    assert float(EpistemicNorm()(Disagreement.among(MEANS, STDS, axis=0))) == pytest.approx(1.0, abs=1e-5)
    assert float(EpistemicNorm()(Disagreement(jnp.array([9.0, 16.0]), jnp.ones(2)))) == pytest.approx(5.0, abs=1e-5)


def test_log_ratio_by_hand():
    # Epistemic ½, aleatoric 3/2: ½ log(1 + 2 · 0.5 / 1.50001) = ½ log(1.66666...) = 0.255412.
    assert float(LogRatio(2.0)(Disagreement.among(MEANS, STDS, axis=0))) == pytest.approx(0.255412, abs=1e-5)


@pytest.mark.parametrize("uncertainty", [EpistemicNorm(), LogRatio()])
def test_members_that_agree_leave_no_uncertainty_and_a_finite_slope(uncertainty):
    def total(shift):
        means = jnp.ones((3, 2)) + shift * jnp.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
        return uncertainty(Disagreement.among(means, jnp.ones((3, 2)), axis=0))

    value, slope = jax.value_and_grad(total)(0.0)
    assert float(value) == pytest.approx(0.0, abs=1e-6)
    assert np.isfinite(slope)
    assert float(total(1.0)) > float(total(0.5)) > 0.01


def test_settings_choose_the_form():
    assert isinstance(UncertaintySettings().measure(), EpistemicNorm)
    assert UncertaintySettings(form="log_ratio", ratio_scale=25.0).measure().scale == 25.0
    with pytest.raises(ValueError, match=r"norm, log_ratio.*'sigma'"):
        UncertaintySettings(form="sigma")
    with pytest.raises(ValueError, match="pessimism"):
        UncertaintySettings(pessimism=-1.0)


def test_budget_conversion_by_hand():
    # 25 in 500 decisions is 0.05 a decision, and 0.05 / (1 - 0.99) = 5 in discounted terms.
    assert planner_budget(25.0, num_decisions=500, discount=0.99) == pytest.approx(5.0)
    # The released code divides by the 1000 simulator steps: 2.5. With slack 40: 42.5.
    assert planner_budget(25.0, num_decisions=500, discount=0.99, released_repeat=2) == pytest.approx(2.5)
    assert planner_budget(25.0, num_decisions=500, discount=0.99, slack=40.0, released_repeat=2) == pytest.approx(42.5)


def test_a_constant_spender_on_budget_has_a_discounted_cost_at_the_planners_budget():
    costs = np.full(500, 25.0 / 500)
    discounted = np.sum(costs * 0.9 ** np.arange(500))
    assert discounted == pytest.approx(planner_budget(25.0, num_decisions=500, discount=0.9))
