"""Writes rows to data files and reports file and position of every row, which an upsert needs for its index.

Fanout holds rows back; here a table of rows is written at once: split by partition, sorted where the table
has a sort order, appended to the open file of its partition. Invariant: a row's place is its file and
position as the finished file has them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, KeysView
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.files.rolling import RollingWriter
from streamlake.write.files.writers import OpenFile
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.rows.sort import RowSorter

Array = np.ndarray[Any, Any]

_ROW = "__streamlake_row"


class Places(NamedTuple):
    """Where rows were written.

    For each row, the number of its file (an index into `PlacedWriter.paths`) and its position there.
    """

    files: Array
    positions: Array


class PlacedWriter:
    """Writes rows of one task by partition; `partitioner` is None for an unpartitioned table.

    At most `max_open_files` are open. What they buffer is encoded when it exceeds `buffer_bytes`.
    """

    def __init__(
        self,
        partitioner: Partitioner | None,
        open_file: OpenFile,
        *,
        unpartitioned: tuple[Any, ...],
        target_bytes: int,
        buffer_bytes: int,
        max_open_files: int,
        sorter: RowSorter | None = None,
    ) -> None:
        self._partitioner = partitioner
        self._open_file = open_file
        self._unpartitioned = unpartitioned
        self._target_bytes = target_bytes
        self._buffer_bytes = buffer_bytes
        self._max_open_files = max_open_files
        self._sorter = sorter
        self._writers: dict[int, RollingWriter] = {}  # the least recently written first
        self._files: list[DataFile] = []
        self._numbers: dict[str, int] = {}

    @property
    def paths(self) -> KeysView[str]:
        """The files that rows were written to, in the order of their numbers."""
        return self._numbers.keys()

    def write(self, rows: pa.Table) -> Places:
        """Write rows of the table's schema; the places are in the order of the rows."""
        places = Places(np.empty(rows.num_rows, np.int32), np.empty(rows.num_rows, np.int64))
        if not rows.num_rows:
            return places
        if self._partitioner is None:
            if self._sorter is None:
                self._write(0, rows, places, None)
            else:
                self._write_sorted(0, _numbered(rows), places)
        else:
            for piece, runs in self._partitioner.split(_numbered(rows)):
                for run in runs:
                    self._write_sorted(run.number, piece.slice(run.start, run.stop - run.start), places)
        if sum(writer.buffered_bytes for writer in self._writers.values()) > self._buffer_bytes:
            for writer in self._writers.values():
                writer.flush()
        return places

    def roll(self) -> None:
        """Finish the open files; the next rows go into others."""
        for writer in self._writers.values():
            writer.roll()

    def finished(self, paths: Container[str]) -> dict[str, DataFile]:
        """The files at `paths`, by path, as they can be read.

        Those that are still open are finished first.
        """
        for writer in self._writers.values():
            if writer.open_path in paths:
                writer.roll()
            self._files.extend(writer.take_files())
        return {file.file_path: file for file in self._files if file.file_path in paths}

    def close(self) -> tuple[DataFile, ...]:
        """Finish all files and describe them."""
        for number in list(self._writers):
            self._finish(number)
        return tuple(self._files)

    def abort(self) -> None:
        """Close what is open without finishing it; never raises."""
        for writer in self._writers.values():
            writer.abort()
        self._writers = {}

    def _write_sorted(self, partition: int, rows: pa.Table, places: Places) -> None:
        if self._sorter is not None:
            rows = self._sorter.sort(rows)
        at = rows.column(_ROW).to_numpy()
        self._write(partition, rows.drop_columns([_ROW]), places, at)

    def _write(self, partition: int, rows: pa.Table, places: Places, at: Array | None) -> None:
        start = 0
        for stretch in self._writer(partition).write(rows):
            stop = start + stretch.rows
            where = slice(start, stop) if at is None else at[start:stop]
            places.files[where] = self._numbers.setdefault(stretch.path, len(self._numbers))
            places.positions[where] = np.arange(stretch.start, stretch.start + stretch.rows)
            start = stop

    def _writer(self, partition: int) -> RollingWriter:
        writer = self._writers.pop(partition, None)
        if writer is None:
            while len(self._writers) >= self._max_open_files:
                self._finish(next(iter(self._writers)))
            values = (
                self._unpartitioned if self._partitioner is None else self._partitioner.partition(partition)
            )
            opened: Callable[[], Any] = partial(self._open_file, values)
            writer = RollingWriter(opened, self._target_bytes)
        self._writers[partition] = writer
        return writer

    def _finish(self, partition: int) -> None:
        self._files.extend(self._writers.pop(partition).close())


def _numbered(rows: pa.Table) -> pa.Table:
    return rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
