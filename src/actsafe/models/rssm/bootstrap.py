"""A bootstrap of recorded rows: which members of an ensemble learn from which.

Every row belongs to ⌈M/2⌉ of M members, and to the same ones whenever it is drawn from a buffer. A member is followed
to its own rows alone, so that the transitions to all others never reach its weights. A buffer gives its rows no
identity: what decides is a row's own content, a hash of its observation and action. Neighbouring rows are therefore
divided independently of each other; to leave out whole episodes, they would have to be known by a number.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, UInt32

from actsafe.data.rows import Rows

_STRIDE = 0x9E3779B9
"""2³² over the golden ratio: multiples of it lie far apart."""


def owners_of(rows: Rows, num_members: int) -> Bool[Array, "*lead member"]:
    """The members that learn from each row: those whose hashes of it are the ⌈M/2⌉ smallest."""
    members = jnp.arange(1, num_members + 1, dtype=jnp.uint32) * jnp.uint32(_STRIDE)
    hashes = _mixed(_identities(rows)[..., None] ^ members.reshape(*(1,) * rows.is_first.ndim, -1))
    # Members' hashes of a row all differ: what mixes is a bijection.
    ranks = jnp.sum(hashes[..., :, None] > hashes[..., None, :], axis=-1)
    return ranks < (num_members + 1) // 2


def draw_owners(owners: Bool[Array, "*lead member"], key: PRNGKeyArray) -> Int[Array, "*lead"]:
    """One of each row's members, all with the same chance."""
    return jnp.argmax(jnp.where(owners, jax.random.uniform(key, owners.shape, jnp.float32), -1.0), axis=-1)


def _identities(rows: Rows) -> UInt32[Array, "*lead"]:
    """A hash of each row: the sum over all its numbers of a hash of the number and its place."""
    lead = rows.is_first.shape
    numbers = [_bits(jnp.asarray(field)).reshape(*lead, -1) for field in (rows.observation, rows.action)]
    flat = jnp.concatenate(numbers, axis=-1)
    places = jnp.arange(1, flat.shape[-1] + 1, dtype=jnp.uint32) * jnp.uint32(_STRIDE)
    hashes = _mixed(flat ^ _mixed(places).reshape(*(1,) * len(lead), -1))
    return _mixed(jnp.sum(hashes, axis=-1, dtype=jnp.uint32))


def _bits(field: Array) -> UInt32[Array, "..."]:
    """Numbers as they are stored."""
    if jnp.issubdtype(field.dtype, jnp.floating):
        return jax.lax.bitcast_convert_type(field.astype(jnp.float32), jnp.uint32)
    return field.astype(jnp.uint32)


def _mixed(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """The finalizer of MurmurHash3: a bijection in which every bit in changes about half of the bits out."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
