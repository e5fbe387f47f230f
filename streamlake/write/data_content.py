"""The content "data": rows of the table in a data file, described as a DataFile with content 0."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa

from streamlake.errors import StreamlakeError
from streamlake.formats.data_files import DataWriters
from streamlake.spec.data_file import DataFile, FileContent
from streamlake.write.sort import RowSorter
from streamlake.write.target import WriteTarget


class DataContent:
    """One open data file of one partition.

    With a `sorter`, the tables given to `write` are sorted by it; the file carries the sort order's id only when
    they also follow one another in that order.
    """

    def __init__(
        self,
        target: WriteTarget,
        writers: DataWriters,
        path: str,
        partition: tuple[Any, ...],
        sorter: RowSorter | None = None,
    ) -> None:
        self._target = target
        self._path = path
        self._partition = partition
        self._sorter = sorter
        self._last_row: pa.Table | None = None
        self._sorted = sorter is not None
        self._writer = writers.open(path)

    @property
    def path(self) -> str:
        return self._path

    @property
    def record_count(self) -> int:
        return self._writer.record_count

    @property
    def bytes_written(self) -> int:
        return self._writer.bytes_written

    @property
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes

    def write(self, rows: pa.Table) -> None:
        if self._sorter is not None and rows.num_rows:
            if self._sorted and self._last_row is not None:
                self._sorted = self._sorter.in_order(self._last_row, rows.slice(0, 1))
            self._last_row = rows.take([rows.num_rows - 1])  # a copy: a slice would keep all rows alive
        self._writer.write(rows)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> DataFile:
        metrics = self._writer.close()
        target = self._target
        return DataFile(
            content=FileContent.DATA,
            file_path=self._path,
            file_format=target.options.file_format,
            spec_id=target.spec.spec_id,
            partition=self._partition,
            record_count=metrics.record_count,
            file_size_in_bytes=metrics.file_size_in_bytes,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts=metrics.nan_value_counts,
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            split_offsets=metrics.split_offsets,
            sort_order_id=target.sort_order.order_id if self._sorted else None,
        )

    def abort(self) -> None:
        with contextlib.suppress(StreamlakeError, OSError, pa.ArrowException):
            self._writer.abort()
