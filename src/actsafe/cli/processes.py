"""Processes that work side by side, each writing a log of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from actsafe.cli.stopping import Stopped

PAUSE = 0.2
"""Seconds between two looks at the processes."""
LINES_TOLD = 12
"""Of a log, in a message."""
DEVICE_SHARE = 0.75
"""Of a GPU's memory that JAX takes when it has it for itself."""
SHARE_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""JAX's names for that share, the new one and the old; it refuses to be given both."""


class Task(NamedTuple):
    """What one process does."""

    command: Sequence[str]
    log: Path
    """Where its output goes, after what is there."""

    def last_words(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([line for line in lines if line.strip()][-LINES_TOLD:])


class Processes:
    """Runs tasks, at most `num_at_once` side by side; the end of one, however it comes, does not disturb the others."""

    def __init__(self, tasks: Mapping[int, Task], num_at_once: int) -> None:
        self._tasks, self._num_at_once = tasks, num_at_once
        self._waiting, self._running = list(tasks), dict[int, subprocess.Popen]()
        self._environment = environment(min(num_at_once, len(tasks)))
        self.exit_codes = dict[int, int]()
        """Of the tasks that have ended; negative for a signal."""

    def work(self, look: Callable[[], None]) -> None:
        """Return when all tasks have ended. `look` is called again and again; what it raises stops them all first."""
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._num_at_once:
                    self._start(self._waiting.pop(0))
                time.sleep(PAUSE)
                self._collect()
                look()
        except BaseException:
            self._stop()
            raise

    def _start(self, number: int) -> None:
        with open(self._tasks[number].log, "ab") as log:
            self._running[number] = subprocess.Popen(
                self._tasks[number].command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # A terminal sends Ctrl-C to its whole group. In one of their own they hear of it once, from here.
                process_group=0 if os.name == "posix" else None,
            )

    def _collect(self) -> None:
        for number, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                self.exit_codes[number] = code
                del self._running[number]

    def _stop(self) -> None:
        """Ask all to stop, and wait. A second request to this process is handed on, which stops them at once."""
        while self._running:
            with contextlib.suppress(Stopped):
                for process in self._running.values():
                    process.terminate()
                for process in self._running.values():
                    process.wait()
                self._collect()


def actsafe_command(*arguments: object) -> list[str]:
    """This program with these arguments; -P, as the folder it is started in is none to import from."""
    return [sys.executable, "-P", "-m", "actsafe", *map(str, arguments)]


def environment(num_processes: int) -> dict[str, str]:
    """The variables of processes that share this machine; what the user has set stays.

    They import what this process would. On a GPU none takes memory before it is needed, and each counts on its share.
    Threads are left alone: XLA has as many as there are cores, and sums that are split otherwise may have other bits.
    """
    shares = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if not any(name in os.environ for name in SHARE_VARIABLES):
        shares[SHARE_VARIABLES[0]] = f"{DEVICE_SHARE / num_processes:.3f}"
    return {**shares, **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def hanging_up_stops() -> Iterator[None]:
    """A context in which losing the terminal is a request to stop, unless it is ignored (nohup).

    By itself it would end this process alone, and the others would go on unseen.
    """
    hangup = getattr(signal, "SIGHUP", None)  # which Windows has not
    is_ours = threading.current_thread() is threading.main_thread()
    if hangup is None or not is_ours or signal.getsignal(hangup) is not signal.SIG_DFL:
        yield
        return
    signal.signal(hangup, lambda number, frame: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(hangup, signal.SIG_DFL)
