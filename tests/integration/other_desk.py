"""Run a program as on a system that is not Linux: without fcntl, some signals, affinities, and /proc.

Usage: python other_desk.py CODE arguments...
"""

import builtins
import io
import os
import signal
import sys

HIDDEN_MODULES = ("fcntl", "grp", "pwd", "termios")
HIDDEN_NAMES = ((signal, "SIGHUP"), (os, "sched_getaffinity"), (os, "sysconf"), (os, "mkfifo"), (os, "geteuid"))
LIBRARIES = {"psutil", "jax", "jaxlib", "mujoco"}
"""They are built for each system, and ask it in its own way."""


def hide() -> None:
    """From now on this process is on another system."""
    for name in HIDDEN_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for place, name in HIDDEN_NAMES:
        delattr(place, name)
    open_there, stat_there = io.open, os.stat

    def require_seen(path: object) -> None:
        if str(path).startswith(("/proc", "/sys")) and not LIBRARIES & set(callers()):
            raise FileNotFoundError(2, "No such file or directory", str(path))

    def opened(file, *arguments, **options):
        require_seen(file)
        return open_there(file, *arguments, **options)

    def found(path, *arguments, **options):
        require_seen(path)
        return stat_there(path, *arguments, **options)

    builtins.open = io.open = opened
    os.stat = found


def callers():
    """The packages whose functions are being called."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_globals.get("__name__", "").partition(".")[0]
        frame = frame.f_back


if __name__ == "__main__":
    import jax  # noqa: F401
    import psutil  # noqa: F401

    code, sys.argv = sys.argv[1], sys.argv[1:]
    hide()
    exec(code)
