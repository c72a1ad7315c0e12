"""Settings that every test shares.

Array shapes are checked here and only here: the import hook wraps every function of `actsafe` that has jaxtyping
annotations in beartype. It must be installed before `actsafe` is first imported.
"""

import gc
import os
from importlib import metadata
from pathlib import Path

# Before JAX is imported, and in the environment so that processes which a test starts have it too.
os.environ["JAX_PLATFORMS"] = os.environ.get("ACTSAFE_TEST_PLATFORM", "cpu")
# Most programs here are small and run once or twice: optimising them takes longer than it saves, and so do XLA's newer
# emitters of fused loops (a release that does not know this flag would not start). In front, so that whoever sets these
# otherwise is heard. Processes that a test starts need them too: another level, other last bits.
os.environ["XLA_FLAGS"] = " ".join(
    [
        "--xla_backend_optimization_level=0",
        *["--xla_cpu_use_fusion_emitters=false"][: metadata.version("jaxlib").startswith(("0.10.", "0.11."))],
        os.environ.get("XLA_FLAGS", ""),
    ]
).strip()
# Matrices here are small: threads of the linear algebra library would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jaxtyping
import pytest
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

jaxtyping.install_import_hook("actsafe", "beartype.beartype")

# No deadline: the first example pays for compilation. Derandomised: a failure seen once can be seen again.
settings.register_profile("actsafe", deadline=None, derandomize=True)
settings.load_profile("actsafe")


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(scope="session")
def compiled_as_in_use():
    """For `jax.jit`: the compiler options of users, where what is computed twice must be the same to the last bit."""
    is_changed = "--xla_cpu_use_fusion_emitters=false" in os.environ["XLA_FLAGS"]
    return {"xla_cpu_use_fusion_emitters": True} if is_changed else None


MOST_MAPS = 25_000
"""Memory maps of a process, of which Linux allows 65,530. Every compiled program has some; without room for more the
compiler crashes."""


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
    """Programs compiled by earlier tests are dropped before there are too many."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def double_precision() -> None:
    """Commands from pixels that a test calls leave single precision behind, with which others draw other numbers."""
    jax.config.update("jax_enable_x64", True)
