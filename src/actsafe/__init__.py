"""ActSafe: explore an unknown system and keep its safety constraint while learning."""

from actsafe.adapters import register as _register_environments

__version__ = "0.1.0"

_register_environments()
