"""One Parquet data file, row group by row group, each read as often as needed with other columns each time.

For readers that look at a few columns first and then know which rows, if any, they want the others of. Columns come
as `readers.read_data_file` gives them: by field id, projected, with lineage columns. Invariant: batches of one row
group hold its wanted rows, in file order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamlake.formats.file_batches import RowGroupFilter, read_errors
from streamlake.formats.lineage_columns import LineageColumns, RowLineage, stored_schema
from streamlake.formats.name_mapping import NameMapping, with_field_ids
from streamlake.formats.parquet_reader import row_group_pruning
from streamlake.formats.projection import Projection, selected_fields
from streamlake.spec.schema import Schema
from streamlake.storage.file_io import FileIO

Array = Any  # numpy arrays: numpy's own typing is not part of the required set-up


@dataclass(frozen=True)
class RowGroup:
    """A row group by number, with the position of its first row in the file and its number of rows."""

    index: int
    first: int
    rows: int


class RowGroups:
    """An open Parquet file; a context manager. Not for several threads."""

    def __init__(
        self,
        io: FileIO,
        path: str,
        *,
        name_mapping: NameMapping | None,
        batch_size: int,
        constants: Mapping[int, Any] | None = None,
        lineage: RowLineage | None = None,
    ) -> None:
        self._io, self._path = io, path
        self._name_mapping = name_mapping
        self._batch_size = batch_size
        self._constants = constants
        self._lineage = lineage or RowLineage()
        self._open = ExitStack()

    def __enter__(self) -> RowGroups:
        with read_errors(self._path):
            self._stream = self._open.enter_context(self._io.open_input(self._path))
            self._file = self._parquet_file()
            self._schema = with_field_ids(self._file.schema_arrow, self._name_mapping, self._path)
            self._texts = _top_level_texts(self._file.metadata, self._schema)
        self._readers: dict[tuple[str, ...], pq.ParquetFile] = {(): self._file}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def groups(self, schema: Schema, row_group_filter: RowGroupFilter | None = None) -> Iterator[RowGroup]:
        """The row groups with rows that the filter does not leave out by the statistics of `schema`'s columns."""
        footer = self._file.metadata
        wanted = row_group_pruning(footer, self._schema, stored_schema(schema), self._path, row_group_filter)
        position = 0
        for index in range(footer.num_row_groups):
            rows = footer.row_group(index).num_rows
            group = RowGroup(index, position, rows)
            position += rows
            if rows and wanted(index):
                yield group

    def batches(self, group: RowGroup, schema: Schema, live: Array | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of `schema` with the rows of the group for which `live`, (rows,) bool, is true (None: with all), none
        of them empty. `live` is looked at while batches are taken."""
        stored = stored_schema(schema)
        lines = LineageColumns(schema, self._path, self._lineage)
        columns = selected_fields(self._schema, stored)
        projection: Projection | None = None
        at, last = 0, group.rows if live is None else _last(live)
        with read_errors(self._path):
            for batch in self._reader(group, columns).iter_batches(
                batch_size=self._batch_size, row_groups=[group.index], columns=columns, use_threads=False
            ):
                if projection is None:
                    file_schema = with_field_ids(batch.schema, self._name_mapping, self._path)
                    projection = Projection(file_schema, stored, self._path, self._constants)
                rows = batch.num_rows
                mask = None if live is None else live[at : at + rows]
                kept = rows if mask is None else np.count_nonzero(mask)
                if kept:
                    keep = None if kept == rows else pa.array(mask)
                    yield _projected(batch, keep, projection, lines, group.first + at)
                at += rows
                if at >= last:
                    return

    def _reader(self, group: RowGroup, columns: list[str]) -> pq.ParquetFile:
        """The file with those texts as dictionaries that the row group has as such, for they are cheaper to drop."""
        footer = self._file.metadata
        chunks = footer.row_group(group.index)
        names = []
        for name, index in self._texts:
            chunk = chunks.column(index)
            # Texts of their own take four bytes and more each.
            packed = chunk.has_dictionary_page and chunk.total_uncompressed_size < 4 * group.rows
            if packed and name in columns:
                names.append(name)
        key = tuple(names)
        if key not in self._readers:
            self._readers[key] = self._parquet_file(metadata=footer, read_dictionary=names)
        return self._readers[key]

    def _parquet_file(self, **more: Any) -> pq.ParquetFile:
        return pq.ParquetFile(self._stream, coerce_int96_timestamp_unit="us", pre_buffer=True, **more)


def _last(live: Array) -> int:
    """Where the live rows end."""
    return len(live) - int(np.argmax(live[::-1])) if live.any() else 0


def _top_level_texts(footer: pq.FileMetaData, schema: pa.Schema) -> list[tuple[str, int]]:
    """Name and leaf number of the columns that are texts."""
    leaves = {footer.schema.column(index).path: index for index in range(footer.num_columns)}
    return [(part.name, leaves[part.name]) for part in schema if pa.types.is_string(part.type)]


def _projected(
    batch: pa.RecordBatch, keep: pa.Array | None, projection: Projection, lines: LineageColumns, position: int
) -> pa.RecordBatch:
    """The wanted rows of a batch whose first row is at `position`; positions are counted before rows go."""
    if lines.is_idle:
        return projection.apply(batch if keep is None else batch.filter(keep))
    filled = lines.fill(projection.apply(batch), position)
    return filled if keep is None else filled.filter(keep)
