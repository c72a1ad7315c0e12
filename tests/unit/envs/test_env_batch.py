"""Batches by name, and other people's environments with all that can be wrong with them."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from actsafe.cli.stopping import Stopped
from actsafe.envs.make import (
    GymnasiumBatch,
    ProblemBatch,
    RepeatedAction,
    SafetyGymBatch,
    environment_seeds,
    make_envs,
)


class Counter(gymnasium.Env):
    """Counts its steps: observes (episode, steps), pays the steps, costs a tenth of them, ends after `length`."""

    def __init__(self, length=3, dtype=np.float32, shape=(2,), **faults):
        self.length, self.faults, self.episode, self.count = length, faults, -1, 0
        low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
        self.observation_space = gymnasium.spaces.Box(low, high, shape, dtype)
        self.action_space = gymnasium.spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
        self.actions = []

    def _observe(self):
        if "observation" in self.faults and self.count == 2:
            return self.faults["observation"]
        if len(self.observation_space.shape) == 3:
            return np.full(self.observation_space.shape, self.count, self.observation_space.dtype)
        return np.array([self.episode, self.count], self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.count = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        self.actions.append(np.array(action))
        is_faulty = self.count == 2
        reward = self.faults["reward"] if is_faulty and "reward" in self.faults else float(self.count)
        info = {"cost": self.count / 10.0, "late": 1.0, **(self.faults.get("info", {}) if is_faulty else {})}
        info = {key: value for key, value in info.items() if value is not None}
        return self._observe(), reward, self.count >= self.length, False, info


def batch_of(*envs, mode=AutoresetMode.NEXT_STEP, **options):
    vector = SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=mode)
    return GymnasiumBatch(vector, **{"budgets": [1.0], "num_decisions": 3, **options})


def played(batch, num_ticks):
    time_steps = [batch.reset(0)]
    time_steps += [batch.step(np.ones((batch.num_envs, 2))) for _ in range(num_ticks)]
    return [np.stack(field) for field in list(zip(*time_steps, strict=True))[:5]]


def test_environments_may_end_at_different_times():
    """Episodes of 2 and 3 decisions have 3 and 4 rows."""
    view, reward, costs, is_first, is_last = played(batch_of(Counter(2), Counter(3)), 7)
    np.testing.assert_array_equal(view[:, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(view[:, 1, 1], [0, 1, 2, 3, 0, 1, 2, 3])
    np.testing.assert_array_equal(view[:, 0, 0], [0, 0, 0, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(reward, view[..., 1])
    np.testing.assert_allclose(costs[..., 0], view[..., 1] / 10.0, rtol=1e-6)
    np.testing.assert_array_equal(is_first, view[..., 1] == 0)
    np.testing.assert_array_equal(is_last, view[..., 1] == [[2, 3]])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_modes_agree_where_episodes_end_together(mode):
    """A time limit: the final observation is seen, the first too, and no step is taken in between."""
    runs = (played(batch_of(Counter(), Counter(), mode=each), 9) for each in (AutoresetMode.NEXT_STEP, mode))
    for expected, got in zip(*runs, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_nothing_is_lost_where_episodes_do_not_end_together(mode):
    """Environment 0 ends at 3. Its next first row comes after a step that pays 1, added to the 2 of the row after."""
    first = Counter(3)
    view, reward, costs, is_first, is_last = played(batch_of(first, Counter(5), mode=mode), 7)
    np.testing.assert_array_equal(view[:, 0], [[0, 0], [0, 1], [0, 2], [0, 3], [1, 1], [1, 2], [1, 3], [2, 1]])
    np.testing.assert_array_equal(reward[:, 0], [0, 1, 2, 3, 0, 1 + 2, 3, 0])
    np.testing.assert_allclose(costs[:, 0, 0], reward[:, 0] / 10.0, rtol=1e-6)
    np.testing.assert_array_equal(is_first[:, 0], [True, False, False, False, True, False, False, True])
    np.testing.assert_array_equal(is_last[:, 0], [False, False, False, True, False, False, True, False])
    # The step nobody chose is the middle of [-2, 2] and [0, 1]; the others were the upper ends.
    np.testing.assert_array_equal(first.actions[3], [0.0, 0.5])
    np.testing.assert_array_equal(first.actions[4], [2.0, 1.0])
    np.testing.assert_array_equal(view[:7, 1, 1], [0, 1, 2, 3, 4, 5, 1])


def test_an_episode_of_one_step_needs_next_step():
    batch = batch_of(Counter(1), Counter(5), mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match=r"environment 0 ended with the step that began it.*NEXT_STEP"):
        played(batch, 3)


def test_actions_are_stretched_to_their_bounds():
    env = Counter()
    batch = batch_of(env)
    batch.reset(0)
    batch.step([[0.5, -1.0]])
    batch.step([[-7.0, 0.0]])
    # -2 + 4 * 0.75 and 0; clipped to -1, hence -2, and the middle of [0, 1].
    np.testing.assert_array_equal(env.actions, [[1.0, 0.0], [-2.0, 0.5]])
    assert env.actions[0].dtype == np.float32


def test_several_costs_are_several_constraints():
    batch = batch_of(Counter(), cost_names=("late", "cost"), budgets=(3.0, 1.0))
    _, _, costs, _, _ = played(batch, 2)
    np.testing.assert_allclose(costs[:, 0], [[0.0, 0.0], [1.0, 0.1], [1.0, 0.2]], rtol=1e-6)
    assert batch.spec.budgets == (3.0, 1.0)
    with pytest.raises(ValueError, match=r"budgets: got \[1.0\], expected one for each of the costs \['late', "):
        batch_of(Counter(), cost_names=("late", "cost"))


def test_a_cost_is_named_once():
    """Named twice it would count twice, in the certificate's episodes too."""
    with pytest.raises(ValueError, match=r"cost_names: got \['cost', 'late', 'cost'\], expected each cost once"):
        batch_of(Counter(), cost_names=("cost", "late", "cost"), budgets=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match=r"cost_names: got \['cost', 'cost'\]"):
        make_envs("Pendulum-v1", 2, observation="state", budget=1.0, cost_names=["cost", "cost"])
    with pytest.raises(ValueError, match=r"cost_names: got 'cost', expected a list of names; write \['cost'\]"):
        batch_of(Counter(), cost_names="cost")


