"""Many updates of a world-model agent in one compiled call, on windows drawn from a replay of either kind."""

import concurrent.futures
import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from actsafe.agents.base import ActMode, EpochLearner, Policy
from actsafe.agents.handover import LARGEST_REWARD
from actsafe.agents.phases import Phase
from actsafe.agents.seeds import over_seeds
from actsafe.data.replay import HostReplay, Replay
from actsafe.data.rows import Rows
from actsafe.fast.device import is_for_nvidia
from actsafe.objectives.weights import Recorded

AnyReplay = Replay | HostReplay

Sums = Mapping[str, Float[Array, "*seed"]]
"""What updates measured, added up."""


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


class WorldModelLearner:
    """Updates of a `WorldModelAgent`, always `num_updates` of them in a call, which the program is compiled for.

    The state that is handed in is given up: its memory goes to the new one. No call waits for the device.
    """

    def __init__(self, agent: Any, num_envs: int, num_seeds: int) -> None:
        self.agent, self._num_envs, self._num_seeds = agent, num_envs, num_seeds
        # One call for all that a cycle is due: a device takes long to begin with a program of thousands of kernels.
        steps_per_cycle = agent.num_ticks_at_once * num_envs * agent.spec.action_repeat
        self.num_updates = max(1, self.num_due(steps_per_cycle))
        choices = {"donate": "all-except-first", "compiler_options": compiler_options()}
        self._init = eqx.filter_jit(over_seeds(agent.init, num_seeds))
        self._sample = eqx.filter_jit(self._sampled)
        self._from_device = eqx.filter_jit(self._learn_from_device, **choices)
        self._from_host = eqx.filter_jit(self._learn_from_host, **choices)
        self._ahead: dict[Phase, concurrent.futures.Future[Any]] = {}

    def init(self, keys: Key[Array, " seed"]) -> Any:
        return self._init(keys)

    def policy(self, state: Any, mode: ActMode) -> Policy:
        return self.agent.policy(state.policy_weights, mode)

    def epoch(self, state: Any, num_updates: int, keys: Key[Array, " seed"], phase: Phase) -> "EpochUpdates":
        return EpochUpdates(self, state, num_updates, keys, phase)

    def num_due(self, num_steps: int) -> int:
        """Updates that are due after `num_steps` simulator steps."""
        return num_steps * self.agent.settings.updates_per_1000_steps // 1000

    def compile_ahead(self, state: Any, buffer: Any, phase: Phase) -> None:
        """Have a phase's program compiled by a thread, while the caller goes on; asked again, do nothing.

        To trace it takes this thread's time; to compile it takes several times as long. It pays on accelerators.
        """
        phase = self._taught_as(phase)
        if phase in self._ahead or not (is_for_nvidia() and isinstance(buffer, Replay)):
            return
        keys = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(jax.random.key(0), self._num_seeds))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            lowered = self._from_device.lower((buffer, *keys, phase), state)
        thread = concurrent.futures.ThreadPoolExecutor(1, "compiling")
        self._ahead[phase] = thread.submit(lowered.compile)
        thread.shutdown(wait=False)

    def learn(self, state: Any, replay: AnyReplay, keys: Key[Array, " seed"], phase: Phase) -> tuple[Any, Sums]:
        """The states after `num_updates` updates, and the sums of what they measured."""
        phase = self._taught_as(phase)
        sample_keys, update_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        if isinstance(replay, Replay):
            ahead = self._ahead.get(phase)
            program = self._from_device if ahead is None else ahead.result()
            return program((replay, sample_keys, update_keys, phase), state)
        if self._num_seeds > 1:
            raise MemoryError(
                f"the replay of {self._num_seeds} seeds in one program does not fit the device; ask for fewer seeds or "
                "for a smaller agent.replay_capacity"
            )
        rows = replay.sample_many(sample_keys[0], self.num_updates, *self._batch)
        return self._from_host((rows, recorded(replay.rows, np), update_keys, phase), state)

    def sample(self, replay: AnyReplay, keys: Key[Array, " seed"]) -> Any:
        """A batch (seed, batch, time) of recorded rows; None where there is no sequence yet."""
        if not replay.can_sample(self.agent.settings.sequence_length):
            return None
        if not isinstance(replay, Replay):
            return jax.tree.map(jnp.asarray, replay.sample_many(keys[0], 1, *self._batch))
        return self._sample(replay, keys)

    def _sampled(self, replay: Replay, keys: Key[Array, " seed"]) -> Any:
        rows = self._by_seed(replay)
        own = over_seeds(
            lambda rows, key: Replay(rows, replay.position, replay.count).sample(key, *self._batch), self._num_seeds
        )
        return own(rows, keys)

    def _by_seed(self, replay: Replay) -> Any:
        """Rows (seed, environment, time): the environments of a seed follow each other."""
        return jax.tree.map(lambda leaf: leaf.reshape(self._num_seeds, self._num_envs, *leaf.shape[1:]), replay.rows)

    @property
    def _batch(self) -> tuple[int, int, int]:
        """Windows of a batch, their rows, and from how many of an environment's newest half of them are."""
        settings = self.agent.settings
        return settings.batch_size, settings.sequence_length, settings.recent_rows // self._num_envs

    def _taught_as(self, phase: Phase) -> Phase:
        """One of the phases in which the same is learned: during the warm-up what the expansion learns, and always the
        same where no policy explores."""
        return Phase.EXPANSION if phase is Phase.WARM_UP or not self.agent.algorithm.explores else phase

    def _learn_from_device(self, source: Any, state: Any) -> tuple[Any, Sums]:
        replay, sample_keys, update_keys, phase = source
        rows = self._by_seed(replay)

        def one(state: Any, rows: Any, sample_key: PRNGKeyArray, update_key: PRNGKeyArray) -> tuple[Any, Any]:
            own = Replay(rows, replay.position, replay.count)
            # With these keys `sample_many` would draw the same: both kinds of replay give the same batches.
            draws = jax.random.split(sample_key, self.num_updates)
            extremes = recorded(rows, jnp)
            return self._scan(state, lambda key: own.sample(key, *self._batch), draws, extremes, update_key, phase)

        return over_seeds(one, self._num_seeds)(state, rows, sample_keys, update_keys)

    def _learn_from_host(self, source: Any, state: Any) -> tuple[Any, Sums]:
        rows, extremes, update_keys, phase = source

        def one(state: Any, update_key: PRNGKeyArray) -> tuple[Any, Any]:
            return self._scan(state, lambda drawn: drawn, rows, extremes, update_key, phase)

        return over_seeds(one, 1)(state, update_keys)

    def _scan(self, state: Any, sample: Any, draws: Any, extremes: Recorded, key: PRNGKeyArray, phase: Phase) -> Any:
        keys = jax.random.split(key, self.num_updates)
        state, measured = self.agent.learn(state, sample, draws, keys, phase, extremes)
        return state, jax.tree.map(lambda values: jnp.sum(values, axis=0).astype(jnp.float32), measured)


