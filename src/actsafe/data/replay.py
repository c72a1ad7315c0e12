"""What was experienced last: a ring of rows for every environment, from which windows are drawn to learn from.

`Replay` is a pytree of arrays on the device, `HostReplay` keeps the same in the host's memory. Both have the same
methods and give the same windows for the same key. Write `replay = replay.append(rows)`, and keep no older one.
"""

from typing import Any

from actsafe.data.device_replay import Replay
from actsafe.data.host_replay import HostReplay
from actsafe.data.memory import free_device_bytes, free_host_bytes
from actsafe.data.rows import RowLayout, Rows, require_sound

__all__ = ["HostReplay", "Replay", "Rows", "make_replay", "require_sound"]


def make_replay(*layout: Any, device_share: float = 0.5, host_share: float = 0.8) -> Replay | HostReplay:
    """An empty replay; `layout` are the fields of a `RowLayout`.

    On the device where it fits into `device_share` of what is free there, for the rest is needed to learn; else on the
    host, in `host_share` of its free memory; else MemoryError.
    """
    rows = RowLayout(*layout)
    needed, on_device, on_host = rows.nbytes, free_device_bytes(), free_host_bytes()
    if needed <= device_share * on_device:
        return Replay.empty(*layout)
    if needed <= host_share * on_host:
        return HostReplay(rows)
    fitting = int(rows.capacity * max(device_share * on_device, host_share * on_host) / needed)
    raise MemoryError(
        f"a replay of {rows.num_envs} environments with {rows.capacity} rows each needs {needed / 1e9:.3g} GB. It may "
        f"take {device_share:.0%} of the {on_device / 1e9:.3g} GB that are free on the device, or {host_share:.0%} of "
        f"the {on_host / 1e9:.3g} GB on the host. Set its capacity to at most {fitting} rows, use smaller images or "
        "fewer environments, or free memory."
    )
