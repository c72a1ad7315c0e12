"""A copy of an environment, by `copy.deepcopy` or by `pickle`, goes on as the original, bit for bit."""

import copy
import pickle

import gymnasium
import jax
import numpy as np
import pytest

from actsafe.envs.make import make_envs
from actsafe.envs.registration import register

register()

IDS = sorted(each for each in gymnasium.registry if each.startswith("actsafe/"))
NUM_ENVS, NUM_DECISIONS = 3, 24
"""Long enough that objects fall asleep, which is part of the state."""
PIXELS = ("actsafe/CartpoleSwingup-v0", "actsafe/PointPushBox-v0")
"""One of each kind, as they are drawn by the same code."""
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda each: pickle.loads(pickle.dumps(each))}  # noqa: S301


def is_problem(name):
    return "problem" in gymnasium.registry[name].kwargs


def options_of(name):
    if is_problem(name):
        return {"observation": "state", "num_decisions": NUM_DECISIONS, "process_noise_std": 0.01}
    return {"observation": "state", "episode_length": NUM_DECISIONS}


def single(name, **options):
    return gymnasium.make(name, disable_env_checker=True, **options_of(name) | options)


def vector(name, **options):
    threads = {} if is_problem(name) else {"num_threads": 2}
    return gymnasium.make_vec(name, num_envs=NUM_ENVS, **options_of(name) | threads | options)


MOMENTS = {
    "fresh": (None, {"seed": 3}),
    "after a reset": (0, None),
    "in an episode": (NUM_DECISIONS // 2, None),
    "at its end": (NUM_DECISIONS, {}),
}
"""How many steps have been taken before the copy is made, and the reset that comes first afterwards, if any."""


def actions_of(env):
    return np.random.default_rng(0).uniform(-1.2, 1.2, (NUM_DECISIONS, *env.action_space.shape))


def brought_to(moment, env):
    num_steps, _ = MOMENTS[moment]
    if num_steps is not None:
        env.reset(seed=3)
        for action in actions_of(env)[:num_steps]:
            env.step(action)
    return env


def said(env, opening):
    """Everything an environment says until its next episode is under way."""
    words = [] if opening is None else [env.reset(**opening)]
    is_single = isinstance(env, gymnasium.Env)
    for action in [*actions_of(env), *actions_of(env)[:6]]:
        words.append(env.step(action))
        if is_single and (words[-1][2] or words[-1][3]):
            words.append(env.reset())
    return words if env.render_mode is None else [*words, env.render()]


def check_copy(env, way, moment):
    """The copy is played first: nothing that it does may be felt by the original."""
    original = brought_to(moment, env)
    copied = COPIES[way](original)
    _, opening = MOMENTS[moment]
    if moment == "at its end" and not isinstance(env, gymnasium.Env):
        opening = None  # which a vector does by itself
    expected, got = said(copied, opening), said(original, opening)
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    copied.close()
    original.close()


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("make", [single, vector])
@pytest.mark.parametrize("name", IDS)
def test_a_copy_goes_on_as_the_original(name, make, way):
    for moment in MOMENTS:
        check_copy(make(name), way, moment)


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("make", [single, vector])
@pytest.mark.parametrize("name", PIXELS)
def test_a_copy_sees_and_shows_what_the_original_does(name, make, way):
    """With few objects, so that pictures compile fast."""
    few = {} if is_problem(name) else {"num_hazards": 1, "num_vases": 0, "num_pillars": 0, "render_size": 24}
    check_copy(make(name, observation="pixels", image_size=16, render_mode="rgb_array", **few), way, "in an episode")


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", ["PointPushBox", "cartpole_swingup"])
def test_a_copied_batch_goes_on_as_the_original(name, way):
    batch = make_envs(name, NUM_ENVS, observation="state")
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (20, NUM_ENVS, batch.spec.action_dim))
    batch.reset(3)
    for action in actions[:10]:
        batch.step(action)
    copied = COPIES[way](batch)
    expected, got = ([each.step(action) for action in actions[10:]] for each in (copied, batch))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    copied.close()
    batch.close()
