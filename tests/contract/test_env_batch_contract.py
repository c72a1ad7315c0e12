"""What every batch promises, whatever its environments are."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.envs.gymnasium_problem import ProblemVectorEnv
from actsafe.envs.gymnasium_safety_gym import SafetyGymVectorEnv
from actsafe.envs.make import environment_seeds, make_envs

NUM_ENVS, NUM_DECISIONS = 3, 4
PIXELS = {"observation": "pixels", "image_size": 16, "num_samples": 1}
STATE = {"observation": "state"}
PROBLEM = {"task": "swing_up", "num_decisions": NUM_DECISIONS, "action_repeat": 2}
SAFETY_GYM = {"episode_length": 7, "action_repeat": 2}
"""Seven simulator steps at two a decision are four decisions."""
FEW_OBJECTS = {"num_hazards": 1, "num_vases": 0, "num_pillars": 0}
GYMNASIUM = {"budget": 25.0, "num_decisions": NUM_DECISIONS, "action_repeat": 2, "episode_length": 7}

BATCHES = {
    "problem-pixels": ("cartpole_swingup", PROBLEM | PIXELS | {"image_size": 32}),
    "problem-state": ("cartpole_swingup", PROBLEM | STATE),
    # Few objects: pictures of many take long to compile.
    "safety-gym-pixels": ("PointGotoGoal", SAFETY_GYM | PIXELS | FEW_OBJECTS),
    "safety-gym-state": ("PointPushBoxSparse", SAFETY_GYM | STATE),
    # By an id that is not recognised as ours, so that Gymnasium makes it and action repeat is a wrapper.
    "gymnasium-state": ("actsafe.envs:test/Point-v0", GYMNASIUM | STATE),
}


@pytest.fixture(scope="module", autouse=True)
def foreign_id():
    gymnasium.register(
        "test/Point-v0", "actsafe.envs.gymnasium_safety_gym:SafetyGymEnv", kwargs={"observation": "state"}
    )
    yield
    del gymnasium.registry["test/Point-v0"]


@functools.cache
def batch_of(name):
    """One batch for all tests, which reset it."""
    return make_envs(BATCHES[name][0], NUM_ENVS, **BATCHES[name][1])


@functools.cache
def observe_of(name):
    return jax.jit(batch_of(name).observe)


@pytest.fixture(params=BATCHES)
def name(request):
    return request.param


@pytest.fixture
def batch(name):
    return batch_of(name)


def actions_of(batch, num_ticks):
    return (
        np.random.default_rng(0)
        .uniform(-1.2, 1.2, (num_ticks, batch.num_envs, batch.spec.action_dim))
        .astype(np.float32)
    )


def played(batch, seed, num_ticks):
    """Time steps of a reset and the steps after it, stacked over time."""
    time_steps = [batch.reset(seed), *(batch.step(actions) for actions in actions_of(batch, num_ticks))]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *time_steps)


def test_every_tick_is_a_row_of_each(batch):
    """Shapes, and the protocol: rows 0 and 5 are first, 4 and 9 last, for an episode of 4 decisions has 5 rows."""
    assert batch.spec.num_decisions == NUM_DECISIONS
    assert batch.spec.action_repeat == 2
    assert len(batch.spec.budgets) == len(batch.spec.cost_names) == 1
    time_steps = played(batch, 3, 10)
    assert time_steps.reward.shape == (11, NUM_ENVS)
    assert time_steps.costs.shape == (11, NUM_ENVS, 1)
    assert time_steps.reward.dtype == time_steps.costs.dtype == np.float32
    assert time_steps.is_first.dtype == time_steps.is_last.dtype == np.bool_
    for name, ticks in (("is_first", [0, 5, 10]), ("is_last", [4, 9])):
        expected = np.isin(np.arange(11), ticks)
        np.testing.assert_array_equal(getattr(time_steps, name), np.repeat(expected[:, None], NUM_ENVS, axis=1))
    assert not np.any(time_steps.reward[time_steps.is_first])
    assert not np.any(time_steps.costs[time_steps.is_first])
    assert np.all(time_steps.reward[~time_steps.is_first] != 0.0) or "Sparse" in batch.name
    for leaf in jax.tree.leaves(time_steps.view):
        assert leaf.shape[:2] == (11, NUM_ENVS)


def test_observations_are_drawn_by_a_pure_function(name, batch):
    view = batch.reset(3).view
    kept = jax.tree.map(np.copy, view)
    observations = observe_of(name)(view)
    assert observations.shape == (NUM_ENVS, *batch.spec.observation_shape)
    assert observations.dtype == batch.observation_dtype
    moved = batch.step(actions_of(batch, 1)[0]).view
    # What was handed out is not a view of what has changed since.
    jax.tree.map(np.testing.assert_array_equal, view, kept)
    assert any(np.any(a != b) for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(kept), strict=True))


@pytest.mark.parametrize("name", ["problem-pixels", "safety-gym-pixels"])
def test_pixels_show_what_is_there(name):
    """The brown cart in the middle, or the robot's own red body in the lower middle; before a blue sky."""
    frames = np.asarray(observe_of(name)(batch_of(name).reset(3).view), int)
    is_warm = frames[..., 0] > frames[..., 2]
    height, width = is_warm.shape[1:]
    rows = slice(height // 2 - 2, height // 2 + 2) if name == "problem-pixels" else slice(height - 2, height)
    assert np.all(np.any(is_warm[:, rows, width // 2 - 2 : width // 2 + 2], axis=(1, 2)))
    assert not np.any(is_warm[:, : height // 4])


def test_the_seed_is_all_that_chance_depends_on(batch):
    first, again, other = (played(batch, seed, 6) for seed in (3, 3, 4))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    differ = [np.any(a != b) for a, b in zip(jax.tree.leaves(first.view), jax.tree.leaves(other.view), strict=True)]
    assert any(differ)


def test_bad_actions_change_nothing(batch):
    expected = played(batch, 3, 1)
    with pytest.raises(ValueError, match=r"action: got shape"):
        batch.step(np.zeros((NUM_ENVS, batch.spec.action_dim + 1)))
    batch.reset(3)
    with pytest.raises(ValueError, match=r"action: got \[nan"):
        batch.step(np.full((NUM_ENVS, batch.spec.action_dim), np.nan))
    np.testing.assert_array_equal(batch.step(actions_of(batch, 1)[0]).reward, expected.reward[1])


def test_no_step_before_the_reset(name):
    batch = make_envs(BATCHES[name][0], 2, **BATCHES[name][1])
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"reset\(seed\)"):
        batch.step(np.zeros((2, batch.spec.action_dim)))
    batch.close()


def test_the_action_is_held_and_what_it_brings_is_summed():
    """A decision of two simulator steps is two decisions of one step: reward and costs add up."""
    for name, options in (("PointGotoGoal", {"episode_length": 8, **STATE}), BATCHES["gymnasium-state"]):
        once, twice = (make_envs(name, NUM_ENVS, **{**options, "action_repeat": repeat}) for repeat in (1, 2))
        once.reset(3)
        twice.reset(3)
        for actions in actions_of(once, 3):
            parts, whole = [once.step(actions), once.step(actions)], twice.step(actions)
            np.testing.assert_allclose(whole.reward, parts[0].reward + parts[1].reward, rtol=1e-6)
            np.testing.assert_array_equal(whole.costs, parts[0].costs + parts[1].costs)
            np.testing.assert_array_equal(whole.view, parts[1].view)
        once.close()
        twice.close()


@pytest.mark.parametrize("name", ["problem-state", "safety-gym-state"])
def test_a_batch_is_our_gymnasium_environment(name):
    """Over two episodes, with the seed that the first environment has."""
    batch, observe = batch_of(name), observe_of(name)
    envs = {
        "problem-state": lambda options: ProblemVectorEnv("cartpole_swingup", NUM_ENVS, **options),
        "safety-gym-state": lambda options: SafetyGymVectorEnv(NUM_ENVS, "Point", "PushBoxSparse", **options),
    }[name](BATCHES[name][1])
    seeds = environment_seeds(3, NUM_ENVS)
    assert seeds == [seeds[0], seeds[0] + 1, seeds[0] + 2]
    np.testing.assert_array_equal(observe(batch.reset(3).view), envs.reset(seed=seeds[0])[0])
    for actions in actions_of(batch, 7):
        time_step, (observation, reward, terminated, truncated, info) = batch.step(actions), envs.step(actions)
        np.testing.assert_array_equal(observe(time_step.view), observation)
        np.testing.assert_array_equal(time_step.reward, reward.astype(np.float32))
        np.testing.assert_array_equal(time_step.costs[:, 0], np.where(info["_cost"], info["cost"], 0.0))
        np.testing.assert_array_equal(time_step.is_last, terminated | truncated)
        np.testing.assert_array_equal(time_step.is_first, ~info["_cost"])
    envs.close()


def test_a_segment_on_the_device_is_the_same_as_tick_by_tick(compiled_as_in_use):
    """Bit for bit, over two episode ends."""
    batch = batch_of("problem-state")
    ticks = played(batch, 3, 11)

    @functools.partial(jax.jit, compiler_options=compiled_as_in_use)
    def segment(keys, actions):
        course, first = batch.begin(keys)
        _, time_steps = jax.lax.scan(batch.advance, course, actions)
        return jax.tree.map(lambda one, many: jnp.concatenate([one[None], many]), first, time_steps)

    jax.tree.map(np.testing.assert_array_equal, segment(batch.streams(3), actions_of(batch, 11)), ticks)


def test_neighbouring_seeds_share_no_environment():
    """With seed + i, as Gymnasium does it, nine of ten environments of seed 1 would be those of seed 0."""
    seeds = [environment_seeds(seed, 10) for seed in range(20)]
    assert len(set(np.ravel(seeds).tolist())) == 200
