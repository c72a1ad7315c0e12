"""The kinds of runs, by the name that config.json has for them: which settings they have, and how they are stored."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from actsafe.training.config import Config
from actsafe.training.stores import Archive, OrbaxFolder, Store
from actsafe.training.vision_config import VisionConfig


class Kind(NamedTuple):
    """What a run folder must know of a run."""

    config: Any
    """The class of its settings: `to_json`, `from_json`, `digest`, `unit`, `num_units` and `parts_kept`."""
    store: Store


DEFAULT = "gp"
"""What a folder is of that does not say."""

KINDS: Mapping[str, Kind] = {"gp": Kind(Config, Archive()), "vision": Kind(VisionConfig, OrbaxFolder())}


def kind_of(config: Any) -> str:
    """The name of the kind that has such settings."""
    return next(name for name, kind in KINDS.items() if isinstance(config, kind.config))
