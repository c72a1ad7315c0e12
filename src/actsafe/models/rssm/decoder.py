"""What a model expects to observe in a state.

A transposed convolution of stride 2 writes each input pixel into a 6 x 6 patch of the output, and the patches overlap.
Hardware for matrix products runs that at a few per cent of its speed. Seen from the output it is an ordinary
convolution: output pixel 2j + p sums x[j − m] w[2m + p] over m = 0, 1, 2, so that the four kinds of output pixel
(even or odd row, even or odd column) are four groups of channels of one 3 x 3 convolution, unfolded into place.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.models.networks import MLP, Dense, elu, shifted
from actsafe.models.rssm.elbo import squared_error
from actsafe.models.rssm.encoder import LAYOUT, centred, fold, prefers_products, squashed, unfold

TAPS = 3
"""Input pixels that an output pixel sees along an axis, with a kernel of up to 6 and a stride of 2."""
CHANNELS = 8
"""That a library's kernels take at once."""


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

    def from_pixel(self, x: Float[Array, "row in"]) -> Float[Array, "row size size out"]:
        """Of a single pixel: a product of matrices."""
        size, _, num_in, num_out = self.kernel.shape
        matrix = jnp.moveaxis(self.kernel, 2, 0).reshape(num_in, -1)
        return shifted((x @ matrix).reshape(-1, size, size, num_out), self.bias)

    def __call__(self, x: Float[Array, "row height width in"]) -> Float[Array, "row higher wider out"]:
        """2 · height − 2 + size pixels a side."""
        sides = [2 * side - 2 + self.kernel.shape[0] for side in x.shape[1:3]]
        return unfold(self.folded(x))[:, : sides[0], : sides[1]]

    def folded(self, x: Float[Array, "row height width in"]) -> Float[Array, "row halfway halfway_across outs"]:
        """The same, with every 2 x 2 pixels as the channels of one; a kernel of 5 leaves a last row and column over."""
        size, _, num_in, num_out = self.kernel.shape
        whole = jnp.pad(self.kernel, ((0, 2 * TAPS - size), (0, 2 * TAPS - size), (0, 0), (0, 0)))
        # kernel[2m + p, 2n + q] meets window entry (2 - m, 2 - n) and makes output (p, q).
        split = whole.reshape(TAPS, 2, TAPS, 2, num_in, num_out)[::-1, :, ::-1]
        taps = split.transpose(0, 2, 4, 1, 3, 5).reshape(TAPS, TAPS, num_in, 4 * num_out)
        y = _windowed_product(x, taps) if prefers_products() else _convolution(x, taps)
        return shifted(y, jnp.tile(self.bias, 4))


def _windowed_product(x: Array, taps: Array) -> Array:
    """Every 3 x 3 window of `x`, with two pixels of nothing around it, times `taps`."""
    height, width = (side + TAPS - 1 for side in x.shape[1:3])
    around = jnp.pad(x, ((0, 0), (TAPS - 1, TAPS - 1), (TAPS - 1, TAPS - 1), (0, 0)))
    parts = [around[:, i : i + height, j : j + width] for i in range(TAPS) for j in range(TAPS)]
    return jnp.concatenate(parts, axis=-1) @ taps.reshape(-1, taps.shape[-1])


def _convolution(x: Array, taps: Array) -> Array:
    """The same by the device's library, whose kernels take channels in eights."""
    num_out = taps.shape[-1]
    whole = jnp.pad(taps, ((0, 0), (0, 0), (0, 0), (0, -num_out % CHANNELS)))
    return _all_channels(x, whole)[..., :num_out]


@jax.custom_vjp
def _all_channels(x: Array, taps: Array) -> Array:
    pad = (TAPS - 1, TAPS - 1)
    return jax.lax.conv_general_dilated(x, taps, (1, 1), (pad, pad), dimension_numbers=LAYOUT)


def _all_channels_forward(x: Array, taps: Array) -> tuple[Array, tuple[Array, Array]]:
    return _all_channels(x, taps), (x, taps)


def _all_channels_backward(kept: tuple[Array, Array], errors: Array) -> tuple[Array, Array]:
    """Errors go back to x by a convolution without padding, and the taps' gradient is that convolution's own.

    XLA would see a gradient for the padded one as a convolution with a kernel as large as the image, which libraries
    are slow at.
    """
    x, taps = kept

    def back(taps: Array) -> Array:
        return jax.lax.conv_general_dilated(errors, taps, (1, 1), "VALID", dimension_numbers=LAYOUT)

    reverse = _reversed(taps)
    (d_reverse,) = jax.linear_transpose(back, reverse)(x)
    return back(reverse), _reversed(d_reverse)


def _reversed(taps: Array) -> Array:
    """Taps of the way back; the way back of which are the taps."""
    return jnp.swapaxes(taps[::-1, ::-1], 2, 3)


_all_channels.defvjp(_all_channels_forward, _all_channels_backward)


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
        return self.layers[-1](self._before_last(features))

    def error(self, features: Float[Array, "row feature"], observations: Array) -> Float[Array, " row"]:
        """The same as that of unfolded images, which need not be made: folding what was seen is cheaper."""
        return squared_error(self.layers[-1].folded(self._before_last(features)), fold(self.target(observations)))

    def _before_last(self, features: Float[Array, "row feature"]) -> Float[Array, "row height width channel"]:
        x = self.layers[0].from_pixel(self.entry(features.astype(self.entry.weight.dtype)))
        for layer in self.layers[1:-1]:
            x = layer(elu(x))
        return elu(x)

    def target(self, observations: Array) -> Float[Array, "row height width channel"]:
        return centred(observations)


class VectorDecoder(Decoder):
    """Dense layers."""

    layers: MLP

    def __call__(self, features: Float[Array, "row feature"]) -> Float[Array, "row observation"]:
        return self.layers(features.astype(self.layers.layers[0].weight.dtype))

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
