"""Runs: immutable sorted entries in a file, mapped into memory.

`write_run` is the last step of a writer task's work with the index, `open_run` the first. Invariant: an
opened run has been verified against its RunRef, byte for byte, and its sections are never loaded whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.runs.blocks import Block
from streamlake.index.runs.entries import Entries, RunFile
from streamlake.index.runs.moved_places import MovedPlaces
from streamlake.index.runs.position_map_file import open_position_map
from streamlake.index.runs.run_file import checked_run_file
from streamlake.index.runs.run_format import BlockPlace, Footer, Section
from streamlake.index.runs.run_writer import RunRef, RunWriter
from streamlake.storage.file_io import FileIO

__all__ = ["Run", "RunRef", "open_run", "write_run"]

Array = np.ndarray[Any, Any]


def write_run(io: FileIO, path: str, entries: Entries, bucket: int, buckets: int) -> RunRef:
    """Write `entries`, all of `bucket` of `buckets`, to the new file `path`.

    Raises StorageError, leaving no file.
    """
    writer = RunWriter(io, path, bucket, buckets)
    writer.append(entries)
    return writer.close(entries.paths)


def open_run(io: FileIO, ref: RunRef, cache_directory: str | None = None) -> Run:
    """The run that `ref` names, mapped. A file that is not local is first copied to `cache_directory`.

    The whole file is verified once per process. Raises IndexDamagedError when it is missing,
    damaged, of another version or not the file that `ref` was made for, and StorageError
    when the storage fails otherwise.
    """
    maps = [open_position_map(io, each, cache_directory) for each in ref.maps]
    file, footer = checked_run_file(io, ref, cache_directory)
    with file:
        return Run(
            ref, footer, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), MovedPlaces.of(footer.paths, maps)
        )


@dataclass(frozen=True, eq=False)
class Run:
    """A mapped run. It lives as long as something refers to it, and cannot be pickled.

    Where it has position maps, its entries are shown at the rows' present places.
    """

    ref: RunRef
    footer: Footer
    _map: mmap.mmap
    _moved: MovedPlaces | None = None

    @property
    def paths(self) -> tuple[RunFile, ...]:
        """The data files that entries refer to by ordinal."""
        return self.footer.paths if self._moved is None else self._moved.paths

    def __len__(self) -> int:
        return self.footer.entries

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in hash order, as views of the map."""
        return tuple(self._block(place) for place in self.footer.blocks)

    def entries(self) -> Iterator[Entries]:
        """All entries, a block at a time."""
        for block in self.blocks:
            yield block.entries(0, len(block), self.paths)
            block.release()

    def _block(self, place: BlockPlace) -> Block:
        def array(name: str) -> Any:
            section = place.sections.get(name)
            return None if section is None else self._array(section)

        sequence_values: Any = array("guards")
        return Block(
            place.first,
            place.last,
            array("hashes"),
            array("files"),
            array("positions"),
            array("flags"),
            self._strings(place, "key"),
            self._strings(place, "guard") if sequence_values is None else sequence_values,
            array("tombstones"),
            array("times"),
            lambda: self._release(place),
            None if self._moved is None else self._moved.places,
        )

    def _array(self, section: Section) -> Array:
        return np.frombuffer(self._map, dtype=section.dtype, count=section.count, offset=section.offset)

    def _strings(self, place: BlockPlace, name: str) -> pa.Array | None:
        offsets = place.sections.get(f"{name}_offsets")
        if offsets is None:
            return None
        kind = pa.binary() if offsets.dtype == "<i4" else pa.large_binary()
        buffers = [None, self._array(offsets), self._array(place.sections[f"{name}_data"])]
        return pa.Array.from_buffers(
            kind, offsets.count - 1, [None if b is None else pa.py_buffer(b) for b in buffers]
        )

    def _release(self, place: BlockPlace) -> None:
        """Give the block's pages back to the system.

        The page cache keeps them; the next access maps them again.
        """
        start = place.offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, place.offset + place.length - start)