class EpochUpdates(EpochLearner):
    """The updates of one epoch."""

    def __init__(
        self, learner: WorldModelLearner, state: Any, num_updates: int, keys: Key[Array, " seed"], phase: Phase
    ):
        super().__init__(learner)
        self._learner, self._keys, self._phase = learner, keys, phase
        self.agent, self.num_updates, self._num_before = state, num_updates, num_updates
        self._sums: Sums | None = None

    def catch_up(self, buffer: AnyReplay, num_rows: int, num_steps: int) -> None:
        """Do as many whole calls as are due; none before there is a sequence to learn from. Waits for no device."""
        if num_rows < self._learner.agent.settings.sequence_length:
            return
        while self.num_updates + self._learner.num_updates <= self._learner.num_due(num_steps):
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(self._keys, self.num_updates)
            self.agent, sums = self._learner.learn(self.agent, buffer, keys, self._phase)
            self._sums = sums if self._sums is None else _added(self._sums, sums)
            self.num_updates += self._learner.num_updates

    def finish(self, buffer: AnyReplay, rows: Any, num_rows: int, num_steps: int) -> dict[str, np.ndarray]:
        """Means over the epoch's updates, how many updates were skipped until now, and the largest reward there is."""
        self.catch_up(buffer, num_rows, num_steps)
        count = self.num_updates - self._num_before
        means = {name: np.asarray(total, np.float64) / count for name, total in (self._sums or {}).items()}
        skipped = np.asarray(self.agent.num_skipped)
        return {**means, "skipped_updates": skipped, LARGEST_REWARD: largest_rewards(buffer.rows.reward, skipped.size)}


def recorded(rows: Rows, module: Any) -> Recorded:
    """The extremes of a replay's rewards (environment, row) and costs, by numpy or jax.numpy; 0, which rows are that
    are not filled yet, is always among them."""
    reward, costs = rows.reward, rows.costs
    highest_costs = module.max(costs, axis=(0, 1), initial=0.0)
    return Recorded(module.min(reward, initial=0.0), module.max(reward, initial=0.0), highest_costs)


def largest_rewards(rewards: Float[Array | np.ndarray, "environment row"], num_seeds: int) -> np.ndarray:
    """Of each seed, whose environments follow each other, the largest reward of a replay; 0 is always among them."""
    module = np if isinstance(rewards, np.ndarray) else jnp
    return np.asarray(module.max(rewards.reshape(num_seeds, -1), axis=1, initial=0.0))


@jax.jit
def _added(first: Sums, second: Sums) -> Sums:
    return jax.tree.map(jnp.add, first, second)