FAULTS = {
    "NaN vector": ({"observation": np.float32([np.nan, 0.0])}, r"the observation of environment 1 at tick 2 is nan"),
    "NaN reward": ({"reward": np.nan}, r"the reward of environment 1 at tick 2 is nan, expected a finite number"),
    "NaN cost": ({"info": {"cost": np.nan}}, r"the cost 'cost' of environment 1 at tick 2 is nan"),
    "infinite cost": ({"info": {"cost": np.inf}}, r"the cost 'cost' of environment 1 at tick 2 is inf"),
    "negative cost": ({"info": {"cost": -0.1}}, r"cost 'cost' of environment 1 at tick 2 is -0.1.*of at least 0"),
    "missing cost": (
        {"info": {"cost": None}},
        r"environment 1 at tick 2 has no 'cost'.*There are \['cost', 'late'\]",
    ),
    "changed shape": ({"observation": np.zeros(3, np.float32)}, r"step\(\) failed at tick 2.*shape \(2,\).*float32"),
    "changed dtype": ({"observation": np.array([1j, 0.0])}, r"step\(\) failed at tick 2.*complex"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_faulty_environment_is_named(name, mode):
    """The second step of the second environment is at fault; the tick before it is fine."""
    faults, message = FAULTS[name]
    batch = batch_of(Counter(), Counter(**faults), mode=mode)
    played(batch, 1)
    with pytest.raises(ValueError, match=message):
        batch.step(np.zeros((2, 2)))


def test_a_fault_in_the_last_step_is_seen():
    """With SAME_STEP what the last step brought is put aside in final_obs and final_info."""
    for faults, message in (FAULTS["NaN vector"], FAULTS["NaN cost"]):
        batch = batch_of(Counter(3), Counter(2, **faults), mode=AutoresetMode.SAME_STEP)
        with pytest.raises(ValueError, match=message):
            played(batch, 2)
    batch = batch_of(Counter(3), Counter(2, observation=np.zeros(3, np.float32)), mode=AutoresetMode.SAME_STEP)
    with pytest.raises(
        ValueError, match=r"at tick 2 are float32 of shape \(1, 3\), expected float32 of shape \(1, 2\)"
    ):
        played(batch, 2)
    batch = batch_of(Counter(3), Counter(2, info={"cost": None}), mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match=r"environment 1 at tick 2 has no 'cost'.*There are \['late'\]"):
        played(batch, 2)


def test_pixels_that_are_no_bytes():
    image = {"dtype": np.uint8, "shape": (4, 4, 3)}
    batch = batch_of(Counter(**image), Counter(**image, observation=np.full((4, 4, 3), np.nan)))
    assert (batch.spec.observation_shape, batch.observation_dtype) == ((4, 4, 3), np.uint8)
    played(batch, 1)
    with pytest.raises(ValueError, match=r"step\(\) failed at tick 2.*uint8"):
        batch.step(np.zeros((2, 2)))


class Broken(Counter):
    """Does something else in the second step of an episode, in `reset` or in the constructor."""

    def __init__(self, place="step", deed=None, result=None, **options):
        super().__init__(**options)
        self.place, self.deed, self.result = place, deed, result
        if place == "constructor":
            raise deed

    def reset(self, **options):
        if self.place == "reset" and self.deed is not None:
            raise self.deed
        return self.result if self.place == "reset" else super().reset(**options)

    def step(self, action):
        if self.place == "step" and self.count == 1 and self.deed is not None:
            raise self.deed
        outcome = list(super().step(action))
        for number, value in (self.result or {}).items() if self.place == "step" and self.count == 2 else ():
            outcome[number] = value
        return tuple(outcome)


@pytest.fixture
def broken():
    """Makes a batch of two such environments by their id."""

    def _batch(mode="sync", repeat=1, **options):
        gymnasium.registry.pop("test/Broken-v0", None)
        gymnasium.register("test/Broken-v0", Broken, kwargs=options, disable_env_checker=True)
        asked = {"observation": "state", "budget": 1.0, "num_decisions": 3, "action_repeat": repeat}
        return make_envs("test/Broken-v0", 2, vectorization_mode=mode, **asked)

    yield _batch
    gymnasium.registry.pop("test/Broken-v0", None)


RAISED = [RuntimeError("boom"), KeyError("boom"), AssertionError("boom"), StopIteration("boom"), MemoryError("boom")]
RAISED += [SystemExit("boom"), ImportError("boom"), ConnectionError("boom")]


@pytest.mark.parametrize("deed", RAISED, ids=lambda deed: type(deed).__name__)
def test_whatever_an_environment_raises_is_its_own(broken, deed):
    """Chained, with the environment and the tick; also what would end the program, and what is said of memory."""
    words = rf"{type(deed).__name__}: '?boom'?\. "
    seed = environment_seeds(0, 2)[0]
    for place, message in (
        ("step", rf"test/Broken-v0: step\(\) failed at tick 2: step\(\) of the environment with seed {seed} failed: "),
        (
            "reset",
            rf"test/Broken-v0: reset\(\) failed at tick 0: reset\(\) of the environment with seed {seed} failed: ",
        ),
        ("constructor", r"test/Broken-v0 cannot be made: "),
    ):
        with pytest.raises(ValueError, match=f"{message}.*{words}") as raised:
            played(broken(place=place, deed=deed), 2)
        causes, cause = [], raised.value
        while cause is not None:
            cause = cause.__cause__
            causes.append(cause)
        assert repr(deed) in map(repr, causes)


@pytest.mark.parametrize("deed", [KeyboardInterrupt(), Stopped(2)], ids=["Ctrl-C", "signal"])
def test_a_request_to_stop_is_no_fault(broken, deed):
    with pytest.raises(type(deed)):
        played(broken(deed=deed), 2)


WRONG = {
    "terminated": ({2: np.nan}, r"terminated is nan; expected True or False"),
    "truncated": ({3: "no"}, r"truncated is 'no'; expected True or False"),
    "number": ({2: 1.0}, r"terminated is 1.0; expected True or False"),
    "info": ({4: None}, r"info is None; expected a dict"),
    "cost in an array": (
        {4: {"cost": np.array([0.1])}},
        r"the cost 'cost' is array\(\[0.1\]\); expected a real number",
    ),
    "cost in words": ({4: {"cost": "much"}}, r"the cost 'cost' is 'much'; expected a real number"),
    "bool cost": ({4: {"cost": True}}, r"the cost 'cost' is True; expected a real number such as float\(cost\)"),
    "complex cost": ({4: {"cost": 1j}}, r"the cost 'cost' is 1j; expected a real number"),
    "no cost": ({4: {"cost": None}}, r"the cost 'cost' is None; expected a real number"),
    "float64": ({0: np.zeros(2)}, r"the observation is float64 of shape \(2,\); expected float32 of shape \(2,\), as"),
    "shape": ({0: np.zeros(3, np.float32)}, r"the observation is float32 of shape \(3,\); expected float32 of shape"),
    "ragged": ({0: [[1.0], [1.0, 2.0]]}, r"step\(\) of the environment with seed \d+ returned no array as observation"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("repeat", [1, 2])
def test_what_is_not_as_gymnasium_has_it_is_named(broken, name, repeat):
    result, message = WRONG[name]
    tick = 2 // repeat
    with pytest.raises(ValueError, match=rf"test/Broken-v0: step\(\) failed at tick {tick}: .*{message}"):
        played(broken(result=result, repeat=repeat), tick)


@pytest.mark.parametrize("result", [None, np.zeros(2, np.float32), (np.zeros(2, np.float32), 0.0, {})], ids=repr)
def test_a_reset_that_gives_something_else_is_named(broken, result):
    with pytest.raises(ValueError, match=r"reset\(\) failed at tick 0: .* the result is .*; expected the tuple \(obs"):
        broken(place="reset", result=result).reset(0)


class Sparing(Counter):
    """Costs a whole 0 with an even seed, as max(0, excess) does, and 0.7 with an odd one."""

    def reset(self, *, seed=None, options=None):
        self.cost = self.cost if seed is None else (0, 0.7)[seed % 2]
        return super().reset(seed=seed)

    def step(self, action):
        *parts, info = super().step(action)
        return *parts, info | {"cost": self.cost}


@pytest.fixture
def sparing():
    gymnasium.register("test/Sparing-v0", Sparing, disable_env_checker=True)
    yield "test/Sparing-v0"
    del gymnasium.registry["test/Sparing-v0"]


def test_a_whole_0_does_not_cut_another_environments_cost(sparing):
    """Gymnasium makes an array of the type of the first environment's cost; a batch by name makes them floats."""
    seed = next(seed for seed in range(9) if environment_seeds(seed, 2)[0] % 2 == 0)
    batch = make_envs(sparing, 2, observation="state", budget=1.0, num_decisions=3)
    batch.reset(seed)
    np.testing.assert_array_equal(batch.step(np.zeros((2, 2))).costs[:, 0], np.float32([0.0, 0.7]))
    own = GymnasiumBatch(gymnasium.make_vec(sparing, num_envs=2), budgets=[1.0], num_decisions=3)
    own.reset(seed)
    with pytest.raises(
        ValueError, match=r"cost 'cost' at tick 1 is int64 of shape \(2,\), \[0, 0\]; expected floats: "
    ):
        own.step(np.zeros((2, 2)))


@pytest.mark.parametrize("value", ["much", True, 1j, np.array([0.1])], ids=repr)
def test_costs_of_a_vector_are_real_numbers(value):
    batch = batch_of(*(Counter(info={"cost": value}) for _ in range(2)))
    played(batch, 1)
    with pytest.raises(ValueError, match=r"the cost 'cost' at tick 2 is .*; expected real numbers of shape \(2,\)"):
        batch.step(np.zeros((2, 2)))


class OwnVector(gymnasium.vector.VectorEnv):
    """A vector environment that hands out whatever it likes."""

    def __init__(self, observations, mode=AutoresetMode.NEXT_STEP, reward=(0.0, 0.0), is_over=(False, False)):
        self.num_envs, self.observations = 2, iter(observations)
        self.reward, self.is_over = np.array(reward), np.array(is_over)
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.metadata = {} if mode is None else {"autoreset_mode": mode}

    def reset(self, *, seed=None, options=None):
        return next(self.observations), {}

    def step(self, actions):
        return next(self.observations), self.reward, self.is_over, np.zeros(2, bool), {"cost": np.zeros(2)}


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.zeros((2, 2), np.float32)], ids=["shape", "dtype"])
def test_observations_are_as_declared(wrong):
    batch = GymnasiumBatch(OwnVector([np.zeros((2, 2)), wrong]), budgets=[1.0], num_decisions=3)
    assert batch.observation_dtype == np.float32
    assert batch.reset(0).view.dtype == np.float32
    with pytest.raises(ValueError, match=r"at tick 1 are float\d+ of shape \(2, [23]\), expected float64 of"):
        batch.step(np.zeros((2, 1)))


def test_a_reward_for_each_environment():
    vector = OwnVector([np.zeros((2, 2)), np.zeros((2, 2))], reward=[[0.0], [0.0]])
    batch = GymnasiumBatch(vector, budgets=[1.0], num_decisions=3)
    batch.reset(0)
    with pytest.raises(ValueError, match=r"the shape of reward at tick 1 is \(2, 1\), expected \(2,\)"):
        batch.step(np.zeros((2, 1)))


@pytest.mark.parametrize("is_over", [(np.nan, 0.0), ("no", "no"), (0, 1), False], ids=repr)
def test_an_ending_is_true_or_false(is_over):
    vector = OwnVector([np.zeros((2, 2)), np.zeros((2, 2))], is_over=is_over)
    batch = GymnasiumBatch(vector, budgets=[1.0], num_decisions=3)
    batch.reset(0)
    with pytest.raises(ValueError, match=r"the terminations at tick 1 are .*, expected bool of shape \(2,\)"):
        batch.step(np.zeros((2, 1)))


class Worker:
    is_terminated = False

    def terminate(self):
        self.is_terminated = True


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError("reset by peer")], ids=repr)
def test_a_dead_worker_is_named_and_nobody_waits_for_it(error):
    """As `AsyncVectorEnv` tells of one; to close that would be to wait for an answer."""

    class Deserted(OwnVector):
        processes = (Worker(), Worker())

        def step(self, actions):
            raise error

        def close_extras(self, **options):
            raise AssertionError("waits for ever")

    batch = GymnasiumBatch(Deserted([np.zeros((2, 2))]), budgets=[1.0], num_decisions=3)
    batch.reset(0)
    with pytest.raises(ValueError, match=r"a worker process ended in step\(\) at tick 1.*=sync") as raised:
        batch.step(np.zeros((2, 1)))
    assert raised.value.__cause__ is error
    batch.close()
    assert all(worker.is_terminated for worker in Deserted.processes)


