"""Many updates in one compiled call, on windows drawn from a replay of either kind."""

import concurrent.futures
import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.agents.phases import Phase
from actsafe.agents.vision import VisionAgent, VisionState
from actsafe.data.replay import HostReplay, Replay
from actsafe.models.rssm.blocks import is_for_nvidia

Sums = Mapping[str, Float[Array, ""]]
"""What updates reported, added up."""


def compiler_options() -> dict[str, str] | None:
    """What programs that learn are compiled with, where they are compiled for NVIDIA's devices.

    Model and policies do not wait for each other in an update. Recorded as a graph, convolutions included, what does
    not depend on each other may run side by side. JAX before 0.11 does not know these options.
    """
    if not is_for_nvidia() or jax.__version_info__ < (0, 11):
        return None
    recorded = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONVOLUTION"
    return {
        "xla_gpu_enable_command_buffer": recorded,
        "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    }


class Learner:
    """Updates of an agent, always `num_updates` of them in a call, which is what the program is compiled for.

    The state that is handed in is given up: its memory goes to the new one. No call waits for the device.
    """

    def __init__(self, agent: VisionAgent, num_updates: int) -> None:
        self._agent, self.num_updates = agent, num_updates
        choices = {"donate": "all-except-first", "compiler_options": compiler_options()}
        self._from_device = eqx.filter_jit(self._learn_from_device, **choices)
        self._from_host = eqx.filter_jit(self._learn_from_host, **choices)
        self._ahead: dict[Phase, concurrent.futures.Future[Any]] = {}

    def compile_ahead(self, state: VisionState, replay: Replay, phase: Phase) -> None:
        """Have a phase's program compiled by a thread, while whoever calls goes on; asked again, do nothing.

        To trace it takes this thread's time; to compile it takes several times as long.
        """
        phase = self._taught_as(phase)
        if phase in self._ahead:
            return
        keys = jax.random.split(jax.random.key(0))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            lowered = self._from_device.lower((replay, *keys, phase), state)
        thread = concurrent.futures.ThreadPoolExecutor(1, "compiling")
        self._ahead[phase] = thread.submit(lowered.compile)
        thread.shutdown(wait=False)

    def learn(
        self, state: VisionState, replay: Replay | HostReplay, key: PRNGKeyArray, phase: Phase
    ) -> tuple[VisionState, Sums]:
        """The agent after `num_updates` updates, and the sums of what they reported."""
        phase = self._taught_as(phase)
        sample_key, update_key = jax.random.split(key)
        if isinstance(replay, Replay):
            ahead = self._ahead.get(phase)
            program = self._from_device if ahead is None else ahead.result()
            return program((replay, sample_key, update_key, phase), state)
        rows = replay.sample_many(sample_key, self.num_updates, *self._batch(replay))
        return self._from_host((rows, reward_range(replay.rows.reward, np), update_key, phase), state)

    def _learn_from_device(self, source: Any, state: VisionState) -> tuple[VisionState, Sums]:
        replay, sample_key, update_key, phase = source

        def sample(key: PRNGKeyArray) -> Any:
            return replay.sample(key, *self._batch(replay))

        # With these keys `sample_many` would draw the same: both kinds of replay give the same batches.
        draws = jax.random.split(sample_key, self.num_updates)
        return self._scan(state, sample, draws, reward_range(replay.rows.reward, jnp), update_key, phase)

    def _taught_as(self, phase: Phase) -> Phase:
        """One of the phases in which the same is learned: during the warm-up what the expansion learns, and always the
        same where nobody explores."""
        return Phase.EXPANSION if phase is Phase.WARM_UP or not self._agent.recipe.explores else phase

    def _batch(self, replay: Replay | HostReplay) -> tuple[int, int, int]:
        """Windows of a batch, their rows, and from how many of an environment's newest half of them are."""
        settings = self._agent.settings
        return settings.batch_size, settings.sequence_length, settings.recent_rows // replay.num_envs

    def _learn_from_host(self, source: Any, state: VisionState) -> tuple[VisionState, Sums]:
        rows, rewards, update_key, phase = source
        return self._scan(state, lambda drawn: drawn, rows, rewards, update_key, phase)

    def _scan(self, state: VisionState, sample: Any, draws: Any, rewards: Any, key: PRNGKeyArray, phase: Phase) -> Any:
        keys = jax.random.split(key, self.num_updates)
        state, reported = self._agent.learn(state, sample, draws, keys, phase, rewards)
        return state, jax.tree.map(lambda values: jnp.sum(values, axis=0).astype(jnp.float32), reported)


def reward_range(rewards: Float[Array | np.ndarray, "environment row"], module: Any) -> Float[Array | np.ndarray, "2"]:
    """The least and the largest reward of a replay, by numpy or jax.numpy; 0, which rows are that are not filled yet,
    is always among them."""
    return module.stack([module.min(rewards, initial=0.0), module.max(rewards, initial=0.0)])


@jax.jit
def added(first: Sums, second: Sums) -> Sums:
    """The sums of two lots of updates together."""
    return jax.tree.map(jnp.add, first, second)
