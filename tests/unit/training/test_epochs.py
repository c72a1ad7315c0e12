"""Acting on the host and on the device is the same, learning from either replay too, and updates keep their ratio."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.agents import world_model_learner
from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.world_model import WorldModelAgent
from actsafe.agents.world_model_learner import WorldModelLearner
from actsafe.data.replay import HostReplay, Replay
from actsafe.data.rows import RowLayout
from actsafe.training import collecting
from actsafe.training.collecting import Block, DeviceCollector, HostCollector
from actsafe.training.config import Config
from actsafe.training.loop import Loop, TrainState
from actsafe.training.presets import vision_tiny
from actsafe.training.settings import ConfigError


class CountingAgent(WorldModelAgent):
    """Learns nothing, but reports what it was shown, and the margin that it is told to report of the task."""

    margin = 0.0

    def learn(self, state, sample, draws, keys, phase, recorded):
        def one(count, inputs):
            draw, key = inputs
            rows = sample(draw)
            lowest, highest, (costliest,) = recorded
            shown = {"reward": jnp.mean(rows.reward), "lowest": lowest, "highest": highest, "costliest": costliest}
            margins = {"task/margin_0": jnp.asarray(self.margin), "exploration/margin_0": jnp.asarray(0.0)}
            return count + 1, shown | margins | {"luck": jax.random.uniform(key)}

        count, reported = jax.lax.scan(one, state.num_updates, (draws, keys))
        return dataclasses.replace(state, num_updates=count), reported


@pytest.fixture(scope="module", autouse=True)
def single_precision():
    with jax.enable_x64(False):
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def config() -> Config:
    return dataclasses.replace(vision_tiny(), observation="state", evaluate_every=0)


@pytest.fixture(scope="module")
def envs(config):
    return config.make_envs()


@pytest.fixture(scope="module")
def agent(config, envs) -> WorldModelAgent:
    made = config.make_agent(envs)
    return CountingAgent(made.spec, made.algorithm, made.settings, made.schedule)


def with_ratio(config, agent, updates_per_1000_steps):
    """The config and the agent with another number of updates."""
    settings = dataclasses.replace(agent.settings, updates_per_1000_steps=updates_per_1000_steps)
    return dataclasses.replace(config, agent=settings), dataclasses.replace(agent, settings=settings)


@pytest.fixture(scope="module")
def state(agent):
    """Of one seed, along the axis seed."""
    return agent.learner(2, 1).init(jax.random.key(0)[None])


def copy_of(state):
    """A state that may be given up."""
    return jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, state)


def begun(agent_state) -> TrainState:
    """The train state of a run with this agent."""
    no = jnp.zeros((), bool)
    return TrainState(agent_state, jax.random.key(3)[None], no, no, jnp.int32(0), jnp.int32(0))


def test_host_and_device_collect_the_same(agent, envs, state, monkeypatch):
    """The host by threads, and as it does for an accelerator, by one program."""
    collectors = [HostCollector(envs, 1), DeviceCollector(envs, 1)]
    monkeypatch.setattr(collecting, "is_for_cpu", lambda: False)
    collectors.append(HostCollector(envs, 1))
    policy = agent.learner(2, 1).policy(state, ActMode(Role.TASK))
    blocks = []
    for collector in collectors:
        collector.begin(policy, [5], jax.random.key(9)[None])
        parts = [collector.collect(policy, 14) for _ in range(2)] + [collector.last_row()]
        blocks.append([(part.rows(), part) for part in parts])
    for (host, first), (device, second), (ahead, _) in zip(*blocks, strict=True):
        for name, left, right, other in zip(host._fields, host, device, ahead, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6, err_msg=name)
            np.testing.assert_allclose(left, other, rtol=1e-5, atol=1e-6, err_msg=name)
        assert first.decisions.keys() == second.decisions.keys()
        np.testing.assert_array_equal(first.is_last, second.is_last)
        for name, values in first.info.items():
            np.testing.assert_allclose(values, second.info[name], rtol=1e-5, atol=1e-6, err_msg=name)
    # 25 decisions an episode: the second block of 14 ticks begins the next one at tick 26 - 14.
    np.testing.assert_array_equal(np.flatnonzero(blocks[0][1][0].is_first[0, 0]), [12])
    assert not np.any(blocks[0][1][0].action[0, :, 12])


LAYOUT = RowLayout(2, 40, (5,), np.float32, 1, 1)


def filled(kind):
    replay = Replay.empty(*LAYOUT) if kind is Replay else HostReplay(LAYOUT)
    source = np.random.default_rng(0)
    reward, costs = source.normal(size=(2, 40)), source.uniform(size=(2, 40, 1))
    rows = replay.rows._replace(reward=reward.astype(np.float32), costs=costs.astype(np.float32))
    return replay.append(jax.tree.map(np.array, rows))


@pytest.mark.parametrize("recent_rows", [0, 20])
def test_both_replays_teach_the_same(agent, state, recent_rows):
    settings = dataclasses.replace(agent.settings, recent_rows=recent_rows, updates_per_1000_steps=70)
    agent = dataclasses.replace(agent, settings=settings)
    found = []
    for kind in (Replay, HostReplay):
        learner = WorldModelLearner(agent, 2, 1)
        assert learner.num_updates == 3
        after, sums = learner.learn(copy_of(state), filled(kind), jax.random.key(2)[None], Phase.WARM_UP)
        assert int(after.num_updates[0]) == 3
        found.append(sums)
    for name, value in found[0].items():
        np.testing.assert_allclose(value, found[1][name], rtol=1e-6)
    assert 0.0 < float(found[0]["luck"][0]) < 3.0
    # Sums over three updates, each of which is told the range of all 80 rewards, and the largest of all 80 costs.
    rewards, costs = filled(HostReplay).rows.reward, filled(HostReplay).rows.costs
    assert rewards.min() < 0.0 < rewards.max()
    np.testing.assert_allclose(found[0]["lowest"], 3 * rewards.min(), rtol=1e-6)
    np.testing.assert_allclose(found[0]["highest"], 3 * rewards.max(), rtol=1e-6)
    assert costs.max() > 0.0
    np.testing.assert_allclose(found[0]["costliest"], 3 * costs.max(), rtol=1e-6)


class Random:
    """Blocks of the right shape, without a policy."""

    def __init__(self, envs):
        self.envs = envs

    def begin(self, policy, seeds, keys):
        self.time_step = self.envs.reset(seeds[0])

    def collect(self, policy, num_ticks):
        steps = []
        for _ in range(num_ticks):
            steps.append(self.time_step)
            self.time_step = self.envs.step(np.zeros((2, 1)))
        fields = {
            name: np.stack([getattr(step, name) for step in steps], axis=1)[None]
            for name in ("reward", "costs", "is_first", "is_last")
        }
        observations = np.stack([step.view for step in steps], axis=1)[None]
        action = np.zeros((1, 2, num_ticks, 1), np.float32)
        return Block(
            lambda: jnp.asarray(observations), lambda tick: None, action=action, **fields, info={}, decisions={}
        )

    def last_row(self):
        return self.collect(None, 1)


def loop_of(config, envs, agent) -> Loop:
    loop = Loop(config, envs, agent)
    loop._collector = Random(envs)
    return loop


def test_updates_keep_their_ratio_to_steps(config, envs, agent, state):
    """70 updates in 1000 steps. A cycle of 13 ticks is at most 52 steps, 3 updates, which is what a call does."""
    config, agent = with_ratio(config, agent, 70)
    loop = loop_of(config, envs, agent)
    train_state, buffer = begun(copy_of(state)), Replay.empty(2, 250, envs.spec.observation_shape, np.float32, 1, 1)
    updates = []
    for number in (1, 2, 3):
        epoch = loop.epoch(number, train_state, buffer)
        train_state, buffer = epoch.train_state, epoch.buffer
        assert int(train_state.num_steps) == 100 * number
        assert int(train_state.agent.num_updates[0]) == int(train_state.num_updates)
        assert epoch.num_updates == int(train_state.num_updates) - sum(updates)
        updates.append(epoch.num_updates)
    # 7, 14 and 21 are due after 100, 200 and 300 steps, of which whole calls of 3 are done.
    assert np.cumsum(updates).tolist() == [6, 12, 21]


def test_a_program_compiled_ahead_learns_the_same(config, envs, agent, state, monkeypatch):
    """Warm-up, expansion and two epochs after it: two programs, each compiled once, and none when it is needed."""
    config, agent = with_ratio(config, agent, 70)

    def run(train_state):
        loop = loop_of(config, envs, agent)
        buffer, learned = Replay.empty(2, 250, envs.spec.observation_shape, np.float32, 1, 1), []
        for number in (1, 2, 3, 4):
            if number == 2 and loop.learner._ahead:
                monkeypatch.setattr(loop.learner, "_from_device", None)
            epoch = loop.epoch(number, train_state, buffer)
            train_state, buffer = epoch.train_state, epoch.buffer
            learned.append(epoch.learned)
        return learned, list(loop.learner._ahead)

    learned, ahead = run(begun(copy_of(state)))
    assert ahead == []
    monkeypatch.setattr(world_model_learner, "is_for_nvidia", lambda: True)
    monkeypatch.setattr(world_model_learner, "compiler_options", lambda: None)
    assert run(begun(copy_of(state))) == (learned, [Phase.EXPANSION, Phase.EXPLOITATION])
    assert all(entry["luck"] > 0.0 for (entry,) in learned)


@pytest.mark.parametrize(
    ("margin", "phases"),
    [
        # No worse than the exploration's, which is 0.
        (0.0, ["warm_up", "expansion", "exploitation", "exploitation"]),
        # Not a number is as bad as can be.
        (float("nan"), ["warm_up", "expansion", "expansion", "expansion"]),
    ],
)
def test_the_task_takes_over_when_it_may(config, envs, agent, state, margin, phases):
    """Two epochs of exploitation are scheduled after one of each other phase."""
    content = CountingAgent(agent.spec, agent.algorithm, agent.settings, agent.schedule)
    object.__setattr__(content, "margin", margin)
    loop = loop_of(config, envs, content)
    train_state, buffer, seen = begun(copy_of(state)), loop.make_buffer(), []
    for number in (1, 2, 3, 4):
        epoch = loop.epoch(number, train_state, buffer)
        train_state, buffer = epoch.train_state, epoch.buffer
        seen.append(epoch.phase.value)
        assert bool(train_state.may_hand_over) == (phases[-1] == "exploitation")
        assert bool(train_state.has_handed_over) == (seen[-1] == "exploitation")
    assert seen == phases


def test_handing_over_is_part_of_the_train_state(config, envs, agent, state):
    """By hand: the third epoch is the first of exploitation, which begins where the state says so, and stays."""
    loop = loop_of(config, envs, agent)
    assert config.phase(3) is config.phase(4) is Phase.EXPLOITATION
    start, yes = begun(state), jnp.ones((), bool)
    assert loop._phase(3, start) is Phase.EXPANSION
    assert loop._phase(3, start._replace(may_hand_over=yes)) is Phase.EXPLOITATION
    assert loop._phase(4, start._replace(has_handed_over=yes)) is Phase.EXPLOITATION
    assert [loop._phase(number, start._replace(may_hand_over=yes)) for number in (1, 2)] == [
        Phase.WARM_UP,
        Phase.EXPANSION,
    ]


class Costly(Random):
    """Every decision costs this much."""

    cost = 0.0

    def collect(self, policy, num_ticks):
        block = super().collect(policy, num_ticks)
        return dataclasses.replace(block, costs=np.full_like(block.costs, self.cost))


@pytest.mark.parametrize(
    ("costs", "changes", "expected"),
    [
        # Twenty-five decisions, and a budget of 5: 0.25 each come to 6.25. Others may break it, the task's may not.
        ((0.25, 0.25, 0.25, 0.25, 0.0), {}, ["warm_up", "expansion", "exploitation", "expansion", "exploitation"]),
        ((0.25, 0.25, 0.15, 0.15, 0.0), {}, ["warm_up", "expansion", *["exploitation"] * 3]),
        ((0.0, 0.0, 0.25, 0.0, 0.0), {"is_handover_final": True}, ["warm_up", "expansion", *["exploitation"] * 3]),
    ],
)
def test_a_policy_that_broke_its_budget_hands_back(config, envs, agent, state, costs, changes, expected):
    settings, schedule = (
        dataclasses.replace(agent.settings, **changes),
        Schedule(warm_up=1, expansion=1, exploitation=3),
    )
    config = dataclasses.replace(config, schedule=schedule, agent=settings)
    loop = Loop(config, envs, dataclasses.replace(agent, settings=settings))
    loop._collector = Costly(envs)
    train_state, buffer, seen = begun(copy_of(state)), loop.make_buffer(), []
    for number, cost in enumerate(costs, 1):
        loop._collector.cost = cost
        epoch = loop.epoch(number, train_state, buffer)
        train_state, buffer = epoch.train_state, epoch.buffer
        seen.append(epoch.phase.value)
    assert seen == expected


def test_an_epoch_is_whole_episodes(config, envs, agent):
    assert Loop(config, envs, agent).num_ticks == 26
    both = dataclasses.replace(config, schedule=Schedule(warm_up=2, expansion=2, episodes_per_epoch=2))
    assert Loop(both, envs, agent).num_ticks == 52
    with pytest.raises(ValueError, match=r"multiple of schedule\.episodes_per_epoch = 2"):
        Schedule(warm_up=1, expansion=2, episodes_per_epoch=2)
    with pytest.raises(ConfigError, match="multiple of"):
        Config.from_json({**config.to_json(), "schedule": {"warm_up": 1, "expansion": 2, "episodes_per_epoch": 2}})


def test_evaluation_takes_as_many_episodes_of_each_environment(config, envs, agent, state):
    loop = loop_of(config, envs, agent)
    assert loop.ticks_of(3) == 2 * 26
    start = begun(state)
    assert len(loop.evaluate(start, "swing_up", 3, epoch=1, stream=1)[1][0]) == 3
    first, again, other = (
        [outcome.returns for outcome in loop.evaluate(start, "swing_up", 2, epoch=1, stream=stream)[1][0]]
        for stream in (1, 1, 2)
    )
    assert first == again != other
