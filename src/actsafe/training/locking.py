"""One process at a time: a lock that ends with the process that holds it, however it ends."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from actsafe.training.storage import StorageError, write_first

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[Callable[[], bool]]:
    """A context in which no other process holds the file `path` in this way.

    It is given a function that says whether the lock still holds, which it does not once `path` was moved, deleted or
    replaced.
    """
    with open(path, "rb") as file:
        before = os.fstat(file.fileno())

        def is_there() -> bool:
            try:
                return os.path.samestat(before, path.stat())
            except OSError:
                return False

        if fcntl is None:
            with _marked(path.with_name(f".{path.name}.lock")) as is_ours:
                yield lambda: is_there() and is_ours()
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _taken(path) from error
        except OSError:
            pass  # A file system without locks: then there is none to respect.
        yield is_there


@contextlib.contextmanager
def _marked(mark: Path) -> Iterator[Callable[[], bool]]:
    """The same by a file that names the process that holds it; one of a process that has ended is taken over."""
    own = f"{os.getpid()} {psutil.Process().create_time()}"

    def is_ours() -> bool:
        with contextlib.suppress(OSError):
            return mark.read_text(encoding="ascii") == own
        return False

    try:
        write_first(mark, own.encode())
    except FileExistsError:
        if _is_alive(mark.read_text(encoding="ascii")):
            raise _taken(mark) from None
        mark.write_text(own, encoding="ascii")
        # Of several that take it over at once the last one has it.
        time.sleep(0.1)
        if not is_ours():
            raise _taken(mark) from None
    try:
        yield is_ours
    finally:
        if is_ours():
            mark.unlink()


def _is_alive(holder: str) -> bool:
    """Whether the process that wrote a mark still runs; its number may have gone to another one since."""
    try:
        number, created = holder.split()
        return psutil.Process(int(number)).create_time() == float(created)
    except psutil.NoSuchProcess:
        return False
    except (ValueError, psutil.Error):
        return True


def _taken(path: Path) -> StorageError:
    return StorageError(f"another process is working on {path.parent}; wait until it has ended, or stop it first")
