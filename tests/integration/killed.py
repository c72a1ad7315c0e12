"""Run a command and send this process a signal at the N-th time it touches a file of a folder.

Usage: python killed.py SIGNAL FOLDER N actsafe-arguments...
"""

import os
import signal
import sys

EVENTS = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")


def kill_at(folder: str, number: int, signal_number: int = signal.SIGKILL) -> None:
    """From now on, count what is done to files under `folder`; the signal comes before the `number`-th."""
    count = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal count
        if event in EVENTS and str(arguments[0]).startswith(folder):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal_number)

    sys.addaudithook(hook)


if __name__ == "__main__":
    from actsafe.cli.main import main

    kill_at(sys.argv[2], int(sys.argv[3]), signal.Signals[sys.argv[1]])
    sys.exit(main(sys.argv[4:]))
