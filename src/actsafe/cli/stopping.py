"""Stopping on request: the first Ctrl-C or SIGTERM ends the work between two compiled calls, a second one at once."""

import signal
import sys
import threading
from types import FrameType, TracebackType


class Stopped(Exception):  # noqa: N818, as it is no error
    """The user or the system asked to stop; the message says how to go on."""

    def __init__(self, signal_number: int, message: str = "") -> None:
        super().__init__(message)
        self.signal_number = signal_number

    @property
    def exit_code(self) -> int:
        """The code that shells give to a process ended by the signal."""
        return 128 + self.signal_number


class StopRequests:
    """A context in which requests to stop are noted; `check` raises `Stopped` once there is one."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._noted: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequests":
        # Python delivers signals to the main thread alone; elsewhere whoever owns that thread decides.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def check(self) -> None:
        """Raise `Stopped` if a stop was requested."""
        if self._noted is not None:
            raise Stopped(self._noted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._noted is not None:
            raise Stopped(number)
        self._noted = number
        print("stopping after the computation under way; once more stops at once", file=sys.stderr, flush=True)
