"""Avro data files: writer and reader (spec: Appendix A, Avro).

`avro_columns` encodes rows in bulk. Reading goes through fastavro and a Python list of records per batch,
because Avro can only be decoded value by value: it is several times slower than Parquet. Invariant: a file
consists of whole blocks of about `_BLOCK_BYTES`, each written as soon as it is full.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import islice
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from fastavro.write import Writer

from streamlake.errors import StreamlakeError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.avro.avro_columns import encoded_rows
from streamlake.formats.avro.avro_container import AvroFile, EncodedBlock, container_writer
from streamlake.formats.avro.avro_file_schema import AvroFileSchema
from streamlake.formats.avro.avro_schemas import record_schema
from streamlake.formats.columns.batch_rows import conforming_rows
from streamlake.formats.columns.file_batches import FileBatches, RowGroupFilter, Split, in_split, read_errors
from streamlake.formats.columns.format_options import FormatOptions
from streamlake.formats.columns.leaves import schema_leaves
from streamlake.formats.columns.metrics import ArrowStats, FileMetrics, file_metrics
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_to_json
from streamlake.storage.file_io import FileIO, storage_errors

_BLOCK_BYTES = 256 * 1024
_ENCODED_ROWS = 16_384
_ENCODED_BYTES = 64 * 1024 * 1024


class AvroFileWriter:
    """Writes one Avro file: call `write` any number of times, then `close` or `abort`."""

    def __init__(self, io: FileIO, path: str, schema: Schema, options: FormatOptions) -> None:
        self._io, self._path, self._schema = io, path, schema
        self._arrow_schema = schema_to_arrow(schema)
        self._avro_schema = record_schema(schema.struct, "table")
        self._leaves = schema_leaves(schema)
        self._modes = options.metrics.modes(schema)
        self._stats = ArrowStats(self._leaves, self._modes)
        self._compression = options.avro_compression
        self._rows = 0
        self._sink: BinaryIO | None = None
        self._blocks: Writer | None = None

    @property
    def record_count(self) -> int:
        """Number of rows written so far."""
        return self._rows

    @property
    def bytes_written(self) -> int:
        """Size of the file so far, in bytes."""
        return 0 if self._sink is None else self._sink.tell()

    @property
    def buffered_bytes(self) -> int:
        """Always 0: rows are written immediately."""
        return 0

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Encode and write rows."""
        if not data.num_rows:
            return
        rows = conforming_rows(data, self._arrow_schema, self._path)
        at_once = max(1, min(_ENCODED_ROWS, _ENCODED_BYTES * rows.num_rows // max(1, rows.nbytes)))
        with storage_errors("writing", self._path):
            writer = self._open()
            for batch in rows.to_batches(max_chunksize=at_once):
                for block in _blocks(batch, self._schema):
                    writer.write_block(block)
        self._stats.update(rows)
        self._rows += rows.num_rows

    def flush(self) -> None:
        """Does nothing: no rows are buffered."""

    def close(self) -> FileMetrics:
        """Finish the file and return its metrics; a row format has no column sizes."""
        with storage_errors("writing", self._path):
            self._open()
            size = self.bytes_written
            if self._sink is not None:
                self._sink.close()
        return file_metrics(self._rows, size, self._leaves, self._modes, self._stats.columns)

    def abort(self) -> None:
        """Discard the file and remove it."""
        if self._sink is not None:
            with contextlib.suppress(OSError):
                self._sink.close()
            with contextlib.suppress(StreamlakeError):
                self._io.delete(self._path)

    def _open(self) -> Writer:
        if self._blocks is None:
            self._sink = self._io.open_output(self._path)
            metadata = {"iceberg.schema": json.dumps(schema_to_json(self._schema))}
            self._blocks = container_writer(self._sink, self._avro_schema, metadata, self._compression)
        return self._blocks


def _blocks(batch: pa.RecordBatch, schema: Schema) -> Iterator[EncodedBlock]:
    """Encoded records in blocks of about `_BLOCK_BYTES`."""
    records = encoded_rows(batch.columns, schema.struct)
    rows_per_block = max(1, _BLOCK_BYTES * len(records) // max(1, records.nbytes))
    for start in range(0, len(records), rows_per_block):
        block = records.slice(start, rows_per_block)
        first, last = block.offset, block.offset + len(block)
        offsets = np.frombuffer(block.buffers()[1], dtype=np.int32)
        payload = memoryview(block.buffers()[2])[offsets[first] : offsets[last]]
        yield EncodedBlock(len(block), BytesIO(payload))


def read_avro_file(
    io: FileIO,
    path: str,
    schema: Schema,
    *,
    with_ids: Callable[[pa.Schema], pa.Schema],
    batch_size: int,
    row_group_filter: RowGroupFilter | None,
    split: Split | None,
    use_threads: bool,
) -> FileBatches:
    """Batches of all columns, each with the position of its first row in the file."""
    if not in_split(0, split):
        return
    file = AvroFile(io.read_bytes(path), path)
    layout = AvroFileSchema.parse(file.schema_text, path)
    records = file.records(layout.decoder)
    position = 0
    while rows := list(islice(records, batch_size)):
        with read_errors(path):
            batch = layout.batch(rows)
        yield position, batch
        position += len(rows)
