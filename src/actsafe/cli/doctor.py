"""`actsafe doctor`: imports nothing heavy at the top, so that it can say what is missing."""

import dataclasses
import enum
import importlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from actsafe.cli.options import Flag
from actsafe.training.errors import UserError

PACKAGE = "actsafe"
LEAST_PYTHON = (3, 11)
LEAST_FREE_GIB = 0.5


class Status(enum.Enum):
    """How a check came out."""

    GOOD = "ok"
    OPTIONAL = "optional"
    """Not there, and not needed."""
    BAD = "MISSING"
    """Needed, and not there."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """The outcome of one check, with what to do about it."""

    what: str
    status: Status
    found: str
    fix: str = ""


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check the installation and say how to mend what is missing.

    The exit code is 1 if something that is needed is missing.
    """

    no_plan: Flag = False
    """Do not time a decision, which has to be compiled first."""

    def run(self, arguments: Sequence[str]) -> int:
        """Print every finding."""
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
        findings = [finding for check in (_python, _packages, _extras, _jax, _disk) for finding in _guarded(check)]
        if not self.no_plan and not any(finding.status is Status.BAD for finding in findings):
            findings += _guarded(_timed_decision)
        table = Table(box=None, pad_edge=False)
        for name in ("check", "", "found"):
            table.add_column(name, overflow="fold")
        colours = {Status.GOOD: "green", Status.OPTIONAL: "yellow", Status.BAD: "bold red"}
        for finding in findings:
            table.add_row(finding.what, f"[{colours[finding.status]}]{finding.status.value}[/]", escape(finding.found))
        console.print(table)
        _print_fixes(findings, console)
        return 1 if any(finding.status is Status.BAD for finding in findings) else 0


def _print_fixes(findings: Sequence[Finding], console: Console) -> None:
    fixes = [finding for finding in findings if finding.status is not Status.GOOD and finding.fix]
    is_well = all(finding.status is not Status.BAD for finding in findings)
    console.print()
    console.print(
        "Everything that is needed is there." if is_well else "Something that is needed is missing.", style="bold"
    )
    for finding in fixes:
        verb = "to mend" if finding.status is Status.BAD else "if wanted,"
        console.print(f"{verb} {finding.what}: {finding.fix}", markup=False, soft_wrap=True)


