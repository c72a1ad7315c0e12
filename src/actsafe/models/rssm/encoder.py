"""Embeddings of observations: convolutions for images, dense layers for vectors."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from actsafe.models.networks import MLP

KERNEL, STRIDE = 4, 2
LAYOUT = ("NHWC", "HWIO", "NHWC")


class Encoder(eqx.Module):
    """Turns observations into embeddings."""

    embedding_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, observations: Array) -> Float[Array, "row embedding"]:
        """The embedding of every observation."""


class Convolution(eqx.Module):
    """A convolution of kernel 4 and stride 2, without padding."""

    kernel: Float[Array, "4 4 in out"]
    bias: Float[Array, " out"]

    @classmethod
    def create(cls, num_in: int, num_out: int, key: PRNGKeyArray) -> "Convolution":
        """Uniform in ±1 / √(inputs of an output)."""
        kernel_key, bias_key = jax.random.split(key)
        bound = 1.0 / math.sqrt(num_in * KERNEL**2)
        return cls(
            jax.random.uniform(kernel_key, (KERNEL, KERNEL, num_in, num_out), jnp.float32, -bound, bound),
            jax.random.uniform(bias_key, (num_out,), jnp.float32, -bound, bound),
        )

    def __call__(self, x: Float[Array, "row height width in"]) -> Float[Array, "row lower narrower out"]:
        y = jax.lax.conv_general_dilated(x, self.kernel, (STRIDE, STRIDE), "VALID", dimension_numbers=LAYOUT)
        return y + self.bias.reshape(1, 1, 1, -1)


class ImageEncoder(Encoder):
    """Convolutions of kernel 4 and stride 2, ELU between; as many as the image has workspace for.

    64 x 64 pixels give four: 64 -> 31 -> 14 -> 6 -> 2, and with 32, 64, 128, 256 channels 1024 features.
    """

    layers: tuple[Convolution, ...]
    embedding_size: int = eqx.field(static=True)

    @classmethod
    def create(cls, image_size: int, num_channels: int, depth: int, key: PRNGKeyArray) -> "ImageEncoder":
        """For square images; `depth` channels in the first layer, twice as many in each that follows."""
        layers, size, channels = [], image_size, num_channels
        while size >= KERNEL:
            key, layer_key = jax.random.split(key)
            layers.append(Convolution.create(channels, depth * 2 ** len(layers), layer_key))
            size, channels = (size - KERNEL) // STRIDE + 1, depth * 2 ** (len(layers) - 1)
        if not layers:
            raise ValueError(f"images must have at least {KERNEL} pixels a side, got {image_size}")
        return cls(layers=tuple(layers), embedding_size=size * size * channels)

    def __call__(self, observations: UInt8[Array, "row height width channel"]) -> Float[Array, "row embedding"]:
        x = centred(observations).astype(self.layers[0].kernel.dtype)
        for layer in self.layers[:-1]:
            x = jax.nn.elu(layer(x))
        return self.layers[-1](x).reshape(x.shape[0], -1)


class VectorEncoder(Encoder):
    """Dense layers."""

    layers: MLP
    embedding_size: int = eqx.field(static=True)

    @classmethod
    def create(cls, size: int, width: int, depth: int, key: PRNGKeyArray) -> "VectorEncoder":
        """`depth` hidden layers of `width`, which is also the embedding's size."""
        return cls(layers=MLP.create(size, width, width, depth, key), embedding_size=width)

    def __call__(self, observations: Float[Array, "row observation"]) -> Float[Array, "row embedding"]:
        return self.layers(squashed(observations))


def centred(image: UInt8[Array, "..."]) -> Float[Array, "..."]:
    """image / 255 − ½: what is encoded and decoded of an image."""
    return image.astype(jnp.float32) / 255.0 - 0.5


def squashed(vector: Float[Array, "..."]) -> Float[Array, "..."]:
    """sign(x) log(1 + |x|): what is encoded and decoded of a vector, whatever its units."""
    return jnp.sign(vector) * jnp.log1p(jnp.abs(vector))