def test_what_cannot_be_a_batch():
    with pytest.raises(ValueError, match=r"no time limit to take it from; give one"):
        GymnasiumBatch(OwnVector([]), budgets=[1.0])
    with pytest.raises(ValueError, match=r"metadata has no 'autoreset_mode'"):
        GymnasiumBatch(OwnVector([], mode=None), budgets=[1.0], num_decisions=3)
    for space in (gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-np.inf, np.inf, (2,))):
        vector = OwnVector([])
        vector.single_action_space = space
        with pytest.raises(ValueError, match=r"got the action space .*, expected a bounded Box of floats"):
            GymnasiumBatch(vector, budgets=[1.0], num_decisions=3)
    vector = OwnVector([])
    vector.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (0,))
    with pytest.raises(ValueError, match=r"expected at least one number to choose"):
        GymnasiumBatch(vector, budgets=[1.0], num_decisions=3)
    for space in (gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(0.0, 1.0, (4, 4, 3))):
        vector = OwnVector([])
        vector.single_observation_space = space
        with pytest.raises(ValueError, match=r"got the observation space .*, expected a Box of uint8 pixels"):
            GymnasiumBatch(vector, budgets=[1.0], num_decisions=3)


def test_an_action_is_held_until_the_episode_ends():
    """3 steps in decisions of 2: rewards 1 + 2 and 3, costs a tenth; a negative cost is not made up for."""
    env = RepeatedAction(Counter(3), 2, ("cost",))
    env.reset()
    observation, reward, is_terminated, _, info = env.step(np.zeros(2))
    np.testing.assert_array_equal(observation, [0, 2])
    assert (reward, is_terminated) == (3.0, False)
    assert info["cost"] == pytest.approx(0.3)
    assert info["late"] == 1.0
    _, reward, is_terminated, _, info = env.step(np.zeros(2))
    assert (reward, is_terminated, info["cost"]) == (3.0, True, 0.3)
    for cost, expected in ((-0.5, {"cost": -0.5, "late": 1.0}), (None, {"late": 1.0})):
        env = RepeatedAction(Counter(3, info={"cost": cost}), 2, ("cost",))
        env.reset()
        assert env.step(np.zeros(2))[4] == expected


