"""Acting on the host and on the device is the same, learning from either replay too, and updates keep their ratio."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.agents.phases import Phase
from actsafe.agents.recipes import Policy
from actsafe.agents.vision import VisionAgent
from actsafe.data.replay import HostReplay, Replay
from actsafe.training import collecting, epochs
from actsafe.training.collecting import DeviceCollector, HostCollector, Way
from actsafe.training.epochs import Loop, Standing, ticks_per_epoch
from actsafe.training.learning import Learner
from actsafe.training.settings import ConfigError
from actsafe.training.vision_presets import vision_tiny


class CountingAgent(VisionAgent):
    """Learns nothing, but reports what it was shown."""

    def learn(self, state, sample, draws, keys, phase, reward_range):
        def one(count, inputs):
            draw, key = inputs
            rows = sample(draw)
            lowest, highest = reward_range
            shown = {"reward": jnp.mean(rows.reward), "lowest": lowest, "highest": highest}
            return count + 1, shown | {"luck": jax.random.uniform(key)}

        count, reported = jax.lax.scan(one, state.num_updates, (draws, keys))
        return dataclasses.replace(state, num_updates=count), reported


@pytest.fixture(scope="module", autouse=True)
def single_precision():
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="module")
def config():
    return dataclasses.replace(vision_tiny(), observation="state")


@pytest.fixture(scope="module")
def fleet(config):
    return config.make_envs()


@pytest.fixture(scope="module")
def agent(config, fleet) -> VisionAgent:
    made = config.make_agent(fleet)
    return CountingAgent(made.surroundings, made.recipe, made.settings)


@pytest.fixture(scope="module")
def state(agent):
    return eqx.filter_jit(agent.init)(jax.random.key(0))


@pytest.fixture
def fresh(state):
    """A state of the test's own, which may be given up."""
    return jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, state)


def test_host_and_device_collect_the_same(agent, fleet, state, monkeypatch):
    """The host by threads, and as it does for an accelerator, by one program."""
    collectors = [HostCollector(agent, fleet), DeviceCollector(agent, fleet)]
    monkeypatch.setattr(collecting, "prefers_products", lambda: False)
    collectors.append(HostCollector(agent, fleet))
    blocks = []
    for collector in collectors:
        collector.begin(5)
        parts = [collector.collect(state.mind, 14, Way(Policy.TASK), jax.random.key(n)) for n in range(2)]
        blocks.append([part.rows() for part in parts])
    for host, device, ahead in zip(*blocks, strict=True):
        for name, left, right, other in zip(host._fields, host, device, ahead, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6, err_msg=name)
            np.testing.assert_allclose(left, other, rtol=1e-5, atol=1e-6, err_msg=name)
    # 25 decisions an episode: the second block of 14 ticks begins the next one at tick 26 - 14.
    np.testing.assert_array_equal(np.flatnonzero(blocks[0][1].is_first[0]), [12])
    assert not np.any(blocks[0][1].action[:, 12])


def filled(kind, fleet):
    replay = kind.empty(2, 40, fleet.spec.observation_shape, fleet.observation_dtype, 1, 1)
    source = np.random.default_rng(0)
    rows = replay.rows._replace(reward=source.normal(size=(2, 40)).astype(np.float32))
    return replay.append(jax.tree.map(np.array, rows))


@pytest.mark.parametrize("recent_rows", [0, 20])
def test_both_replays_teach_the_same(agent, fleet, state, recent_rows):
    agent = CountingAgent(
        agent.surroundings, agent.recipe, dataclasses.replace(agent.settings, recent_rows=recent_rows)
    )
    found = []
    for kind in (Replay, HostReplay):
        copied = jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, state)
        after, sums = Learner(agent, 3).learn(copied, filled(kind, fleet), jax.random.key(2), Phase.WARM_UP)
        assert int(after.num_updates) == 3
        found.append(sums)
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name], rtol=1e-6)
    assert 0.0 < float(found[0]["luck"]) < 3.0
    # Sums over three updates, each of which is told the range of all 80 rewards.
    rewards = filled(HostReplay, fleet).rows.reward
    assert rewards.min() < 0.0 < rewards.max()
    np.testing.assert_allclose(found[0]["lowest"], 3 * rewards.min(), rtol=1e-6)
    np.testing.assert_allclose(found[0]["highest"], 3 * rewards.max(), rtol=1e-6)


