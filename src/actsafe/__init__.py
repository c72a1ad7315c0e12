"""ActSafe: explore an unknown system and keep its safety constraint while learning."""

import os as _os
import time as _time
from importlib import metadata as _metadata

__version__ = "0.2.0"

STARTED = _time.perf_counter()
"""When this process began with anything of ours, as `time.perf_counter` counts."""

# These versions of jaxlib get some large sums wrong on the CPU, silently (jax issues 39103 and 39257), unless one of
# XLA's passes is switched off. The switch is read once, when JAX is first used; a version that does not know it would
# refuse to start, so it is set for no other. `actsafe doctor` checks such a sum.
_WRONG_SUMS, _SWITCH = ("0.10.2", "0.11.0"), "--xla_cpu_experimental_ynn_fusion_type"
if _metadata.version("jaxlib") in _WRONG_SUMS and _SWITCH not in _os.environ.get("XLA_FLAGS", ""):
    _os.environ["XLA_FLAGS"] = f"{_os.environ.get('XLA_FLAGS', '')} {_SWITCH}=".strip()

from actsafe.envs.registration import register as _register_environments  # noqa: E402

_register_environments()
