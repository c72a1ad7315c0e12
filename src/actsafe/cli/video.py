"""Frames to a file that people can watch: written in whole or not at all, and nothing overwritten unasked."""

import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from actsafe.cli import jax_setup
from actsafe.training.config import ConfigError
from actsafe.training.storage import StorageError, replacing


def _write_with_pillow(frames: Sequence[Image.Image], rate: int, path: Path, **options: Any) -> None:
    first, *rest = frames
    first.save(path, save_all=True, append_images=rest, duration=round(1000 / rate), loop=0, **options)


def _write_mp4(frames: Sequence[Image.Image], rate: int, path: Path) -> None:
    # An optional dependency, needed for this format alone; it brings its own ffmpeg.
    ffmpeg = importlib.import_module("imageio_ffmpeg")
    even = frames[0].size[0] // 2 * 2
    writer = ffmpeg.write_frames(str(path), (even, even), fps=rate, macro_block_size=2, quality=8)
    with warnings.catch_warnings():
        # Python warns that JAX has threads when ffmpeg is started; it is another program, and shares nothing with us.
        warnings.simplefilter("ignore", RuntimeWarning)
        writer.send(None)
    for frame in frames:
        writer.send(frame.crop((0, 0, even, even)).tobytes())
    writer.close()


Writer = Callable[[Sequence[Image.Image], int, Path], None]
WRITERS: Mapping[str, Writer] = {
    ".gif": _write_with_pillow,
    ".webp": functools.partial(_write_with_pillow, quality=85),
    ".png": _write_with_pillow,
    ".mp4": _write_mp4,
}


def writer_for(path: Path) -> Writer:
    """What writes a video of this kind."""
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise ConfigError(f"--out: got {str(path)!r}; expected a name that ends in {', '.join(WRITERS)}")
    if suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ConfigError(
            f"--out: got {str(path)!r}, but MP4 needs imageio-ffmpeg: pip install imageio-ffmpeg, "
            "or name a file that ends in .gif or .webp"
        )
    return WRITERS[suffix]


def require_free(path: Path, may_replace: bool) -> None:
    """Raise if the video could not be written there, before it is recorded."""
    if path.is_dir() or (path.exists() and not may_replace):
        advice = "name a file in it" if path.is_dir() else "name another with --out, or replace it with --overwrite"
        raise StorageError(f"{path} exists and is left as it is; {advice}")
    if not jax_setup.is_writable(path.parent):
        raise StorageError(f"{path} cannot be written: {path.parent.absolute()} is no folder that we may write to")


def save(frames: Sequence[Image.Image], rate: int, path: Path, write: Writer) -> int:
    """The size of the file in bytes, which is there in whole or not at all."""
    with replacing(path) as temporary:
        write(frames, rate, temporary)
    return path.stat().st_size
