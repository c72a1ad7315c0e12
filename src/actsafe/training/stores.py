"""Pytrees of arrays in a folder that Orbax lays out: compressed, written and read by many threads. No pickle."""

import importlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actsafe.training.storage import StorageError


def write_arrays(path: Path, tree: Any) -> None:
    """Write the arrays of a pytree to the new folder `path`; they are on the disk afterwards."""
    # Orbax takes a second to import, and refuses arrays without entries.
    orbax = importlib.import_module("orbax.checkpoint")
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    arrays = {jax.tree_util.keystr(place): np.asarray(_data(leaf)) for place, leaf in leaves if _is_array(leaf)}
    filled = {name: array for name, array in arrays.items() if array.size}
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(path.absolute(), args=orbax.args.PyTreeSave(filled))
    for file in path.rglob("*"):
        if file.is_file():
            with open(file, "r+b") as opened:  # Windows forces only what may be written to the disk.
                os.fsync(opened.fileno())


def read_arrays(path: Path, like: Any) -> Any:
    """`like`, a pytree of arrays or of their shapes, with the arrays in `path`.

    The description is read first: `StorageError` unless the folder has exactly these names, shapes and dtypes, so that
    no file can ask for more memory than they take.
    """
    wanted = {
        jax.tree_util.keystr(place): jax.eval_shape(_data, leaf)
        for place, leaf in jax.tree_util.tree_leaves_with_path(like)
        if _is_array(leaf)
    }
    try:
        arrays = _restored(path.absolute(), {name: leaf for name, leaf in wanted.items() if leaf.size})
    except StorageError:
        raise
    except Exception as error:  # Orbax raises many kinds for what it did not write.
        reason = str(error).partition("\n")[0]
        raise StorageError(f"{path} cannot be read ({type(error).__name__}: {reason})") from error

    def pick(place: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        name = jax.tree_util.keystr(place)
        array = arrays.get(name, np.zeros(wanted[name].shape, wanted[name].dtype))
        return jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.asarray(array)

    return jax.tree_util.tree_map_with_path(pick, like)


def _restored(path: Path, wanted: dict[str, jax.ShapeDtypeStruct]) -> dict[str, np.ndarray]:
    # In the older layout names of arrays are names of folders, which may lead out of this one.
    if json.loads((path / "_METADATA").read_text(encoding="utf-8")).get("use_ocdbt") is not True:
        raise StorageError(f"{path} has another layout than actsafe writes (use_ocdbt is not true)")
    orbax = importlib.import_module("orbax.checkpoint")
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
        found = checkpointer.metadata(path).item_metadata.tree
        for name in sorted({*found, *wanted}):
            there, expected = _described(found.get(name)), _described(wanted.get(name))
            if there != expected:
                raise StorageError(f"{path} has {there} for {name}, expected {expected}")
            stored = found[name]
            if any(chunk > max(size, 1) for chunk, size in zip(stored.storage.chunk_shape, stored.shape, strict=True)):
                raise StorageError(f"{path} has chunks larger than the array {name}")
        as_arrays = {name: orbax.RestoreArgs(restore_type=np.ndarray) for name in wanted}
        return checkpointer.restore(path, args=orbax.args.PyTreeRestore(restore_args=as_arrays))


def _described(leaf: Any) -> str:
    return "nothing" if leaf is None else f"{np.dtype(leaf.dtype)}{tuple(leaf.shape)}"


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic | bool | int | float)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
