"""Where and by which command a run was made. Nothing that names a person: no host, no user, no path of the machine."""

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import psutil

import actsafe
from actsafe.problems.cores import num_cores


def machine() -> dict[str, Any]:
    """This machine: processor, cores, memory, accelerator, operating system, and the versions that computed."""
    return {
        "cpu": _cpu_model(),
        "cores": num_cores(),
        "memory_gib": _memory_gib(),
        "accelerator": accelerator(),
        "os": _operating_system(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "actsafe": actsafe.__version__,
    }


def accelerator() -> str | None:
    """Kind and number of what JAX computes on, or None for the CPU."""
    devices = jax.devices()
    return None if devices[0].platform == "cpu" else f"{len(devices)} x {devices[0].device_kind}"


def command_line(arguments: Sequence[str] | None = None) -> str:
    """The command as it was typed, but for paths of the machine; `arguments` without the program's name.

    What lies below the working folder is written from there, and the home folder as ~.
    """
    program, typed = ("actsafe", list(arguments)) if arguments is not None else (Path(sys.argv[0]).name, sys.argv[1:])
    home = os.path.expanduser("~")  # which in a container may be nobody's
    here = [part.replace(f"{os.getcwd()}{os.sep}", "") for part in typed]
    shortened = [part.replace(home, "~") if len(home) > 1 else part for part in here]
    return shlex.join([program, *shortened]).strip()


def session(command: str, first: int) -> dict[str, Any]:
    """One stretch of work on a run: from which epoch on, by which command, on which machine."""
    return {"command": command, "machine": machine(), "first_epoch": first}


def changed_cores(sessions: Sequence[Mapping[str, Any]]) -> str:
    """A sentence for people where the machine of the last session had another number of cores; else nothing."""
    before, now = sessions[-1]["machine"].get("cores") if sessions else None, num_cores()
    if before in (None, now):
        return ""
    return (
        f"{now} core{'s' * (now > 1)} here, and {before} in the session before: sums may be split otherwise, so that "
        "the last bits differ from a run that was not interrupted"
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(psutil.virtual_memory().total / 2**30, 1)
    except Exception:  # psutil raises many kinds where a system does not say.
        return None


def _operating_system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"
