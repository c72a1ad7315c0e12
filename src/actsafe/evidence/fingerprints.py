"""What a run's files hold, as hashes: one altered bit of settings, model or data is another fingerprint.

Files are hashed as they lie on the disk, so that a damaged run has a fingerprint too.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from actsafe.training.run import CHECKPOINT, CONFIG, UNITS, require_run
from actsafe.training.storage import file_sha256


def fingerprints(path: Path) -> dict[str, str]:
    """SHA-256 of settings, model and data of the run in `path`.

    Settings are its config.json; the model is the newest checkpoint; data is all else that epochs have committed:
    manifests, trajectories or rows, metrics, ledger.
    """
    require_run(path)
    units = [unit for unit in sorted((path / UNITS).glob("[0-9]*")) if unit.is_dir()]
    files = [file for unit in units for file in sorted(unit.rglob("*")) if file.is_file()]
    return {
        "settings": file_sha256(path / CONFIG),
        "model": _sha256_of(path, (file for file in files if units[-1] in file.parents and _is_model(path, file))),
        "data": _sha256_of(path, (file for file in files if not _is_model(path, file))),
    }


def _is_model(path: Path, file: Path) -> bool:
    """Whether a committed file, epochs/0003/NAME/..., belongs to a checkpoint."""
    return file.relative_to(path).parts[2] == CHECKPOINT


def _sha256_of(path: Path, files: Iterable[Path]) -> str:
    """Of names and contents."""
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(path).as_posix()} {file_sha256(file)}\n".encode())
    return total.hexdigest()
