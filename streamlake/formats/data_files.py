"""The door to writing data files: one protocol, one writer per file format.

The write room rolls files and fans out over partitions; it knows nothing about formats, and the writers here know
nothing about tables. A writer turns Arrow rows of the table's schema into one file with field ids and reports the
metrics that a manifest entry needs.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.avro_data import AvroFileWriter
from streamlake.formats.format_options import FormatOptions
from streamlake.formats.metrics import FileMetrics
from streamlake.formats.orc import OrcFileWriter
from streamlake.formats.parquet import ParquetFileWriter
from streamlake.formats.parquet_layout import ParquetLayout
from streamlake.spec.schema import Schema
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

    `write` is called many times, then exactly one of `close` and `abort`. After an error only `abort` makes sense.
    Not thread-safe. The file is of no use to anyone before `close` has returned.
    """

    @property
    def record_count(self) -> int:
        """Rows taken so far."""
        ...

    @property
    def bytes_written(self) -> int:
        """About how large the file would be if it were closed now; what rolling is decided by."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Memory held by rows that are not written yet."""
        ...

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Take rows with the columns of the schema, found by name and cast without loss."""
        ...

    def flush(self) -> None:
        """Write what is buffered now, to free memory; smaller row groups are the price."""
        ...

    def close(self) -> FileMetrics:
        """Finish the file and report its metrics."""
        ...

    def abort(self) -> None:
        """Give the file up and remove what there is of it."""
        ...


_WRITERS: dict[str, type[ParquetFileWriter] | type[AvroFileWriter] | type[OrcFileWriter]] = {
    "parquet": ParquetFileWriter,
    "avro": AvroFileWriter,
    "orc": OrcFileWriter,
}
FILE_FORMATS = tuple(_WRITERS)


class DataWriters:
    """Opens the data files of one task: what files of one schema share is made once. Not for several threads.

    Raises FeatureUnsupportedError for a format or type that is not written.
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
    """A writer of a new file at `path`. Raises FeatureUnsupportedError for a format or type that is not written."""
    writer = _WRITERS.get(file_format.lower())
    if writer is None:
        raise FeatureUnsupportedError(
            f"{path}: data files in the format {file_format!r} are not written; "
            f"set write.format.default to one of {', '.join(FILE_FORMATS)}"
        )
    return writer(io, path, schema, options or FormatOptions())
