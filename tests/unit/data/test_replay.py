"""The replay: a ring that never tears, windows that are fair, and the same on both sides of the bus."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.data import memory
from actsafe.data import replay as replay_module
from actsafe.data.replay import HostReplay, Replay, Rows, make_replay, require_sound

KINDS = pytest.mark.parametrize("kind", [Replay, HostReplay], ids=["device", "host"])
NUM_ENVS, CAPACITY, SHAPE = 3, 8, (2, 2, 3)
LAYOUT = (NUM_ENVS, CAPACITY, SHAPE, np.uint8, 2, 1)


def block(start, stop, num_envs=NUM_ENVS):
    """Ticks `start` to `stop`: row t of environment e has reward 100 e + t, and everything else follows from it."""
    reward = (100.0 * np.arange(num_envs)[:, None] + np.arange(start, stop)[None]).astype(np.float32)
    return Rows(
        observation=np.broadcast_to(reward.astype(np.uint8)[..., None, None, None], (*reward.shape, *SHAPE)),
        action=np.stack([reward, -reward], axis=-1),
        reward=reward,
        costs=reward[..., None] / 2.0,
        is_first=reward % 5 == 0,
    )


def arrays(replay):
    """The rows that a replay has (environment, time, ...), oldest first."""
    count = int(replay.count)
    ticks = (int(replay.position) - count + np.arange(count)) % replay.capacity
    return Rows(*(np.asarray(store)[:, ticks] for store in replay.rows))


def assert_consistent(rows):
    """Whatever was drawn, the fields of a row belong together."""
    reward = np.asarray(rows.reward)
    np.testing.assert_array_equal(rows.observation[..., 0, 0, 0], reward.astype(np.uint8))
    np.testing.assert_array_equal(rows.observation[..., 1, 1, 2], reward.astype(np.uint8))
    np.testing.assert_array_equal(rows.action, np.stack([reward, -reward], axis=-1))
    np.testing.assert_array_equal(rows.costs[..., 0], reward / 2.0)
    np.testing.assert_array_equal(rows.is_first, reward % 5 == 0)


@KINDS
def test_the_oldest_rows_give_way(kind):
    """8 places; blocks of 5, 5 and 1 end at tick 11, so that ticks 3 to 10 are left, and 6 rows wrapped round."""
    replay = kind.empty(*LAYOUT)
    assert (int(replay.count), replay.can_sample(1)) == (0, False)
    for start, stop, count in ((0, 5, 5), (5, 10, 8), (10, 11, 8)):
        replay = replay.append(block(start, stop))
        assert int(replay.count) == count
    expected = block(3, 11)
    for name, field in arrays(replay)._asdict().items():
        np.testing.assert_array_equal(field, getattr(expected, name))
        assert field.dtype == (np.float32 if field.dtype.kind == "f" else getattr(expected, name).dtype)
    # A byte per channel, 4 bytes for each of 2 actions, the reward and a cost, 1 byte for is_first.
    assert sum(field.nbytes for field in replay.rows) == NUM_ENVS * CAPACITY * (12 + 4 * 4 + 1)


@KINDS
def test_a_block_as_long_as_the_ring(kind):
    replay = kind.empty(*LAYOUT).append(block(0, 3)).append(block(3, 11))
    np.testing.assert_array_equal(arrays(replay).reward, block(3, 11).reward)


@KINDS
@pytest.mark.parametrize("num_ticks", [4, 8, 13], ids=["filling", "full", "wrapped"])
def test_windows_do_not_straddle_the_write_position(kind, num_ticks, key):
    """In every window the ticks follow each other; and every window that exists is drawn."""
    replay = kind.empty(*LAYOUT)
    for start in range(num_ticks):
        replay = replay.append(block(start, start + 1))
    rows = replay.sample(key, 500, 3)
    assert isinstance(rows.observation, jax.Array)
    assert rows.observation.shape == (500, 3, *SHAPE)
    assert_consistent(rows)
    np.testing.assert_array_equal(np.diff(rows.reward, axis=1), 1.0)
    starts = np.unique(np.asarray(rows.reward)[:, 0] % 100.0)
    np.testing.assert_array_equal(starts, np.arange(max(0, num_ticks - CAPACITY), num_ticks - 2))


def test_all_windows_have_the_same_chance(key):
    """3 x 6 windows in 18,000 draws, 1000 each: chi-square with 17 degrees of freedom exceeds 40.8 once in 1000."""
    replay = Replay.empty(*LAYOUT).append(block(0, 8)).append(block(8, 11))
    first = np.stack([replay.sample(own_key, 500, 3).reward[:, 0] for own_key in jax.random.split(key, 36)])
    _, counts = np.unique(first, return_counts=True)
    assert len(counts) == 18
    assert np.sum((counts - 1000.0) ** 2 / 1000.0) < 40.8


@KINDS
@pytest.mark.parametrize(("recent", "first"), [(4, 9), (3, 10), (8, 5), (20, 5)])
def test_half_of_the_windows_may_be_recent(kind, recent, first, key):
    """Rows 5 to 12 are there. Windows of 3 begin at 5 to 10; those in the newest `recent` rows not before `first`."""
    replay = kind.empty(*LAYOUT).append(block(0, 6)).append(block(6, 13))
    starts = np.asarray(replay.sample(key, 601, 3, recent).reward)[:, 0] % 100.0
    np.testing.assert_array_equal(np.unique(starts[:300]), np.arange(5, 11))
    np.testing.assert_array_equal(np.unique(starts[300:]), np.arange(first, 11))


def test_host_and_device_draw_the_same(key):
    replays = [kind.empty(*LAYOUT).append(block(0, 7)).append(block(7, 12)) for kind in (Replay, HostReplay)]
    for first, second in zip(*(replay.sample(key, 4, 5) for replay in replays), strict=True):
        np.testing.assert_array_equal(first, second)
        assert first.dtype == second.dtype
    many = [replay.sample_many(key, 3, 4, 5, 6) for replay in replays]
    for first, second in zip(*many, strict=True):
        np.testing.assert_array_equal(first, second)
    # The second of three is what the second of three keys gives.
    alone = replays[1].sample(jax.random.split(key, 3)[1], 4, 5, 6)
    np.testing.assert_array_equal(many[0].reward[1], alone.reward)
    assert many[0].reward.shape == (3, 4, 5)


def test_everything_inside_one_compiled_loop(key):
    """As learning does it: append, then draw in a scan, traced once."""

    @jax.jit
    def learn(replay, rows, keys):
        replay = replay.append(rows)
        return replay, jax.lax.map(lambda key: replay.sample(key, 4, 5), keys)

    replay, rows = learn(Replay.empty(*LAYOUT).append(block(0, 8)), block(8, 11), jax.random.split(key, 5))
    assert int(replay.count) == 8
    assert rows.reward.shape == (5, 4, 5)
    assert_consistent(rows)
    np.testing.assert_array_equal(np.diff(rows.reward, axis=2), 1.0)


def test_appending_takes_over_the_memory():
    replay = Replay.empty(*LAYOUT)
    place = replay.rows.observation.unsafe_buffer_pointer()
    after = replay.append(block(0, 2))
    assert after.rows.observation.unsafe_buffer_pointer() == place
    assert replay.rows.observation.is_deleted()


@KINDS
def test_the_same_rows_elsewhere_in_the_ring_draw_the_same(kind, key):
    """As when a run goes on: neither draws nor what is appended next may depend on where the rows lie."""
    replay = kind.empty(*LAYOUT).append(block(0, 7)).append(block(7, 12))
    again = kind.empty(*LAYOUT).append(arrays(replay))
    assert again.count == replay.count
    for each in (0, 1):
        np.testing.assert_array_equal(again.sample(key, 4, 5).reward, replay.sample(key, 4, 5).reward)
        replay, again = replay.append(block(12 + each, 13 + each)), again.append(block(12 + each, 13 + each))


@KINDS
def test_refuses_more_rows_than_it_can_hold(kind):
    rows = arrays(kind.empty(*LAYOUT).append(block(0, 8)))
    with pytest.raises(ValueError, match=r"got 8 ticks, expected at most 6"):
        kind.empty(NUM_ENVS, 6, SHAPE, np.uint8, 2, 1).append(rows)


@KINDS
def test_refuses_too_few_rows_and_rows_of_another_kind(kind, key):
    replay = kind.empty(*LAYOUT).append(block(0, 4))
    assert replay.can_sample(4)
    assert not replay.can_sample(5)
    for draw in (lambda: replay.sample(key, 2, 5), lambda: replay.sample_many(key, 2, 2, 5)):
        with pytest.raises(ValueError, match=r"windows of 5 rows to draw, but every environment has 4"):
            draw()
    with pytest.raises(ValueError, match=r"got 9 ticks, expected at most 8"):
        replay.append(block(0, 9))
    with pytest.raises(ValueError, match=r"observation of the rows has shape \(2, 1, 2, 2, 3\), expected \(3, time, 2"):
        replay.append(block(0, 1, num_envs=2))
    with pytest.raises(ValueError, match=r"observation of the rows is float64, expected uint8"):
        replay.append(block(0, 1)._replace(observation=np.zeros((NUM_ENVS, 1, *SHAPE))))
    np.testing.assert_array_equal(arrays(replay).reward, block(0, 4).reward)
    with pytest.raises(ValueError, match=r"capacity: got 0"):
        kind.empty(NUM_ENVS, 0, SHAPE, np.uint8, 2, 1)


def test_where_a_replay_goes(monkeypatch):
    """It needs 3 x 8 x 29 = 696 bytes: half of 1392 are enough on the device, four fifths of 870 on the host."""
    free = {"device": 1392, "host": 870}
    monkeypatch.setattr(replay_module, "free_device_bytes", lambda: free["device"])
    monkeypatch.setattr(replay_module, "free_host_bytes", lambda: free["host"])
    assert isinstance(make_replay(*LAYOUT), Replay)
    free["device"] = 1391
    assert isinstance(make_replay(*LAYOUT), HostReplay)
    # Four fifths of 435 bytes are half of what is needed, hence half of the capacity.
    free.update(device=100, host=435)
    with pytest.raises(MemoryError, match=r"needs 6.96e-07 GB.*50% of the 1e-07 GB.*at most 4 rows"):
        make_replay(*LAYOUT)


def test_free_memory(tmp_path, monkeypatch):
    """The container's limit of 1000 bytes, of which 700 are used, 200 of these by files that may go: 500."""
    assert memory.free_host_bytes() > 2**20

    class Device:
        def __init__(self, stats):
            self.memory_stats = lambda: stats

    assert memory.free_device_bytes(Device({"bytes_limit": 10, "bytes_in_use": 4})) == 6
    monkeypatch.setattr(memory, "CONTROL_GROUP", tmp_path)
    for name, text in (("max", "1000"), ("current", "700"), ("stat", "anon 500\ninactive_file 200")):
        (tmp_path / f"memory.{name}").write_text(text + "\n")
    assert memory.free_host_bytes() == 500
    assert memory.free_device_bytes(Device(None)) == 500


