"""The format of a run file: blocks of raw little-endian sections, then a footer with their positions.

    "SLKRUN" version:u16 | block ... block | footer (zlib, JSON) |
    footer offset:u64 length:u32 crc:u32 "SLKRUN" version:u16

Each section starts at a multiple of 64 bytes, so that it can be mapped as an array. Invariant: every
byte is covered by a check: the blocks with their padding by a CRC-32 in the footer, the footer by one in
the trailer and in the RunRef.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import IndexDamagedError
from streamlake.index.runs.entries import NULL_KEY, TOMBSTONE, Entries, RunFile

Array = np.ndarray[Any, Any]

VERSION = 1
_MAGIC = b"SLKRUN"
HEAD = _MAGIC + struct.pack("<H", VERSION)
_TRAILER = struct.Struct(f"<QII{len(HEAD)}s")
TRAILER_BYTES = _TRAILER.size
ALIGNMENT = 64
_PADDING = bytes(ALIGNMENT)
_DTYPES = frozenset({"<u8", "<i8", "<u4", "<i4", "<u2", "|u1"})


@dataclass(frozen=True)
class Section:
    """The position of an array: numpy dtype text, byte offset in the file, number of items."""

    dtype: str
    offset: int
    count: int


@dataclass(frozen=True)
class BlockPlace:
    """A block in the file: bytes offset..offset+length-1, CRC-32, hash range, sections by name."""

    offset: int
    length: int
    crc: int
    entries: int
    first: int
    last: int
    sections: dict[str, Section]


@dataclass(frozen=True)
class Footer:
    """Everything about a run except its entries.

    `keys` is "hash" or "data", `sequence_values` "none", "int64" or "bytes".
    """

    bucket: int
    buckets: int
    entries: int
    keys: str
    sequence_values: str
    paths: tuple[RunFile, ...]
    blocks: tuple[BlockPlace, ...]


def block_sections(entries: Entries) -> Iterator[tuple[str, Array]]:
    """The arrays of a block with their names, each integer as narrow as its values allow."""
    flags = entries.flags & np.uint8(0xFF - NULL_KEY)
    if entries.keys.nulls is not None:
        flags = flags | entries.keys.nulls * np.uint8(NULL_KEY)
    dead = flags & TOMBSTONE != 0
    yield "hashes", entries.keys.hashes.astype("<u8", copy=False)
    yield "files", narrow(np.where(dead, 0, entries.files))
    yield "positions", narrow(np.where(dead, 0, entries.positions))
    yield "flags", flags.astype(np.uint8, copy=False)
    if entries.keys.data is not None:
        yield from _strings("key", entries.keys.data)
    if entries.sequence_values is not None and entries.sequence_values.is_numeric:
        yield "guards", entries.sequence_values.values.astype("<i8", copy=False)
    elif entries.sequence_values is not None:
        yield from _strings("guard", entries.sequence_values.values)
    if entries.times is not None:
        tombstones = np.flatnonzero(dead)
        yield "tombstones", tombstones.astype("<u4")
        yield "times", entries.times[tombstones].astype("<i8", copy=False)


def padding(length: int) -> bytes:
    """The bytes to write after `length` bytes so that the next section is aligned."""
    return _PADDING[: -length % ALIGNMENT]


def encode_footer(footer: Footer, offset: int) -> tuple[bytes, int]:
    """Footer and trailer for a footer at byte `offset`, and the CRC-32 of the footer."""
    content = {
        "bucket": footer.bucket,
        "buckets": footer.buckets,
        "entries": footer.entries,
        "keys": footer.keys,
        "guards": footer.sequence_values,
        "paths": [[file.path, int(file.own)] for file in footer.paths],
        "blocks": [
            [b.offset, b.length, b.crc, b.entries, b.first, b.last]
            + [[name, s.dtype, s.offset, s.count] for name, s in b.sections.items()]
            for b in footer.blocks
        ],
    }
    data = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), level=1)
    crc = zlib.crc32(data)
    return data + _TRAILER.pack(offset, len(data), crc, HEAD), crc


def footer_place(head: bytes, trailer: bytes, size: int, where: str) -> tuple[int, int, int]:
    """Offset, length and CRC-32 of the footer, from the first and last bytes of a file of `size` bytes.

    Raises IndexDamagedError for a file that is not a run file, or one of another version or size.
    """
    if not head.startswith(_MAGIC):
        raise IndexDamagedError(f"{where}: this is not a run of the key index; {ADVICE}")
    if head != HEAD:
        (version,) = struct.unpack_from("<H", head.ljust(len(HEAD), b"\0"), len(_MAGIC))
        raise IndexDamagedError(
            f"{where}: a run of the key index in format version {version}, this is streamlake for version "
            f"{VERSION}; {ADVICE}"
        )
    if len(trailer) < TRAILER_BYTES:
        raise IndexDamagedError(f"{where}: the file ends after {size} bytes; {ADVICE}")
    offset, length, crc, tail = _TRAILER.unpack(trailer)
    if tail != HEAD or offset < len(HEAD) or offset + length + TRAILER_BYTES != size:
        raise IndexDamagedError(f"{where}: the end of the file is damaged or missing; {ADVICE}")
    return offset, length, crc


def decode_footer(data: bytes, offset: int, where: str) -> Footer:
    """The footer that starts at byte `offset` of the file. Raises IndexDamagedError."""
    try:
        content = json.loads(zlib.decompress(data))
        footer = Footer(
            content["bucket"],
            content["buckets"],
            content["entries"],
            content["keys"],
            content["guards"],
            tuple(RunFile(path, bool(own)) for path, own in content["paths"]),
            tuple(_place(block) for block in content["blocks"]),
        )
    except (zlib.error, ValueError, KeyError, TypeError, IndexError) as cause:
        raise IndexDamagedError(f"{where}: the footer cannot be read ({cause!r}); {ADVICE}") from cause
    at = len(HEAD)
    for block in footer.blocks:
        if block.offset != at or not all(_fits(section, block) for section in block.sections.values()):
            raise IndexDamagedError(f"{where}: the footer contradicts itself; {ADVICE}")
        at += block.length
    if at != offset or sum(block.entries for block in footer.blocks) != footer.entries:
        raise IndexDamagedError(f"{where}: the footer contradicts the file; {ADVICE}")
    return footer


ADVICE = "the table is not affected; rebuild the index from it"


def _place(block: list[Any]) -> BlockPlace:
    offset, length, crc, entries, first, last = block[:6]
    sections = {name: Section(dtype, at, count) for name, dtype, at, count in block[6:]}
    return BlockPlace(offset, length, crc, entries, first, last, sections)


def _fits(section: Section, block: BlockPlace) -> bool:
    if section.dtype not in _DTYPES:
        return False
    end = section.offset + np.dtype(section.dtype).itemsize * section.count
    return block.offset <= section.offset and end <= block.offset + block.length


def narrow(values: Array) -> Array:
    """Integers from 0 as little-endian ones, as narrow as they allow."""
    highest = int(values.max(initial=0))
    for dtype in ("|u1", "<u2", "<u4"):
        if highest <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values.astype("<u8")


def _strings(name: str, strings: pa.LargeBinaryArray) -> Iterator[tuple[str, Array]]:
    """Offsets from 0, as narrow as Arrow has them, and the bytes that they point into."""
    _, offsets_buffer, data_buffer = strings.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype="<i8", count=len(strings) + 1, offset=8 * strings.offset)
    start, stop = int(offsets[0]), int(offsets[-1])
    offsets = offsets - start
    yield f"{name}_offsets", offsets.astype("<i4") if stop - start <= np.iinfo(np.int32).max else offsets
    data = np.zeros(0, dtype=np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    yield f"{name}_data", data[start:stop]
