"""An episode in motion: a video that lies in the run's folder, or else the last one that is recorded."""

import contextlib
import shlex
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageSequence, UnidentifiedImageError

from actsafe.figures.coordinates import View, problem_of, view_of
from actsafe.figures.panels import thinned
from actsafe.report import film
from actsafe.report.findings import Findings
from actsafe.report.markup import Child, number, tag
from actsafe.report.sheet import Sheet, command, note
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError
from actsafe.training.trajectories import Episode, episodes_of, has_trajectories

FRAMES_PER_SECOND = 12
VIDEOS = ("*.webp", "*.gif", "*.png")
MOST_PIXELS, MOST_FRAMES, MOST_BYTES = 2_000_000, 2_000, 50_000_000
"""Of a frame, of a video, and of its file: what is larger is no video of ours."""
UNREADABLE = (
    OSError,
    UnidentifiedImageError,
    ValueError,
    SyntaxError,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)
"""What Pillow raises of files that are no video, or a trap."""


def episode_section(sheet: Sheet, findings: Findings) -> Child:
    """What there is to be seen of the run."""
    folder = findings.folder
    video = recorded_video(folder.path)
    if video is not None:
        path, frames, rate = video
        label = f"Recorded video {path.name}"
        return [film.of_frames(sheet.identity(), frames, rate, label), tag("p", f"{label}.")]
    what, last = last_episode(folder)
    costs = zip(folder.spec.cost_names, np.sum(last.costs[1:], axis=0), strict=True)
    paid = ", ".join(f"{name} {number(float(cost))}" for name, cost in costs)
    said = f"{what}: return {number(float(np.sum(last.rewards[1:])))}, {paid}"
    seen = last.observations
    if seen.dtype == np.uint8 and seen.ndim == 4:
        evaluate = shlex.join(["actsafe", "evaluate", str(folder.path), "--video", str(folder.path / "episode.webp")])
        larger = "As the agent saw it; for a larger video of the task's policy: "
        shown = film.of_frames(sheet.identity(), seen, FRAMES_PER_SECOND, said)
        return [shown, tag("p", f"{said}. {larger}", command(evaluate))]
    view = rod_of(folder)
    if view is not None:
        shown = film.of_states(sheet.identity(), view, np.asarray(seen, float), said)
        return [shown, tag("p", f"{said}. Orange: now.")]
    return note(f"{said}. How to draw a state of {folder.spec.name} is not known.")


def rod_of(folder: RunFolder) -> View | None:
    """How to draw observations as a rod; None where they are no states, or there is no rod."""
    view = view_of(problem_of(folder.config))
    if view is None or view.plane.base is None or folder.spec.observation_shape != (view.state_dim,):
        return None
    return view


def recorded_video(path: Path) -> tuple[Path, np.ndarray, float] | None:
    """The newest video in a run's folder, frames of it, and how many a second; None where there is none to be read."""
    found = [file for pattern in VIDEOS for file in path.glob(pattern) if file.is_file()]
    for file in sorted(found, key=lambda each: each.stat().st_mtime, reverse=True):
        with contextlib.suppress(*UNREADABLE), warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            num_frames, frames = _frames(file)
            if len(frames) > 1:
                return file, np.stack(frames), FRAMES_PER_SECOND * len(frames) / num_frames
    return None


def _frames(file: Path) -> tuple[int, list[np.ndarray]]:
    """How many frames a video has, and some of them; none of what is too large. Few are held at a time."""
    if file.stat().st_size > MOST_BYTES:
        return 0, []
    with Image.open(file) as opened:
        count = getattr(opened, "n_frames", 1)
        if opened.width * opened.height > MOST_PIXELS or count > MOST_FRAMES:
            return 0, []
        kept = set(thinned(count, film.MOST_FRAMES).tolist())
        numbered = enumerate(ImageSequence.Iterator(opened))
        return count, [np.asarray(frame.convert("RGB")) for place, frame in numbered if place in kept]


def last_episode(folder: RunFolder) -> tuple[str, Episode]:
    """What it is, and the newest episode of the first environment: of its task's evaluation where that is kept;
    `StorageError` where none is sound."""
    task = folder.spec.task
    kinds = {f"Evaluation of {task.replace('_', ' ')} after": task} if has_trajectories(folder) else {}
    for what, of in {**kinds, "Learning in": ""}.items():
        for epoch in range(folder.num_committed - 1, 0, -1):
            try:
                episodes = episodes_of(folder, epoch, of)[0]
            except StorageError:
                continue
            if episodes:
                # The last may have been cut off by the end of the epoch: one that is longest was not.
                longest = max(reversed(episodes), key=lambda each: len(each.rewards))
                return f"{what} epoch {epoch}, seed {folder.config.seeds[0]}", longest
    raise StorageError(f"{folder.path} has kept no sound rows of an episode")
