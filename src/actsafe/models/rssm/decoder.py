"""The observations that are expected in latent states: transposed convolutions for images, dense layers for vectors."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.models.networks import MLP, Dense
from actsafe.models.rssm.elbo import squared_error
from actsafe.models.rssm.encoder import LAYOUT, STRIDE, centred, squashed


class Decoder(eqx.Module):
    """Turns features of states into observations, as the encoder sees them."""

    @abc.abstractmethod
    def __call__(self, features: Float[Array, "row feature"]) -> Array:
        """The observation that is expected in every state."""

    @abc.abstractmethod
    def target(self, observations: Array) -> Array:
        """What the decoder should have said."""

    def error(self, features: Float[Array, "row feature"], observations: Array) -> Float[Array, " row"]:
        """−log likelihood of every observation, up to a constant: see `squared_error`."""
        return squared_error(self(features), self.target(observations))


class Upsampling(eqx.Module):
    """A transposed convolution of stride 2 without padding; kernels of 5 or 6."""

    kernel: Float[Array, "size size in out"]
    bias: Float[Array, " out"]

    @classmethod
    def create(cls, size: int, num_in: int, num_out: int, key: PRNGKeyArray) -> "Upsampling":
        """Uniform in ±1 / √(size² · inputs)."""
        kernel_key, bias_key = jax.random.split(key)
        bound = 1.0 / math.sqrt(num_in * size**2)
        return cls(
            jax.random.uniform(kernel_key, (size, size, num_in, num_out), jnp.float32, -bound, bound),
            jax.random.uniform(bias_key, (num_out,), jnp.float32, -bound, bound),
        )

    def __call__(self, x: Float[Array, "row height width in"]) -> Float[Array, "row higher wider out"]:
        """2 · height − 2 + size pixels a side: every pixel of `x` adds a patch, size x size, at twice its place."""
        turned = self.kernel[::-1, ::-1]
        y = jax.lax.conv_transpose(x, turned, (STRIDE, STRIDE), "VALID", dimension_numbers=LAYOUT)
        return y + self.bias.reshape(1, 1, 1, -1)


class ImageDecoder(Decoder):
    """A dense layer, then transposed convolutions of stride 2, ELU between, up to the image's size.

    64 x 64 pixels: kernels 5, 5, 6, 6 and 128, 64, 32, 3 channels, 1 -> 5 -> 13 -> 30 -> 64.
    """

    entry: Dense
    layers: tuple[Upsampling, ...]

    @classmethod
    def create(
        cls, num_features: int, image_size: int, num_channels: int, depth: int, width: int, key: PRNGKeyArray
    ) -> "ImageDecoder":
        """`width` outputs of the dense layer; `depth` channels before the last layer, twice as many in each before."""
        sizes = kernel_sizes(image_size)
        entry_key, *keys = jax.random.split(key, len(sizes) + 1)
        wide = [depth * 2 ** (len(sizes) - 2 - number) for number in range(len(sizes) - 1)] + [num_channels]
        ends = zip(sizes, [width, *wide[:-1]], wide, keys, strict=True)
        layers = tuple(Upsampling.create(size, num_in, num_out, k) for size, num_in, num_out, k in ends)
        return cls(Dense.create(num_features, width, entry_key), layers)

    def __call__(self, features: Float[Array, "row feature"]) -> Float[Array, "row height width channel"]:
        first, *rest = self.layers
        x = first(self.entry(features.astype(self.entry.weight.dtype))[:, None, None])
        for layer in rest:
            x = layer(jax.nn.elu(x))
        return x

    def target(self, observations: Array) -> Float[Array, "row height width channel"]:
        return centred(observations)


class VectorDecoder(Decoder):
    """Dense layers."""

    layers: MLP

    def __call__(self, features: Float[Array, "row feature"]) -> Float[Array, "row observation"]:
        return self.layers(features)

    def target(self, observations: Array) -> Float[Array, "row observation"]:
        return squashed(observations)


def kernel_sizes(image_size: int) -> tuple[int, ...]:
    """The kernels, 5 or 6, that lead from one pixel to an image of this size, first to last."""
    sizes, side = [], image_size
    while side > 1:
        sizes.append(6 if side % 2 == 0 else 5)
        side = (side - sizes[-1]) // 2 + 1
    if side != 1 or len(sizes) < 2 or sizes[0] % 2:
        raise ValueError(
            f"image_size: no kernels of 5 and 6 lead from one pixel to {image_size}; 16, 32, 64, 128 and 256 do"
        )
    return tuple(reversed(sizes))
