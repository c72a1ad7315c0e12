"""Programs of one kernel that work on the same block of rows (see `blocks`).

Where a chain has few rows, one program would do all of it and the device would idle. A team's programs each do some
columns of a layer, and wait for each other before the next layer reads all. They wait in a loop, which ends only if all
of a team run at the same time: teams are few, and other kernels' programs leave when they are done.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas
from jaxtyping import Array, Int

from actsafe.fast import blocks
from actsafe.fast.blocks import BLOCK, Block, Columns, power_of_2, triton

WIDTH = 32
"""Columns that each program of a team does."""

NUM_WARPS = 4

MOST_ROWS = 8 * BLOCK
"""With more, blocks alone keep a device busy, and teams might not all find workspace at once."""


class Team(NamedTuple):
    """The programs of a block, as one of them sees it."""

    block: Block
    number: Int[Array, ""]
    """Of this program in its team."""
    size: int
    """How many programs there are."""
    width: int
    arrivals: Any
    """A store (team,) of how often a program has come to wait, counted from `first`."""
    first: int

    def share(self, body: Callable[[Columns], None]) -> None:
        """Do `body` for this program's columns."""
        body(self.number * self.width + jnp.arange(self.width, dtype=jnp.int32))

    def wait(self, count: Int[Array, ""]) -> None:
        """Until all programs have come to their wait with this number, the first being 1, and what they wrote before
        it can be read."""
        if self.block.interpret:
            return
        triton.debug_barrier()
        place = (self.block.number,)
        triton.atomic_add(self.arrivals, place, jnp.int32(1))
        jax.lax.while_loop(
            lambda seen: seen < self.first + count * self.size,
            lambda _: triton.atomic_add(self.arrivals, place, jnp.int32(0)),
            jnp.int32(self.first),
        )
        triton.debug_barrier()


def is_usable(num_rows: int, dtype: Any) -> bool:
    """Whether kernels of teams take this many rows in this precision where programs are compiled for."""
    return blocks.is_usable(num_rows, dtype) and num_rows <= MOST_ROWS and hasattr(triton, "atomic_add")


def call(
    program: Callable[..., None],
    workspace: Any,
    num_rows: int,
    num_columns: int,
    *,
    first: int,
    interpret: bool,
    name: str,
) -> Callable[..., Any]:
    """The kernel that runs `program(team, *inputs, outputs)` by a team for every block of rows, for layers of at most
    `num_columns`; inputs and outputs are trees of stores. Interpreted, a team is one program.

    `workspace` is memory for the outputs (see `blocks.call`), and then `arrivals(num_rows, first)`.
    """
    width = power_of_2(num_columns) if interpret else WIDTH
    size = -(-num_columns // width)

    def one(*stores: Any) -> None:
        *inputs, (outputs, arrivals) = stores
        place = pallas.program_id(0)
        rows = place // size * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)
        team = Team(Block(place // size, rows, interpret), place % size, size, width, arrivals, first)
        program(team, *inputs, outputs)

    num_programs = num_rows // BLOCK * size
    kernel = blocks.call(one, workspace, num_programs, num_warps=NUM_WARPS, interpret=interpret, name=name)
    return lambda *inputs: kernel(*inputs)[0]


def arrivals(num_rows: int, first: int) -> Int[Array, " team"]:
    """No program has arrived: the count is `first`, another for each kernel, or a compiler would let them share it."""
    return jnp.full((num_rows // BLOCK,), first, jnp.int32)
