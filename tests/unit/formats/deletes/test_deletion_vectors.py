"""Deletion vectors as other writers serialize them, and as we do."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from streamlake.errors import DataInvalidError
from streamlake.formats.deletes.deletion_vectors import (
    MAX_POSITION,
    decode_deletion_vector,
    encode_deletion_vector,
)


def blob_of(bitmaps):
    """The blob of {high 32 bits: serialized 32-bit bitmap}."""
    body = b"\xd1\xd3\x39\x64" + struct.pack("<Q", len(bitmaps))
    body += b"".join(struct.pack("<I", high) + data for high, data in bitmaps.items())
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize(
    "positions",
    [
        [],
        [0],
        [5, 1, 70_000, 2**31, 2**32 - 1],
        list(range(4096)),
        list(range(0, 10_000, 2)),
        list(range(100_000)),
        [*range(300), *range(65_536, 66_000), 200_000, *range(300_000, 300_100), 999_999_999],
    ],
)
def test_every_container(positions, optimized):
    bitmap = BitMap(positions)
    if optimized:
        bitmap.run_optimize()
    found = decode_deletion_vector(blob_of({0: bitmap.serialize()}), "x")
    assert found.tolist() == sorted(positions)
    assert found.dtype == np.int64


def test_positions_above_32_bits():
    found = decode_deletion_vector(blob_of({0: BitMap([7]).serialize(), 3: BitMap([0, 9]).serialize()}), "x")
    assert found.tolist() == [7, 3 * 2**32, 3 * 2**32 + 9]


@pytest.mark.parametrize("damage", ["short", "magic", "crc", "cut", "cookie", "tail"])
def test_damage_is_an_error(damage):
    whole = blob_of({0: BitMap(range(0, 1000, 3)).serialize()})
    body = whole[4:-4]
    if damage == "short":
        whole = whole[:8]
    elif damage == "magic":
        whole = whole[:4] + b"PUFF" + whole[8:]
    elif damage == "crc":
        whole = whole[:-1] + bytes([whole[-1] ^ 1])
    else:
        body = {"cut": body[:-9], "cookie": body[:16] + b"\0" + body[17:], "tail": body + b"\0"}[damage]
        whole = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    with pytest.raises(DataInvalidError, match="some file"):
        decode_deletion_vector(whole, "some file")


def container(count, cardinality, content, key=0):
    """A 32-bit bitmap of one container without runs."""
    return struct.pack("<IIHHI", 12346, count, key, cardinality - 1, 16) + content


@pytest.mark.parametrize(
    "bitmaps",
    [
        pytest.param({0: container(1, 3, struct.pack("<HHH", 5, 3, 9))}, id="unsorted array"),
        pytest.param({0: container(1, 3, struct.pack("<HHH", 5, 5, 9))}, id="position twice"),
        pytest.param({0: container(1, 5000, b"\xff" * 8192)}, id="more bits than counted"),
        pytest.param({0: container(1, 5000, b"\0" * 8192)}, id="less bits than counted"),
        pytest.param({0: struct.pack("<HHBHHHHH", 12347, 0, 1, 0, 9, 1, 65_530, 9)}, id="run past the end"),
        pytest.param(
            {0: struct.pack("<HHBHHHHHHH", 12347, 0, 1, 0, 9, 2, 0, 9, 5, 9)}, id="runs over each other"
        ),
        pytest.param({7: BitMap([1]).serialize(), 3: BitMap([1]).serialize()}, id="high halves out of order"),
        pytest.param({2**31: BitMap([1]).serialize()}, id="negative position"),
        pytest.param({0: BitMap([1]).serialize()[:-1]}, id="cut"),
        pytest.param({0: BitMap([1]).serialize() + b"\0"}, id="tail"),
    ],
)
def test_an_invalid_bitmap_is_an_error(bitmaps):
    with pytest.raises(DataInvalidError, match=r"some file: the deletion vector.s bitmap is damaged"):
        decode_deletion_vector(blob_of(bitmaps), "some file")


def test_empty_bitmaps_before_a_high_half():
    """As Java writes positions above 32 bits: a bitmap for each high half below, empty ones too."""
    bitmaps = {0: BitMap().serialize(), 1: BitMap().serialize(), 2: BitMap([5]).serialize()}
    assert decode_deletion_vector(blob_of(bitmaps), "x").tolist() == [2 * 2**32 + 5]
    assert decode_deletion_vector(blob_of({0: BitMap().serialize()}), "x").tolist() == []


SAMPLES = [
    [0],
    [5, 1, 70_000, 2**31, 2**32 - 1],
    list(range(100_000)),
    [*range(300), *range(65_536, 66_000), 200_000, 2**40, 2**40 + 1, MAX_POSITION],
    list(range(0, 300_000, 3)),
    [9, 9, 3],
]


@pytest.mark.parametrize("positions", SAMPLES, ids=range(len(SAMPLES)))
def test_what_is_encoded_is_decoded(positions):
    blob = encode_deletion_vector(np.array(positions, dtype=np.int64))
    assert decode_deletion_vector(blob, "x").tolist() == sorted(set(positions))


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(0, 300),
            st.integers(0, 2**33),
            st.integers(0, MAX_POSITION),
            st.tuples(st.integers(0, 2**34), st.integers(1, 70_000)),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_any_positions_survive(parts):
    """Single positions and dense runs of them."""
    runs = [part if isinstance(part, tuple) else (part, 1) for part in parts]
    positions = np.unique(np.concatenate([np.arange(start, start + length) for start, length in runs]))
    blob = encode_deletion_vector(positions)
    assert np.array_equal(decode_deletion_vector(blob, "x"), positions)
    bitmaps = {int(high): BitMap() for high in np.unique(positions >> 32)}
    for high, bitmap in bitmaps.items():
        bitmap.update((positions[positions >> 32 == high] & 0xFFFF_FFFF).tolist())
        bitmap.run_optimize()
    assert blob == blob_of({high: bitmap.serialize() for high, bitmap in bitmaps.items()})


def test_runs_are_small():
    assert len(encode_deletion_vector(np.arange(1_000_000))) < 500


@pytest.mark.parametrize("positions", [[], [-1, 5], [MAX_POSITION + 1]])
def test_positions_that_do_not_fit_are_refused(positions):
    with pytest.raises(DataInvalidError):
        encode_deletion_vector(np.array(positions, dtype=np.int64))


def test_a_view_of_positions_is_encoded_as_it_looks():
    positions = np.arange(100)[10:50:2]
    assert decode_deletion_vector(encode_deletion_vector(positions), "x").tolist() == positions.tolist()
