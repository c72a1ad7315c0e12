"""What our Gymnasium environments promise: Gymnasium's own checks, and that a vector of environments is its members."""

import subprocess
import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, check_returned_data_not_reused
from gymnasium.vector import AutoresetMode

from actsafe.envs.gymnasium_problem import ProblemEnv, ProblemVectorEnv, register, state_bounds
from actsafe.problems import PROBLEMS, Pendulum
from actsafe.problems.looks import has_look

register()

NOISE = {"process_noise_std": 0.05}
every_problem = pytest.mark.parametrize("name", PROBLEMS)
# Gymnasium advises against unbounded observations, but nothing bounds a cart on an endless rail.
UNBOUNDED = ".*A Box observation space (minimum|maximum) value is"


def environment_id(name):
    return f"actsafe/{''.join(part.capitalize() for part in name.split('_'))}-v0"


def started(env, seed=0):
    env.reset(seed=seed)
    return env


def rollout(env, actions):
    """Everything an environment said: a list of (observation, reward, terminated, truncated, info)."""
    return [env.step(action) for action in actions]


def random_actions(num_decisions, *shape):
    return np.random.default_rng(0).uniform(-1.2, 1.2, (num_decisions, *shape))


def test_every_problem_is_registered():
    assert {environment_id(name) for name in PROBLEMS} <= set(gymnasium.registry)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in PROBLEMS), *((name, {**NOISE, "dtype": "float64"}) for name in ("pendulum", "cartpole"))],
)
def test_gymnasiums_checker_is_content(name, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if name != "pendulum" or options:
            warnings.filterwarnings("ignore", message=UNBOUNDED)
        check_env(gymnasium.make(environment_id(name), render_mode="rgb_array", **options).unwrapped)


def test_gymnasiums_checker_is_content_in_single_precision():
    """As a user without float64 has it; in a process of its own because the setting is global."""
    code = """
import warnings
warnings.simplefilter("error")
import sys
import actsafe
assert "actsafe.envs.gymnasium_problem" not in sys.modules, "importing actsafe must not load the environments"
import jax
jax.config.update("jax_enable_x64", False)
import gymnasium
from gymnasium.utils.env_checker import check_env
env = gymnasium.make("actsafe:actsafe/Pendulum-v0", render_mode="rgb_array").unwrapped
check_env(env)
env.reset(seed=0)
assert env.state.dtype == "float32"
for _ in range(50):
    observation, *_, info = env.step(env.action_space.sample())
    assert observation in env.observation_space
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


def test_workers_that_import_nothing_find_an_id_with_its_module():
    """As Stable-Baselines3's `SubprocVecEnv` starts them; Gymnasium 1.0 and later load no plugins of other packages."""
    code = """
import functools
import gymnasium
assert not any(name.startswith("actsafe/") for name in gymnasium.registry)
make = functools.partial(gymnasium.make, "actsafe:actsafe/Pendulum-v0")
envs = gymnasium.vector.AsyncVectorEnv([make], context="spawn")
observations, _ = envs.reset(seed=0)
assert observations.shape == (1, 3)
envs.close()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


@every_problem
def test_step_is_the_problems_step(name):
    """The reward is r(s, a) at the state left behind, or the sum after each of two simulator steps."""
    env = started(ProblemEnv(name, dtype="float64"))
    problem, state, key = PROBLEMS[name](), jnp.asarray(env.state), jax.random.key(1)
    task = next(iter(problem.tasks))
    assert env.task == task

    def reward_of(state, action, step):
        if not problem.is_summed:
            return problem.tasks[task](state, action)
        between = problem.simulate(state, action)
        return problem.tasks[task](between, action) + problem.tasks[task](step.state, action)

    @jax.jit
    def decide(state, action):
        step = problem.step(state, action, key)
        return reward_of(state, action, step), step

    has_cost = False
    for action in np.full((20, 1), 0.9):
        observation, reward, terminated, truncated, info = env.step(action)
        expected_reward, step = decide(state, jnp.asarray(action))
        np.testing.assert_allclose(observation, step.state, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(reward, expected_reward, rtol=0.0, atol=1e-12)
        expected_info = {"cost": step.cost, "inner_cost": step.inner_cost}
        assert info == pytest.approx(jax.tree.map(float, expected_info), rel=0.0, abs=1e-12)
        assert (terminated, truncated) == (False, False)
        state, has_cost = step.state, has_cost or info["cost"] > 0.0
    # Pushing a cart one way leaves the rail's middle; a constant torque cannot swing the rod up.
    assert has_cost == (name != "pendulum")


def test_options_reach_the_problem():
    env = gymnasium.make(
        "actsafe/Pendulum-v0",
        task="keep_down",
        params={"mass": 1.5, "speed_limit": 0.01},
        process_noise_std=0.0,
        action_repeat=3,
        budget=2.5,
        num_decisions=4,
    ).unwrapped
    problem = env.problem
    assert (problem.params.mass, problem.params.speed_limit, problem.params.length) == (1.5, 0.01, 1.0)
    assert (problem.action_repeat, problem.budget, problem.num_decisions) == (3, 2.5, 4)
    env.reset(seed=0)
    steps = rollout(env, np.ones((4, 1)))
    # At rest at the bottom keeping down is worth 0, less the 0.02 for a full torque; then the speed limit is passed.
    assert steps[0][1] == pytest.approx(-0.02, abs=1e-12)
    state = jnp.array([-1.0, 0.0, 0.0])
    for _ in range(3):
        state = problem.simulate(state, jnp.ones(1))
    assert steps[0][4]["cost"] == pytest.approx(float(state[2]) - 0.01, abs=1e-12)
    assert steps[-1][3] is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": {"masss": 1.2}}, r"pendulum parameter: got 'masss', expected one of \['gravity'.*mean 'mass'\?"),
        ({"params": {"mass": "heavy"}}, "mass: got 'heavy', expected a finite number"),
        ({"params": {"mass": float("nan")}}, "mass: got nan, expected a finite number"),
        ({"task": "swingup"}, "pendulum task: got 'swingup', expected one of .* did you mean 'swing_up'?"),
        ({"problem": "pendulm"}, "problem: got 'pendulm', expected one of .* did you mean 'pendulum'?"),
        ({"render_mode": "human"}, "render mode: got 'human', expected one of .*rgb_array"),
        ({"action_repeat": 0}, "action_repeat: got 0, expected a whole number of at least 1"),
        ({"num_decisions": True}, "num_decisions: got True, expected a whole number"),
        ({"process_noise_std": -0.1}, r"process_noise_std: got -0.1, expected a finite number of at least 0"),
        ({"budget": float("inf")}, "budget: got inf, expected a finite number"),
        ({"dtype": "int32"}, "dtype: got int32, expected float32 or float64"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [ProblemEnv, ProblemVectorEnv])
def test_a_wrong_option_is_named_with_what_was_expected(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**{"problem": "pendulum", **options})


def test_truncates_after_its_decisions_and_then_asks_for_a_reset():
    env = ProblemEnv("pendulum", num_decisions=3)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(np.zeros(1))
    env.reset(seed=0)
    assert [step[2:4] for step in rollout(env, np.zeros((3, 1)))] == [(False, False)] * 2 + [(False, True)]
    with pytest.raises(gymnasium.error.ResetNeeded, match="3 decisions; call reset"):
        env.step(np.zeros(1))
    env.reset()
    assert env.step(np.zeros(1))[3] is False


def test_an_unheard_reset_option_is_refused():
    for env in (ProblemEnv("pendulum"), ProblemVectorEnv("pendulum", 2)):
        with pytest.raises(ValueError, match=r"reset options: got \['x_init'\], expected none"):
            env.reset(options={"x_init": 1.0})


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 1])
def test_a_seed_fixes_all_that_follows(seed):
    """Unseeded resets after it included; another seed, and the next episode, are something else."""
    actions = random_actions(6, 1)

    def two_episodes(seed):
        env = ProblemEnv("cartpole", **NOISE)
        observations = []
        for reset_seed in (seed, None):
            env.reset(seed=reset_seed)
            observations.append([step[0] for step in rollout(env, actions)])
        return np.array(observations)

    once = two_episodes(seed)
    np.testing.assert_array_equal(once, two_episodes(seed))
    assert not np.any(np.all(once == two_episodes(seed + 1), axis=-1))
    assert not np.any(np.all(once[0] == once[1], axis=-1))


def test_every_decision_draws_its_own_noise():
    """What the noise-free problem does not explain of each step must not repeat itself."""
    env, exact = started(ProblemEnv("cartpole", **NOISE)), PROBLEMS["cartpole"]()
    step, noise = jax.jit(exact.step), []
    for _ in range(6):
        predicted = step(jnp.asarray(env.state), jnp.zeros(1), jax.random.key(0)).state
        env.step(np.zeros(1))
        noise.append(env.state[0] - float(predicted[0]))
    assert len(np.unique(np.round(noise, 9))) == 6


BAD_VALUES = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        *[([value], "action: got .*expected finite numbers") for value in BAD_VALUES],
        (0.5, r"got shape \(\); expected .* of shape \(1,\)"),
        ([0.5, 0.5], r"got shape \(2,\)"),
        ([[0.5]], r"got shape \(1, 1\)"),
        ([], r"got shape \(0,\)"),
        (["fast"], "not an array of real numbers"),
        ([1j], "not an array of real numbers"),
        (None, "not an array of real numbers"),
        ([[1.0], [1.0, 2.0]], "not an array of real numbers"),
    ],
    ids=str,
)
def test_a_bad_action_raises_and_changes_nothing(action, message):
    actions = random_actions(4, 1)
    env, untouched = (started(ProblemEnv("pendulum", num_decisions=4, **NOISE), seed=5) for _ in range(2))
    env.step(actions[0])
    before = env.state
    with pytest.raises(ValueError, match=message):
        env.step(action)
    np.testing.assert_array_equal(env.state, before)
    # Neither the random stream nor the clock may have moved: the rest of the episode is as if nothing had happened.
    untouched.step(actions[0])
    for after, expected in zip(rollout(env, actions[1:]), rollout(untouched, actions[1:]), strict=True):
        np.testing.assert_array_equal(after[0], expected[0])
        assert after[1:] == expected[1:]


@pytest.mark.parametrize(("given", "applied"), [(1.7, 1.0), (-3.0, -1.0), (1e300, 1.0), (2, 1.0)])
def test_an_action_beyond_its_range_is_clipped(given, applied):
    far, near = (started(ProblemEnv("pendulum")) for _ in range(2))
    observation, reward, *_ = far.step(np.array([given]))
    expected_observation, expected_reward, *_ = near.step(np.array([applied]))
    np.testing.assert_array_equal(observation, expected_observation)
    assert reward == expected_reward


def test_a_state_that_is_no_number_has_infinite_cost():
    """Fail closed: the force overflows, so nothing is known of the cart any more."""
    env = started(ProblemEnv("cartpole", params={"max_force": 1e308, "time_step": 10.0}, render_mode="rgb_array"))
    info = rollout(env, np.ones((3, 1)))[-1][4]
    assert not np.all(np.isfinite(env.state))
    assert info == {"cost": np.inf, "inner_cost": np.inf}
    assert len(np.unique(env.render().reshape(-1, 3), axis=0)) == 1


def test_bounds_are_the_problems():
    low, high = state_bounds(Pendulum())
    assert (low, high) == ([-1.0, -1.0, -8.0], [1.0, 1.0, 8.0])
    # Noise is added after the clip, so that the speed has no bound.
    assert state_bounds(Pendulum(process_noise_std=0.1))[1] == [1.0, 1.0, np.inf]
    assert ProblemEnv("cartpole").observation_space.high.tolist() == [np.inf, 1.0, 1.0, np.inf, np.inf]
    assert ProblemEnv("pendulum", params={"max_speed": 7.3}).observation_space.high[2] == np.float32(7.3)


@pytest.mark.parametrize("name", [name for name in PROBLEMS if not has_look(PROBLEMS[name]())])
def test_pictures_show_the_state_and_the_limit(name):
    env = started(
        ProblemEnv(name, render_mode="rgb_array", params={"max_force": 150.0} if name == "cartpole" else None)
    )
    before = env.render()
    assert (before.shape, before.dtype) == ((200, 200, 3), np.uint8)
    red, _, blue = np.moveaxis(before.astype(int), -1, 0)
    assert np.sum(red - blue > 100) > 10, "the limit is drawn in red"
    assert np.sum(blue - red > 100) > 100, "what is safe is drawn in blue"
    env.step(np.ones(1))
    assert np.any(env.render() != before)
    np.testing.assert_array_equal(started(env).render(), before)


def test_what_breaks_the_limit_is_red():
    env = started(ProblemEnv("cartpole", render_mode="rgb_array"))
    assert rollout(env, np.ones((10, 1)))[-1][4]["cost"] > 0.0
    red, _, blue = np.moveaxis(env.render().astype(int), -1, 0)
    assert not np.any(blue - red > 100)


def test_no_render_mode_no_picture():
    assert started(ProblemEnv("pendulum")).render() is None
    assert started(ProblemVectorEnv("pendulum", 2)).render() is None


@every_problem
@pytest.mark.parametrize("seed", [3, [11, 5, 2**33, 0]], ids=["one seed", "a list"])
def test_a_vector_of_environments_is_its_members(name, seed):
    """Over three episodes, autoresets included, against Gymnasium's own vector of single environments."""
    num_envs, num_decisions = 4, 5
    options = {"num_envs": num_envs, "num_decisions": num_decisions, **NOISE}
    ours = gymnasium.make_vec(environment_id(name), vectorization_mode="vector_entry_point", **options)
    theirs = gymnasium.make_vec(environment_id(name), vectorization_mode="sync", **options)
    assert isinstance(ours, ProblemVectorEnv)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP is theirs.metadata["autoreset_mode"]
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space

    our_start, our_info = ours.reset(seed=seed)
    their_start, their_info = theirs.reset(seed=seed)
    np.testing.assert_array_equal(our_start, their_start)
    assert our_info == their_info == {}
    num_resets = 0
    for actions in random_actions(3 * (num_decisions + 1), num_envs, 1):
        observations, rewards, terminations, truncations, info = ours.step(actions)
        expected = theirs.step(actions)
        assert observations in ours.observation_space
        np.testing.assert_allclose(observations, expected[0], rtol=0.0, atol=1e-6)
        assert (observations.dtype, rewards.dtype) == (expected[0].dtype, expected[1].dtype)
        np.testing.assert_allclose(rewards, expected[1], rtol=0.0, atol=1e-12)
        np.testing.assert_array_equal(terminations, expected[2])
        np.testing.assert_array_equal(truncations, expected[3])
        is_reset = not expected[4]
        num_resets += is_reset
        for key in ("cost", "inner_cost"):
            # Gymnasium drops a key that no copy has; ours stays, masked out.
            np.testing.assert_array_equal(info[f"_{key}"], expected[4].get(f"_{key}", np.zeros(num_envs, bool)))
            np.testing.assert_allclose(info[key], expected[4].get(key, np.zeros(num_envs)), rtol=0.0, atol=1e-12)
        assert info.keys() == {"cost", "_cost", "inner_cost", "_inner_cost"}
    assert num_resets == 3
    theirs.close()


def compare_info(ours, theirs):
    """Gymnasium drops a key that no copy has; ours stays, masked out. What is masked out has no meaning."""
    for key in [key for key in ours if not key.startswith("_")]:
        mask = ours[f"_{key}"]
        np.testing.assert_array_equal(mask, theirs.get(f"_{key}", np.zeros(len(mask), bool)))
        if key == "final_info":
            compare_info(ours[key], theirs[key])
        else:
            expected = theirs.get(key, np.zeros(len(mask)))
            for number in np.flatnonzero(mask):
                np.testing.assert_allclose(ours[key][number], expected[number], rtol=0.0, atol=1e-6)
    assert set(theirs) <= set(ours)


@every_problem
def test_a_vector_that_resets_in_the_same_step_is_its_members(name):
    """Over three episodes; `final_obs` and `final_info` have what the last step of each brought."""
    num_envs, num_decisions = 3, 4
    options = {"num_envs": num_envs, "num_decisions": num_decisions, "observation": "state", **NOISE}
    ours = gymnasium.make_vec(environment_id(name), autoreset_mode=AutoresetMode.SAME_STEP, **options)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    theirs = gymnasium.make_vec(environment_id(name), vectorization_mode="sync", vector_kwargs=same_step, **options)
    assert isinstance(ours, ProblemVectorEnv)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP is theirs.metadata["autoreset_mode"]
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    num_resets = 0
    for actions in random_actions(3 * num_decisions, num_envs, 1):
        mine, expected = ours.step(actions), theirs.step(actions)
        for own, other in zip(mine[:4], expected[:4], strict=True):
            np.testing.assert_allclose(own, other, rtol=0.0, atol=1e-6)
        assert mine[0] in ours.observation_space
        compare_info(mine[4], expected[4])
        num_resets += "final_obs" in mine[4]
    assert num_resets == 3
    theirs.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_autoreset_mode_may_be_a_word(mode):
    assert ProblemVectorEnv("pendulum", 2, autoreset_mode=mode).metadata["autoreset_mode"] is AutoresetMode(mode)


def test_copies_are_independent():
    """Each copy has its own noise, and its own alone: another seed in one place changes one row."""
    envs = ProblemVectorEnv("cartpole", 3, dtype="float64", **NOISE)

    def run(seeds):
        envs.reset(seed=seeds)
        return np.array([step[0] for step in rollout(envs, np.zeros((4, 3, 1)))])

    first, second = run([1, 2, 3]), run([1, 9, 3])
    np.testing.assert_array_equal(first[:, [0, 2]], second[:, [0, 2]])
    assert not np.any(np.all(first[:, 1] == second[:, 1], axis=-1))
    assert len(np.unique(first[0], axis=0)) == 3
    # None lets a copy's stream go on, as an unseeded reset of a single environment does.
    third = run([1, None, 3])
    np.testing.assert_array_equal(third[:, [0, 2]], first[:, [0, 2]])
    assert not np.any(np.all(third[:, 1] == second[:, 1], axis=-1))
    np.testing.assert_array_equal(run(1), first)
    with pytest.raises(ValueError, match="got 2 seeds, expected 3"):
        envs.reset(seed=[1, 2])


def test_vector_data_is_fresh_on_every_call():
    # Gymnasium's check reads the truncations as one truth value, which an array of one element has.
    check_returned_data_not_reused(ProblemVectorEnv("pendulum", 1))
    envs = ProblemVectorEnv("pendulum", 2)
    observations, *_ = started(envs).step(np.zeros((2, 1)))
    observations[:] = 5.0
    assert not np.any(envs.states == 5.0)


@pytest.mark.parametrize("value", BAD_VALUES)
def test_one_bad_action_refuses_the_whole_batch(value):
    envs, untouched = (started(ProblemVectorEnv("cartpole", 3, **NOISE)) for _ in range(2))
    before, actions = envs.states, np.zeros((3, 1))
    with pytest.raises(ValueError, match=r"expected finite numbers in \[-1, 1\] of shape \(3, 1\)"):
        envs.step(np.array([[0.0], [value], [0.0]]))
    with pytest.raises(ValueError, match=r"got shape \(3,\)"):
        envs.step(np.zeros(3))
    np.testing.assert_array_equal(envs.states, before)
    np.testing.assert_array_equal(envs.step(actions)[0], untouched.step(actions)[0])


def test_vector_needs_a_reset_and_copies():
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        ProblemVectorEnv("pendulum", 2).step(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="num_envs: got 0, expected a whole number of at least 1"):
        ProblemVectorEnv("pendulum", 0)
    with pytest.raises(ValueError, match=r"autoreset_mode: got 'Disabled', expected one of \['NextStep', 'SameStep'\]"):
        ProblemVectorEnv("pendulum", 2, autoreset_mode=AutoresetMode.DISABLED)


def test_vector_pictures_are_those_of_its_members():
    envs = started(ProblemVectorEnv("pendulum", 2, render_mode="rgb_array"))
    envs.step(np.array([[1.0], [-1.0]]))
    for frame, action in zip(envs.render(), (1.0, -1.0), strict=True):
        single = started(ProblemEnv("pendulum", render_mode="rgb_array"))
        single.step([action])
        np.testing.assert_array_equal(frame, single.render())
