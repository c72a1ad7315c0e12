"""Files that are whole or absent: what is written under a final name was written in full and forced to disk first."""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from actsafe.training.errors import UserError


class StorageError(UserError, RuntimeError):
    """A file that cannot be written or read, with what to do about it."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A context with a path to write to, whose file is `path` afterwards: readers see the old one or the new one.

    When it fails, neither a part of it nor a new folder stays behind.
    """
    if os.path.lexists(path) and not path.is_file():
        raise StorageError(f"{path} is no regular file and is left as it is; name another file")
    temporary = _temporary(path)
    new_folders = [folder for folder in path.absolute().parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_interrupted(path.parent, of=path.name, age=60.0)
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        _remove(temporary)
        for folder in new_folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise _explain(error, path) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write `path` in one step: readers see the old content or the new, never a part."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON; numbers that JSON does not have become null."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """`value` as readable JSON; numbers that JSON does not have become null."""
    return json.dumps(finite(value), indent=1) + "\n"


def write_json_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    write_text(path, "".join(json.dumps(finite(row)) + "\n" for row in rows))


def write_first(path: Path, content: bytes) -> None:
    """Write `path` in one step; `FileExistsError` where it is there already, also by a writer at the same time."""
    temporary = _temporary(path)
    try:
        write_new(temporary, content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # A file system without hard links.
            write_new(path, content)
    except FileExistsError:
        raise
    except OSError as error:
        raise _explain(error, path) from error
    finally:
        _remove(temporary)


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Make folder `path`, in a folder that is there, in one step; if anything fails nothing is left of it.

    `fill` writes its files before it has its name; what it writes must be on the disk when it returns.
    """
    temporary = _temporary(path)
    try:
        temporary.mkdir()
        fill(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise _explain(error, path) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def clear_interrupted(folder: Path, *, of: str | None = None, age: float = 0.0) -> None:
    """Delete what interrupted writes left in `folder`: names that only this module makes, files and folders, no links.

    `of` limits it to one final name, `age` to what was not touched for that number of seconds.
    """
    for entry in folder.iterdir():
        match = _TEMPORARY.fullmatch(entry.name)
        if match is None or (of is not None and match["name"] != of):
            continue
        with contextlib.suppress(OSError):
            found = entry.lstat()
            if stat.S_ISLNK(found.st_mode) or found.st_mtime > time.time() - age:
                continue
            shutil.rmtree(entry) if stat.S_ISDIR(found.st_mode) else entry.unlink()


def read_json(path: Path) -> Any:
    """The JSON in `path`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path} does not exist") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror}); check your permissions and the disk") from error
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is damaged ({error}); restore it from a copy, or start a new run") from error


def arrays_to_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The arrays as an npz file (no pickle)."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def bytes_to_arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of an npz file that `arrays_to_bytes` made, or ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            if any(member.compress_type != zipfile.ZIP_STORED for member in packed.infolist()):
                raise ValueError("it is compressed, which actsafe does not write")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile and numpy raise many kinds for what they did not write.
        raise ValueError(f"{type(error).__name__}: {error}") from error


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, which may be larger than the memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_room(path: Path, num_bytes: int, *, of: str, advice: str) -> None:
    """Raise where the disk of the folder `path`, which need not exist, cannot hold `num_bytes` in it in all."""
    there = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    free = shutil.disk_usage(next(each for each in (path, *path.absolute().parents) if each.is_dir())).free
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


def _temporary(path: Path) -> Path:
    """A name beside `path` that no other writer has; what reads a file's kind from its suffix finds the same."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}{path.suffix}")


_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}(\.\w+)?")
"""The names that `_temporary` makes."""


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


_FULL = (errno.ENOSPC, errno.EDQUOT) if hasattr(errno, "EDQUOT") else (errno.ENOSPC,)


def _explain(error: OSError, path: Path) -> StorageError:
    again = "then repeat the command (a run that has begun goes on with `actsafe resume`)"
    if error.errno in _FULL:
        return StorageError(
            f"the disk is full: {path} was not written. What was there before is untouched; free some space, {again}"
        )
    return StorageError(
        f"{path} could not be written ({error.strerror or error}). What was there before is untouched; check the disk, "
        f"its limits and your permissions there, {again}"
    )
