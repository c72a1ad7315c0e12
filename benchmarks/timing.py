"""How the benchmarks measure: compilation apart, cases in turn, one JSON object on standard output.

Choose the device with JAX_PLATFORMS (cpu, cuda). Times are of the wall clock, until the result is there.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from actsafe.training import provenance
from actsafe.training.storage import finite, write_json

jax.config.update("jax_enable_x64", True)

# JAX factors matrices on the CPU with SciPy's OpenBLAS, loaded at the first use. At our sizes its threads wait for each
# other longer than they compute, ours and the reference's alike; one thread is the fair and the fast setting.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

Case = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments, arrays and other things mixed."""

SECONDS_PER_CASE = 60.0
"""A slow case is repeated less often than asked, so that its repeats stay within about this, but at least once."""


def compile_ahead(
    function: Callable[..., Any], *args: Any, options: dict[str, str] | None = None
) -> tuple[Callable[[], Any], float]:
    """The compiled call, which waits for its result, and the seconds that tracing, lowering and compiling took.

    Arrays are inputs of the program; all else is fixed in it, as in `equinox.filter_jit`. `options` are the compiler's.
    """
    arrays, rest = eqx.partition(args, eqx.is_array)

    def on_arrays(arrays: Any) -> Any:
        return eqx.filter(function(*eqx.combine(arrays, rest)), eqx.is_array)

    started = time.perf_counter()
    compiled = jax.jit(on_arrays, compiler_options=options).lower(arrays).compile()
    return lambda: jax.block_until_ready(compiled(arrays)), time.perf_counter() - started


class CompileClock:
    """Adds up the time in which JAX traces, lowers or compiles."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            now = time.perf_counter()
            self._spans.append((now - duration_secs, now))

    def within(self, start: float, end: float) -> float:
        """Seconds of compilation between two moments; spans may nest."""
        total, covered = 0.0, start
        for span_start, span_end in sorted(self._spans):
            first, last = max(span_start, covered), min(span_end, end)
            if last > first:
                total, covered = total + last - first, last
        return total


def compare(
    cases: Mapping[str, Case], *, repeats: int, warmup: int = 1, options: dict[str, str] | None = None
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Times of every case, and what each computed. Cases take turns: what else the machine does meets all alike.

    compile_seconds; median_ms, min_ms; spread_ms (the range from the first to the third quartile); repeats.
    """
    calls, results, outputs = {}, {}, {}
    for name, (function, args) in cases.items():
        calls[name], compile_seconds = compile_ahead(function, *args, options=options)
        results[name] = {"compile_seconds": compile_seconds}
        progress(f"  compiled {name} in {compile_seconds:.1f} s")
    left, times = {}, {name: [] for name in calls}
    for name, call in calls.items():
        for _ in range(max(warmup, 1)):
            seconds, outputs[name] = _timed(call)
            left[name] = int(min(repeats, max(1.0, SECONDS_PER_CASE / seconds)))
    for turn in range(repeats):
        for name, call in calls.items():
            if turn < left[name]:
                times[name].append(_timed(call)[0])
    for name, values in times.items():
        results[name] |= _summary(values)
        progress(f"  {name}: {results[name]['median_ms']:.2f} ms")
    return results, outputs


def measure(
    function: Callable[..., Any], *args: Any, repeats: int, warmup: int = 1, options: dict[str, str] | None = None
) -> dict[str, float]:
    """Times of one function: see `compare`."""
    return compare({"it": (function, args)}, repeats=repeats, warmup=warmup, options=options)[0]["it"]


def command() -> str:
    """What was typed, without the folder in which the benchmarks are."""
    return f"python benchmarks/{provenance.command_line()}"


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    output = call()
    return time.perf_counter() - started, output


def _summary(seconds: list[float]) -> dict[str, float]:
    first, third = np.percentile(seconds, [25, 75])
    return {
        "median_ms": 1e3 * statistics.median(seconds),
        "min_ms": 1e3 * min(seconds),
        "spread_ms": 1e3 * float(third - first),
        "repeats": len(seconds),
    }


def ratio(reference: Mapping[str, float], ours: Mapping[str, float]) -> dict[str, float]:
    """How many times longer the reference takes, by median and by least time."""
    return {
        "of_medians": reference["median_ms"] / ours["median_ms"],
        "of_minima": reference["min_ms"] / ours["min_ms"],
    }


def matrix_product_gflops(size: int) -> float:
    """The rate of one float64 product of square matrices here and now: the yardstick for what a plan achieves."""
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    return 2.0 * size**3 / measure(jnp.matmul, matrix, matrix, repeats=5)["min_ms"] / 1e6


def machine() -> dict[str, Any]:
    """What the numbers were measured on; nothing that says whose it is or where."""
    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "accelerator": None if device.platform == "cpu" else device.device_kind,
        "num_devices": len(jax.devices()),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "openblas_threads": os.environ["OPENBLAS_NUM_THREADS"],
        "jax": jax.__version__,
        "python": platform.python_version(),
        "precision": "float64",
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def arguments(description: str | None, *, repeats: int) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run? The numbers mean nothing")
    parser.add_argument("--repeats", type=int, default=repeats, help="timed calls of every case")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    return parser


def emit(result: Mapping[str, Any], out: Path | None) -> None:
    """Print the result as one JSON object, and write it to `out` in one step if asked."""
    if out is not None:
        write_json(out, result)
    print(json.dumps(finite(result), indent=1))


def progress(line: str) -> None:
    """Tell a person who waits; not part of the result."""
    print(line, file=sys.stderr, flush=True)