@pytest.mark.parametrize("module", [np, jnp], ids=["numpy", "jax"])
def test_unsound_rows_are_named(module):
    sound = block(0, 4)

    def spoiled(name, place, value):
        field = np.array(getattr(sound, name), np.float32)
        field[place] = value
        return jax.tree.map(module.asarray, sound._replace(**{name: field}))

    require_sound(jax.tree.map(module.asarray, sound), "here")
    for name, place, value, message in (
        ("reward", (2, 1), np.nan, r"here: the reward of environment 2 at tick 1 is nan, expected a finite number"),
        ("costs", (0, 3, 0), np.inf, r"here: the cost of environment 0 at tick 3 \(entry 0\) is inf"),
        (
            "costs",
            (1, 0, 0),
            -0.5,
            r"the cost of environment 1 at tick 0 \(entry 0\) is -0.5, expected at least 0",
        ),
        ("action", (1, 2, 1), np.nan, r"here: the action of environment 1 at tick 2 \(entry 1\) is nan"),
        (
            "observation",
            (2, 2, 0, 1, 2),
            np.nan,
            r"observation of environment 2 at tick 2 \(entry 0, 1, 2\) is nan",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            require_sound(spoiled(name, place, value), "here")
    with pytest.raises(ValueError, match=r"is_first has shape \(3, 2\), but reward has \(3, 4\)"):
        require_sound(sound._replace(is_first=sound.is_first[:, :2]), "here")
    with pytest.raises(ValueError, match=r"reward has shape \(4,\)"):
        require_sound(Rows(*(field[0] for field in sound)), "here")
