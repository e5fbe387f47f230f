"""Writer of Parquet data files (spec: Appendix A, Parquet).

Rows are collected until they make a row group of a sensible size, then written with encodings that suit them,
with field ids, statistics and a page index. Metrics come from the footer where it is exact (counts, numbers,
dates, short strings) and from Arrow where it is not (NaN counts, UUIDs, long strings). Invariant: between two
calls at most one row group is buffered.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake.errors import DataInvalidError, StreamlakeError
from streamlake.formats.columns.batch_rows import conforming_rows
from streamlake.formats.columns.format_options import FormatOptions
from streamlake.formats.columns.metrics import FileMetrics, file_metrics
from streamlake.formats.parquet.parquet_layout import ParquetLayout
from streamlake.formats.parquet.parquet_metrics import ParquetStats, column_sizes, split_offsets
from streamlake.spec.types.data_types import UUIDType
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO, storage_errors

MAX_ROW_GROUP_ROWS = 1_048_576
_UNSEEN_RATIO = 0.5
_WRITER_ARGUMENTS = frozenset(inspect.signature(pq.ParquetWriter.__init__).parameters)


class ParquetFileWriter:
    """Writes one Parquet file: call `write` any number of times, then `close` or `abort`.

    The files of one task share a `layout`; without it the file makes its own.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        schema: Schema,
        options: FormatOptions,
        layout: ParquetLayout | None = None,
    ) -> None:
        self._io, self._path, self._options = io, path, options
        self._layout = layout or ParquetLayout(schema, options)
        self._arrow_schema = self._layout.arrow_schema
        self._leaves = self._layout.leaves
        self._modes = self._layout.modes
        self._buffer: list[pa.Table] = []
        self._rows_written = 0
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._flushed_memory = 0
        self._sink: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._stats = ParquetStats(self._leaves, self._modes)

    @property
    def record_count(self) -> int:
        """Number of rows taken so far."""
        return self._rows_written + self._buffered_rows

    @property
    def bytes_written(self) -> int:
        """Approximate size of the file if it were closed now."""
        flushed = 0 if self._sink is None else self._sink.tell()
        ratio = flushed / self._flushed_memory if self._flushed_memory else _UNSEEN_RATIO
        return flushed + int(self._buffered_bytes * ratio)

    @property
    def buffered_bytes(self) -> int:
        """Memory held by rows that are not written yet, in bytes; `flush` frees it."""
        return self._buffered_bytes

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Take rows; they are written when a row group is full."""
        if not data.num_rows:
            return
        table = conforming_rows(data, self._arrow_schema, self._path)
        self._buffer.append(table)
        self._buffered_rows += table.num_rows
        self._buffered_bytes += table.nbytes
        if (
            self._buffered_rows >= MAX_ROW_GROUP_ROWS
            or self._buffered_bytes >= self._options.parquet_row_group_size_bytes
        ):
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as row groups of their own."""
        if not self._buffer:
            return
        table = pa.concat_tables(self._buffer)
        limit = self._options.parquet_row_group_size_bytes
        rows = max(1, min(MAX_ROW_GROUP_ROWS, table.num_rows * limit // max(1, self._buffered_bytes)))
        groups = -(-table.num_rows // rows)
        with storage_errors("writing", self._path), self._data_errors():
            writer = self._writer or self._open(table)
            writer.write_table(table, row_group_size=-(-table.num_rows // groups))
        self._stats.update(table)
        self._rows_written += table.num_rows
        self._flushed_memory += self._buffered_bytes
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0

    def close(self) -> FileMetrics:
        """Write what is buffered and the footer; returns the file's metrics."""
        self.flush()
        with storage_errors("writing", self._path), self._data_errors():
            writer = self._writer or self._open(pa.Table.from_batches([], self._arrow_schema))
            writer.close()
            assert self._sink is not None
            size = self._sink.tell()
            self._sink.close()
        footer = writer.writer.metadata
        return file_metrics(
            footer.num_rows,
            size,
            self._leaves,
            self._modes,
            self._stats.columns(footer),
            column_sizes=column_sizes(footer, self._leaves, self._modes),
            split_offsets=split_offsets(footer),
        )

    def abort(self) -> None:
        """Discard the file and remove it; never raises for a file that does not exist."""
        self._buffer = []
        if self._writer is not None:
            # An open ParquetWriter would write its footer on garbage collection, into a closed stream.
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()
            self._writer.is_open = False
        if self._sink is not None:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._sink.close()
            with contextlib.suppress(StreamlakeError):
                self._io.delete(self._path)

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        options = self._options
        layout = self._layout
        plan = layout.plan(first)
        arguments: dict[str, Any] = {
            "compression": layout.codec,
            "compression_level": layout.compression_level,
            "use_dictionary": list(plan.dictionary),
            "column_encoding": plan.encodings or None,
            "dictionary_pagesize_limit": options.parquet_dict_size_bytes,
            "data_page_size": options.parquet_page_size_bytes,
            "max_rows_per_page": options.parquet_page_row_limit,
            "write_statistics": self._columns_with_statistics(),
            "write_page_index": True,
            "store_decimal_as_integer": True,
            "store_schema": False,
        }
        self._sink = self._io.open_output(self._path)
        self._writer = pq.ParquetWriter(
            self._sink,
            self._arrow_schema,
            **{
                key: value
                for key, value in arguments.items()
                if key in _WRITER_ARGUMENTS or key == "data_page_size"
            },
        )
        self._writer.add_key_value_metadata({"iceberg.schema": layout.schema_text})
        return self._writer

    def _columns_with_statistics(self) -> bool | list[str]:
        """All columns but UUIDs.

        Readers that order UUIDs as signed numbers would skip row groups wrongly.
        """
        if not any(isinstance(leaf.type, UUIDType) for leaf in self._leaves):
            return True
        return [leaf.parquet_path for leaf in self._leaves if not isinstance(leaf.type, UUIDType)]

    @contextlib.contextmanager
    def _data_errors(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
            raise DataInvalidError(f"{self._path}: the rows cannot be written as Parquet: {cause}") from cause
