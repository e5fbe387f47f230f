"""XXH64 in bulk is XXH64, for any length, seed and chain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.index.keys.xxh64 import hash_bytes, hash_ints, hash_longs

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

PUBLISHED = {
    (b"", 0): 0xEF46DB3751D8E999,
    (b"", 2654435761): 0xAC75FDA2929B17EF,
    (b"a", 0): 0xD24EC4F1A98C6E5B,
    (b"abc", 0): 0x44BC2CF5AD770999,
    (b"xxhash", 20141025): 0xB559B98D844E0635,
    (b"Nobody inspects the spammish repetition", 0): 0xFBCEA83C8A378BF1,
}


def xxh64(data: bytes, seed: int) -> int:
    """The algorithm as it is described, one value at a time."""

    def turned(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (64 - bits))) & _MASK

    def mixed(lane: int, word: int) -> int:
        return turned((lane + word * _P2) & _MASK, 31) * _P1 & _MASK

    at = 0
    h = (seed + _P5) & _MASK
    if len(data) >= 32:
        lanes = [(seed + start) & _MASK for start in (_P1 + _P2, _P2, 0, -_P1)]
        while at + 32 <= len(data):
            for number in range(4):
                first = at + 8 * number
                lanes[number] = mixed(lanes[number], int.from_bytes(data[first : first + 8], "little"))
            at += 32
        h = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            h = ((h ^ mixed(0, lane)) * _P1 + _P4) & _MASK
    h = (h + len(data)) & _MASK
    while at + 8 <= len(data):
        h = (turned(h ^ mixed(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        h = (turned(h ^ (int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        h = turned(h ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    h = (h ^ (h >> 33)) * _P2 & _MASK
    h = (h ^ (h >> 29)) * _P3 & _MASK
    return h ^ (h >> 32)


def in_bulk(values: list[bytes], seeds: list[int]) -> list[int]:
    lengths = np.array([len(value) for value in values], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(values), dtype=np.uint8)
    found: list[int] = hash_bytes(data, starts, lengths, np.array(seeds, dtype=np.uint64)).tolist()
    return found


@pytest.mark.parametrize(("data", "seed"), PUBLISHED)
def test_published_values(data: bytes, seed: int) -> None:
    assert xxh64(data, seed) == PUBLISHED[data, seed]
    assert in_bulk([data], [seed]) == [PUBLISHED[data, seed]]


def test_every_length_in_one_column() -> None:
    generator = np.random.default_rng(7)
    lengths = [*range(200), 1_000, 4_097, 31, 32, 33, 0]
    values = [generator.integers(0, 256, length, dtype=np.uint8).tobytes() for length in lengths]
    seeds = generator.integers(0, 2**64, len(values), dtype=np.uint64).tolist()
    assert in_bulk(values, seeds) == [xxh64(value, seed) for value, seed in zip(values, seeds, strict=True)]


def test_more_rows_than_a_block() -> None:
    values = [str(number).encode() * (number % 9) for number in range(40_000)]
    seeds = list(range(len(values)))
    found = in_bulk(values, seeds)
    for row in [*range(0, 40_000, 997), 16_383, 16_384, 39_999]:
        assert found[row] == xxh64(values[row], seeds[row])
    numbers = np.arange(40_000, dtype=np.int64) - 20_000
    longs = hash_longs(numbers, np.array(seeds, dtype=np.uint64))
    ints = hash_ints(numbers.astype(np.int32), np.array(seeds, dtype=np.uint64))
    for row in [0, 16_383, 16_384, 39_999]:
        number = int(numbers[row])
        assert int(longs[row]) == xxh64(number.to_bytes(8, "little", signed=True), seeds[row])
        assert int(ints[row]) == xxh64(number.to_bytes(4, "little", signed=True), seeds[row])


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=150), st.integers(0, _MASK)), max_size=30))
def test_bulk_equals_one_by_one(rows: list[tuple[bytes, int]]) -> None:
    values, seeds = [value for value, _ in rows], [seed for _, seed in rows]
    assert in_bulk(values, seeds) == [xxh64(value, seed) for value, seed in rows]


def undone(hashed: int, seed: int, width: int) -> int:
    """The value of `width` bytes (4 or 8) with this hash: every step of XXH64 undone."""

    def unshifted(value: int, bits: int) -> int:
        found = value
        for _ in range(64 // bits):
            found = value ^ (found >> bits)
        return found

    def unturned(value: int, bits: int) -> int:
        return ((value >> bits) | (value << (64 - bits))) & _MASK

    def divided(value: int, factor: int) -> int:
        return value * pow(factor, -1, 2**64) & _MASK

    h = divided(unshifted(hashed, 32), _P3)
    h = divided(unshifted(h, 29), _P2)
    h = unshifted(h, 33)
    if width == 8:
        h = unturned(divided(h - _P4, _P1), 27) ^ ((seed + _P5 + 8) & _MASK)
        return divided(unturned(divided(h, _P1), 31), _P2)
    h = unturned(divided(h - _P3, _P2), 23) ^ ((seed + _P5 + 4) & _MASK)
    return divided(h, _P1)


@settings(deadline=None)
@given(st.integers(0, _MASK), st.integers(0, _MASK))
def test_the_hash_of_one_word_can_be_undone(word: int, seed: int) -> None:
    """So different words of one width have different hashes: the hash is the key."""
    seeds = np.array([seed], dtype=np.uint64)
    assert undone(int(hash_longs(np.array([word], dtype=np.uint64), seeds)[0]), seed, 8) == word
    half = word & 0xFFFFFFFF
    assert undone(int(hash_ints(np.array([half], dtype=np.uint32), seeds)[0]), seed, 4) == half
