"""The writer of a run file: takes entries in hash order and writes the blocks and the footer.

Used by writer tasks through `run.write_run`, and by merges, which append slice by slice. Invariant: at most
about one block is in memory, and a file that was not closed is deleted.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.failpoints import failpoint
from streamlake.index.runs.entries import TOMBSTONE, Entries, RunFile
from streamlake.index.runs.index_file import IndexFile
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.runs.run_format import (
    HEAD,
    BlockPlace,
    Footer,
    Section,
    block_sections,
    encode_footer,
    padding,
)
from streamlake.storage.file_io import FileIO

Array = np.ndarray[Any, Any]

BLOCK_ENTRIES = 1 << 19
BLOCK_BYTES = 32 * 1024 * 1024
"""Bytes of keys and sequence values after which a block of fewer entries ends."""


@dataclass(frozen=True)
class RunRef:
    """A run file as the index state names it: its bucket, its size in bytes, the CRC-32 of its footer.

    `entries` and `tombstones` are counts; tombstones are among the entries. `maps` are the position maps,
    oldest first, of compactions that came after the run was written: its entries count where these say that
    the rows are now.
    """

    path: str
    bucket: int
    buckets: int
    entries: int
    bytes: int
    crc: int
    tombstones: int = 0
    maps: tuple[PositionMapRef, ...] = ()


def run_to_json(ref: RunRef) -> dict[str, Any]:
    """The JSON object of a reference without its position maps."""
    obj = asdict(ref)
    del obj["maps"]
    return obj


class RunWriter(IndexFile):
    """Writes the run of `bucket` of `buckets` to `path`: `append` in hash order, then `close`; or `abort`.

    Raises StorageError when the storage fails; then the file is already deleted.
    """

    def __init__(self, io: FileIO, path: str, bucket: int, buckets: int) -> None:
        super().__init__(io, path)
        self._bucket = bucket
        self._buckets = buckets
        self._blocks: list[BlockPlace] = []
        self._kinds: tuple[str, str] | None = None
        self._tombstones = 0
        self._write(HEAD)

    def append(self, entries: Entries) -> None:
        """Add entries; none may have a hash below the last one appended.

        Their `paths` are those given to `close`.
        """
        if not len(entries):
            return
        hashes = entries.keys.hashes
        if (self._blocks and int(hashes[0]) < self._blocks[-1].last) or (hashes[1:] < hashes[:-1]).any():
            self.abort()
            raise ValueError(f"{self._path}: entries of a run are written in the order of their hashes")
        kinds = _kinds(entries)
        if self._kinds is not None and kinds != self._kinds:
            self.abort()
            raise ValueError(f"{self._path}: entries with {kinds} after entries with {self._kinds}")
        self._kinds = kinds
        for start, stop in _cuts(entries):
            self._append_block(entries.slice(start, stop))

    def close(self, paths: Sequence[RunFile]) -> RunRef:
        """Finish the file, whose entries refer to `paths`; gives its RunRef."""
        keys, sequence_values = self._kinds or ("hash", "none")
        count = sum(block.entries for block in self._blocks)
        footer = Footer(
            self._bucket, self._buckets, count, keys, sequence_values, tuple(paths), tuple(self._blocks)
        )
        data, crc = encode_footer(footer, self._at)
        self._write(data)
        self._finish()
        failpoint("index-run-written")
        return RunRef(self._path, self._bucket, self._buckets, count, self._at, crc, self._tombstones)

    def _append_block(self, entries: Entries) -> None:
        start, crc = self._at, 0
        sections = {}
        lead = padding(start)
        self._write(lead)
        crc = zlib.crc32(lead, crc)
        for name, array in block_sections(entries):
            sections[name] = Section(array.dtype.str, self._at, len(array))
            data = np.ascontiguousarray(array).data.cast("B") if len(array) else memoryview(b"")
            tail = padding(len(data))
            crc = zlib.crc32(tail, zlib.crc32(data, crc))
            self._write(data)
            self._write(tail)
        hashes = entries.keys.hashes
        self._tombstones += int(np.count_nonzero(entries.flags & TOMBSTONE))
        self._blocks.append(
            BlockPlace(start, self._at - start, crc, len(entries), int(hashes[0]), int(hashes[-1]), sections)
        )


def _kinds(entries: Entries) -> tuple[str, str]:
    keys = "hash" if entries.keys.data is None else "data"
    if entries.sequence_values is None:
        return keys, "none"
    return keys, "int64" if entries.sequence_values.is_numeric else "bytes"


def _cuts(entries: Entries) -> list[tuple[int, int]]:
    """Ranges of entries that make one block each."""
    strings = [entries.keys.data]
    if entries.sequence_values is not None and not entries.sequence_values.is_numeric:
        strings.append(entries.sequence_values.values)
    weight = sum(_bytes_of(part) for part in strings if part is not None)
    blocks = max(-(-len(entries) // BLOCK_ENTRIES), -(-weight // BLOCK_BYTES), 1)
    step = -(-len(entries) // blocks)
    return [(start, min(start + step, len(entries))) for start in range(0, len(entries), step)]


def _bytes_of(strings: pa.LargeBinaryArray) -> int:
    offsets = np.frombuffer(
        strings.buffers()[1], dtype="<i8", count=len(strings) + 1, offset=8 * strings.offset
    )
    return int(offsets[-1] - offsets[0])
