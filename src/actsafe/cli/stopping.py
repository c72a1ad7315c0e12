"""Stopping on request: by Ctrl-C or SIGTERM, at once or between two compiled calls, and never without effect."""

import _thread
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Stopped(KeyboardInterrupt):
    """The user or the system asked to stop; the message says how to go on."""

    def __init__(self, signal_number: int, message: str = "stopped") -> None:
        super().__init__(signal_number, message)
        self.signal_number, self.message = signal_number, message

    def __str__(self) -> str:
        return self.message

    @property
    def exit_code(self) -> int:
        """The code that shells give to a process ended by the signal."""
        return 128 + self.signal_number


class StopRequests:
    """A context in which a request to stop raises `Stopped`: at once, or, if `is_patient`, at the next `check`.

    A patient one raises at the second request. Python drops what is raised while it collects garbage, where JAX runs
    code of its own: there the request is made again as soon as that is over, and so it is after an import.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, *, is_patient: bool = False) -> None:
        self._is_patient = is_patient
        self._noted: int | None = None
        self._before: dict[int, Any] = {}
        self._hook: Any = None

    def __enter__(self) -> "StopRequests":
        # Python delivers signals to the main thread alone; in another thread its owner decides.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
            self._hook, sys.unraisablehook = sys.unraisablehook, self._raise_again
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before:
            sys.unraisablehook = self._hook
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Stopped` if a stop was requested."""
        if self._noted is not None:
            raise Stopped(self._noted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            _request_again(number)
            return
        is_first, self._noted = self._noted is None, number
        if not (self._is_patient and is_first):
            raise Stopped(number)
        complain("stopping after the computation under way; once more stops at once")

    def _raise_again(self, unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, Stopped):
            # From here it would be raised here, and dropped again.
            _request_again(unraisable.exc_value.signal_number)
        else:
            self._hook(unraisable)


def complain(message: str) -> None:
    """Print to the standard error, at once."""
    print(message, file=sys.stderr, flush=True)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: what is raised in the middle of one in C++ may abort the process."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _request_again(number: int) -> None:
    """Make the request once more, in a moment."""
    again = threading.Timer(0.03, _thread.interrupt_main, [number])
    again.daemon = True
    again.start()
