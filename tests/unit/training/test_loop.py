"""Runs of either agent: many seeds are each seed alone, precision is of the agent, and environments are anybody's."""

import dataclasses

import gymnasium
import jax
import numpy as np
import pytest

from actsafe.agents.phases import Schedule
from actsafe.training.config import Config
from actsafe.training.loop import make_loop
from actsafe.training.presets import PRESETS, vision_tiny


class Slider(gymnasium.Env):
    """A point on a line that is pushed; it is paid to be right of 0, and charged beyond 0.5."""

    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.count = 0.0, 0
        return np.array([self.x]), {}

    def step(self, action):
        self.x = float(np.clip(self.x + 0.2 * float(action[0]), -2.0, 2.0))
        self.count += 1
        return np.array([self.x]), self.x, False, self.count >= 6, {"cost": max(self.x - 0.5, 0.0)}


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register(id="tests/Slider-v0", entry_point=Slider)
    yield
    del gymnasium.registry["tests/Slider-v0"]


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def small_gp(**changes) -> Config:
    """Two epochs of ten decisions on the pendulum, or on something else."""
    tiny = PRESETS["tiny"]()
    search = dataclasses.replace(tiny.agent.planning.search, horizon=3, num_candidates=6, num_elites=2)
    planning = dataclasses.replace(tiny.agent.planning, search=search, preflight_particles=2)
    agent = dataclasses.replace(tiny.agent, planning=planning, decisions_per_call=5, capacity_step=16)
    base = dataclasses.replace(tiny, agent=agent, options={"num_decisions": 10}, evaluate_every=2)
    return dataclasses.replace(base, **changes)


def small_world_model(**changes) -> Config:
    """Two epochs of states."""
    tiny = vision_tiny()
    schedule, options = Schedule(warm_up=1, expansion=1), {"num_decisions": 12}
    agent = dataclasses.replace(tiny.agent, sequence_length=4, batch_size=2)
    base = dataclasses.replace(
        tiny, observation="state", agent=agent, schedule=schedule, options=options, evaluation_episodes=1
    )
    return dataclasses.replace(base, **changes)


def epochs_of(config: Config):
    """All epochs, the seed's included where there is one."""
    loop = make_loop(config)
    state, buffer, epochs = None, None, []
    with loop.agent.precision():
        state, buffer = loop.begin(), loop.make_buffer()
    for number in range(0 if config.schedule.seed_decisions else 1, config.num_units + 1):
        epoch = loop.epoch(number, state, buffer)
        state, buffer = epoch.train_state, epoch.buffer
        epochs.append(epoch)
    loop.envs.close()
    return epochs


@pytest.mark.parametrize(("make", "rtol"), [(small_gp, 1e-10), (small_world_model, 0.0)], ids=["gp", "rssm"])
def test_a_seed_in_one_program_with_others_is_the_seed_alone(make, rtol):
    """Environments are pure here, so that seeds are an axis of the program. The second of two, bit for bit; the planner
    is compiled otherwise in tests than in use, sums in another order, and plans apart in the course of decisions."""
    together, alone = epochs_of(make(seeds=(0, 3))), epochs_of(make(seeds=(3,)))
    assert len(together) == len(alone)
    for both, single in zip(together, alone, strict=True):
        assert (both.phase, both.role) == (single.phase, single.role)
        assert both.learned[1].keys() == single.learned[0].keys()
        for name, value in single.learned[0].items():
            np.testing.assert_allclose(both.learned[1][name], value, rtol=rtol, err_msg=name)
        np.testing.assert_allclose(of_task(both.episodes[1]), of_task(single.episodes[0]), rtol=rtol)
        assert both.evaluations.keys() == single.evaluations.keys()
        for task, found in single.evaluations.items():
            np.testing.assert_allclose(of_task(both.evaluations[task][1]), of_task(found[0]), rtol=1e8 * rtol)
    assert of_task(together[-1].episodes[0]) != of_task(together[-1].episodes[1])


def of_task(outcomes):
    """All numbers of the outcomes of episodes."""
    return [[*each.returns.values(), *each.costs.tolist(), each.num_decisions] for each in outcomes]


def test_both_agents_learn_from_a_gymnasium_environment(registered):
    """In one process: each computes in its own precision, and leaves JAX as it was."""
    shared = {"env": "tests/Slider-v0", "budget": 1.0, "options": {"num_decisions": 6}, "task": None}
    gp = small_gp(**shared, schedule=Schedule(seed_decisions=1, expansion=1), evaluate_every=1)
    world_model = small_world_model(
        **shared, action_repeat=None, evaluate_every=0, schedule=Schedule(warm_up=1, expansion=0)
    )
    settings = dataclasses.replace(world_model.agent, updates_per_1000_steps=0)
    loops = {"gp": make_loop(gp), "rssm": make_loop(dataclasses.replace(world_model, agent=settings))}
    before, found = jax.config.jax_enable_x64, {}
    for name, loop in (*loops.items(), ("gp again", loops["gp"])):
        with loop.agent.precision():
            state, buffer = loop.begin(), loop.make_buffer()
        epochs = []
        for number in range(0 if loop.config.schedule.seed_decisions else 1, loop.config.num_units + 1):
            epochs.append(loop.epoch(number, state, buffer))
            state, buffer = epochs[-1].train_state, epochs[-1].buffer
        assert jax.config.jax_enable_x64 == before
        found[name] = epochs
    for loop in loops.values():
        loop.envs.close()
    (outcome,) = found["gp"][-1].episodes[0]
    # Six decisions, of which each moves by at most 0.2: what is observed, paid and charged is the environment's.
    trajectory = found["gp"][-1].trajectory
    states = trajectory["observation"][0, 0, :, 0]
    np.testing.assert_allclose(np.sum(np.maximum(states - 0.5, 0.0)), outcome.costs[0], rtol=1e-6)
    np.testing.assert_allclose(np.sum(states), outcome.returns["task"], rtol=1e-6)
    assert found["gp"][-1].train_state.agent.data.states.dtype == np.float64
    assert found["rssm"][-1].buffer.rows.observation.dtype == np.float32
    assert of_task(found["gp again"][-1].episodes[0]) == of_task(found["gp"][-1].episodes[0])
    assert found["rssm"][-1].num_steps == 12
    assert found["gp"][-1].evaluations.keys() == {"task"}
