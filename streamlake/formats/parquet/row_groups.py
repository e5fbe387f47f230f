"""Random access to the row groups of one Parquet data file, each with other columns each time.

For readers that read a few columns first and then know which rows, if any, they need the others of. Columns
are as `readers.read_data_file` returns them: by field id, projected, with lineage columns. Invariant: batches
of one row group hold its wanted rows, in file order.
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

from streamlake.formats.columns.column_projection import Projection, selected_fields
from streamlake.formats.columns.file_batches import RowGroupFilter, Split, in_split, read_errors
from streamlake.formats.columns.lineage_columns import LineageColumns, RowLineage, stored_schema
from streamlake.formats.columns.name_mapping import NameMapping, with_field_ids
from streamlake.formats.parquet.parquet_metrics import row_group_start
from streamlake.formats.parquet.parquet_pages import ParquetPages
from streamlake.formats.parquet.parquet_reader import row_group_pruning
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

Array = np.ndarray[Any, Any]

_ROWS_PER_PAGE = 10_000


@dataclass(frozen=True)
class RowGroup:
    """A row group: its number, the position of its first row in the file, and its number of rows."""

    index: int
    first: int
    rows: int


class RowGroups:
    """An open Parquet file, or the row groups that start in a `split` (offset, length) of it.

    A context manager. Not thread-safe.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        *,
        name_mapping: NameMapping | None,
        batch_size: int,
        split: Split | None = None,
        constants: Mapping[int, Any] | None = None,
        lineage: RowLineage | None = None,
    ) -> None:
        self._io, self._path = io, path
        self._name_mapping = name_mapping
        self._batch_size = batch_size
        self._split = split
        self._constants = constants
        self._lineage = lineage or RowLineage()
        self._open = ExitStack()

    def __enter__(self) -> RowGroups:
        with read_errors(self._path):
            self._stream = self._open.enter_context(self._io.open_input(self._path))
            self._file = self._parquet_file()
            self._schema = with_field_ids(self._file.schema_arrow, self._name_mapping, self._path)
            self._pages = ParquetPages(self._stream, self._file)
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
        """The row groups that may hold rows for the filter, by the statistics of `schema`'s columns."""
        footer = self._file.metadata
        wanted = row_group_pruning(footer, self._schema, stored_schema(schema), self._path, row_group_filter)
        position = 0
        for index in range(footer.num_row_groups):
            found = footer.row_group(index)
            group = RowGroup(index, position, found.num_rows)
            position += group.rows
            if group.rows and in_split(row_group_start(found), self._split) and wanted(index):
                yield group

    def batches(self, group: RowGroup, schema: Schema, live: Array | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of `schema` with the wanted rows of the group, none of them empty.

        Wanted are the rows for which `live`, (rows,) bool, is true (None: all rows). `live` is read while
        batches are taken.
        """
        if live is not None and not live.any():
            return
        stored = stored_schema(schema)
        lines = LineageColumns(schema, self._path, self._lineage)
        columns = selected_fields(self._schema, stored)
        with read_errors(self._path):
            few = None if live is None else self._few_rows(group, columns, live)
            if few is not None and live is not None:
                projected = self._projection(few.schema, stored).apply(few)
                projected = lines.fill_rows(projected, np.flatnonzero(live) + group.first)
                for start in range(0, projected.num_rows, self._batch_size):
                    yield projected.slice(start, self._batch_size)
                return
            projection: Projection | None = None
            at, last = 0, group.rows if live is None else _last(live)
            for batch in self._raw(group, columns):
                projection = projection or self._projection(batch.schema, stored)
                rows = batch.num_rows
                mask = None if live is None else live[at : at + rows]
                kept = rows if mask is None else np.count_nonzero(mask)
                if kept:
                    chosen = None if kept == rows else mask
                    yield _projected(batch, chosen, projection, lines, group.first + at)
                at += rows
                if at >= last:
                    return

    def _raw(self, group: RowGroup, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """All rows as the file has them."""
        batches: Iterator[pa.RecordBatch] = self._reader(group, columns).iter_batches(
            batch_size=self._batch_size, row_groups=[group.index], columns=columns, use_threads=False
        )
        return batches

    def _few_rows(self, group: RowGroup, columns: list[str], live: Array) -> pa.RecordBatch | None:
        """The live rows as the file has them, if they are so few that most pages need not be read."""
        if np.count_nonzero(live) * _ROWS_PER_PAGE > group.rows:
            return None
        flat = {
            name: values
            for name in columns
            if (values := self._pages.rows(group.index, name, live)) is not None
        }
        if not flat:
            return None
        file_schema = self._file.schema_arrow
        fields = [pa.field(name, flat[name].type, metadata=file_schema.field(name).metadata) for name in flat]
        arrays = list(flat.values())
        others = [name for name in columns if name not in flat]
        if others:
            # Parts of structs and lists, whose pages do not follow rows.
            keep = pa.array(live)
            parts = pa.Table.from_batches(self._raw(group, others)).filter(keep).combine_chunks()
            fields += parts.schema
            arrays += [column.combine_chunks() for column in parts.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _projection(self, file_schema: pa.Schema, stored: Schema) -> Projection:
        with_ids = with_field_ids(file_schema, self._name_mapping, self._path)
        return Projection(with_ids, stored, self._path, self._constants)

    def _reader(self, group: RowGroup, columns: list[str]) -> pq.ParquetFile:
        """The file, reading texts as dictionaries where the row group stores them so.

        Dictionaries are cheaper to filter.
        """
        footer = self._file.metadata
        chunks = footer.row_group(group.index)
        names = []
        for name, index in self._texts:
            chunk = chunks.column(index)
            # Texts without a dictionary take four bytes and more each.
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
    """The position after the last live row; there is at least one."""
    return len(live) - int(np.argmax(live[::-1]))


def _top_level_texts(footer: pq.FileMetaData, schema: pa.Schema) -> list[tuple[str, int]]:
    """Name and leaf number of the text columns."""
    leaves = {footer.schema.column(index).path: index for index in range(footer.num_columns)}
    return [(part.name, leaves[part.name]) for part in schema if pa.types.is_string(part.type)]


def _projected(
    batch: pa.RecordBatch,
    chosen: Array | None,
    projection: Projection,
    lines: LineageColumns,
    position: int,
) -> pa.RecordBatch:
    """The wanted rows of a batch whose first row is at `position`; `chosen` is (n,) bool, or None for all."""
    if chosen is None:
        return lines.fill(projection.apply(batch), position)
    projected = projection.apply(batch.filter(pa.array(chosen)))
    return lines.fill_rows(projected, np.flatnonzero(chosen) + position)