def test_updates_keep_their_ratio_to_steps(config, fleet, agent, fresh, monkeypatch):
    """70 updates in 1000 steps. A cycle of 13 ticks is at most 52 steps, 3 updates, which is what a call does."""
    config = dataclasses.replace(config, updates_per_1000_steps=70)
    loop = Loop(config, fleet, agent)
    monkeypatch.setattr(loop, "_collector", Random(fleet))
    standing, replay = Standing(fresh, 0, 0), Replay.empty(2, 250, fleet.spec.observation_shape, np.float32, 1, 1)
    updates = []
    for number in (1, 2, 3):
        epoch = loop.epoch(number, standing, replay)
        standing, replay = epoch.standing, epoch.replay
        assert int(standing.num_steps) == 100 * number
        assert int(standing.agent.num_updates) == int(standing.num_updates)
        assert epoch.num_updates == int(standing.num_updates) - sum(updates)
        updates.append(epoch.num_updates)
    # 7, 14 and 21 are due after 100, 200 and 300 steps, of which whole calls of 3 are done.
    assert np.cumsum(updates).tolist() == [6, 12, 21]


def test_a_program_compiled_ahead_learns_the_same(config, fleet, agent, fresh, monkeypatch):
    """Warm-up, expansion and two epochs after it: two programs, each compiled once, and none when it is needed."""

    def run(standing):
        loop = Loop(config, fleet, agent)
        monkeypatch.setattr(loop, "_collector", Random(fleet))
        replay, learned = Replay.empty(2, 250, fleet.spec.observation_shape, np.float32, 1, 1), []
        for number in (1, 2, 3, 4):
            if number == 2 and loop._learner._ahead:
                monkeypatch.setattr(loop._learner, "_from_device", None)
            epoch = loop.epoch(number, standing, replay)
            standing, replay = epoch.standing, epoch.replay
            learned.append(epoch.learned)
        return learned, list(loop._learner._ahead)

    config = dataclasses.replace(config, updates_per_1000_steps=70)
    copied = jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, fresh)
    learned, ahead = run(Standing(fresh, 0, 0))
    assert ahead == []
    monkeypatch.setattr(epochs, "is_for_nvidia", lambda: True)
    assert run(Standing(copied, 0, 0)) == (learned, [Phase.EXPANSION, Phase.EXPLOITATION])
    assert all(entry["luck"] > 0.0 for entry in learned)


class Random:
    """Blocks of the right shape, without a policy."""

    def __init__(self, fleet):
        self.fleet = fleet

    def begin(self, seed):
        self.arrival = self.fleet.reset(seed)

    def collect(self, mind, num_ticks, way, key):
        arrivals = []
        for _ in range(num_ticks):
            arrivals.append(self.arrival)
            self.arrival = self.fleet.step(np.zeros((2, 1)))
        fields = (np.stack(field, axis=1) for field in list(zip(*arrivals, strict=True))[1:5])
        observations = np.stack([arrival.view for arrival in arrivals], axis=1)
        return epochs.Block(
            lambda: jnp.asarray(observations), lambda tick: None, np.zeros((2, num_ticks, 1), np.float32), *fields
        )


def test_an_epoch_must_be_whole_episodes(config, fleet):
    assert ticks_per_epoch(config, fleet) == 26
    with pytest.raises(ConfigError, match="multiple of 100"):
        ticks_per_epoch(dataclasses.replace(config, steps_per_epoch=50), fleet)


def test_evaluation_takes_as_many_episodes_of_each_environment(config, fleet, agent, state, monkeypatch):
    loop = Loop(config, fleet, agent)
    monkeypatch.setattr(loop, "_collector", Random(fleet))
    assert loop.ticks_of(3) == 2 * 26
    assert len(loop.evaluate(state, 3, epoch=1)) == 3
    first, again, other = (
        [outcome.reward for outcome in loop.evaluate(state, 2, epoch=1, stream=stream)] for stream in (1, 1, 2)
    )
    assert first == again != other
