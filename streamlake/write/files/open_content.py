"""The common base of all file contents: one open file of one partition, encoded by a format's writer.

Data, position deletes and equality deletes differ in the rows that they take and in how
they describe the finished file.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa

from streamlake.errors import StreamlakeError
from streamlake.formats.columns.metrics import FileMetrics
from streamlake.formats.data_files import DataWriters
from streamlake.spec.metadata.data_file import DataFile, FileContent


class OpenContent:
    """A ContentFile without `write` and `close`.

    The file is written for the spec `spec_id` and its `partition`.
    """

    def __init__(
        self, writers: DataWriters, path: str, file_format: str, spec_id: int, partition: tuple[Any, ...]
    ) -> None:
        self._path = path
        self._file_format = file_format
        self._spec_id = spec_id
        self._partition = partition
        self._writer = writers.open(path)

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._path

    @property
    def record_count(self) -> int:
        """Rows taken so far."""
        return self._writer.record_count

    @property
    def bytes_written(self) -> int:
        """About how many bytes the file would have if it were closed now."""
        return self._writer.bytes_written

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory held by rows that are not encoded yet."""
        return self._writer.buffered_bytes

    def flush(self) -> None:
        """Encode what is buffered."""
        self._writer.flush()

    def abort(self) -> None:
        """Give the file up; never raises for storage or Arrow errors."""
        with contextlib.suppress(StreamlakeError, OSError, pa.ArrowException):
            self._writer.abort()

    def _described(self, content: FileContent, metrics: FileMetrics) -> DataFile:
        """The finished file as a DataFile, with the metrics of its format's writer."""
        return DataFile(
            content=content,
            file_path=self._path,
            file_format=self._file_format,
            spec_id=self._spec_id,
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
        )
