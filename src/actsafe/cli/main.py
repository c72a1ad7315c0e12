"""The entry point: choose the command, set up JAX, run it, and turn what goes wrong into a message and an exit code.

Exit codes: 0 done, 1 the result is not what it should be, 2 bad input, 130 and 143 stopped by Ctrl-C and SIGTERM.
"""

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

# Factorisations here are small and many: with threads of its own the linear algebra library mostly waits for itself,
# twenty times as long on a busy machine. Read once, when that library is loaded: before anything below.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# XLA would ask for a bug report where a program takes long to compile. What fails is raised, not only logged.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import actsafe
from actsafe.cli.stopping import Stopped, StopRequests, complain
from actsafe.training.errors import NoNumberError, UserError, did_you_mean

COMMANDS: Mapping[str, str] = {
    "demo": "Explore a pendulum safely, then swing it up: the whole of ActSafe in under three minutes.",
    "train": "Start a run: explore, learn, evaluate.",
    "resume": "Go on with a run exactly where it was stopped.",
    "evaluate": "Try what a run has learned on its tasks, in fresh episodes.",
    "calibrate": "Test whether a run's model knows how wrong it is, on episodes that it has not seen.",
    "certify": "Write down what a run's policy promises, what that rests on, and what it does not promise.",
    "verify": "Compare a certificate with the run that it is about, field by field.",
    "report": "Write one page about one or more runs: the verdict, what it rests on, and what is not known.",
    "plot": "Draw the figures of one or more runs in one environment, or those of a results file.",
    "reproduce": "Run an experiment: a preset, every algorithm that its agent can have, every seed; one results file.",
    "play": "Record a short video of a task: a random policy, none at all, or your own.",
    "theorem": "Try the paper's theorem: is the idealised algorithm safe in every episode, and what does it find?",
    "doctor": "Check the installation and say how to mend what is missing.",
}
"""Each command is the class of its name in the module of its name, imported when it is asked for: help is instant, and
`doctor` runs where something that other commands need is missing."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of the command in `argv` (by default what was typed)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with StopRequests() as requests:
            code = _run(arguments)
            requests.check()
        return code
    except SystemExit as leaving:  # tyro leaves this way after help and after a mistake in the options
        return leaving.code if isinstance(leaving.code, int) else 2
    except Stopped as stop:
        complain(str(stop))
        return stop.exit_code
    except BrokenPipeError:
        _drop_output()  # Its reader went away (`actsafe ... | head`).
        return 1
    except Exception as error:
        message = _explain(error)
        if message is None or os.environ.get("ACTSAFE_DEBUG", "0") not in ("", "0"):
            raise
        if isinstance(error, OSError):
            _drop_output()
        complain(f"error: {message}")
        return 2


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if arguments else 2
    if arguments == ["--version"]:
        print(f"actsafe {actsafe.__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        raise UserError(f"unknown command {name!r}; expected one of {', '.join(COMMANDS)}.{hint}")
    command_class = getattr(importlib.import_module(f"actsafe.cli.{name}"), name.capitalize())
    try:
        command = importlib.import_module("tyro").cli(command_class, prog=f"actsafe {name}", args=arguments[1:])
    except NoNumberError as error:
        raise UserError(f"{_option_of(error.word, arguments)}: {error}") from error
    return command.run(arguments)


def _option_of(word: str, arguments: Sequence[str]) -> str:
    """The option that was given this word."""
    option = arguments[0]
    for argument in arguments:
        option = argument.partition("=")[0] if argument.startswith("--") else option
        if word in (argument, argument.partition("=")[2]):
            break
    return option


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: actsafe COMMAND [OPTIONS]",
            "",
            "Explore an unknown system and keep its safety constraint while learning.",
            "",
            "commands:",
            *lines,
            "",
            "`actsafe COMMAND --help` lists the options of a command, `actsafe --version` says which one this is.",
        ]
    )


def _explain(error: Exception) -> str | None:
    """What to tell the user, or None for a fault of the program, which shows its traceback."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("actsafe"):
        return f"the package {error.name} is not installed. Run `actsafe doctor`: it says how to get what is missing"
    if isinstance(error, ImportError) and not (error.name or "actsafe").startswith("actsafe"):
        return (
            f"the package {error.name} cannot be loaded ({error}). Check the limits on memory and open files (ulimit)"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}. Check that the file is there, and your permissions"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
        return f"the output could not be written ({error.strerror}); what is in a run folder is kept there"
    if isinstance(error, RecursionError):
        return "what was given is nested too deeply to be read; expected plain JSON, some levels deep"
    if isinstance(error, MemoryError) and str(error):
        return str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return (
            "there is not enough memory for these settings. What was committed is untouched. Ask for fewer seeds or "
            "environments (num_envs), smaller batches or replays, or fewer candidates, particles and data points: "
            "`actsafe train --dry-run` prints all settings"
        )
    return None


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python must not complain about it when it ends."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
