"""Encoders and decoders whose convolutions run at the speed of matrix products.

A convolution of kernel 4 and stride 2 is a product of matrices once blocks are moved about: fold every 2 x 2 pixels
into channels, and a window of the image is 2 x 2 of these. On a CPU, and for a layer with few channels on any device,
the product is faster than XLA's convolution; an accelerator's library convolves many channels faster.

A transposed convolution of stride 2 writes each input pixel into a 6 x 6 patch of the output, and the patches overlap.
Hardware for matrix products runs that at a few per cent of its speed. Seen from the output it is an ordinary
convolution: output pixel 2j + p sums x[j − m] w[2m + p] over m = 0, 1, 2, so that the four kinds of output pixel
(even or odd row, even or odd column) are four groups of channels of one 3 x 3 convolution, unfolded into place.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.fast import device
from actsafe.fast.networks import dense, elu, mlp, product, shifted
from actsafe.models.rssm.decoder import Decoder, ImageDecoder, Upsampling, VectorDecoder
from actsafe.models.rssm.elbo import squared_error
from actsafe.models.rssm.encoder import (
    LAYOUT,
    STRIDE,
    Convolution,
    Encoder,
    ImageEncoder,
    VectorEncoder,
    centred,
    squashed,
)

FEW_CHANNELS = 8
TAPS = 3
CHANNELS = 8
"""What an accelerator's library takes channels in multiples of."""


def encode(encoder: Encoder, observations: Array) -> Float[Array, "row embedding"]:
    """The embedding of every observation. Plain: `Encoder.__call__`."""
    if isinstance(encoder, VectorEncoder):
        return mlp(encoder.layers, squashed(observations))
    if not isinstance(encoder, ImageEncoder):
        return encoder(observations)
    x = centred(observations).astype(encoder.layers[0].kernel.dtype)
    for layer in encoder.layers[:-1]:
        x = elu(convolve(layer, x))
    return convolve(encoder.layers[-1], x).reshape(x.shape[0], -1)


def convolve(layer: Convolution, x: Float[Array, "row height width in"]) -> Float[Array, "row lower narrower out"]:
    """Plain: `Convolution.__call__`."""
    if device.is_for_cpu() or x.shape[-1] <= FEW_CHANNELS:
        folded = fold(x)
        parts = [folded[:, :-1, :-1], folded[:, :-1, 1:], folded[:, 1:, :-1], folded[:, 1:, 1:]]
        *_, num_in, num_out = layer.kernel.shape
        # kernel[2m + p, 2n + q, in] -> (m, n, p, q, in): windows of folded pixels, and pixels in a fold.
        matrix = layer.kernel.reshape(2, 2, 2, 2, num_in, num_out).transpose(0, 2, 1, 3, 4, 5)
        return shifted(product(jnp.concatenate(parts, axis=-1), matrix.reshape(-1, num_out)), layer.bias)
    y = jax.lax.conv_general_dilated(x, layer.kernel, (STRIDE, STRIDE), "VALID", dimension_numbers=LAYOUT)
    return shifted(y, layer.bias)


def decoder_error(decoder: Decoder, features: Float[Array, "row feature"], observations: Array) -> Float[Array, " row"]:
    """−log likelihood of every observation, up to a constant. Plain: `Decoder.error`.

    Images are compared folded: they need not be unfolded, and folding what was seen is cheaper.
    """
    if isinstance(decoder, VectorDecoder):
        return squared_error(mlp(decoder.layers, features), decoder.target(observations))
    if not isinstance(decoder, ImageDecoder):
        return decoder.error(features, observations)
    x = _from_pixel(decoder.layers[0], dense(decoder.entry, features.astype(decoder.entry.weight.dtype)))
    for layer in decoder.layers[1:-1]:
        x = upsample(layer, elu(x))
    return squared_error(_upsampled(decoder.layers[-1], elu(x)), fold(decoder.target(observations)))


def upsample(layer: Upsampling, x: Float[Array, "row height width in"]) -> Float[Array, "row higher wider out"]:
    """Plain: `Upsampling.__call__`."""
    sides = [2 * side - 2 + layer.kernel.shape[0] for side in x.shape[1:3]]
    return unfold(_upsampled(layer, x))[:, : sides[0], : sides[1]]


def _from_pixel(layer: Upsampling, x: Float[Array, "row in"]) -> Float[Array, "row size size out"]:
    """`upsample` of a single pixel: a product of matrices."""
    size, _, num_in, num_out = layer.kernel.shape
    matrix = jnp.moveaxis(layer.kernel, 2, 0).reshape(num_in, -1)
    return shifted((x @ matrix).reshape(-1, size, size, num_out), layer.bias)


def _upsampled(
    layer: Upsampling, x: Float[Array, "row height width in"]
) -> Float[Array, "row halfway halfway_across outs"]:
    """`upsample`, with every 2 x 2 pixels as the channels of one; a kernel of 5 leaves a last row and column over."""
    size, _, num_in, num_out = layer.kernel.shape
    whole = jnp.pad(layer.kernel, ((0, 2 * TAPS - size), (0, 2 * TAPS - size), (0, 0), (0, 0)))
    # kernel[2m + p, 2n + q] meets window entry (2 - m, 2 - n) and makes output (p, q).
    split = whole.reshape(TAPS, 2, TAPS, 2, num_in, num_out)[::-1, :, ::-1]
    taps = split.transpose(0, 2, 4, 1, 3, 5).reshape(TAPS, TAPS, num_in, 4 * num_out)
    y = _windowed_product(x, taps) if device.is_for_cpu() else _convolution(x, taps)
    return shifted(y, jnp.tile(layer.bias, 4))


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
    """Taps of the backward pass; an involution."""
    return jnp.swapaxes(taps[::-1, ::-1], 2, 3)


_all_channels.defvjp(_all_channels_forward, _all_channels_backward)


def fold(x: Float[Array, "row height width channel"]) -> Float[Array, "row half_height half_width channels"]:
    """Every 2 x 2 pixels as the channels of one; an odd last row or column is left out."""
    rows, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    x = x.reshape(rows, height // 2, 2, width // 2, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(rows, height // 2, width // 2, 4 * channels)


def unfold(x: Float[Array, "row height width channels"]) -> Float[Array, "row double_height double_width channel"]:
    """The inverse of `fold`."""
    rows, height, width, channels = x.shape
    x = x.reshape(rows, height, width, 2, 2, channels // 4).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(rows, 2 * height, 2 * width, channels // 4)
