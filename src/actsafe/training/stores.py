"""Arrays on the disk, with a checksum: in one archive, or in a folder that Orbax lays out. No pickle in either."""

import importlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from actsafe.training.storage import (
    StorageError,
    arrays_to_bytes,
    bytes_to_arrays,
    file_sha256,
    sha256,
    write_new,
)

Arrays = Mapping[str, np.ndarray]


@runtime_checkable
class Store(Protocol):
    """A way to keep arrays by name under a path. Whoever writes also keeps the checksum, and hands it in to read."""

    def write(self, path: Path, arrays: Arrays) -> Any:
        """The checksum, as JSON has it; what was written is on the disk."""
        ...

    def read(self, path: Path, checksum: Any) -> dict[str, np.ndarray]:
        """What was written; `StorageError` where it is not whole."""
        ...

    def remove(self, path: Path) -> None:
        """Nothing is left, if there was anything."""
        ...


class Archive:
    """One npz file: for states of a few megabytes."""

    def write(self, path: Path, arrays: Arrays) -> str:
        content = arrays_to_bytes(arrays)
        write_new(_archive(path), content)
        return sha256(content)

    def read(self, path: Path, checksum: Any) -> dict[str, np.ndarray]:
        file = _archive(path)
        try:
            content = file.read_bytes()
        except OSError as error:
            raise StorageError(f"{file} cannot be read ({error.strerror})") from error
        if checksum != sha256(content):
            raise StorageError(f"{file} is truncated or altered: its checksum does not match")
        return bytes_to_arrays(content)

    def remove(self, path: Path) -> None:
        _archive(path).unlink(missing_ok=True)


def _archive(path: Path) -> Path:
    return path.with_name(f"{path.name}.npz")


class OrbaxFolder:
    """A folder of compressed chunks, written and read by many threads: for networks and for images.

    Orbax checks its index, not all of its content, so that every file is hashed here as well.
    """

    def write(self, path: Path, arrays: Arrays) -> dict[str, str]:
        # Orbax takes a second to import, and refuses arrays without entries.
        orbax = importlib.import_module("orbax.checkpoint")
        filled = {name: array for name, array in arrays.items() if array.size}
        with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
            checkpointer.save(path.absolute(), args=orbax.args.PyTreeSave(filled))
        files = sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())
        return {str(file.relative_to(path)): file_sha256(file) for file in files}

    def read(self, path: Path, checksum: Any) -> dict[str, np.ndarray]:
        if not isinstance(checksum, Mapping):
            raise StorageError(f"{path} has no checksums")
        for name, expected in checksum.items():
            try:
                found = file_sha256(path / name)
            except OSError as error:
                raise StorageError(f"{path / name} cannot be read ({error.strerror})") from error
            if found != expected:
                raise StorageError(f"{path / name} is truncated or altered: its checksum does not match")
        orbax = importlib.import_module("orbax.checkpoint")
        with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as checkpointer:
            names = checkpointer.metadata(path.absolute()).item_metadata.tree
            wanted = {name: orbax.RestoreArgs(restore_type=np.ndarray) for name in names}
            return checkpointer.restore(path.absolute(), args=orbax.args.PyTreeRestore(restore_args=wanted))

    def remove(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their place in it. What is no array is for the program to know."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(_data(leaf)) for path, leaf in leaves if _is_array(leaf)}


def unflatten(arrays: Arrays, like: Any) -> Any:
    """`like`, a pytree of arrays or of their shapes, with these arrays; `StorageError` where one does not fit."""

    def pick(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        name, expected = jax.tree_util.keystr(path), jax.eval_shape(_data, leaf)
        got = np.zeros(expected.shape, expected.dtype) if expected.size == 0 else arrays.get(name)
        if got is None or got.shape != expected.shape or got.dtype != expected.dtype:
            found = "nothing" if got is None else f"{got.dtype}{got.shape}"
            raise StorageError(f"the checkpoint has {found} for {name}, expected {expected.dtype}{expected.shape}")
        return jax.random.wrap_key_data(jnp.asarray(got)) if _is_key(leaf) else jnp.asarray(got)

    return jax.tree_util.tree_map_with_path(pick, like)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic | bool | int | float)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