def test_batches_by_name():
    state = {"observation": "state"}
    batch = make_envs("cartpole_swingup", 2, task="keep_down", budget=7.0, **state)
    assert isinstance(batch, ProblemBatch)
    assert (batch.task, batch.spec.budgets, batch.spec.action_repeat, batch.spec.num_decisions) == (
        "keep_down",
        (7.0,),
        2,
        500,
    )
    batch = make_envs("CartpoleSwingupSparse", 2, image_size=8)
    assert isinstance(batch, ProblemBatch)
    assert (batch.task, batch.spec.observation_shape) == ("swing_up_sparse", (8, 8, 3))
    for name in ("DoggoPressButtonsSparse", "actsafe/DoggoPressButtonsSparse-v0"):
        batch = make_envs(name, 2, **state)
        assert isinstance(batch, SafetyGymBatch)
        assert (batch.name, batch.spec.budgets, batch.spec.action_repeat) == ("DoggoPressButtonsSparse", (25.0,), 2)
        assert (batch.spec.num_decisions, batch.num_envs, batch.spec.action_dim) == (500, 2, 12)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((17, 17, 3), r"test/Shaped-v0: image_size: no kernels .* to 17; 16, 32, 64, .*wrap it .*ResizeObservation"),
        ((16, 32, 3), r"test/Shaped-v0: images must be square, got 16 x 32 pixels; wrap it"),
        (
            (0,),
            r"test/Shaped-v0: observations must be images .* or vectors of at least one number, got the shape \(0,\)",
        ),
    ],
)
def test_what_nothing_can_be_learned_from_is_refused_when_it_is_made(shape, message):
    """Before there is an agent, and so before a run has a folder."""
    images = len(shape) == 3
    options = {"shape": shape, "dtype": np.uint8 if images else np.float32}
    gymnasium.register("test/Shaped-v0", Counter, kwargs=options, disable_env_checker=True)
    with pytest.raises(ValueError, match=message):
        make_envs("test/Shaped-v0", 2, observation="pixels" if images else "state", budget=1.0, num_decisions=3)
    del gymnasium.registry["test/Shaped-v0"]


