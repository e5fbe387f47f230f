"""Deletion vectors: encodes and decodes Puffin `deletion-vector-v1` blobs (spec: Deletion Vectors; Puffin).

A blob is a 64-bit roaring bitmap in the portable format between a length, a magic number and a CRC. A
manifest entry records where in the file the blob is, so the Puffin footer is not needed for reading.
Invariant: anything but a whole and valid bitmap is an error.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import Any

import numpy as np
from pyroaring import BitMap64

from streamlake.errors import DataInvalidError
from streamlake.spec.metadata.data_file import DataFile
from streamlake.storage.file_io import FileIO, storage_errors

BLOB_TYPE = "deletion-vector-v1"
MAX_POSITION = 0x7FFF_FFFE_8000_0000
"""The largest position that Iceberg's Java library accepts."""

_MAGIC = b"\xd1\xd3\x39\x64"
_EMPTY_BITMAP_BYTES = 12

Positions = np.ndarray[Any, np.dtype[np.int64]]


def encode_deletion_vector(positions: Positions) -> bytes:
    """The blob of one or more positions, in any order.

    Raises DataInvalidError for no position at all, and for one below 0 or above MAX_POSITION.
    """
    if not len(positions):
        raise DataInvalidError("a deletion vector without positions: write none for this data file")
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high > MAX_POSITION:
        raise DataInvalidError(
            f"positions {low} to {high} do not fit a deletion vector, which takes 0 to {MAX_POSITION}"
        )
    values = array("Q")
    values.frombytes(np.ascontiguousarray(positions, dtype=np.int64).view(np.uint8).data)
    bitmap = BitMap64(values)
    bitmap.run_optimize()
    body = _MAGIC + bytes(bitmap.serialize())
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def read_deletion_vector(io: FileIO, file: DataFile) -> Positions:
    """The deleted positions of a deletion vector entry, ascending.

    Raises DataInvalidError when it is damaged.
    """
    offset, length = file.content_offset, file.content_size_in_bytes
    if offset is None or length is None:
        raise DataInvalidError(
            f"{file.file_path}: a deletion vector without content_offset and content_size_in_bytes"
        )
    with io.open_input(file.file_path) as stream, storage_errors("reading", file.file_path):
        stream.seek(offset)
        data = bytes(stream.read(length))
    where = f"{file.file_path} at {offset}"
    if len(data) != length:
        raise DataInvalidError(f"{where}: the file ends within the deletion vector; restore it")
    positions = decode_deletion_vector(data, where)
    if len(positions) != file.record_count:
        raise DataInvalidError(
            f"{where}: {len(positions)} deleted positions, the manifest says {file.record_count}; restore "
            "the file"
        )
    return positions


def decode_deletion_vector(blob: bytes, where: str) -> Positions:
    """The positions of a blob, ascending. Raises DataInvalidError when the blob is damaged."""
    if len(blob) < 12:
        raise DataInvalidError(f"{where}: {len(blob)} bytes are not a deletion vector")
    size = struct.unpack_from(">I", blob)[0]
    body, crc = blob[4:-4], struct.unpack_from(">I", blob, len(blob) - 4)[0]
    if size != len(body) or body[:4] != _MAGIC:
        raise DataInvalidError(
            f"{where}: not a deletion vector (length {size} of {len(body)}, magic {body[:4].hex()})"
        )
    if zlib.crc32(body) != crc:
        raise DataInvalidError(f"{where}: the deletion vector's checksum does not match; restore the file")
    try:
        return _decode_bitmap(body[4:])
    except ValueError as cause:
        raise DataInvalidError(
            f"{where}: the deletion vector's bitmap is damaged ({cause}); restore it"
        ) from cause


def _decode_bitmap(data: bytes) -> Positions:
    bitmap = BitMap64.deserialize(data)
    whole = bytes(bitmap.serialize())
    # Java writes empty 32-bit bitmaps for high halves without positions; pyroaring leaves them out.
    left_out = int.from_bytes(data[:8], "little") - int.from_bytes(whole[:8], "little")
    surplus = len(data) - len(whole) - left_out * _EMPTY_BITMAP_BYTES
    if surplus:
        raise ValueError(f"{surplus} bytes follow the bitmap")
    positions: Positions = np.frombuffer(bitmap.to_array(), dtype=np.int64)
    if len(positions) and positions[-1] < 0:
        raise ValueError(f"position {bitmap.max()}")
    return positions
