"""JAX as every command needs it: with a device, and compiled programs kept between commands."""

import os
import secrets
import time
import warnings
import zlib
from pathlib import Path

import jax

from actsafe.training.errors import UserError

VARIABLE = "ACTSAFE_CACHE"


def prepare() -> None:
    """Make JAX ready to compute, or raise `UserError`."""
    configure()
    try:
        jax.devices()
    except Exception as error:  # JAX raises many kinds here, AssertionError among them
        reason = str(error).partition("\n")[0] or type(error).__name__
        asked = os.environ.get("JAX_PLATFORMS")
        fix = f"JAX_PLATFORMS is {asked!r}: unset it, or install JAX for that platform" if asked else "reinstall JAX"
        raise UserError(f"JAX finds no device to compute on ({reason}). {fix}; `actsafe doctor` checks") from error


def configure() -> Path | None:
    """The folder in which compiled programs are kept from now on, or None."""
    folder = cache_folder()
    if folder is None or not is_writable(folder):
        return None
    drop_broken(folder)
    # One that another process is just writing cannot be read either. JAX then compiles, and nobody need be told.
    warnings.filterwarnings("ignore", message="Error reading persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return folder


def cache_folder() -> Path | None:
    """The folder asked for: $ACTSAFE_CACHE, none if that is "off", by default in the user's cache folder."""
    asked = os.environ.get(VARIABLE, "")
    if asked.lower() in ("off", "0", "no"):
        return None
    if asked:
        return Path(asked).expanduser().absolute()
    if JAX_VARIABLE in os.environ:
        return Path(os.environ[JAX_VARIABLE])
    # Not Path.home(), which raises where nobody's home is known, as in a container.
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(os.path.join("~", ".cache")))
    return home / "actsafe" / "jax" if home.is_absolute() else None


JAX_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
"""JAX's own variable for the same purpose: who has set it has chosen a place."""


def drop_broken(folder: Path) -> None:
    """Delete programs of which a killed process has written a part: JAX would neither use nor replace them.

    Looks at what was written since it looked last, once a day at all, and at nothing that is not of zlib's format.
    """
    stamp, now = folder / STAMP, time.time()
    since = stamp.stat().st_mtime if stamp.exists() else 0.0
    since = since if time.localtime(since)[:3] == time.localtime(now)[:3] else 0.0
    for path in folder.glob("*-cache"):
        try:
            # Clocks of file systems are coarse.
            if path.stat().st_mtime > since - 2.0 and not _is_whole(path.read_bytes()):
                path.unlink()
        except OSError:
            continue
    stamp.touch()
    os.utime(stamp, (now, now))


STAMP = ".checked"
"""The file that is as old as the last look for broken programs."""


def _is_whole(content: bytes) -> bool:
    if content and content[0] != ZLIB:
        return True
    stream = zlib.decompressobj()
    try:
        stream.decompress(content)
    except zlib.error:
        return False
    return stream.eof


ZLIB = 0x78
"""The first byte of what zlib has compressed."""


def is_writable(folder: Path) -> bool:
    """Whether a file can be made in `folder`, which is made first if it is not there."""
    probe = folder / f".probe-{secrets.token_hex(6)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"written to see whether this folder can be written to")
        probe.unlink()
    except OSError:
        return False
    return True
