"""Position map files: where the rows of rewritten data files are now, mapped into memory.

A compaction writes one for its snapshot. A key index whose runs refer to the old files looks rows up through
it, instead of reading the new files. What it says of a row is true for ever, because data files never change.
Invariant: an opened map has been verified against its PositionMapRef, byte for byte.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from streamlake.errors import IndexDamagedError, MissingFileError
from streamlake.index.runs.file_moves import FileMoves
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.runs.position_map_writer import MAP_HEAD, MAP_TRAILER, SECTIONS
from streamlake.index.runs.run_file import is_verified, local_file, remember
from streamlake.index.runs.run_format import ADVICE
from streamlake.storage.file_io import FileIO, storage_errors

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 20
_open: WeakValueDictionary[tuple[int, ...], MapFile] = WeakValueDictionary()
"""The maps that something refers to: the runs of a bucket have most of theirs in common."""


@dataclass(frozen=True, eq=False)
class MapFile:
    """An opened map. It lives as long as something refers to it, and cannot be pickled.

    `new_files` are the paths of the new files by number, with how many rows have moved there; `old_files` are
    the old ones, with the numbers of the new files that their rows are in.
    """

    ref: PositionMapRef
    table_uuid: str
    new_files: tuple[tuple[str, int], ...]
    old_files: tuple[tuple[str, tuple[int, ...]], ...]
    _moves: tuple[FileMoves, ...]

    def number_of(self, path: str) -> int:
        """The number of an old file; -1: the map does not move its rows."""
        return self._numbers.get(path, -1)

    def sources_of(self, path: str) -> list[str]:
        """The old files of which rows are in this new file."""
        return self._sources.get(path, [])

    def places(self, old_files: Array, positions: Array) -> tuple[Array, Array]:
        """Where n rows of old files, given by number, are now: numbers of new files and positions there, both
        (n,) int64.

        The number is -1, and the position 0, for a row that had been deleted.
        """
        files: Array = np.full(len(old_files), -1, dtype=np.int64)
        places: Array = np.zeros(len(old_files), dtype=np.int64)
        # Ascending, so that a search goes through the stretches in order and not through pages at random.
        order = np.lexsort((positions, old_files))
        numbers, starts = np.unique(old_files[order], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            moved = self._moves[number].moved(positions[rows])
            files[rows[moved.there]] = moved.files
            places[rows[moved.there]] = moved.positions
        return files, places

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {path: number for number, (path, _) in enumerate(self.old_files)}

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {path: [] for path, _ in self.new_files}
        for path, numbers in self.old_files:
            for number in numbers:
                found[self.new_files[number][0]].append(path)
        return found


def open_position_map(io: FileIO, ref: PositionMapRef, cache_directory: str | None = None) -> MapFile:
    """The map that `ref` names. A file that is not local is first copied to `cache_directory`.

    Raises IndexDamagedError when it is missing, damaged, of another version or not the file that `ref` was
    made for, and StorageError when the storage fails otherwise.
    """
    return local_file(io, ref, cache_directory, lambda local: _opened(local, ref))


def _opened(local: str, ref: PositionMapRef) -> MapFile:
    where = ref.path
    try:
        with storage_errors("opening", where):
            file = open(local, "rb", buffering=0)  # noqa: SIM115 (closed below)
    except MissingFileError as cause:
        raise IndexDamagedError(f"{where}: the position map is missing; {ADVICE}") from cause
    with file, storage_errors("reading", where):
        status = os.fstat(file.fileno())
        size, least = status.st_size, len(MAP_HEAD) + MAP_TRAILER.size
        if size != ref.bytes or size < least or os.pread(file.fileno(), len(MAP_HEAD), 0) != MAP_HEAD:
            raise _not_the_map(where)
        trailer = os.pread(file.fileno(), MAP_TRAILER.size, size - MAP_TRAILER.size)
        offset, length, crc, tail = MAP_TRAILER.unpack(trailer)
        if tail != MAP_HEAD or crc != ref.crc or offset + length + MAP_TRAILER.size != size:
            raise _not_the_map(where)
        data = os.pread(file.fileno(), length, offset)
        if zlib.crc32(data) != crc:
            raise _not_the_map(where)
        identity = (status.st_dev, status.st_ino, size, status.st_mtime_ns, crc)
        opened = _open.get(identity)
        if opened is not None and opened.ref == ref:
            return opened
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        try:
            content = json.loads(zlib.decompress(data))
            if not is_verified(identity):
                if _checksum(file.fileno(), offset) != content["crc"]:
                    raise IndexDamagedError(f"{where}: a checksum does not match; {ADVICE}")
                remember(identity)
            opened = _open[identity] = _map_file(ref, content, mapped)
            return opened
        except (zlib.error, ValueError, KeyError, TypeError, IndexError) as cause:
            raise IndexDamagedError(f"{where}: the footer cannot be read ({cause!r}); {ADVICE}") from cause


def _map_file(ref: PositionMapRef, content: dict[str, Any], mapped: mmap.mmap) -> MapFile:
    new_files: list[tuple[str, int]] = []
    old_files: list[tuple[str, tuple[int, ...]]] = []
    moves: list[FileMoves] = []
    for group in content["groups"]:
        arrays = {
            name: np.frombuffer(mapped, dtype=dtype, count=count, offset=offset)
            for name, (dtype, offset, count) in group["arrays"].items()
        }
        at = 0
        for path, count, numbers in group["old"]:
            part = {name: arrays[name][at : at + count] for name in SECTIONS}
            moves.append(FileMoves(**part))
            old_files.append((path, tuple(numbers)))
            at += count
        new_files += [(path, rows) for path, rows in group["new"]]
    return MapFile(ref, content["table"], tuple(new_files), tuple(old_files), tuple(moves))


def _not_the_map(where: str) -> IndexDamagedError:
    return IndexDamagedError(f"{where}: not the position map that was written there; {ADVICE}")


def _checksum(descriptor: int, length: int) -> int:
    """The CRC-32 of the first bytes. They are read and not mapped, see `run_file`."""
    crc, at = 0, 0
    while at < length:
        part = os.pread(descriptor, min(_CHUNK, length - at), at)
        if not part:
            break
        crc, at = zlib.crc32(part, crc), at + len(part)
    return crc
