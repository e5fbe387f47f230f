"""The writer of a position map: a file that says where the rows of rewritten data files are now.

    "SLKMAP" version:u16 | group ... group | footer (zlib, JSON) |
    footer offset:u64 length:u32 crc:u32 "SLKMAP" version:u16

A group has the moves of data files that were rewritten together, as little-endian arrays that can be mapped.
Invariant: at most one group is in memory, a file that was not closed is deleted, and every byte is covered by
a check: the groups by a CRC-32 in the footer, the footer by one in the trailer and in the PositionMapRef.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamlake.failpoints import failpoint
from streamlake.index.runs.file_moves import FileMoves
from streamlake.index.runs.index_file import IndexFile
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.runs.run_format import narrow, padding
from streamlake.storage.file_io import FileIO

Array = np.ndarray[Any, Any]

MAP_VERSION = 1
MAP_MAGIC = b"SLKMAP"
MAP_HEAD = MAP_MAGIC + struct.pack("<H", MAP_VERSION)
MAP_TRAILER = struct.Struct(f"<QII{len(MAP_HEAD)}s")
SECTIONS = ("old", "rows", "files", "new")


class PositionMapWriter(IndexFile):
    """Writes the position map of the table `table_uuid` to `path`: `append` each group, then `close`; or
    `abort`. The groups share no data file.

    Raises StorageError when the storage fails; then the file is already deleted.
    """

    def __init__(self, io: FileIO, path: str, table_uuid: str) -> None:
        super().__init__(io, path)
        self._table_uuid = table_uuid
        self._groups: list[dict[str, Any]] = []
        self._new_files = 0
        self._stretches = 0
        self._crc = 0
        self._write(MAP_HEAD)

    def append(self, new_paths: Sequence[str], moves: Mapping[str, FileMoves]) -> None:
        """Add one group: `moves` by the path of the old file, into the files `new_paths` by number."""
        rows: Array = np.zeros(len(new_paths), dtype=np.int64)
        old_files = []
        base = self._new_files
        for path, each in moves.items():
            written = np.bincount(each.files, each.rows, len(new_paths)).astype(np.int64)
            rows += written
            old_files.append([path, len(each.old), (np.flatnonzero(written) + base).tolist()])
        group: dict[str, Any] = {
            "old": old_files,
            "new": [[path, count] for path, count in zip(new_paths, rows.tolist(), strict=True)],
            "arrays": {},
        }
        for name in SECTIONS:
            parts = [getattr(each, name) for each in moves.values()]
            array = np.concatenate([np.zeros(0, dtype=np.uint8), *parts])
            array = narrow(array.astype(np.int64) + base if name == "files" and base else array)
            self._write(padding(self._at))
            group["arrays"][name] = [array.dtype.str, self._at, len(array)]
            self._write(array.data.cast("B") if len(array) else b"")
        self._groups.append(group)
        self._new_files += len(new_paths)
        self._stretches += sum(len(each.old) for each in moves.values())

    def close(self) -> PositionMapRef:
        """Finish the file; gives its reference."""
        content = {"table": self._table_uuid, "crc": self._crc, "groups": self._groups}
        data = zlib.compress(json.dumps(content, separators=(",", ":")).encode(), level=1)
        crc = zlib.crc32(data)
        self._write(data + MAP_TRAILER.pack(self._at, len(data), crc, MAP_HEAD))
        self._finish()
        failpoint("position-map-written")
        return PositionMapRef(self._path, self._at, crc, self._stretches)

    def _write(self, data: bytes | memoryview) -> None:
        super()._write(data)
        self._crc = zlib.crc32(data, self._crc)
