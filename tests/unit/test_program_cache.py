"""Compiled programs are kept between commands, and one that was cut off while it was written does no harm."""

import os
import subprocess
import sys
import time
import zlib

import pytest

from actsafe.cli import jax_setup
from actsafe.cli.jax_setup import STAMP, cache_folder, drop_broken

WHOLE = zlib.compress(bytes(range(256)) * 40)


@pytest.fixture
def write(tmp_path):
    def _write(name, content, *, age=0.0):
        path = tmp_path / name
        path.write_bytes(content)
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
        return path

    return _write


@pytest.mark.parametrize("content", [WHOLE[:-1], WHOLE[:30], b"", b"\x78\x9cnonsense"])
def test_what_is_cut_off_is_deleted(content, write, tmp_path):
    kept = [
        write("whole-cache", WHOLE),
        write("other-cache", b"\x28\xb5\x2f\xfd of another format"),
        write("note", b""),
    ]
    broken = write("broken-cache", content)
    drop_broken(tmp_path)
    assert not broken.exists()
    assert all(path.exists() for path in kept)


def test_only_what_is_new_is_looked_at_and_once_a_day_all(write, tmp_path, monkeypatch):
    noon = time.mktime((2026, 5, 5, 12, 0, 0, 0, 0, -1))
    monkeypatch.setattr(jax_setup.time, "time", lambda: noon)

    def touched(name, at):
        path = write(name, b"\x78")
        os.utime(path, (at, at))
        return path

    touched(STAMP, noon - 60.0)
    old, new = touched("old-cache", noon - 120.0), touched("new-cache", noon - 30.0)
    drop_broken(tmp_path)
    assert old.exists()
    assert not new.exists()
    monkeypatch.setattr(jax_setup.time, "time", lambda: noon + 86_400.0)
    drop_broken(tmp_path)
    assert not old.exists(), "damaged after it was looked at"


PROGRAM = """
import sys, warnings
import jax, jax.numpy as jnp
from actsafe.cli import jax_setup
warnings.simplefilter("error")
jax_setup.prepare()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(jax.jit(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(50)).sum())(jnp.ones((50, 50)))))
"""


def test_a_broken_program_is_compiled_again_without_a_word(tmp_path):
    """Also one that breaks after it was looked for, as if another process were writing it."""
    environment = os.environ | {"ACTSAFE_CACHE": str(tmp_path)}

    def run():
        return subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
        )

    first = run()
    programs = {path: path.read_bytes() for path in tmp_path.glob("*-cache")}
    assert programs
    for path, content in programs.items():
        path.write_bytes(content[: len(content) // 2])
    again = run()
    drop_broken(tmp_path)
    assert set(tmp_path.glob("*-cache")) == set(programs)
    for path, content in programs.items():
        path.write_bytes(content[: len(content) // 2])
        os.utime(path, (0, 0))
    unseen = run()
    for done in (first, again, unseen):
        assert done.returncode == 0
        assert done.stderr == ""
        assert done.stdout == first.stdout != ""


def test_the_folder_can_be_chosen_or_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("ACTSAFE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("ACTSAFE_CACHE", "off")
    assert cache_folder() is None
    for name in ("ACTSAFE_CACHE", "JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "actsafe" / "jax"


def test_without_a_home_nothing_is_kept(monkeypatch):
    """A user of a container may have neither HOME nor an entry in the system's list of users."""
    for name in ("ACTSAFE_CACHE", "JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)
    assert cache_folder() is None
    assert jax_setup.configure() is None
