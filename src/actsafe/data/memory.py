"""How much memory there is to put things into."""

import os
from pathlib import Path
from typing import Any

import jax
import psutil

CONTROL_GROUP = Path("/sys/fs/cgroup")


def free_device_bytes(device: Any = None) -> int:
    """What is not in use of the memory that JAX may take on `device` (None: the first one).

    A device that does not say, as a CPU, uses the host's.
    """
    stats = (jax.devices()[0] if device is None else device).memory_stats()
    if not stats or "bytes_limit" not in stats:
        return free_host_bytes()
    return stats["bytes_limit"] - stats["bytes_in_use"]


def free_host_bytes() -> int:
    """What this process can still take without swapping, within the limit of its container."""
    free = [_available()]
    limit = CONTROL_GROUP / "memory.max"
    if limit.exists() and (text := limit.read_text().strip()) != "max":
        used = int((CONTROL_GROUP / "memory.current").read_text())
        # Files that were read and are not needed at the moment give way.
        stat = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
        free.append(int(text) - used + int(stat.get("inactive_file", 0)))
    return max(0, min(free))


def _available() -> int:
    """Of the machine: what psutil says, else the pages that hold nothing at all, else MemoryError."""
    try:
        return psutil.virtual_memory().available
    except Exception as unknown:  # for instance without /proc, on Linux
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        except (AttributeError, OSError, ValueError):
            raise MemoryError(
                f"how much memory is free is not known ({unknown}); psutil must be able to tell"
            ) from None
