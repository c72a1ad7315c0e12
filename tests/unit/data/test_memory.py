"""Free memory is known where psutil cannot tell, or that is said."""

import psutil
import pytest

from actsafe.data import memory


def test_free_memory_without_psutil(monkeypatch):
    total = psutil.virtual_memory().total

    def unknown():
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr(memory.psutil, "virtual_memory", unknown)
    assert 0 < memory.free_host_bytes() < total
    monkeypatch.delattr(memory.os, "sysconf")
    with pytest.raises(MemoryError, match=r"how much memory is free is not known .*meminfo"):
        memory.free_host_bytes()
