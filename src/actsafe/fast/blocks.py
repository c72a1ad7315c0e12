"""Chains of small layers inside one kernel for NVIDIA's devices.

A recurrent model is a chain of products too small to fill a device. As operations of their own each waits for the one
before it, and the waiting is most of the time. Here a program takes a block of rows through all steps. What a layer
gives is written to the device's memory, most of it is needed later anyway, and read again by the next layer in pieces;
weights come from the cache, which all programs share.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from actsafe.fast import device

triton: Any
try:
    from jax.experimental.pallas import triton
except ImportError:
    triton = None

IS_AVAILABLE = all(hasattr(triton, name) for name in ("CompilerParams", "debug_barrier", "load", "store", "dot"))
"""Whether this JAX can compile such kernels. Its Triton backend is deprecated since 0.11 and may go."""

BLOCK = 16
"""Rows of a program: the fewest that a product on tensor cores takes."""

MOST_OUT, LEAST_IN, MOST_WEIGHTS = 256, 32, 64 * 256
"""Columns that are written at once; inputs that are summed over at once, at least, and more where the weights of all
layers are then no more than this. Fewer and larger pieces are fewer times to wait for memory. Powers of 2."""

NUM_WARPS, NUM_STAGES = 8, 3
"""Threads of a program in groups of 32, and pieces of weights that are on their way at the same time."""

Piece = Float[Array, "block piece"]
Columns = Int[Array, " piece"]
Entries = Int[Array, " entry"]


def is_usable(num_rows: int, dtype: DTypeLike) -> bool:
    """Whether kernels of blocks take this many rows in this precision where programs are compiled for."""
    return IS_AVAILABLE and device.is_for_nvidia() and num_rows % BLOCK == 0 and dtype == jnp.bfloat16


class Place(NamedTuple):
    """Some columns of a block's rows in a matrix that is `width` columns wide."""

    rows: Int[Array, " block"]
    columns: Columns
    width: int

    @property
    def is_there(self) -> Array:
        return jnp.broadcast_to((self.columns < self.width)[None, :], (self.rows.size, self.columns.size))

    def index(self, lead: tuple[Any, ...], offset: int = 0) -> tuple[Any, ...]:
        """Of these columns in a store (*lead, row, column), `offset` columns to the right."""
        shape = (self.rows.size, self.columns.size)
        return (*lead, jnp.broadcast_to(self.rows[:, None], shape), jnp.broadcast_to(self.columns + offset, shape))


