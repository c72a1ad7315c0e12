"""What benchmarks of learning with a world model need: agents of the paper's sizes or tiny ones, a replay of noise."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.algorithms import ALGORITHMS
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.world_model import WorldModelAgent, WorldModelAgentSettings, WorldModelState
from actsafe.data.device_replay import Replay
from actsafe.data.rows import Rows
from actsafe.envs.spec import EnvSpec
from actsafe.models.rssm.world_model import WorldModelSettings
from actsafe.training import provenance

SPEC = EnvSpec("noise", (64, 64, 3), 2, ("cost",), (25.0,), num_decisions=500, action_repeat=2)

PAPER = WorldModelAgentSettings()

TINY = WorldModelAgentSettings(
    model=WorldModelSettings(
        deterministic=8, stochastic=4, hidden=8, image_depth=2, image_width=8, head_width=8, head_depth=1
    ),
    actor_critic=ActorCriticSettings(horizon=3, actor_width=8, actor_depth=1, critic_width=8, critic_depth=1),
    sequence_length=5,
)
"""For seeing whether a benchmark runs at all."""


def use_single_precision() -> None:
    """As `actsafe train` does it. Gaussian processes need the double precision that `timing` sets; networks do not."""
    jax.config.update("jax_enable_x64", False)


def make_agent(
    *, batch: int, members: int, precision: str, unroll: int = 0, implementation: str = "auto", is_quick: bool
) -> WorldModelAgent:
    """ActSafe of the paper's sizes on 64 x 64 pixels, but for what is given; a tiny one on 16 x 16 to be quick."""
    settings = TINY if is_quick else PAPER
    settings = dataclasses.replace(
        settings,
        model=dataclasses.replace(settings.model, num_members=members),
        batch_size=batch,
        precision=precision,
        unroll=unroll,
        implementation=implementation,
    )
    spec = SPEC._replace(observation_shape=(16, 16, 3)) if is_quick else SPEC
    return settings.make(spec, ALGORITHMS["actsafe"], Schedule())


def make_replay(agent: WorldModelAgent, num_envs: int) -> Replay:
    """Noise of the right shapes: times do not depend on what is seen."""
    here, num_rows = agent.spec, 2 * agent.settings.sequence_length
    shape, lead = here.observation_shape, (num_envs, num_rows)
    random = np.random.default_rng(0)
    return Replay.empty(num_envs, num_rows, shape, np.uint8, here.action_dim, len(here.budgets)).append(
        Rows(
            random.integers(0, 255, (*lead, *shape)).astype(np.uint8),
            random.uniform(-1, 1, (*lead, here.action_dim)).astype(np.float32),
            random.normal(size=lead).astype(np.float32),
            random.integers(0, 2, (*lead, len(here.budgets))).astype(np.float32),
            np.zeros(lead, bool),
        )
    )


def updates(
    agent: WorldModelAgent, phase: Phase
) -> Callable[[WorldModelState, Replay, Any], tuple[WorldModelState, Any]]:
    """The function of a state, a replay and keys that learns once per key, from a batch that each draws."""
    batch, length = agent.settings.batch_size, agent.settings.sequence_length

    def learn(state: WorldModelState, replay: Replay, keys: Any) -> tuple[WorldModelState, Any]:
        return agent.learn(state, lambda key: replay.sample(key, batch, length), keys, keys, phase)

    return learn


def peak_device_bytes() -> int | None:
    """The most that this process has held on the device so far; None where the device does not say, as a CPU."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def command() -> str:
    """What was typed, without the folder in which the benchmarks are."""
    return f"python benchmarks/{provenance.command_line()}"
