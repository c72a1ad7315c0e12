"""Settings to JSON and back: frozen dataclasses, nested as their type hints say, every entry checked."""

import dataclasses
import difflib
import hashlib
import json
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from actsafe.training.errors import UserError


class ConfigError(UserError, ValueError):
    """A setting that cannot be run, with what to do about it."""


def plain(settings: Any) -> dict[str, Any]:
    """The settings as values that JSON has; `build` gives them back."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def digest(content: Mapping[str, Any]) -> str:
    """A short hash of settings as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def build(cls: type, values: Any, prefix: str = "") -> Any:
    """A `cls` with these entries; one that is unknown or not of its kind raises `ConfigError`.

    Entries left out have their defaults. A value that already is what its entry wants is taken as it is. `prefix` is
    the path of `cls` within the settings, with a dot at its end.
    """
    require_mapping(prefix.rstrip(".") or "config", values)
    hints = typing.get_type_hints(cls)
    names = [prefix + field.name for field in dataclasses.fields(cls)]
    built = {}
    for name, value in values.items():
        require_known("setting", f"{prefix}{name}", names)
        built[name] = _value(f"{prefix}{name}", value, hints[name])
    try:
        return cls(**built)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, ConfigError) else ConfigError(str(error)) from error


def require_mapping(name: str, value: Any) -> None:
    """Raise `ConfigError` unless `value` has entries."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be an object with one entry per setting, got {value!r}")


def require_known(what: str, got: Any, known: Iterable[str]) -> None:
    """Raise `ConfigError` with the nearest known name unless `got` is one of `known`."""
    names = list(known)
    if got in names:
        return
    nearest = difflib.get_close_matches(str(got), names, n=1, cutoff=0.3)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise ConfigError(f"unknown {what} {got!r}; expected one of {', '.join(names)}.{hint}")


def require_at_least(least: int, settings: Any, *names: str) -> None:
    """Raise `ConfigError` where one of these entries is smaller."""
    for name in names:
        if not getattr(settings, name) >= least:
            raise ConfigError(f"{name} must be at least {least}, got {getattr(settings, name)}")


def _is_list(value: Any, *kinds: type) -> bool:
    return isinstance(value, list | tuple) and all(type(item) in kinds for item in value)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


_KINDS: Mapping[Any, tuple[str, Any]] = {
    type(None): ("null", lambda value: value is None),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: type(value) is int),
    float: ("a finite number", _is_finite),
    str: ("a text", lambda value: isinstance(value, str)),
    tuple[int, ...]: ("a list of whole numbers", lambda value: _is_list(value, int)),
    tuple[float, ...]: (
        "a list of finite numbers",
        lambda value: _is_list(value, int, float) and all(map(_is_finite, value)),
    ),
    tuple[str, ...]: ("a list of texts", lambda value: _is_list(value, str)),
    dict[str, Any]: ("an object with any entries", lambda value: isinstance(value, dict)),
}
"""For every type that a setting may have: its name for people, and whether a value read from JSON is one."""


def _value(path: str, value: Any, hint: Any) -> Any:
    """`value` as the type that the setting has, or `ConfigError`."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if option in _KINDS:
            if _KINDS[option][1](value):
                return _as(option, value)
        elif isinstance(value, option):
            return value
    nested = [option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)]
    if nested:
        return build(nested[0], value, f"{path}.")
    expected = " or ".join(_KINDS[option][0] for option in options if option in _KINDS)
    raise ConfigError(f"{path} must be {expected}, got {value!r}")


def _as(kind: Any, value: Any) -> Any:
    if kind is float:
        return float(value)
    if kind == tuple[float, ...]:
        return tuple(map(float, value))
    return tuple(value) if isinstance(value, list) else value