def test_a_gymnasium_id_with_a_time_limit():
    """200 steps in decisions of 3 are 67; gravity does not cost, which an agent with a budget cannot use."""
    batch = make_envs("Pendulum-v1", 2, observation="state", budget=(1.0, 2.0), cost_names=("a", "b"), action_repeat=3)
    assert (batch.spec.num_decisions, batch.spec.action_repeat, batch.spec.budgets) == (67, 3, (1.0, 2.0))
    batch.reset(0)
    with pytest.raises(ValueError, match=r"Pendulum-v1: info of environment 0 at tick 1 has no 'a'"):
        batch.step(np.zeros((2, 1)))
    batch.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch:Env-v0", r"module nosuch of 'nosuch:Env-v0' cannot be imported: ModuleNotFoundError: .*PYTHONPATH=\."),
        (
            "failing_import:Env-v0",
            r"module failing_import of .* cannot be imported: ZeroDivisionError: div",
        ),
        ("leaving_import:Env-v0", r"module leaving_import of .* cannot be imported: SystemExit: 3"),
        ("os:Nope-v0", r"module os has no environment 'Nope-v0': NameNotFound: .*gymnasium\.register\(id="),
        ("os:path", r"module os has no environment 'path': NameNotFound: .*gymnasium\.register\(id="),
        ("os:", r"module os has no environment '': Error: .*gymnasium\.register\(id="),
        (":Env-v0", r"module  of ':Env-v0' cannot be imported: ValueError: Empty module name"),
    ],
)
def test_what_is_said_about_modules(name, message, tmp_path, monkeypatch):
    (tmp_path / "failing_import.py").write_text("1 / 0")
    (tmp_path / "leaving_import.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=message):
        make_envs(name, 2, observation="state", budget=1.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Pendulum-v1", {"budget": 1.0, "nope": 1}, r"Pendulum-v1 cannot be made: TypeError: .*argument 'nope'"),
        ("Pendulum-v1", {"budget": 1.0, "vectorization_mode": "asink"}, r"vectorization_mode: got .*mean 'async'\?"),
        ("PointGotoGol", {}, r"environment: got 'PointGotoGol'.*did you mean 'PointGotoGoal'\?"),
        ("Pendulm-v1", {"budget": 1.0}, r"Gymnasium id: got 'Pendulm-v1'.*did you mean 'Pendulum-v1'\?"),
        ("Pendulum-v1", {}, r"budget: 'Pendulum-v1' does not say what it allows"),
        ("Pendulum-v1", {"budget": 1.0}, r"observation: got 'pixels', but 'Pendulum-v1' gives 'state'"),
        ("Pendulum-v1", {"budget": -1.0}, r"budget: got -1.0"),
        ("Pendulum-v1", {"budget": 1.0, "task": "a"}, r"task: got 'a', but 'Pendulum-v1' has one task only"),
        ("PointGotoGoal", {"task": "PushBox"}, r"task: got 'PushBox', but the name 'PointGotoGoal' says the task"),
        ("PointGotoGoal", {"num_samples": 3}, r"num_samples: got 3"),
        ("PointGotoGoal", {"num_hazard": 3}, r"option: got 'num_hazard'.*did you mean 'num_hazards'\?"),
        ("PointGotoGoal", {"num_thread": 3}, r"option: got 'num_thread'.*did you mean 'num_threads'\?"),
        ("cartpole_swingup", {"action_repet": 3}, r"option: got 'action_repet'.*did you mean 'action_repeat'\?"),
        ("cartpole_swingup", {"task": "swing"}, r"cartpole_swingup task: got 'swing'"),
        ("pendulum", {}, r"observation: got 'pixels', but pendulum has no look"),
    ],
)
def test_what_is_said_about_names_and_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_envs(name, 2, **options)
    with pytest.raises(ValueError, match=r"num_envs: got 0"):
        make_envs(name, 0, **options)
