"""What was written comes back bit for bit, and what is not as it should be is refused before it is read."""

import json
import resource

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore

from actsafe.training.storage import StorageError
from actsafe.training.stores import read_arrays, write_arrays


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
    write_arrays(tmp_path / "state", tree)
    assert_same(read_arrays(tmp_path / "state", tree), tree)


def test_shapes_are_enough_to_restore(tree, tmp_path):
    arrays = {name: leaf for name, leaf in tree.items() if not callable(leaf)}
    write_arrays(tmp_path / "state", arrays)
    assert_same(read_arrays(tmp_path / "state", jax.eval_shape(lambda: arrays)), arrays)


def test_another_shape_is_refused(tmp_path):
    write_arrays(tmp_path / "state", {"w": np.zeros((2, 3), np.float32)})
    with pytest.raises(StorageError, match=r"float32\(2, 3\) for \['w'\], expected float32\(3, 2\)"):
        read_arrays(tmp_path / "state", {"w": np.zeros((3, 2), np.float32)})
    with pytest.raises(StorageError, match=r"float32\(2, 3\) for \['w'\], expected float64\(2, 3\)"):
        read_arrays(tmp_path / "state", {"w": np.zeros((2, 3), np.float64)})
    with pytest.raises(StorageError, match=r"nothing for \['v'\], expected float64\(2,\)"):
        read_arrays(tmp_path / "state", {"v": np.zeros(2), "w": np.zeros((2, 3), np.float32)})
    with pytest.raises(StorageError, match=r"float32\(2, 3\) for \['w'\], expected nothing"):
        read_arrays(tmp_path / "state", {})


def sparse(path, shape, chunks):
    """A checkpoint of one array whose description is all there is to it: no chunk was ever written."""
    write_arrays(path, {"w": np.ones(3, np.float32)})
    metadata = {"shape": shape, "chunks": chunks, "dtype": "<f4", "compressor": None, "fill_value": 0.0}
    kvstore = {"driver": "ocdbt", "base": f"file://{path}", "path": "['w']/"}
    tensorstore.open(
        {"driver": "zarr", "kvstore": kvstore, "metadata": metadata}, create=True, delete_existing=True
    ).result()


@pytest.mark.parametrize(("shape", "chunks"), [([2**40], [2**30]), ([3], [2**40])], ids=["shape", "chunks"])
def test_what_claims_to_be_huge_is_refused_before_it_is_read(tmp_path, shape, chunks):
    """A checkpoint of two kilobytes whose array would take terabytes; what it would take ends the process."""
    sparse(tmp_path / "state", shape, chunks)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < 2**14
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StorageError, match="expected float32" if shape != [3] else "chunks larger than"):
        read_arrays(tmp_path / "state", {"w": np.ones(3, np.float32)})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18, "KiB"


def test_the_layout_whose_names_are_paths_is_refused(tmp_path):
    """There an array may be called /elsewhere/secret."""
    write_arrays(tmp_path / "state", {"w": np.ones(3)})
    file = tmp_path / "state" / "_METADATA"
    for is_ocdbt in (False, None, 1):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"use_ocdbt": is_ocdbt}))
        with pytest.raises(StorageError, match="use_ocdbt is not true"):
            read_arrays(tmp_path / "state", {"w": np.ones(3)})


@pytest.mark.parametrize(
    "content", ["null", "[]", "{", "{}", '{"use_ocdbt": true}', '{"use_ocdbt": true, "tree_metadata": 5}']
)
def test_descriptions_of_another_kind_are_refused(tmp_path, content):
    write_arrays(tmp_path / "state", {"w": np.ones(3)})
    (tmp_path / "state" / "_METADATA").write_text(content)
    with pytest.raises(StorageError):
        read_arrays(tmp_path / "state", {"w": np.ones(3)})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_whatever_is_damaged_is_refused_or_read_as_it_was(tmp_path):
    """Without a checksum: any one file cut in half, turned over or missing."""
    arrays = {"a": np.arange(100.0), "b": np.ones(3, np.uint8)}
    write_arrays(tmp_path / "state", arrays)
    for file in [file for file in tmp_path.rglob("*") if file.is_file()]:
        content = file.read_bytes()
        for damaged in (content[: len(content) // 2], content[::-1], None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            try:
                assert_same(read_arrays(tmp_path / "state", arrays), arrays)
            except StorageError as error:
                assert "state" in str(error)
        file.write_bytes(content)
    assert_same(read_arrays(tmp_path / "state", arrays), arrays)
