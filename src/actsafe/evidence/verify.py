"""A certificate against the run that it is about: made again, and compared field by field."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actsafe.evidence.certificate import SCHEMA_VERSION, certificate, heading, is_certificate, sealed
from actsafe.evidence.fingerprints import fingerprints
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError, finite, read_json

TOLERANCE = 1e-6
"""By how much of its size a cost that is computed again may differ, as other processors round otherwise. Nothing else
may differ at all."""
COMPUTED = re.compile(r"promise\.estimates\[\d+\]\.cost")
"""The paths of such fields."""


def read_certificate(path: Path) -> dict[str, Any]:
    """The certificate in a file; `StorageError` where it is missing, truncated, foreign or of another schema."""
    if not path.is_file():
        raise StorageError(f"{path} is no file. Name one that `actsafe certify` wrote")
    try:
        content = read_json(path)
    except StorageError as error:
        raise StorageError(f"{path} is no certificate, or is truncated: {error}") from error
    if not is_certificate(content):
        raise StorageError(f"{path} is not a certificate. Name a file that `actsafe certify` wrote")
    if content["schema"] != SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {content['schema']!r}, and this actsafe reads {SCHEMA_VERSION}. Verify it with the "
            f"actsafe that wrote it ({content.get('actsafe', 'not named')}), or certify the run again"
        )
    return content


def differences(claimed: Mapping[str, Any], path: Path) -> list[str]:
    """A line for every field in which a certificate is not what the run in `path` gives; none where all agree.

    Files come first, as they lie on the disk. Where they differ the run may not be readable: then its costs are not
    computed again, and what its settings say is compared all the same.
    """
    expected: dict[str, Any] = {"fingerprints": fingerprints(path)}
    files = list(differing({"fingerprints": claimed.get("fingerprints")}, expected))
    try:
        folder = RunFolder.open(path)
        expected |= finite(heading(folder)) if files else certificate(folder)
    except StorageError as error:
        return [*files, f"the run gives no certificate: {error}"]
    expected.pop("sha256", None)
    names = expected if files else {**expected, **claimed}
    rest = [name for name in names if name not in ("fingerprints", "sha256")]
    found = [*files, *differing({name: claimed.get(name) for name in rest}, {n: expected.get(n) for n in rest})]
    if not found and claimed != sealed(claimed):
        found.append("sha256: the certificate was altered after it was written")
    return found


def differing(claimed: Any, found: Any, path: str = "") -> Iterator[str]:
    """One line per place where two values from JSON differ."""
    if isinstance(claimed, dict) and isinstance(found, dict):
        for name in dict.fromkeys([*claimed, *found]):
            yield from differing(claimed.get(name), found.get(name), f"{path}.{name}" if path else name)
    elif isinstance(claimed, list) and isinstance(found, list) and len(claimed) == len(found):
        for number, (one, other) in enumerate(zip(claimed, found, strict=True)):
            yield from differing(one, other, f"{path}[{number}]")
    elif not _is_same(claimed, found, path):
        yield f"{path}: the certificate has {claimed!r}, the run gives {found!r}"


def _is_same(claimed: Any, found: Any, path: str) -> bool:
    if COMPUTED.fullmatch(path) and type(claimed) is float and type(found) is float:
        return math.isclose(claimed, found, rel_tol=TOLERANCE, abs_tol=1e-12)
    return type(claimed) is type(found) and claimed == found
