"""Two updates of everything against a trace that the plain implementation wrote; the fast one agrees, and goes on with
what the plain one left."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.algorithms import ALGORITHMS
from actsafe.agents.phases import Schedule
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.data.rows import Rows
from actsafe.envs.spec import EnvSpec
from actsafe.models.rssm.world_model import WorldModelSettings

TRACE = Path(__file__).parent / "data" / "rssm_update.json"
SIZES = {"deterministic": 6, "stochastic": 3, "hidden": 5, "num_members": 2, "head_width": 6, "head_depth": 1}
WIDTHS = {"horizon": 3, "actor_width": 6, "actor_depth": 1, "critic_width": 6, "critic_depth": 1}


def make_agent(implementation):
    settings = WorldModelAgentSettings(
        model=WorldModelSettings(**SIZES),
        actor_critic=ActorCriticSettings(**WIDTHS),
        batch_size=2,
        sequence_length=4,
        precision="float32",
        implementation=implementation,
    )
    spec = EnvSpec("toy", (3,), 2, ("cost",), (25.0,), 500, 2)
    return settings.make(spec, ALGORITHMS["actsafe"], Schedule())


def make_rows():
    """Waves, which need no random numbers; the second sequence has a beginning inside."""
    wave = lambda *shape: np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)  # noqa: E731
    is_first = np.zeros((2, 4), bool)
    is_first[0, 0] = is_first[1, 2] = True
    return Rows(wave(2, 4, 3), wave(2, 4, 2), wave(2, 4), wave(2, 4, 1) ** 2, is_first)


def updates(implementations):
    """What each update measured, and sums over the parameters that it left."""
    state, rows, trace = None, jax.tree.map(jnp.asarray, make_rows()), []
    for number, name in enumerate(implementations):
        agent = make_agent(name)
        with agent.precision():
            state = jax.jit(agent.init)(jax.random.key(0)) if state is None else state
            state, measured = jax.jit(agent.update)(state, rows, jax.random.key(1 + number))
            parts = {
                "model": state.model.vector,
                "actors": state.actor_critics.actor.vector,
                "critics": state.actor_critics.critics.vector,
                "starts": jnp.concatenate(jax.tree.leaves(state.starts), axis=-1),
            }
            sums = {name: [float(jnp.sum(part)), float(jnp.sum(part**2))] for name, part in parts.items()}
            trace.append({"measured": {name: float(value) for name, value in measured.items()}, "sums": sums})
    return trace


@pytest.mark.parametrize("implementations", [("plain", "plain"), ("fast", "fast"), ("plain", "auto")], ids="-".join)
def test_two_updates(implementations):
    for found, golden in zip(updates(implementations), json.loads(TRACE.read_text()), strict=True):
        assert found["measured"].keys() >= golden["measured"].keys()
        assert golden["measured"]["is_skipped"] == 0.0
        for name, value in golden["measured"].items():
            np.testing.assert_allclose(found["measured"][name], value, rtol=2e-4, atol=1e-6, err_msg=name)
        for name, sums in golden["sums"].items():
            np.testing.assert_allclose(found["sums"][name], sums, rtol=1e-4, atol=1e-5, err_msg=name)


def test_what_is_no_implementation_is_refused():
    with pytest.raises(ValueError, match="auto, plain, fast, got 'quick'"):
        WorldModelAgentSettings(implementation="quick")