def _guarded(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """The findings of a check; one that breaks down is a finding too."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except Exception as error:
        if os.environ.get("ACTSAFE_DEBUG", "0") not in ("", "0"):
            raise
        name = check.__name__.strip("_").replace("_", " ")
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        fix = "no cure is known; ACTSAFE_DEBUG=1 shows where it happened"
        if isinstance(error, ModuleNotFoundError) and not (error.name or PACKAGE).startswith(PACKAGE):
            fix = f"install the package {error.name}"
        findings.append(Finding(name, Status.BAD, reason, fix))
    return findings


def _python() -> Iterator[Finding]:
    is_new_enough = sys.version_info >= LEAST_PYTHON
    least = ".".join(map(str, LEAST_PYTHON))
    status = Status.GOOD if is_new_enough else Status.BAD
    yield Finding("Python", status, platform.python_version(), f"install Python {least} or newer")


def _packages() -> Iterator[Finding]:
    yield Finding(PACKAGE, Status.GOOD, metadata.version(PACKAGE))
    for requirement in _requirements(None):
        yield _package(requirement, Status.BAD, f"pip install '{requirement}'")


def _extras() -> Iterator[Finding]:
    for extra in ("test", "lint"):
        missing = [r for r in _requirements(extra) if _package(r, Status.BAD, "").status is not Status.GOOD]
        found = "complete" if not missing else f"without {', '.join(_name(requirement) for requirement in missing)}"
        status = Status.OPTIONAL if missing else Status.GOOD
        yield Finding(f"extra {extra}", status, found, f"in a checkout of actsafe: pip install '.[{extra}]'")


def _requirements(extra: str | None) -> list[str]:
    """What the package asks for, always or for an extra, without the markers."""
    found = []
    for line in metadata.requires(PACKAGE) or []:
        requirement, _, marker = line.partition(";")
        of_extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", marker)
        if (of_extra.group(1) if of_extra else None) == extra:
            found.append(requirement.strip())
    return found


def _name(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~]", requirement, maxsplit=1)[0]


def _package(requirement: str, otherwise: Status, fix: str) -> Finding:
    name = _name(requirement)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, otherwise, "not installed", fix)
    least = re.search(r">=\s*([\d.]+)", requirement)
    if least and _release(version) < _release(least.group(1)):
        return Finding(name, otherwise, f"{version}, older than {least.group(1)}", fix)
    return Finding(name, Status.GOOD, version)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _jax() -> Iterator[Finding]:
    try:
        jax = importlib.import_module("jax")
        jax_setup = importlib.import_module("actsafe.cli.jax_setup")
    except ImportError as error:
        yield Finding("JAX", Status.BAD, f"cannot be imported ({error})", "pip install --force-reinstall jax jaxlib")
        return
    cache = jax_setup.configure()
    try:
        jax_setup.prepare()
    except UserError as error:
        found, _, fix = str(error).partition(". ")
        yield Finding("device", Status.BAD, found, fix)
        return
    devices = jax.devices()
    yield Finding("device", Status.GOOD, f"{len(devices)} x {devices[0].device_kind} ({jax.default_backend()})")
    if jax.default_backend() == "cpu" and (Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi")):
        fix = "in a checkout of actsafe: pip install '.[cuda]', and leave JAX_PLATFORMS unset"
        yield Finding("accelerator", Status.OPTIONAL, "an NVIDIA GPU is here, and JAX does not use it", fix)
    yield _sums(jax)
    yield _cache(cache, jax_setup.cache_folder(), jax_setup.VARIABLE)


def _sums(jax: ModuleType) -> Finding:
    """Whether a sum comes out right that some versions of jaxlib get wrong (see `actsafe.__init__`)."""
    count = 16_385
    with jax.enable_x64(True):
        numbers = jax.numpy.arange(count, dtype=float)
        rows = jax.numpy.stack([numbers, 0.0 * numbers, 0.0 * numbers], axis=1)
        squares = jax.jit(jax.vmap(lambda row: jax.numpy.sum((jax.numpy.eye(3) @ row) ** 2)))(rows)
    found, expected = float(squares[-1]), float((count - 1) ** 2)
    is_right = found == expected
    said = "right" if is_right else f"WRONG: got {found:.0f}, expected {expected:.0f}"
    fix = "import actsafe before anything uses JAX, or set XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type="
    return Finding("large sums", Status.GOOD if is_right else Status.BAD, said, fix)


def _cache(used: Path | None, asked: Path | None, variable: str) -> Finding:
    name = "compiled programs"
    if used is not None:
        mebibytes = sum(file.stat().st_size for file in used.rglob("*") if file.is_file()) / 2**20
        return Finding(name, Status.GOOD, f"kept in {used} ({mebibytes:.0f} MiB)")
    if asked is None:
        return Finding(name, Status.OPTIONAL, "not kept", f"unset {variable}; commands then start faster")
    return Finding(
        name, Status.OPTIONAL, f"not kept: {asked} cannot be written to", f"set {variable} to another folder"
    )


def _disk() -> Iterator[Finding]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free / 2**30
    status = Status.GOOD if free >= LEAST_FREE_GIB else Status.BAD
    yield Finding(
        "disk space here", status, f"{free:.1f} GiB free", f"free at least {LEAST_FREE_GIB} GiB for run folders"
    )
    is_writable = os.access(here, os.W_OK)
    fix = "run actsafe from a folder of your own, or name one with --out"
    found = "yes" if is_writable else "no"
    yield Finding("this folder is writable", Status.GOOD if is_writable else Status.OPTIONAL, found, fix)


def _timed_decision() -> Iterator[Finding]:
    """Seconds to compile, and milliseconds for each decision of an episode, of the smallest agent that plans."""
    loop = importlib.import_module("actsafe.training.loop").make_loop(
        importlib.import_module("actsafe.training.presets").PRESETS["tiny"]()
    )
    started = time.perf_counter()
    with loop.agent.precision():
        state = loop.epoch(0, loop.begin(), loop.make_buffer()).train_state
    loop.evaluate(state, loop.agent.tasks[0], 1, epoch=1, stream=1)
    compiled = time.perf_counter()
    loop.evaluate(state, loop.agent.tasks[0], 1, epoch=1, stream=1)
    milliseconds = 1000 * (time.perf_counter() - compiled) / loop.envs.spec.num_decisions
    yield Finding("one plan", Status.GOOD, f"{milliseconds:.1f} ms, after {compiled - started:.0f} s of compiling")
