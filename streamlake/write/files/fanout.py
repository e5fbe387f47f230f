"""The fanout writer: rows of many partitions in any order, with bounds on memory and open files.

Rows wait in a `RowBuffer` until it holds more than its budget. Then the largest partitions are
encoded into their files until half of the budget is free, and with them all that make a row group of
a good size. Files stay open for more rows of their partition, up to a limit; beyond it, the least
recently written file is finished.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.files.partition_writer import PartitionWriter
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.rows.row_buffer import RowBuffer

_GOOD_ROW_GROUP_BYTES = 4 << 20


class FanoutWriter:
    """`open_partition(number)` makes the writer of a partition; `buffer_bytes` bounds the rows that wait."""

    def __init__(
        self,
        partitioner: Partitioner,
        open_partition: Callable[[int], PartitionWriter],
        buffer_bytes: int,
        max_open_files: int,
    ) -> None:
        self._partitioner = partitioner
        self._open_partition = open_partition
        self._buffer_bytes = buffer_bytes
        self._max_open_files = max_open_files
        self._buffer = RowBuffer()
        self._open: dict[int, PartitionWriter] = {}  # the least recently written first
        self._files: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Take rows of the table, in any order."""
        for piece, runs in self._partitioner.split(rows):
            self._buffer.add(piece, runs)
        if self._buffer.held_bytes > self._buffer_bytes:
            self._make_room()

    def close(self) -> tuple[DataFile, ...]:
        """Write all rows that wait, finish all files and describe them."""
        for number in self._buffer.partitions():
            writer = self._writer(number)
            writer.write(self._buffer.take(number))
            self._finish(number)
        for number in list(self._open):
            self._finish(number)
        return tuple(self._files)

    def abort(self) -> None:
        """Drop the rows that wait and close what is open without finishing it; never raises."""
        self._buffer = RowBuffer()
        for writer in self._open.values():
            writer.abort()
        self._open = {}

    def _make_room(self) -> None:
        waiting = self._buffer.waiting_bytes
        for number, size in self._buffer.largest_first():
            if waiting <= self._buffer_bytes / 2 and size < _GOOD_ROW_GROUP_BYTES:
                break
            writer = self._writer(number)
            writer.write(self._buffer.take(number))
            writer.flush()
            waiting -= size
        self._buffer.compact()

    def _writer(self, number: int) -> PartitionWriter:
        """The partition's writer, now the most recently used one.

        Other files are finished to make room for its file.
        """
        writer = self._open.pop(number, None)
        if writer is None:
            while len(self._open) >= self._max_open_files:
                self._finish(next(iter(self._open)))
            writer = self._open_partition(number)
        self._open[number] = writer
        return writer

    def _finish(self, number: int) -> None:
        self._files.extend(self._open[number].close())
        del self._open[number]
