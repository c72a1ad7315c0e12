"""Acting on the host and on the device is the same, learning from either replay too, and updates keep their ratio."""

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.agents.phases import Phase
from actsafe.agents.recipes import Policy
from actsafe.agents.vision import VisionAgent
from actsafe.data.replay import HostReplay, Replay
from actsafe.experiments import epochs
from actsafe.experiments.collecting import DeviceCollector, HostCollector, Way
from actsafe.experiments.epochs import Loop, Standing, ticks_per_epoch
from actsafe.experiments.learning import Learner
from actsafe.experiments.settings import ConfigError
from actsafe.experiments.vision_presets import vision_tiny


class CountingAgent(VisionAgent):
    """Learns nothing, but reports what it was shown."""

    def learn(self, state, sample, draws, keys, phase):
        def one(count, inputs):
            draw, key = inputs
            rows = sample(draw)
            return count + 1, {"reward": jnp.mean(rows.reward), "luck": jax.random.uniform(key)}

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
    return config.make_fleet()


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


def test_host_and_device_collect_the_same(agent, fleet, state):
    collectors = [HostCollector(agent, fleet), DeviceCollector(agent, fleet)]
    blocks = []
    for collector in collectors:
        collector.begin(5)
        parts = [collector.collect(state.mind, 14, Way(Policy.TASK), jax.random.key(n)) for n in range(2)]
        blocks.append([part.rows() for part in parts])
    for host, device in zip(*blocks, strict=True):
        for name, left, right in zip(host._fields, host, device, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6, err_msg=name)
    # 25 decisions an episode: the second block of 14 ticks begins the next one at tick 26 - 14.
    np.testing.assert_array_equal(np.flatnonzero(blocks[0][1].is_first[0]), [12])
    assert not np.any(blocks[0][1].action[:, 12])


def filled(kind, fleet):
    replay = kind.empty(2, 40, fleet.observation_shape, fleet.observation_dtype, 1, 1)
    source = np.random.default_rng(0)
    rows = replay.rows._replace(reward=source.normal(size=(2, 40)).astype(np.float32))
    return replay.append(jax.tree.map(np.array, rows))


def test_both_replays_teach_the_same(agent, fleet, state):
    found = []
    for kind in (Replay, HostReplay):
        copied = jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, state)
        after, sums = Learner(agent, 3).learn(copied, filled(kind, fleet), jax.random.key(2), Phase.WARM_UP)
        assert int(after.num_updates) == 3
        found.append(sums)
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name], rtol=1e-6)
    assert 0.0 < float(found[0]["luck"]) < 3.0


def test_updates_keep_their_ratio_to_steps(config, fleet, agent, fresh, monkeypatch):
    """70 updates in 1000 steps. A cycle of 13 ticks is at most 52 steps, 3 updates, which is what a call does."""
    config = dataclasses.replace(config, updates_per_1000_steps=70)
    loop = Loop(config, fleet, agent)
    monkeypatch.setattr(loop, "_collector", Random(fleet))
    standing, replay = Standing(fresh, 0, 0), Replay.empty(2, 250, fleet.observation_shape, np.float32, 1, 1)
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


class Random:
    """Blocks of the right shape, without a policy; remembers how far the agents had come that it was to decide as."""

    def __init__(self, fleet, *, is_apart=False):
        self.fleet, self.is_apart, self.brought = fleet, is_apart, []

    def bring(self, state, key):
        self.brought.append(int(state.num_updates))
        return state.mind, key

    def begin(self, seed):
        self.arrival = self.fleet.reset(seed)

    def collect(self, mind, num_ticks, way, key):
        arrivals = []
        for _ in range(num_ticks):
            arrivals.append(self.arrival)
            self.arrival = self.fleet.step(np.zeros((2, 1)))
        fields = (np.stack(field, axis=1) for field in list(zip(*arrivals, strict=True))[1:])
        observations = np.stack([arrival.sight for arrival in arrivals], axis=1)
        return epochs.Block(
            lambda: jnp.asarray(observations), lambda tick: None, np.zeros((2, num_ticks, 1), np.float32), *fields
        )


