"""Writer of ORC data files (spec: Appendix A, ORC).

pyarrow's ORC writer makes the stripes. It reports no sizes and no statistics, so all metrics are computed
from the rows, and column sizes and split offsets stay unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
from pyarrow import orc

from streamlake.errors import DataInvalidError, StreamlakeError
from streamlake.formats.arrow.arrow_ids import arrow_parts
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.arrow.nested_arrays import converted_array, with_children
from streamlake.formats.columns.batch_rows import conforming_rows
from streamlake.formats.columns.format_options import FormatOptions
from streamlake.formats.columns.leaves import schema_leaves
from streamlake.formats.columns.metrics import ArrowStats, FileMetrics, file_metrics
from streamlake.formats.orc.orc_schema import orc_leaf, orc_schema
from streamlake.formats.orc.orc_timestamps import has_odd_fractions, orc_timestamps, rewritten_orc
from streamlake.spec.types.data_types import PrimitiveType
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO, storage_errors

_UNSEEN_RATIO = 0.5


class OrcFileWriter:
    """Writes one ORC file: call `write` any number of times, then `close` or `abort`."""

    def __init__(self, io: FileIO, path: str, schema: Schema, options: FormatOptions) -> None:
        self._io, self._path, self._schema, self._options = io, path, schema, options
        self._row_schema = schema_to_arrow(schema)
        self._orc_schema = orc_schema(schema)
        self._leaves = schema_leaves(schema)
        self._modes = options.metrics.modes(schema)
        self._stats = ArrowStats(self._leaves, self._modes)
        self._rows = 0
        self._memory_taken = 0
        self._memory_at_stripe = 0
        self._stripe_end = 0
        self._odd_fractions = False
        self._sink: BinaryIO | None = None
        self._writer: orc.ORCWriter | None = None

    @property
    def record_count(self) -> int:
        """Number of rows taken so far."""
        return self._rows

    @property
    def bytes_written(self) -> int:
        """Approximate size of the file if it were closed now; the open stripe is estimated."""
        ratio = self._stripe_end / self._memory_at_stripe if self._memory_at_stripe else _UNSEEN_RATIO
        return self._stripe_end + int(self.buffered_bytes * ratio)

    @property
    def buffered_bytes(self) -> int:
        """Arrow bytes of the rows in the open stripe; the stripe itself is smaller."""
        return self._memory_taken - self._memory_at_stripe

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Take rows; pyarrow writes a stripe when one is full."""
        if not data.num_rows:
            return
        rows = conforming_rows(data, self._row_schema, self._path)
        with storage_errors("writing", self._path), self._data_errors():
            (self._writer or self._open()).write(self._converted(rows))
        self._stats.update(rows)
        self._rows += rows.num_rows
        self._memory_taken += rows.nbytes
        assert self._sink is not None
        written = self._sink.tell()
        if written > self._stripe_end:
            self._stripe_end, self._memory_at_stripe = written, self._memory_taken

    def flush(self) -> None:
        """Does nothing: pyarrow decides where a stripe ends."""

    def close(self) -> FileMetrics:
        """Write the open stripe and the footer; returns the file's metrics."""
        with storage_errors("writing", self._path), self._data_errors():
            writer = self._writer or self._open()
            if not self._rows:
                writer.write(self._orc_schema.empty_table())
            writer.close()
            assert self._sink is not None
            size = self._sink.tell()
            self._sink.close()
            if self._odd_fractions:
                content = rewritten_orc(self._io.read_bytes(self._path))
                self._io.write_bytes(self._path, content)
                size = len(content)
        return file_metrics(self._rows, size, self._leaves, self._modes, self._stats.columns)

    def abort(self) -> None:
        """Discard the file and remove it."""
        if self._sink is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._sink.close()
            with contextlib.suppress(StreamlakeError):
                self._io.delete(self._path)

    def _open(self) -> orc.ORCWriter:
        options = self._options
        self._sink = self._io.open_output(self._path)
        self._writer = orc.ORCWriter(
            self._sink,
            compression={"none": "uncompressed"}.get(options.orc_codec, options.orc_codec),
            stripe_size=options.orc_stripe_size_bytes,
            compression_strategy=options.orc_compression_strategy,
        )
        return self._writer

    def _converted(self, rows: pa.Table) -> pa.Table:
        columns = [
            pa.chunked_array(
                [
                    converted_array(_spelled_out(_compacted(chunk)), part.type, field.type, self._leaf)
                    for chunk in column.chunks
                ],
                type=field.type,
            )
            for column, part, field in zip(rows.columns, self._schema.fields, self._orc_schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._orc_schema)

    def _leaf(self, array: pa.Array, type_: PrimitiveType) -> pa.Array:
        values = orc_leaf(array, type_)
        if not pa.types.is_timestamp(values.type):
            return values
        self._odd_fractions = self._odd_fractions or has_odd_fractions(values)
        return orc_timestamps(values)

    @contextlib.contextmanager
    def _data_errors(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
            raise DataInvalidError(f"{self._path}: the rows cannot be written as ORC: {cause}") from cause


def _compacted(array: pa.Array) -> pa.Array:
    """A copy of a nested array without offsets: pyarrow's ORC writer takes wrong rows of sliced children."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if pa.types.is_nested(array.type) else array


def _spelled_out(array: pa.Array) -> pa.Array:
    """The array with every value inside a null struct null too.

    Otherwise pyarrow's ORC writer takes values below nulls of a struct in a struct for those of later rows.
    """
    type_ = array.type
    if pa.types.is_struct(type_):
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(
            [_spelled_out(part) for part in array.flatten()], fields=arrow_parts(type_), mask=mask
        )
    if pa.types.is_map(type_):
        pair = [_spelled_out(array.keys), _spelled_out(array.items)]
        return with_children(array, type_, pa.StructArray.from_arrays(pair, fields=arrow_parts(type_)))
    return with_children(array, type_, _spelled_out(array.values)) if pa.types.is_list(type_) else array
