"""Settings to JSON and back: frozen dataclasses, nested as their type hints say, every entry checked."""

import dataclasses
import hashlib
import importlib
import json
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from actsafe.training.errors import UserError, did_you_mean


class ConfigError(UserError, ValueError):
    """A setting that cannot be run, with what to do about it."""


LARGEST = 10**9
"""No whole number of the settings is beyond it: none that is could be computed with."""
DEEPEST = 20
"""Of nested entries."""


def plain(settings: Any) -> dict[str, Any]:
    """The settings as values that JSON has; `build` gives them back."""
    return json.loads(json.dumps(_tagged(settings)))


def _tagged(value: Any) -> Any:
    """Dataclasses as their entries, those with a `kind` with that first."""
    if not dataclasses.is_dataclass(value):
        return value
    kind = getattr(value, "kind", None)
    return ({} if kind is None else {"kind": kind}) | {
        field.name: _tagged(getattr(value, field.name)) for field in dataclasses.fields(value)
    }


def by_path(values: Mapping[Any, Any], separator: str = ".", prefix: str = "") -> dict[str, Any]:
    """Nested entries by the names on the way to them; an object without entries is an entry itself."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        is_nested = isinstance(value, Mapping) and len(value) > 0
        found |= by_path(value, separator, f"{prefix}{name}{separator}") if is_nested else {f"{prefix}{name}": value}
    return found


def digest(content: Mapping[str, Any]) -> str:
    """A short hash of settings as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def build(cls: type, values: Any, prefix: str = "") -> Any:
    """A `cls` with these entries; one that is unknown or not of its kind raises `ConfigError`.

    Entries left out have their defaults. A value that already is what its entry wants is taken as it is. `prefix` is
    the path of `cls` within the settings, with a dot at its end.
    """
    name = prefix.rstrip(".") or "config"
    if _depth(values) > DEEPEST:
        raise ConfigError(f"{name} is nested more than {DEEPEST} deep; expected an object with one entry per setting")
    require_mapping(name, values)
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
    if got not in names:
        hint = did_you_mean(str(got), names)
        raise ConfigError(f"unknown {what} {got!r}; expected one of {', '.join(names)}.{hint}")


def require_at_least(least: int, settings: Any, *names: str, prefix: str = "") -> None:
    """Raise `ConfigError` where one of these entries is smaller; what is None is left to a default."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise ConfigError(f"{prefix}{name} must be at least {least}, got {value}")


def _depth(value: Any, limit: int = DEEPEST + 1) -> int:
    """How deep a value read from JSON is nested, as far as the limit."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return 0 if limit == 0 else max((1 + _depth(each, limit - 1) for each in inner), default=0)


def _is_list(value: Any, *kinds: type) -> bool:
    return isinstance(value, list | tuple) and all(type(item) in kinds for item in value)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


_KINDS: Mapping[Any, tuple[str, Any]] = {
    type(None): ("null", lambda value: value is None),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: (f"a whole number of at most {LARGEST:.0e}", lambda value: type(value) is int and abs(value) <= LARGEST),
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
    if hasattr(nested[0] if nested else None, "kind"):
        cls, entries = _member(path, value, options)
        return build(cls, entries, f"{path}.")
    if nested:
        return build(nested[0], value, f"{path}.")
    expected = " or ".join(_KINDS[option][0] for option in options if option in _KINDS)
    raise ConfigError(f"{path} must be {expected}, got {value!r}")


def _member(path: str, value: Any, options: tuple[Any, ...]) -> tuple[type, dict[str, Any]]:
    """The member of a tagged union that the entry `kind` names, by default the first, and the other entries.

    "module:Class" is a class of one's own that derives from one of the members.
    """
    require_mapping(path, value)
    entries = dict(value)
    known = {option.kind: option for option in options if hasattr(option, "kind")}
    kind = entries.pop("kind", next(iter(known)))
    if not (isinstance(kind, str) and ":" in kind):
        require_known(f"{path}.kind", kind, known)
        return known[kind], entries
    module, _, name = kind.partition(":")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path}.kind: {kind!r} cannot be imported ({error}); expected module:Class") from error
    if not (isinstance(cls, type) and issubclass(cls, options) and dataclasses.is_dataclass(cls)):
        bases = ", ".join(option.__name__ for option in options)
        raise ConfigError(f"{path}.kind: {kind!r} is no dataclass that derives from one of {bases}")
    return cls, entries


def _as(kind: Any, value: Any) -> Any:
    if kind is float:
        return float(value)
    if kind == tuple[float, ...]:
        return tuple(map(float, value))
    return tuple(value) if isinstance(value, list) else value
