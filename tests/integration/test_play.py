"""`actsafe play`, on few steps and small pictures; and Gymnasium's wrappers on what it plays."""

import importlib.util
import io
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.wrappers import vector as vector_wrappers
from PIL import Image
from rich.console import Console

from actsafe.cli import play, video

POINT = "actsafe/PointGotoGoal-v0"
SMALL = ("--steps", "3", "--size", "16")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))


@pytest.fixture
def refused(actsafe):
    """Play something that must be refused: one message, exit code 2, no file left behind. Gives the message."""

    def _refused(*arguments):
        before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
        code, _, errors = actsafe("play", *arguments)
        assert code == 2, errors
        assert "Traceback" not in errors
        assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
        return errors

    return _refused


@pytest.mark.parametrize(
    "name", ["PointGotoGoal", "actsafe/PointGotoGoal-v0", "point-goto-goal", "POINT_GOTO_GOAL", "actsafe/pointgotogoal"]
)
def test_a_task_may_be_spelled_in_many_ways(name):
    assert play.known_task(name) == "PointGotoGoal"


def test_every_registered_task_is_known():
    ids = [name for name in gymnasium.registry if name.startswith("actsafe/")]
    assert len(ids) == 16
    assert [play.known_task(name) for name in ids] == [name.split("/")[1].removesuffix("-v0") for name in ids]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("point-goto-gaol",), "Did you mean 'PointGotoGoal'?"),
        (("PointGotoGoal-v1",), "Did you mean 'PointGotoGoal'?"),
        (("Pendulum", "--policy", "radnom"), "Did you mean 'random'?"),
        (("Pendulum", "--policy", "nowhere:act"), "nowhere cannot be imported (ModuleNotFoundError"),
        (("Pendulum", "--steps", "0"), "--steps must be at least 1, got 0"),
        (("Pendulum", "--seed", "-1"), "--seed must be at least 0, got -1"),
        (("Pendulum", "--size", "0"), "--size must be at least 16, got 0"),
        (("Pendulum", "--out", "film.avi"), "expected a name that ends in .gif, .webp, .png, .mp4"),
        (("Pendulum", "--out", "."), "expected a name that ends in"),
        (("Pendulum", "--out", "taken/film.gif"), "is no folder that we may write to"),
        (("Pendulum", "--camera", "track"), "seen from the front only"),
        (("Pendulum", "--observation", "pixels"), "pendulum has no look"),
        (("PointGotoGoal", "--camera", "trak"), "did you mean 'track'?"),
        (("PointGotoGoal", "--set", "motor_ger=3"), "did you mean 'motor_gear'?"),
        (("PointGotoGoal", "--set", "motor_gear=-3.0"), "motor_gear: got -3.0, expected a finite number of at least 0"),
    ],
)
def test_what_cannot_be_played_is_refused(refused, arguments, said):
    Path("taken").write_text("a file, not a folder")
    assert said in refused(*arguments)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("wide", "step 1: action: got shape (3,); expected finite numbers in [-1, 1] of shape (1,)"),
        ("undefined", "step 1: action: got [nan]"),
        ("wordy", "which is not an array of real numbers"),
        ("faulty", "step 1: it raised KeyError on an observation of shape (3,)"),
        ("number", "policies has 3 there, which cannot be called"),
        ("absent", "policies has nothing of that name"),
    ],
)
def test_a_bad_policy_is_named_with_what_it_did(refused, function, said):
    Path("policies.py").write_text(
        "wide = lambda observation: [0.0, 0.0, 0.0]\n"
        "undefined = lambda observation: [float('nan')]\n"
        "wordy = lambda observation: 'left'\n"
        "faulty = lambda observation: {}['left']\n"
        "number = 3\n"
    )
    assert said in refused("Pendulum", *SMALL, "--policy", f"policies:{function}")


def test_a_module_that_fails_to_import_is_the_users(refused):
    Path("broken_policy.py").write_text("1 / 0\n")
    assert "broken_policy cannot be imported (ZeroDivisionError" in refused("Pendulum", "--policy", "broken_policy:act")