class Block(NamedTuple):
    """Rows that a program is for."""

    number: Int[Array, ""]
    rows: Int[Array, " block"]
    interpret: bool
    """Whether the kernel is run, slowly, where there is no GPU."""

    @classmethod
    def mine(cls, interpret: bool, copies: int = 1) -> "Block":
        """The block with this program's number, of rows that there are several copies of, one next to the other."""
        number, size = pl.program_id(0), BLOCK * copies
        return cls(number, number * size + jnp.arange(size, dtype=jnp.int32), interpret)

    def originals(self, copies: int) -> "Block":
        """Of every row the one that it is a copy of, in stores that have each once."""
        return self._replace(rows=self.rows // copies)

    def nothing(self, columns: Columns) -> Piece:
        """What sums start from."""
        return jnp.zeros((self.rows.size, columns.size), jnp.float32)

    def read(self, store: Any, *lead: Any, columns: Columns, width: int, offset: int = 0) -> Piece:
        """A piece of a store (*lead, row, column), in single precision; nothing beyond `width`."""
        place = Place(self.rows, columns, width)
        return triton.load(store.at[place.index(lead, offset)], mask=place.is_there, other=0).astype(jnp.float32)

    def read_exactly(self, store: Any, *lead: Any, columns: Columns, width: int, offset: int = 0) -> Piece:
        """The same in the store's precision, as products want it."""
        place = Place(self.rows, columns, width)
        return triton.load(store.at[place.index(lead, offset)], mask=place.is_there, other=0)

    def write(self, store: Any, *lead: Any, columns: Columns, width: int, value: Piece, offset: int = 0) -> None:
        """Put a piece into a store (*lead, row, column)."""
        place = Place(self.rows, columns, width)
        triton.store(store.at[place.index(lead, offset)], value.astype(store.dtype), mask=place.is_there)

    def column(self, store: Any, *lead: Any) -> Float[Array, "block 1"]:
        """A number per row, of a store (*lead, row)."""
        return store[(*lead, self.rows)].astype(jnp.float32)[:, None]

    def wait(self) -> None:
        """Until all that was written by this program can be read."""
        if not self.interpret:
            triton.debug_barrier()


def vector(store: Any, *lead: Any, columns: Columns, width: int, offset: int = 0) -> Float[Array, "1 piece"]:
    """A piece of a store (*lead, column), such as a bias."""
    value = triton.load(store.at[(*lead, columns + offset)], mask=columns < width, other=0)
    return value.astype(jnp.float32)[None, :]


def pieces(size: int, body: Callable[[Columns], None]) -> None:
    """Do `body` for the columns of every piece of `size` columns."""
    width = _piece(size, MOST_OUT)

    def one(number: Array, _: None) -> None:
        body(number * width + jnp.arange(width, dtype=jnp.int32))

    jax.lax.fori_loop(jnp.int32(0), jnp.int32(-(-size // width)), one, None)


def clear(block: Block, store: Any, *lead: Any, width: int) -> None:
    """Nothing, in all columns of a store (*lead, row, column)."""

    def one(columns: Columns) -> None:
        block.write(store, *lead, columns=columns, width=width, value=block.nothing(columns))

    pieces(width, one)


def _piece(size: int, most: int) -> int:
    """Columns at once, where there are `size`."""
    return min(power_of_2(size), most)


def power_of_2(size: int) -> int:
    """The least one that holds `size`, and is as much as a product takes."""
    return max(BLOCK, 1 << (size - 1).bit_length())


class Source(NamedTuple):
    """Rows that a layer is given: `size` columns of a store (*lead, row, column)."""

    store: Any
    lead: tuple[Any, ...]
    size: int
    offset: int = 0
    scale: Float[Array, "block 1"] | None = None
    """What rows are multiplied by, each by its own number."""

    def read(self, block: Block, columns: Columns) -> Piece:
        """A piece of it, as products want it."""
        x = block.read_exactly(self.store, *self.lead, columns=columns, width=self.size, offset=self.offset)
        return x if self.scale is None else x * self.scale.astype(x.dtype)


class Layer(NamedTuple):
    """A matrix that begins `at` a row and column of a store (*lead, row, column)."""

    store: Any
    lead: tuple[Any, ...] = ()
    at: tuple[int, int] = (0, 0)

    def read(self, rows: Entries, num_rows: int, columns: Columns, width: int) -> Float[Array, "entry piece"]:
        """A piece of it."""
        place = Place(rows + self.at[0], columns, width)
        is_there = place.is_there & (rows < num_rows)[:, None]
        return triton.load(self.store.at[place.index(self.lead, self.at[1])], mask=is_there, other=0)


def products(block: Block, source: Source, layers: Sequence[Layer], columns: Columns, width: int) -> tuple[Piece, ...]:
    """Columns of x W for every W, in one pass over x."""

    def add(entries: Entries, so_far: tuple[Piece, ...]) -> tuple[Piece, ...]:
        x = source.read(block, entries)
        matrices = [layer.read(entries, source.size, columns, width) for layer in layers]
        return tuple(total + _dot(x, matrix) for total, matrix in zip(so_far, matrices, strict=True))

    most = _inputs_at_once(columns.size * len(layers))
    return _accumulate(source.size, most, tuple(block.nothing(columns) for _ in layers), add)


def product(block: Block, source: Source, layer: Layer, columns: Columns, width: int) -> Piece:
    """Columns of x W."""
    return products(block, source, [layer], columns, width)[0]


def products_back(block: Block, terms: Sequence[tuple[Source, Layer]], columns: Columns, width: int) -> Piece:
    """Columns of Σ x Wᵀ over several x of one size: W's rows are what comes out, and its columns what goes in."""
    (size,) = {source.size for source, _ in terms}

    def add(entries: Entries, so_far: Piece) -> Piece:
        for source, layer in terms:
            matrix = layer.read(columns, width, entries, size)
            so_far += _dot(source.read(block, entries), matrix, trans_b=True)
        return so_far

    return _accumulate(size, _inputs_at_once(columns.size * len(terms)), block.nothing(columns), add)


def _inputs_at_once(num_columns: int) -> int:
    """Of layers with `num_columns` columns together."""
    return max(LEAST_IN, 1 << (MOST_WEIGHTS // num_columns).bit_length() - 1)


def _accumulate(size: int, most: int, start: Any, body: Callable[[Entries, Any], Any]) -> Any:
    """What `body(entries, so_far)` makes of `start` over the pieces, of at most `most`, of `size` entries."""
    width = _piece(size, most)

    def one(number: Array, so_far: Any) -> Any:
        return body(number * width + jnp.arange(width, dtype=jnp.int32), so_far)

    return jax.lax.fori_loop(jnp.int32(0), jnp.int32(-(-size // width)), one, start)


def _dot(x: Float[Array, "block entry"], matrix: Array, *, trans_b: bool = False) -> Piece:
    return triton.dot(x, matrix, trans_b=trans_b).astype(jnp.float32)


def softplus(x: Array) -> Array:
    """log(1 + eˣ), of operations that the kernel's compiler has."""
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(x)))


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + jnp.exp(-x))


def elu(x: Array) -> Array:
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0.0)) - 1.0)


def elu_slope(y: Array) -> Array:
    """By what elu gave."""
    return jnp.where(y > 0, 1.0, y + 1.0)


def call(
    program: Callable[..., None],
    workspace: Any,
    num_programs: int,
    *,
    num_warps: int = NUM_WARPS,
    interpret: bool,
    name: str,
) -> Callable[..., Any]:
    """The kernel of programs that run `program(*inputs, outputs)`; all are trees of stores.

    `workspace` is a tree of arrays whose memory the outputs take over. With memory of its own from the start, a kernel
    waits for no other to give up theirs, wherever it stands in a program, and can run beside all it does not need.
    """
    leaves, structure = jax.tree.flatten(workspace)

    def run(*inputs: Any) -> Any:
        given, tree = jax.tree.flatten(inputs)
        count = len(given)

        def one(*stores: Any) -> None:
            outputs = stores[count + len(leaves) :]
            program(*jax.tree.unflatten(tree, stores[:count]), jax.tree.unflatten(structure, outputs))

        found = pl.pallas_call(
            one,
            tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves),
            grid=(num_programs,),
            input_output_aliases={count + number: number for number in range(len(leaves))},
            compiler_params=None
            if triton is None
            else triton.CompilerParams(num_warps=num_warps, num_stages=NUM_STAGES),
            interpret=interpret,
            name=name,
        )(*given, *leaves)
        return jax.tree.unflatten(structure, found)

    return run
