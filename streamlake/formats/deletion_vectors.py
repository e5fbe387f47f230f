"""Deletion vectors: positions <-> the bytes of a Puffin `deletion-vector-v1` blob (spec: Deletion Vectors; Puffin).

A blob is a 64-bit roaring bitmap in the portable format between a length, a magic number and a CRC. A manifest entry
says where in the file the blob lies, so the Puffin footer is not needed for reading.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from streamlake.errors import DataInvalidError
from streamlake.spec.data_file import DataFile
from streamlake.storage.file_io import FileIO

_MAGIC = b"\xd1\xd3\x39\x64"
_NO_RUNS, _WITH_RUNS = 12346, 12347
_ARRAY_LIMIT = 4096
_OFFSETS_FROM = 4

Positions = np.ndarray[Any, np.dtype[np.int64]]


def read_deletion_vector(io: FileIO, file: DataFile) -> Positions:
    """The deleted positions of a deletion vector entry, ascending. Raises DataInvalidError when it is damaged."""
    offset, length = file.content_offset, file.content_size_in_bytes
    if offset is None or length is None:
        raise DataInvalidError(
            f"{file.file_path}: a deletion vector without content_offset and content_size_in_bytes"
        )
    with io.open_input(file.file_path) as stream:
        stream.seek(offset)
        data = bytes(stream.read(length))
    where = f"{file.file_path} at {offset}"
    if len(data) != length:
        raise DataInvalidError(f"{where}: the file ends within the deletion vector; restore it")
    positions = decode_deletion_vector(data, where)
    if len(positions) != file.record_count:
        raise DataInvalidError(
            f"{where}: {len(positions)} deleted positions, the manifest says {file.record_count}; restore the file"
        )
    return positions


def decode_deletion_vector(blob: bytes, where: str) -> Positions:
    """The positions of a blob. Raises DataInvalidError."""
    if len(blob) < 12:
        raise DataInvalidError(f"{where}: {len(blob)} bytes are no deletion vector")
    size = struct.unpack_from(">I", blob)[0]
    body, crc = blob[4:-4], struct.unpack_from(">I", blob, len(blob) - 4)[0]
    if size != len(body) or body[:4] != _MAGIC:
        raise DataInvalidError(
            f"{where}: no deletion vector (length {size} of {len(body)}, magic {body[:4].hex()})"
        )
    if zlib.crc32(body) != crc:
        raise DataInvalidError(f"{where}: the deletion vector's checksum does not match; restore the file")
    try:
        return _decode_bitmap64(memoryview(body)[4:])
    except (struct.error, ValueError, IndexError) as cause:
        raise DataInvalidError(
            f"{where}: the deletion vector's bitmap is damaged ({cause}); restore it"
        ) from cause


def _decode_bitmap64(data: memoryview) -> Positions:
    (count,) = struct.unpack_from("<Q", data)
    at, parts = 8, []
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        low, at = _decode_bitmap32(data, at + 4)
        parts.append(low + (high << 32))
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the bitmap")
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _decode_bitmap32(data: memoryview, at: int) -> tuple[Positions, int]:
    """One 32-bit bitmap of the RoaringFormatSpec, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = bytes(data[at : at + (count + 7) // 8])
        at += len(runs)
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError(f"cookie {cookie}")
    header = np.frombuffer(data, dtype="<u2", count=2 * count, offset=at).astype(np.int64)
    at += 4 * count
    if not runs or count >= _OFFSETS_FROM:
        at += 4 * count
    parts: list[Positions] = []
    for index in range(count):
        is_run = bool(runs and runs[index // 8] >> (index % 8) & 1)
        values, at = _decode_container(data, at, int(header[2 * index + 1]) + 1, is_run)
        parts.append(values + (int(header[2 * index]) << 16))
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64), at


def _decode_container(data: memoryview, at: int, cardinality: int, is_run: bool) -> tuple[Positions, int]:
    if is_run:
        (count,) = struct.unpack_from("<H", data, at)
        pairs = (
            np.frombuffer(data, dtype="<u2", count=2 * count, offset=at + 2).astype(np.int64).reshape(-1, 2)
        )
        lengths = pairs[:, 1] + 1
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1]) if count else 0, dtype=np.int64) - np.repeat(ends - lengths, lengths)
        return np.repeat(pairs[:, 0], lengths) + within, at + 2 + 4 * count
    if cardinality <= _ARRAY_LIMIT:
        values = np.frombuffer(data, dtype="<u2", count=cardinality, offset=at)
        return values.astype(np.int64), at + 2 * cardinality
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8, count=8192, offset=at), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), at + 8192