def test_what_happened_is_said_and_can_be_done_again(actsafe):
    """The printed return is that of the same actions by hand; the same seed writes the same bytes."""
    Path("swinging.py").write_text("def act(observation):\n    return [1.0 if observation[2] >= 0.0 else -1.0]\n")
    arguments = ("play", "Pendulum", "--policy", "swinging:act", "--steps", "99", "--size", "32")
    code, output, errors = actsafe(*arguments)
    assert code == 0, errors
    env = gymnasium.make("actsafe/Pendulum-v0")
    observation, _ = env.reset(seed=0)
    total, cost, is_over = 0.0, 0.0, False
    while not is_over:
        observation, reward, _, is_over, info = env.step([1.0 if observation[2] >= 0.0 else -1.0])
        total, cost = total + reward, cost + info["cost"]
    assert cost > 0.0
    assert f"return   {total:.3f}" in output
    assert f"cost     {cost:.3g}  (budget 0 in an episode)" in output
    assert "after 50 steps, as the episode was over" in output
    assert "Pendulum.gif  (51 frames, 10 a second" in output
    assert "step 24 of 99" not in output and "step 25 of 99" in output
    with Image.open("Pendulum.gif") as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (51, (32, 32), 100)
    assert actsafe(*arguments, "--out", "again.gif")[0] == 0
    assert Path("again.gif").read_bytes() == Path("Pendulum.gif").read_bytes()


def test_a_robots_task_is_seen_and_its_costs_told_apart(actsafe):
    code, output, errors = actsafe("play", "point-goto-goal", *SMALL, "--out", "films/point.png", "--seed", "3")
    assert code == 0, errors
    assert "playing PointGotoGoal, random policy, seed 3" in output
    assert "after 3 steps, within the episode" in output
    assert "cost     0  (hazards 0, vases 0, pillars 0, budget 25 in an episode)" in output
    assert "goals    0 met" in output
    assert "frames/s, after" in output
    env = gymnasium.make(POINT, observation="state", render_mode="rgb_array", render_size=16)
    env.reset(seed=3)
    with Image.open("films/point.png") as film:
        assert film.n_frames == 4
        np.testing.assert_array_equal(np.asarray(film.convert("RGB")), env.render())
    env.close()


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png"])
def test_every_kind_of_file_moves(actsafe, suffix):
    assert actsafe("play", "Pendulum", "--steps", "5", "--size", "32", "--out", f"film{suffix}")[0] == 0
    with Image.open(f"film{suffix}") as film:
        assert (film.n_frames, film.size) == (6, (32, 32))


def test_a_file_is_replaced_only_when_asked(actsafe, refused):
    assert actsafe("play", "Pendulum", *SMALL, "--out", "film.png")[0] == 0
    before = Path("film.png").read_bytes()
    assert "film.png exists and is left as it is" in refused("Pendulum", *SMALL, "--out", "film.png", "--seed", "1")
    assert actsafe("play", "Pendulum", *SMALL, "--out", "film.png", "--policy", "zero", "--overwrite")[0] == 0
    assert Path("film.png").read_bytes() != before


def test_a_write_that_fails_leaves_what_was_there(refused, monkeypatch):
    def fail(frames, rate, path):
        path.write_bytes(b"the first half")
        raise OSError(28, "No space left on device")

    Path("film.gif").write_bytes(b"an older film")
    monkeypatch.setattr(video, "WRITERS", {".gif": fail})
    errors = refused("Pendulum", *SMALL, "--out", "film.gif", "--overwrite")
    assert "the disk is full: film.gif was not written" in errors


def test_mp4_says_what_it_needs(actsafe, refused, monkeypatch):
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        assert actsafe("play", "Pendulum", *SMALL, "--out", "film.mp4")[0] == 0
        assert Path("film.mp4").stat().st_size > 0
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install imageio-ffmpeg" in refused("Pendulum", *SMALL, "--out", "other.mp4")


