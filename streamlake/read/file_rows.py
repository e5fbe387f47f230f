"""Reads the live, matching rows of one data file, as the columns that the scan returns.

The flow: reader (row groups pruned, filter applied), minus deleted rows, then output columns. Columns that
only the filter or an equality delete needs are read too and dropped at the end. A Parquet file with deletes
goes through `live_rows`, which skips what no live row needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.columns.file_batches import RowGroupFilter, Split
from streamlake.formats.columns.lineage_columns import ROW_POSITION, RowLineage
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.formats.parquet.row_groups import RowGroups
from streamlake.formats.readers import read_data_file
from streamlake.read.arrow_filter import to_arrow_filter
from streamlake.read.column_selection import ColumnSelection
from streamlake.read.deletes import DeleteReader
from streamlake.read.live_rows import LiveRows, RowChoice
from streamlake.read.metadata_columns import SPEC_ID
from streamlake.read.planning import FileScanTask
from streamlake.spec.expressions.evaluators import file_may_match
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

_FEW_ROWS = 8


@dataclass(frozen=True)
class FileRows:
    """Reads the tasks of one scan. Thread-safe.

    `split` (offset, length) restricts `read` to a part of the file: see `readers.read_data_file`.
    """

    io: FileIO
    selection: ColumnSelection
    deletes: DeleteReader
    name_mapping: NameMapping | None
    batch_size: int
    split: Split | None = None

    def read(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        """The output batches, none of them empty."""
        deleted = self.deletes.deleted_rows(task) if task.delete_files else None
        return self.chosen(task, deleted, row_group_filter(task))

    def chosen(
        self, task: FileScanTask, choice: RowChoice | None, groups: RowGroupFilter | None
    ) -> Iterator[pa.RecordBatch]:
        """The output batches of the rows that `choice` keeps (None: all), in row groups that `groups` keeps.

        The key columns of the task's equality deletes are there for `choice` to look at.
        """
        for batch in _gathered(self._live(task, choice, groups), self.batch_size):
            yield self._output(batch, task)

    def count(self, task: FileScanTask) -> int:
        """The number of rows that `read` would return, without making the output.

        The data file is not read where positions alone decide.
        """
        if task.residual == TRUE and not task.equality_deletes:
            # Position delete files may name a row that the file does not have.
            positions = self.deletes.deleted_positions(task)
            return task.data_file.record_count - int((positions < task.data_file.record_count).sum())
        deleted = self.deletes.deleted_rows(task) if task.delete_files else None
        return sum(batch.num_rows for batch in self._live(task, deleted, row_group_filter(task)))

    def _live(
        self, task: FileScanTask, choice: RowChoice | None, groups: RowGroupFilter | None
    ) -> Iterator[pa.RecordBatch]:
        if choice is not None and task.data_file.file_format.lower() == "parquet":
            return self._live_by_row_group(task, choice, groups)
        return self._live_in_one_pass(task, choice, groups)

    def _live_by_row_group(
        self, task: FileScanTask, choice: RowChoice, groups: RowGroupFilter | None
    ) -> Iterator[pa.RecordBatch]:
        schema = self._read_schema(task, with_positions=False)
        with RowGroups(
            self.io,
            task.data_file.file_path,
            split=self.split,
            name_mapping=self.name_mapping,
            batch_size=self.batch_size,
            constants=task.spec.identity_values(task.data_file.partition),
            lineage=RowLineage(task.data_file.first_row_id, task.sequence_number),
        ) as file:
            keys = self.deletes.key_columns(task.equality_deletes)
            rows = LiveRows(file, schema, choice, keys, task.residual)
            for group in file.groups(schema, groups):
                yield from rows.of(group)

    def _live_in_one_pass(
        self, task: FileScanTask, choice: RowChoice | None, groups: RowGroupFilter | None
    ) -> Iterator[pa.RecordBatch]:
        schema = self._read_schema(task, with_positions=choice is not None)
        file = task.data_file
        for batch in read_data_file(
            self.io,
            file.file_format,
            file.file_path,
            schema,
            split=self.split,
            name_mapping=self.name_mapping,
            row_filter=to_arrow_filter(task.residual, schema),
            row_group_filter=groups,
            batch_size=self.batch_size,
            constants=task.spec.identity_values(task.data_file.partition),
            lineage=RowLineage(file.first_row_id, task.sequence_number),
        ):
            if choice is not None:
                live = choice.live(batch, batch.column(ROW_POSITION.name))
                batch = batch if live.all() else batch.filter(pa.array(live))
            if batch.num_rows:
                yield batch

    def _read_schema(self, task: FileScanTask, *, with_positions: bool) -> Schema:
        keys = self.deletes.key_columns(task.equality_deletes)
        schema = self.selection.read_schema(task.residual, keys)
        reserved = [part for part in self.selection.metadata_columns if part != SPEC_ID]
        # Rows are counted by a column, so at least one is needed.
        if ROW_POSITION not in reserved and (with_positions or not (schema.fields or reserved)):
            reserved.append(ROW_POSITION)
        return replace(schema, fields=schema.fields + tuple(reserved))

    def _output(self, batch: pa.RecordBatch, task: FileScanTask) -> pa.RecordBatch:
        arrays = []
        for part, field in zip(self.selection.output.fields, self.selection.arrow_schema, strict=True):
            if part == SPEC_ID:
                arrays.append(pa.repeat(pa.scalar(task.spec.spec_id, pa.int32()), batch.num_rows))
            else:
                arrays.append(narrowed(batch.column(part.name), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.selection.arrow_schema)


def _gathered(batches: Iterator[pa.RecordBatch], batch_size: int) -> Iterator[pa.RecordBatch]:
    """The same rows, where small batches left by deletes are combined into larger ones."""
    few: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if few and rows + batch.num_rows > batch_size:
            yield from _one(few)
            few, rows = [], 0
        if not few and batch.num_rows >= batch_size // _FEW_ROWS:
            yield batch
            continue
        few.append(batch)
        rows += batch.num_rows
    yield from _one(few)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    gathered: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return gathered


def row_group_filter(task: FileScanTask) -> RowGroupFilter | None:
    """The test of row groups by their statistics that the task's filter gives; None when it keeps all."""
    return None if task.residual == TRUE else partial(file_may_match, task.residual)


def narrowed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column in the type to return: a struct without the fields that only a filter or a delete needs."""
    if array.type.equals(type_):
        return array
    if not pa.types.is_struct(type_):
        return array.cast(type_)
    fields = [type_.field(at) for at in range(type_.num_fields)]
    parts = [narrowed(pc.struct_field(array, [part.name]), part.type) for part in fields]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
