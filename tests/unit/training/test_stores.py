"""What was written comes back bit for bit, and what is damaged is noticed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.training.storage import StorageError
from actsafe.training.stores import Archive, OrbaxFolder, flatten, unflatten

STORES = pytest.mark.parametrize("store", [Archive(), OrbaxFolder()])


@pytest.fixture
def tree():
    return {
        "weights": jnp.linspace(0.0, 1.0, 12, dtype=jnp.float32).reshape(3, 4),
        "half": jnp.arange(3, dtype=jnp.bfloat16),
        "images": np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3),
        "is_first": np.array([True, False]),
        "count": jnp.int32(7),
        "key": jax.random.key(3),
        "none": np.zeros((0, 2), np.float32),
        "activation": jax.nn.elu,
    }


def assert_same(got, expected):
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        if callable(right):
            assert left is right
            continue
        assert left.dtype == right.dtype
        is_key = jnp.issubdtype(right.dtype, jax.dtypes.prng_key)
        np.testing.assert_array_equal(*(jax.random.key_data(leaf) if is_key else leaf for leaf in (left, right)))


def test_orbax_gives_back_what_was_written(tree, tmp_path):
    checksum = OrbaxFolder().write(tmp_path / "state", flatten(tree))
    assert_same(unflatten(OrbaxFolder().read(tmp_path / "state", checksum), tree), tree)


def test_an_archive_gives_back_what_was_written(tree, tmp_path):
    del tree["half"]  # numpy's files do not know it
    checksum = Archive().write(tmp_path / "state", flatten(tree))
    assert_same(unflatten(Archive().read(tmp_path / "state", checksum), tree), tree)


def test_shapes_are_enough_to_restore(tree, tmp_path):
    arrays = {name: leaf for name, leaf in tree.items() if not callable(leaf)}
    assert_same(unflatten(flatten(arrays), jax.eval_shape(lambda: arrays)), arrays)


@STORES
def test_every_truncated_or_altered_or_missing_file_is_noticed(store, tmp_path):
    arrays = {"a": np.arange(1000.0), "b": np.ones(3, np.uint8)}
    checksum = store.write(tmp_path / "state", arrays)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    for file in files:
        content = file.read_bytes()
        if not content:
            continue
        for damaged in (content[:-1], bytes([content[0] ^ 1]) + content[1:]):
            file.write_bytes(damaged)
            with pytest.raises(StorageError, match="truncated or altered"):
                store.read(tmp_path / "state", checksum)
        file.unlink()
        with pytest.raises(StorageError, match="cannot be read"):
            store.read(tmp_path / "state", checksum)
        file.write_bytes(content)
    np.testing.assert_array_equal(store.read(tmp_path / "state", checksum)["a"], arrays["a"])
    store.remove(tmp_path / "state")
    store.remove(tmp_path / "state")
    assert not list(tmp_path.iterdir())


def test_another_shape_is_refused(tmp_path):
    arrays = flatten({"w": np.zeros((2, 3), np.float32)})
    with pytest.raises(StorageError, match=r"float32\(2, 3\) for \['w'\], expected float32\(3, 2\)"):
        unflatten(arrays, {"w": np.zeros((3, 2), np.float32)})
    with pytest.raises(StorageError, match="nothing for"):
        unflatten(arrays, {"v": np.zeros(2)})
