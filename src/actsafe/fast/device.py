"""The kind of device that programs are compiled for."""

import jax


def is_for_cpu() -> bool:
    """Whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


def is_for_nvidia() -> bool:
    """Whether programs are compiled for a device of NVIDIA's."""
    return jax.default_backend() == "gpu" and "NVIDIA" in jax.devices()[0].device_kind
