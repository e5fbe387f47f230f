"""Deletion vectors as other writers serialize them."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from pyroaring import BitMap

from streamlake.errors import DataInvalidError
from streamlake.formats.deletion_vectors import decode_deletion_vector


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