@pytest.mark.parametrize(("is_apart", "brought"), [(False, [0, 3]), (True, [0, 0])])
def test_whoever_decides_apart_does_not_wait_for_what_is_due(
    is_apart, brought, config, fleet, agent, fresh, monkeypatch
):
    """As above. The first of two cycles has 48 steps, which are due 3 updates; the epoch is due 7, of which 6 are whole
    calls."""
    config = dataclasses.replace(config, updates_per_1000_steps=70)
    loop = Loop(config, fleet, agent)
    monkeypatch.setattr(loop, "_collector", Random(fleet, is_apart=is_apart))
    replay = Replay.empty(2, 250, fleet.observation_shape, np.float32, 1, 1)
    epoch = loop.epoch(1, Standing(fresh, 0, 0), replay)
    assert loop._collector.brought == brought
    assert epoch.num_updates == 6
    assert int(epoch.standing.agent.num_updates) == 6


def test_handing_over_what_is_to_be_learned_does_not_keep_whoever_decides_apart_waiting(
    config, fleet, agent, fresh, monkeypatch
):
    """A device's queue may be full: the call that hands over updates then returns when most of them are done."""
    loop = Loop(dataclasses.replace(config, updates_per_1000_steps=70), fleet, agent)
    blocks, learn, was_decided = Random(fleet, is_apart=True), loop._learner.learn, []
    collect, has_second = blocks.collect, threading.Event()

    def collect_and_tell(*arguments):
        if len(blocks.brought) == 2:
            has_second.set()
        return collect(*arguments)

    def learn_after_deciding(*arguments):
        was_decided.append(has_second.wait(timeout=30.0))
        return learn(*arguments)

    monkeypatch.setattr(blocks, "collect", collect_and_tell)
    monkeypatch.setattr(loop, "_collector", blocks)
    monkeypatch.setattr(loop._learner, "learn", learn_after_deciding)
    loop.epoch(1, Standing(fresh, 0, 0), Replay.empty(2, 250, fleet.observation_shape, np.float32, 1, 1))
    assert was_decided == [True, True]


TWO_DEVICES = """
import dataclasses
import jax
import jax.numpy as jnp
import numpy as np
from actsafe.data.replay import Replay
from actsafe.experiments import collecting, epochs
from actsafe.experiments.vision_presets import vision_tiny
from test_epochs import CountingAgent

class Copying(collecting.HostCollector):
    def bring(self, state, key):
        return jax.tree.map(jnp.copy, state.mind), key

jax.config.update("jax_disable_most_optimizations", True)
changes = {"environment": "PointGotoGoal", "task": None, "observation": "state", "options": {"episode_length": 50}}
config = dataclasses.replace(vision_tiny(), **changes)
fleet = config.make_fleet()
made = config.make_agent(fleet)
agent = CountingAgent(made.surroundings, made.recipe, made.settings)
first, second = jax.devices()
found = []
for collector in (Copying(agent, fleet), collecting.HostCollector(agent, fleet, second)):
    epochs.make_collector, collector.is_apart = lambda *_: collector, True
    loop = epochs.Loop(config, fleet, agent)
    standing = epochs.Standing(jax.jit(agent.init)(jax.random.key(0)), 0, 0)
    replay = Replay.empty(2, 200, fleet.observation_shape, np.float32, 2, 1)
    epoch = loop.epoch(5, standing, replay)
    assert epoch.num_updates > 0
    assert all(leaf.devices() == {first} for leaf in jax.tree.leaves((epoch.replay.rows, epoch.standing.agent)))
    found.append((epoch.replay.rows, epoch.standing.agent.num_updates))
for one, other in zip(*map(jax.tree.leaves, found), strict=True):
    np.testing.assert_array_equal(one, other)
assert found[0][0].action.any()
"""


def test_deciding_on_another_device_changes_nothing():
    """An epoch in which one device learns and the other decides, against both on one."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        cwd=Path(__file__).parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
