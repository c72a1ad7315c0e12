"""An episode from pixels: a video that lies in the run's folder, or what the agent saw while it learned."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageSequence, UnidentifiedImageError

from actsafe.figures.coordinates import view
from actsafe.figures.unsure import PLACES
from actsafe.report import film
from actsafe.report.findings import Findings
from actsafe.report.markup import Child, number, tag
from actsafe.report.sheet import Sheet, command, note
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError
from actsafe.training.vision_config import ROWS

FRAMES_PER_SECOND = 12
VIDEOS = ("*.webp", "*.gif", "*.png")


def episode_section(sheet: Sheet, findings: Findings) -> Child:
    """A video that lies in the run's folder, or else the last recorded episode of the first environment."""
    folder = findings.folder
    video = recorded_video(folder.path)
    if video is not None:
        path, frames = video
        label = f"Recorded video {path.name}"
        return [film.of_frames(sheet.identity(), frames, FRAMES_PER_SECOND, label), tag("p", f"{label}.")]
    rows = last_episode(folder)
    names = dict.fromkeys(row["constraint"] for row in findings.ledger)
    paid = ", ".join(
        f"{name} {number(float(np.sum(costs)))}" for name, costs in zip(names, rows["costs"][1:].T, strict=True)
    )
    said = f"Epoch {rows['epoch']}, first environment: return {number(float(np.sum(rows['reward'][1:])))}, {paid}"
    observed = rows["observation"]
    evaluate = shlex.join(["actsafe", "evaluate", str(folder.path), "--video", str(folder.path / "episode.webp")])
    if observed.dtype == np.uint8 and observed.ndim == 4:
        shown = film.of_frames(sheet.identity(), observed, FRAMES_PER_SECOND, said)
        return [
            shown,
            tag(
                "p",
                f"{said}. As the agent saw it while it learned; for a larger video of the task's policy: ",
                command(evaluate),
            ),
        ]
    name = folder.config.environment
    if name in PLACES and observed.ndim == 2 and observed.shape[1] == view(name).state_dim:
        return [film.of_states(sheet.identity(), view(name), np.asarray(observed, float), said), tag("p", f"{said}.")]
    return note(f"{said}. This run learns from state vectors, and how to draw those of {name} is not known.")


def recorded_video(path: Path) -> tuple[Path, np.ndarray] | None:
    """The newest video in a run's folder, and its frames; None where there is none that can be read."""
    found = [file for pattern in VIDEOS for file in path.glob(pattern)]
    for file in sorted(found, key=lambda each: each.stat().st_mtime, reverse=True):
        try:
            with Image.open(file) as opened:
                frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(opened)]
        except (OSError, UnidentifiedImageError, ValueError):
            continue
        if len(frames) > 1:
            return file, np.stack(frames)
    return None


def last_episode(folder: RunFolder) -> dict[str, Any]:
    """Rows of the newest whole episode of the first environment; `StorageError` where no epoch's rows are sound."""
    for epoch in range(folder.num_committed - 1, 0, -1):
        try:
            arrays = folder.read_part(epoch, ROWS)
        except StorageError:
            continue
        starts = [*map(int, np.flatnonzero(arrays[".is_first"][0]))]
        edges = [*starts, arrays[".is_first"].shape[1]]
        if not starts:
            continue
        # The last may have been cut off by the end of the epoch: one that is followed by another was not.
        longest = int(np.argmax(np.diff(edges)[::-1]))
        begin, end = edges[-2 - longest], edges[-1 - longest]
        kept = {name: arrays[f".{name}"][0, begin:end] for name in ("observation", "reward", "costs")}
        return {"epoch": epoch, **kept}
    raise StorageError(f"{folder.path} has kept no rows of an episode")
