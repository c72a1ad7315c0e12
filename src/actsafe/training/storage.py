"""Files that are whole or absent: what is written under a final name was written in full and forced to disk first."""

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from actsafe.training.errors import UserError


class StorageError(UserError, RuntimeError):
    """A file that cannot be written or read, with what to do about it."""


def write_text(path: Path, text: str) -> None:
    """Write `path` in one step: readers see the old content or the new, never a part."""
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_new(temporary, text.encode())
        os.replace(temporary, path)
    except OSError as error:
        _remove(temporary)
        raise _explain(error, path) from error
    except BaseException:
        _remove(temporary)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON; numbers that JSON does not have become null."""
    write_text(path, json.dumps(finite(value), indent=1) + "\n")


def write_json_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    write_text(path, "".join(json.dumps(finite(row)) + "\n" for row in rows))


def write_folder(path: Path, files: Mapping[str, bytes], fill: Callable[[Path], None] = lambda folder: None) -> None:
    """Make folder `path` with these files in one step; if anything fails nothing is left of it.

    `fill` puts more into the folder before it has its name; what it writes must be on the disk when it returns.
    """
    temporary = _temporary(path)
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            write_new(temporary / name, content)
        fill(temporary)
        os.replace(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _explain(error, path) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_json(path: Path) -> Any:
    """The JSON in `path`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path} does not exist") from error
    except (ValueError, OSError) as error:
        raise StorageError(f"{path} is damaged ({error}); restore it from a copy, or start a new run") from error


def arrays_to_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The arrays as an npz file (no pickle)."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def bytes_to_arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of an npz file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """The same of a file that may be larger than the memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_room(path: Path, num_bytes: int, *, of: str, advice: str) -> None:
    """Raise where the disk of the folder `path` cannot hold `num_bytes` in it, what is there already included."""
    there = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    free = shutil.disk_usage(path).free
    if num_bytes > there + free:
        raise StorageError(
            f"checkpoints of {of} may need {size_text(num_bytes)}, and the disk of {path} has {size_text(free)} free. "
            f"Free some, choose a folder on another disk, {advice}"
        )


def size_text(num_bytes: int) -> str:
    """A size for people."""
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**29 else f"{num_bytes / 2**20:.0f} MiB"


def finite(value: Any) -> Any:
    """`value` with plain Python numbers, and null for what is not finite."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray):
        return finite(value.tolist())
    if isinstance(value, np.generic):
        return finite(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """A context in which no other process holds `path` in this way; the lock ends with the process, however it ends."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                f"another process is working on {path.parent}; wait until it has ended, or stop it first"
            ) from error
        except OSError:
            pass  # A file system without locks: then there is none to respect.
        yield


def _temporary(path: Path) -> Path:
    """A name beside `path` that no other writer has."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}")


def write_new(path: Path, content: bytes) -> None:
    """Write a file that was not there; it is on the disk afterwards. Whole or not is for the caller to see to."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(path: Path) -> None:
    """Remove what an interrupted write left; what cannot be removed is cleared by the next one."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _explain(error: OSError, path: Path) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"the disk is full: {path} was not written. What was there before is untouched; "
            "free some space and run `actsafe resume` on the run folder to go on"
        )
    return StorageError(
        f"{path} could not be written ({error.strerror}). What was there before is untouched; "
        "check the disk, its limits and your permissions there, then go on"
    )
