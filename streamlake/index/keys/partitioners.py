"""The hash functions by which Kafka producers choose partitions, for whole columns with numpy.

They give a number for the bytes of each message key; the partition is this number
modulo the number of partitions.

    murmur2   Java's default partitioner, Kafka Connect and Debezium with it, kafka-python; librdkafka's
              "murmur2"
    crc32     librdkafka's default ("consistent"), and so most clients in C, Python, Go and .NET

Used by `message_key`. Rows are processed in blocks that stay in the processor's cache, ordered by
length, so that each round works on a prefix of the block. Invariant: the result is what the
producer computes, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_BLOCK_ROWS = 1 << 15


def murmur2(data: Array, starts: Array, lengths: Array) -> Array:
    """Murmur2 hashes of byte strings in one buffer; string i is data[starts[i] : starts[i] + lengths[i]].

    `data` is (m,) uint8, `starts` and `lengths` (n,) integers. The result is (n,) int64 below
    2**31: Java's hash without its sign.
    """
    words = _words(data)
    hashes: Array = np.empty(len(starts), dtype=np.int64)
    for rows, at, sizes in _blocks(starts, lengths):
        h: Array = _SEED ^ sizes.astype(np.uint32)
        counts = sizes >> 2
        for word, active in _rounds(counts):
            k = words[at[:active] + 4 * word]
            k *= _M
            k ^= k >> np.uint32(24)
            k *= _M
            some = h[:active]
            some *= _M
            some ^= k
        _absorb_tail(h, words, at + 4 * counts, sizes & 3)
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
        hashes[rows] = h & np.uint32(0x7FFFFFFF)
    return hashes


def crc32(data: Array, starts: Array, lengths: Array) -> Array:
    """CRC-32 checksums (as in zlib) of byte strings given as for `murmur2`: (n,) int64 below 2**32."""
    words = _words(data)
    hashes: Array = np.empty(len(starts), dtype=np.int64)
    for rows, at, sizes in _blocks(starts, lengths):
        crc: Array = np.full(len(at), 0xFFFFFFFF, dtype=np.uint32)
        counts = sizes >> 2
        for word, active in _rounds(counts):
            k = crc[:active] ^ words[at[:active] + 4 * word]
            mixed = _CRC[3][k & _BYTE]
            for shift, table in ((8, _CRC[2]), (16, _CRC[1]), (24, _CRC[0])):
                mixed ^= table[(k >> np.uint32(shift)) & _BYTE]
            crc[:active] = mixed
        for byte in range(3):
            some = np.flatnonzero(sizes & 3 > byte)
            k = crc[some] ^ words[at[some] + 4 * counts[some] + byte]
            crc[some] = _CRC[0][k & _BYTE] ^ (crc[some] >> np.uint32(8))
        hashes[rows] = ~crc
    return hashes


def _words(data: Array) -> Array:
    """The four bytes from each place on, as a number. Beyond the end, zeros are read."""
    padded = np.concatenate([np.asarray(data, dtype=np.uint8), np.zeros(4, dtype=np.uint8)])
    result: Array = np.ndarray(shape=(len(padded) - 3,), dtype="<u4", buffer=padded, strides=(1,))
    return result


def _blocks(starts: Array, lengths: Array) -> Iterator[tuple[Array, Array, Array]]:
    """(rows, starts, lengths) of some rows at a time, the longest first."""
    for first in range(0, len(starts), _BLOCK_ROWS):
        sizes = lengths[first : first + _BLOCK_ROWS].astype(np.int64)
        order = np.argsort(-sizes, kind="stable")
        yield first + order, starts[first : first + _BLOCK_ROWS].astype(np.int64)[order], sizes[order]


def _rounds(counts: Array) -> Iterator[tuple[int, int]]:
    """(round, how many rows take part) for rows that take part in `counts` rounds each, descending."""
    active = len(counts)
    for round_ in range(int(counts[0]) if active else 0):
        active = int(np.searchsorted(-counts[:active], -round_, side="left"))
        yield round_, active


def _absorb_tail(h: Array, words: Array, starts: Array, rest: Array) -> None:
    """Mix in the last 1 to 3 bytes of the rows that have them.

    The buffer's padding makes a whole word readable.
    """
    ragged = np.flatnonzero(rest)
    if len(ragged):
        keep = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
        h[ragged] = (h[ragged] ^ (words[starts[ragged]] & keep[rest[ragged]])) * _M


def _crc_tables() -> list[Array]:
    """The CRC of a byte followed by 0, 1, 2 and 3 bytes of zeros."""
    table: Array = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & 1, np.uint32(0xEDB88320), np.uint32(0))
    tables = [table]
    for _ in range(3):
        tables.append((tables[-1] >> np.uint32(8)) ^ table[tables[-1] & _BYTE])
    return tables


_BYTE = np.uint32(0xFF)
_CRC = _crc_tables()

PARTITIONERS: Mapping[str, Callable[[Array, Array, Array], Array]] = {"murmur2": murmur2, "crc32": crc32}
"""The hash functions by their names in the key index, the most likely first."""