def test_a_terminal_shows_a_bar():
    written = io.StringIO()
    assert list(play._progress(4, Console(file=written, force_terminal=True, width=80))) == [1, 2, 3, 4]
    assert "recording" in written.getvalue() and "100%" in written.getvalue()


def seen(env, num_steps=4):
    """Everything that an environment or a vector said in some steps."""
    env.reset(seed=0)
    env.action_space.seed(0)
    return [env.step(env.action_space.sample()) for _ in range(num_steps)]


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        wrappers.ClipAction,
        lambda env: wrappers.FrameStackObservation(env, 2),
        lambda env: wrappers.TransformReward(env, lambda reward: 2.0 * reward),
    ],
)
def test_gymnasiums_wrappers_work(wrap):
    env = wrap(gymnasium.make(POINT, observation="state"))
    for observation, reward, _, _, info in seen(env):
        assert observation in env.observation_space
        assert np.isfinite(reward)
        assert info["cost"] >= 0.0
    env.close()


def test_episode_statistics_are_ours():
    env = wrappers.RecordEpisodeStatistics(gymnasium.make(POINT, observation="state", episode_length=4))
    steps = seen(env)
    assert steps[-1][3]
    assert steps[-1][4]["episode"]["l"] == 4
    assert steps[-1][4]["episode"]["r"] == pytest.approx(sum(step[1] for step in steps))
    env.close()


def test_a_time_limit_truncates_earlier():
    env = gymnasium.make(POINT, observation="state", max_episode_steps=3)
    assert [step[3] for step in seen(env, 3)] == [False, False, True]
    env = wrappers.TimeAwareObservation(env)
    assert seen(env, 1)[0][0] in env.observation_space
    env.close()


def test_frames_are_collected():
    env = gymnasium.make(POINT, observation="state", render_mode="rgb_array_list", render_size=16)
    seen(env, 2)
    frames = env.render()
    assert [frame.shape for frame in frames] == [(16, 16, 3)] * 3
    env.close()


@pytest.mark.filterwarnings("default")
def test_gymnasium_records_a_video(tmp_path):
    pytest.importorskip("moviepy", reason="moviepy is not installed (optional)")
    env = gymnasium.make("actsafe/Pendulum-v0", render_mode="rgb_array", num_decisions=3)
    env = wrappers.RecordVideo(env, str(tmp_path / "videos"), episode_trigger=lambda number: True)
    seen(env, 3)
    env.close()
    assert [path.suffix for path in (tmp_path / "videos").iterdir()] == [".mp4"]


@pytest.mark.parametrize(
    "wrap", [vector_wrappers.NormalizeObservation, vector_wrappers.NormalizeReward, vector_wrappers.ClipAction]
)
def test_vector_wrappers_work(wrap):
    envs = wrap(vector(episode_length=3))
    for observations, rewards, _, _, info in seen(envs, 5):
        assert observations.shape == (2, 60)
        assert np.all(np.isfinite(rewards))
        assert info["cost"].shape == (2,)
    envs.close()


def test_vector_statistics_and_infos_are_those_of_the_copies():
    envs = vector_wrappers.RecordEpisodeStatistics(vector(episode_length=3))
    steps = seen(envs, 3)
    np.testing.assert_array_equal(steps[-1][4]["episode"]["l"], [3, 3])
    np.testing.assert_allclose(steps[-1][4]["episode"]["r"], np.sum([step[1] for step in steps], axis=0), atol=1e-6)
    envs.close()
    listed = vector_wrappers.DictInfoToList(vector(episode_length=3))
    infos = [step[4] for step in seen(listed, 4)]
    assert all(info.keys() >= {"cost", "cost_hazards", "goals_met"} for info in infos[0])
    assert infos[3] == [{}, {}], "nothing to tell in the step that resets"
    listed.close()


def vector(**options):
    return gymnasium.make_vec(
        POINT, num_envs=2, vectorization_mode="vector_entry_point", observation="state", **options
    )
