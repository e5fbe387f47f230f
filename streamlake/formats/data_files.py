"""The entry point for writing data files: one protocol, one writer per file format.

The `write` package rolls files and fans out over partitions, and knows nothing about formats. The writers
here know nothing about tables. A writer turns Arrow rows of the table's schema into one file with field ids
and reports the metrics that a manifest entry needs.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.avro.avro_data import AvroFileWriter
from streamlake.formats.columns.format_options import FormatOptions
from streamlake.formats.columns.metrics import FileMetrics
from streamlake.formats.orc.orc import OrcFileWriter
from streamlake.formats.parquet.parquet import ParquetFileWriter
from streamlake.formats.parquet.parquet_layout import ParquetLayout
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

__all__ = [
    "FILE_FORMATS",
    "DataFileWriter",
    "DataWriters",
    "FileMetrics",
    "FormatOptions",
    "open_data_writer",
]


class DataFileWriter(Protocol):
    """One data file being written.

    `write` is called many times, then exactly one of `close` and `abort`. After an error only `abort` is
    allowed. Not thread-safe. The file is not usable before `close` has returned.
    """

    @property
    def record_count(self) -> int:
        """Number of rows taken so far."""
        ...

    @property
    def bytes_written(self) -> int:
        """Approximate size of the file if it were closed now; decides when a file is rolled."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Memory held by rows that are not written yet, in bytes."""
        ...

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Take rows with the columns of the schema, found by name and cast without loss."""
        ...

    def flush(self) -> None:
        """Write what is buffered now, to free memory, at the price of smaller row groups."""
        ...

    def close(self) -> FileMetrics:
        """Finish the file and report its metrics."""
        ...

    def abort(self) -> None:
        """Discard the file and remove what was written of it."""
        ...


_WRITERS: dict[str, type[ParquetFileWriter] | type[AvroFileWriter] | type[OrcFileWriter]] = {
    "parquet": ParquetFileWriter,
    "avro": AvroFileWriter,
    "orc": OrcFileWriter,
}
FILE_FORMATS = tuple(_WRITERS)


class DataWriters:
    """Opens the data files of one task; files of one schema share their preparation. Not thread-safe.

    Raises FeatureUnsupportedError for a format or type that cannot be written.
    """

    def __init__(self, file_format: str, io: FileIO, schema: Schema, options: FormatOptions) -> None:
        self._file_format = file_format.lower()
        self._io, self._schema, self._options = io, schema, options
        self._layout = ParquetLayout(schema, options) if self._file_format == "parquet" else None

    def open(self, path: str) -> DataFileWriter:
        """A writer of a new file at `path`."""
        if self._layout is not None:
            return ParquetFileWriter(self._io, path, self._schema, self._options, self._layout)
        return open_data_writer(self._file_format, self._io, path, self._schema, self._options)


def open_data_writer(
    file_format: str, io: FileIO, path: str, schema: Schema, options: FormatOptions | None = None
) -> DataFileWriter:
    """A writer of a new file at `path`.

    Raises FeatureUnsupportedError for a format or type that cannot be written.
    """
    writer = _WRITERS.get(file_format.lower())
    if writer is None:
        raise FeatureUnsupportedError(
            f"{path}: data files in the format {file_format!r} are not written; set write.format.default to "
            f"one of {', '.join(FILE_FORMATS)}"
        )
    return writer(io, path, schema, options or FormatOptions())
