"""Murmur3 hash of whole columns with numpy: the hash of the bucket transform (spec: Appendix B).

The variant is 32 bits, x86, seed 0. Used by `arrow_transforms`. Rows are processed in blocks that stay in the
processor's cache. Byte strings are ordered by their number of 4-byte words, so that each round works on a
prefix of the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_C3 = np.uint32(0xE6546B64)
_F1 = np.uint32(0x85EBCA6B)
_F2 = np.uint32(0xC2B2AE35)
_FIVE = np.uint32(5)
_MASK = 0xFFFFFFFF
_BLOCK_ROWS = 1 << 15
_FEW_ROWS = 8
_MANY_WORDS = 64


def hash_longs(values: Array) -> Array:
    """Hashes of int64 values as their 8 little-endian bytes; shape (n,) int64 -> (n,) uint32."""
    words = np.ascontiguousarray(values, dtype="<i8").view("<u4").reshape(-1, 2)
    hashes: Array = np.empty(len(words), dtype=np.uint32)
    for start in range(0, len(words), _BLOCK_ROWS):
        block = words[start : start + _BLOCK_ROWS]
        h: Array = np.zeros(len(block), dtype=np.uint32)
        scratch: Array = np.empty(len(block), dtype=np.uint32)
        _absorb(h, block[:, 0].copy(), scratch)
        _absorb(h, block[:, 1].copy(), scratch)
        hashes[start : start + len(block)] = _finish(h, np.uint32(8))
    return hashes


def hash_bytes(data: Array, starts: Array, lengths: Array) -> Array:
    """Hashes of byte strings in one buffer; string i is data[starts[i] : starts[i] + lengths[i]].

    `data` is (m,) uint8, `starts` and `lengths` (n,) integers; the result is (n,) uint32.
    """
    data = np.concatenate([np.asarray(data, dtype=np.uint8), np.zeros(4, dtype=np.uint8)])
    words = np.ndarray(shape=(len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    hashes: Array = np.empty(len(starts), dtype=np.uint32)
    for first in range(0, len(starts), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        hashes[block] = _hash_block(words, starts[block].astype(np.int64), lengths[block].astype(np.int64))
    return hashes


def _hash_block(words: Array, starts: Array, lengths: Array) -> Array:
    counts = lengths >> 2
    order = None
    if len(counts) and counts.min() != counts.max():
        order = np.argsort(-counts, kind="stable")
        starts, lengths, counts = starts[order], lengths[order], counts[order]
    h: Array = np.zeros(len(starts), dtype=np.uint32)
    scratch: Array = np.empty(len(starts), dtype=np.uint32)
    active = len(starts)
    for word in range(int(counts[0]) if len(counts) else 0):
        active = int(np.searchsorted(-counts[:active], -word, side="left"))
        if active <= _FEW_ROWS and int(counts[0]) - word > _MANY_WORDS:
            _absorb_long_rows(h, words, starts[:active] + 4 * word, counts[:active] - word)
            break
        _absorb(h[:active], words[starts[:active] + 4 * word], scratch[:active])
    _absorb_tail(h, words, starts + 4 * counts, lengths & 3)
    _finish(h, lengths.astype(np.uint32))
    if order is None:
        return h
    hashes = np.empty_like(h)
    hashes[order] = h
    return hashes


def _absorb(h: Array, k: Array, scratch: Array) -> None:
    """One round: mix the words `k` (overwritten) into `h` in place."""
    _scramble(k, scratch)
    np.bitwise_xor(h, k, out=h)
    np.right_shift(h, 19, out=scratch)
    np.left_shift(h, 13, out=h)
    np.bitwise_or(h, scratch, out=h)
    np.multiply(h, _FIVE, out=h)
    np.add(h, _C3, out=h)


def _scramble(k: Array, scratch: Array) -> None:
    np.multiply(k, _C1, out=k)
    np.right_shift(k, 17, out=scratch)
    np.left_shift(k, 15, out=k)
    np.bitwise_or(k, scratch, out=k)
    np.multiply(k, _C2, out=k)


def _absorb_tail(h: Array, words: Array, starts: Array, rest: Array) -> None:
    """Mix in the last 1 to 3 bytes of the rows that have them.

    The padding of the buffer makes a whole word readable.
    """
    ragged = np.flatnonzero(rest)
    if not len(ragged):
        return
    keep = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
    k = words[starts[ragged]] & keep[rest[ragged]]
    _scramble(k, np.empty_like(k))
    h[ragged] ^= k


def _absorb_long_rows(h: Array, words: Array, starts: Array, counts: Array) -> None:
    """Mix in the remaining words of a few very long rows, row by row.

    The mixing is done in bulk, only the chain is a loop.
    """
    for row, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
        k = words[start : start + 4 * count : 4].copy()
        _scramble(k, np.empty_like(k))
        chain = int(h[row])
        for word in k.tolist():
            chain ^= word
            chain = (((chain << 13) | (chain >> 19)) * 5 + 0xE6546B64) & _MASK
        h[row] = chain


def _finish(h: Array, lengths: Array) -> Array:
    h ^= lengths
    h ^= h >> np.uint32(16)
    h *= _F1
    h ^= h >> np.uint32(13)
    h *= _F2
    h ^= h >> np.uint32(16)
    return h
