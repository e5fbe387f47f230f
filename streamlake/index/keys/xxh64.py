"""XXH64 for whole columns with numpy, chained over columns by its seed: the hash of Spark's `xxhash64`.

Used by `key_codec`. Rows are processed in blocks that stay in the processor's cache. Byte strings of 32
bytes and more are ordered by their number of 32-byte stripes, so that each round works on a prefix of the
block. Invariant: for one seed `hash_ints` and `hash_longs` map different values to different hashes,
because every step can be reversed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BLOCK_ROWS = 1 << 14
_STRIPE = 32
_MASK = 0xFFFFFFFFFFFFFFFF
_INVERSE = {each: np.uint64(pow(int(each), -1, 1 << 64)) for each in (_P1, _P2, _P3)}
"""The factors that reverse a multiplication."""
_ROTATIONS = (1, 7, 12, 18)
_LANE_STARTS: Array = np.array(
    [[(int(_P1) + int(_P2)) & _MASK], [_P2], [0], [-int(_P1) & _MASK]], dtype=np.uint64
)
_LANE_BYTES: Array = np.array([[0], [8], [16], [24]], dtype=np.int64)


def hash_ints(values: Array, seeds: Array) -> Array:
    """Hashes of (n,) 32-bit values by their 4 little-endian bytes, with seeds (n,) uint64 -> (n,) uint64."""
    words = np.ascontiguousarray(values).view(np.uint32)
    hashes: Array = np.empty(len(words), dtype=np.uint64)
    scratch: Array = np.empty(min(len(words), _BLOCK_ROWS), dtype=np.uint64)
    for start in range(0, len(words), _BLOCK_ROWS):
        h = hashes[start : start + _BLOCK_ROWS]
        np.add(seeds[start : start + _BLOCK_ROWS], _offset(4), out=h)
        _absorb_int(h, words[start : start + _BLOCK_ROWS].astype(np.uint64), scratch[: len(h)])
        _finish(h, scratch[: len(h)])
    return hashes


def hash_longs(values: Array, seeds: Array) -> Array:
    """Hashes of (n,) 64-bit values by their 8 little-endian bytes, with seeds (n,) uint64 -> (n,) uint64."""
    words = np.ascontiguousarray(values).view(np.uint64)
    hashes: Array = np.empty(len(words), dtype=np.uint64)
    scratch: Array = np.empty(min(len(words), _BLOCK_ROWS), dtype=np.uint64)
    for start in range(0, len(words), _BLOCK_ROWS):
        h = hashes[start : start + _BLOCK_ROWS]
        np.add(seeds[start : start + _BLOCK_ROWS], _offset(8), out=h)
        _absorb_long(h, words[start : start + _BLOCK_ROWS].copy(), scratch[: len(h)])
        _finish(h, scratch[: len(h)])
    return hashes


def int_of_hash(hashes: Array, seed: int) -> Array:
    """The inverse of `hash_ints` for one seed: (n,) uint64 -> (n,) int32."""
    k = _before_finish(hashes) - _P3
    k = _turned_back(k * _INVERSE[_P2], 23) ^ (np.uint64(seed) + _offset(4))
    result: Array = (k * _INVERSE[_P1]).astype(np.uint32).view(np.int32)
    return result


def long_of_hash(hashes: Array, seed: int) -> Array:
    """The inverse of `hash_longs` for one seed: (n,) uint64 -> (n,) int64."""
    k = (_before_finish(hashes) - _P4) * _INVERSE[_P1]
    k = _turned_back(k, 27) ^ (np.uint64(seed) + _offset(8))
    k = _turned_back(k * _INVERSE[_P1], 31)
    return np.asarray(k * _INVERSE[_P2]).view(np.int64)


def hash_bytes(data: Array, starts: Array, lengths: Array, seeds: Array) -> Array:
    """Hashes of byte strings in one buffer; string i is data[starts[i] : starts[i] + lengths[i]].

    `data` is (m,) uint8, `starts` and `lengths` (n,) integers, `seeds` (n,)
    uint64. The result is (n,) uint64.
    """
    data = np.concatenate([np.asarray(data, dtype=np.uint8), np.zeros(8, dtype=np.uint8)])
    words = np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    hashes: Array = np.empty(len(starts), dtype=np.uint64)
    for first in range(0, len(starts), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        hashes[block] = _hash_block(
            words, starts[block].astype(np.int64), lengths[block].astype(np.int64), seeds[block]
        )
    return hashes


def _offset(length: int) -> Any:
    return np.uint64((int(_P5) + length) & _MASK)


def _hash_block(words: Array, starts: Array, lengths: Array, seeds: Array) -> Array:
    h: Array = seeds + _P5
    stripes = lengths // _STRIPE
    striped = np.flatnonzero(stripes)
    if len(striped):
        h[striped] = _hash_stripes(words, starts[striped], stripes[striped], seeds[striped])
        starts = starts + stripes * _STRIPE
    h += lengths.astype(np.uint64)
    rest = lengths % _STRIPE
    for word in range(3):
        rows = _where(rest >= 8 * (word + 1))
        if rows is not None:
            _absorb_rows(_absorb_long, h, rows, words[starts[rows] + 8 * word])
    starts = starts + (rest & ~7)
    rows = _where(rest & 4 != 0)
    if rows is not None:
        _absorb_rows(_absorb_int, h, rows, words[starts[rows]] & np.uint64(0xFFFFFFFF))
    starts = starts + (rest & 4)
    for byte in range(3):
        rows = _where(rest & 3 > byte)
        if rows is not None:
            _absorb_rows(_absorb_byte, h, rows, words[starts[rows] + byte] & np.uint64(0xFF))
    _finish(h, np.empty_like(h))
    return h


def _where(mask: Array) -> Any:
    """The rows of a mask as an index: a slice when it is all of them, None when there is none."""
    if mask.all():
        return slice(None)
    rows = np.flatnonzero(mask)
    return rows if len(rows) else None


def _absorb_rows(absorb: Any, h: Array, rows: Any, k: Array) -> None:
    some = h[rows]
    absorb(some, k, np.empty_like(some))
    h[rows] = some


def _hash_stripes(words: Array, starts: Array, stripes: Array, seeds: Array) -> Array:
    """The four lanes over all whole stripes of each row, merged into one hash; every row has a stripe."""
    order = np.argsort(-stripes, kind="stable")
    starts, stripes, seeds = starts[order], stripes[order], seeds[order]
    lanes: Array = seeds + _LANE_STARTS
    scratch: Array = np.empty_like(lanes)
    active = len(starts)
    at = starts + _LANE_BYTES
    for stripe in range(int(stripes[0])):
        active = int(np.searchsorted(-stripes[:active], -stripe, side="left"))
        k = words[at[:, :active] + _STRIPE * stripe]
        np.multiply(k, _P2, out=k)
        some = lanes[:, :active]
        np.add(some, k, out=some)
        _rotate(some, 31, scratch[:, :active])
        np.multiply(some, _P1, out=some)
    merged: Array = np.zeros_like(seeds)
    for lane, bits in zip(lanes, _ROTATIONS, strict=True):
        turned = lane.copy()
        _rotate(turned, bits, scratch[0])
        merged += turned
    for lane in lanes:
        np.multiply(lane, _P2, out=lane)
        _rotate(lane, 31, scratch[0])
        np.multiply(lane, _P1, out=lane)
        merged ^= lane
        np.multiply(merged, _P1, out=merged)
        np.add(merged, _P4, out=merged)
    hashes: Array = np.empty_like(merged)
    hashes[order] = merged
    return hashes


def _absorb_long(h: Array, k: Array, scratch: Array) -> None:
    """Mix 8-byte words `k` (overwritten) into `h` in place."""
    np.multiply(k, _P2, out=k)
    _rotate(k, 31, scratch)
    np.multiply(k, _P1, out=k)
    np.bitwise_xor(h, k, out=h)
    _rotate(h, 27, scratch)
    np.multiply(h, _P1, out=h)
    np.add(h, _P4, out=h)


def _absorb_int(h: Array, k: Array, scratch: Array) -> None:
    np.multiply(k, _P1, out=k)
    np.bitwise_xor(h, k, out=h)
    _rotate(h, 23, scratch)
    np.multiply(h, _P2, out=h)
    np.add(h, _P3, out=h)


def _absorb_byte(h: Array, k: Array, scratch: Array) -> None:
    np.multiply(k, _P5, out=k)
    np.bitwise_xor(h, k, out=h)
    _rotate(h, 11, scratch)
    np.multiply(h, _P1, out=h)


def _rotate(h: Array, bits: int, scratch: Array) -> None:
    np.right_shift(h, np.uint64(64 - bits), out=scratch)
    np.left_shift(h, np.uint64(bits), out=h)
    np.bitwise_or(h, scratch, out=h)


def _finish(h: Array, scratch: Array) -> None:
    for bits, factor in ((33, _P2), (29, _P3)):
        np.right_shift(h, np.uint64(bits), out=scratch)
        np.bitwise_xor(h, scratch, out=h)
        np.multiply(h, factor, out=h)
    np.right_shift(h, np.uint64(32), out=scratch)
    np.bitwise_xor(h, scratch, out=h)


def _before_finish(hashes: Array) -> Array:
    """The inverse of `_finish`."""
    h: Array = hashes ^ (hashes >> np.uint64(32))
    h = h * _INVERSE[_P3]
    h ^= (h >> np.uint64(29)) ^ (h >> np.uint64(58))
    h *= _INVERSE[_P2]
    h ^= h >> np.uint64(33)
    return h


def _turned_back(h: Array, bits: int) -> Array:
    result: Array = (h >> np.uint64(bits)) | (h << np.uint64(64 - bits))
    return result
