"""A search and a run of constrained steps against traces that NumPy computed from the published equations."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.constrained.base import Linearisation
from actsafe.constrained.lbsgd import Barrier, BarrierState, StrictLBSGD
from actsafe.planning import icem
from actsafe.planning.icem import Evaluation, ICEMSettings, Memory, search

DATA = Path(__file__).parent / "data"


def close(ours, golden):
    np.testing.assert_allclose(ours, golden, rtol=1e-12, atol=1e-14)


def test_an_icem_search(key, monkeypatch):
    """By hand: the mean is what is left of the previous plan (0.2, 0.4), that is (0.4, 0.4), and the std 0.5. The first
    four plans are (0.9, -0.1), (0.15, 0.525), (0.65, -0.35) and (1.4, 0.4), clipped to (1, 0.4). The elites are
    (0.65, -0.35), at -0.025, and (0.9, -0.1), at -0.1: the mean becomes (0.4, 0.4) / 4 + 3/4 (0.775, -0.225)."""
    golden = json.loads((DATA / "icem_search.json").read_text())
    settings = ICEMSettings(**golden["settings"])
    noise = iter(jnp.asarray(each)[..., None] for each in golden["noise"])
    best, elites = (jnp.asarray(golden["memory"][name])[..., None] for name in ("best", "elites"))
    asked = []

    def evaluate(plans):
        first, second = plans[:, 0, 0], plans[:, 1, 0]
        evaluation = Evaluation(-((first - 0.6) ** 2) - (second + 0.2) ** 2, jnp.abs(first) + jnp.abs(second))
        asked.append((plans[..., 0], evaluation))
        return evaluation

    with monkeypatch.context() as patch:
        patch.setattr(icem, "coloured_noise", lambda *_: next(noise))
        patch.setattr(jax.random, "normal", lambda _, shape: jnp.full(shape, golden["fresh_end"]))
        found = search(evaluate, Memory(best, elites), key, settings)
    close(asked[0][0][:4], [[0.9, -0.1], [0.15, 0.525], [0.65, -0.35], [1.0, 0.4]])
    close(asked[1][0][0], [0.68125, -0.06875])
    for (plans, evaluation), expected in zip(asked, golden["iterations"], strict=True):
        close(plans, expected["plans"])
        close(evaluation.value, expected["values"])
        close(evaluation.cost, expected["costs"])
    expected = golden["found"]
    close(found.best[:, 0], expected["best"])
    close(found.safest[:, 0], expected["safest"])
    close(
        (found.best_value, found.best_cost, found.safest_cost),
        [expected[n] for n in ("best_value", "best_cost", "safest_cost")],
    )
    close(found.memory.elites[..., 0], expected["kept"])


@pytest.mark.parametrize("start", ["inside", "outside"])
def test_an_lbsgd_run(start):
    """By hand, the first step inside: at (0, 0.5) the margin is 2 - 2 * 0.25 = 1.5 and
    g = (-6, 1) + 0.5 / 1.5 * (0, 2) = (-6, 5/3), of length 6.2272; theta = 2 * (5/3) / 6.2272 = 0.53529;
    M_2 = 2 + 10 * 0.5 * 4 / 1.5 + 8 * 0.5 * (0.53529 / 1.5)^2 = 15.8427, and 1 / M_2 = 0.063120 is less than
    1.5 / (2 * 0.53529 + sqrt(1.5 * 4)) / 6.2272 = 0.068433. Outside, at (0, 1.5), the step is 0.1 * (0, 6)."""
    golden = json.loads((DATA / "lbsgd_run.json").read_text())
    step = StrictLBSGD(Barrier(**golden["barrier"]))
    direction = jax.jit(step.direction)
    x, state, margins = jnp.asarray(golden[start][0]["x"]), BarrierState(jnp.zeros((), jnp.int32)), []
    for row in golden[start]:
        close(x, row["x"])
        margin = 2.0 - 2.0 * x @ x
        here = Linearisation(x @ x, margin[None], 2.0 * (x - jnp.array([3.0, 0.0])), 4.0 * x[None])
        taken, state, info = direction(state, here)
        close(taken, row["direction"])
        close((margin, info["barrier_weight"], info["step_size"]), [row[n] for n in ("margin", "weight", "step_size")])
        margins.append(float(margin))
        x = x - taken
    assert golden["inside"][0]["step_size"] == pytest.approx(0.063120, abs=5e-7)
    close(golden["outside"][0]["direction"], [0.0, 0.6])
    # Half of a positive margin is left after every step.
    assert all(after >= 0.5 * before for before, after in itertools.pairwise(margins) if before > 0.0)
