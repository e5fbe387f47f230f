"""Reads the rows of one data file that a snapshot added or removed.

Where deletes made the difference, the rows are read by position: positions that the new deletes add to the
old ones, or rows whose key the new deletes have, found by the key columns of row groups that can have such
keys. All other columns are read only where such a row is. Invariant: a row that was deleted before is not
deleted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamlake.formats.columns.file_batches import RowGroupFilter
from streamlake.formats.columns.lineage_columns import ROW_POSITION
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.read.changes.change_tasks import RowsTask
from streamlake.read.changes.key_overlap import KeyOverlap
from streamlake.read.column_selection import ColumnSelection
from streamlake.read.deletes import Array, DeletedRows, DeleteReader
from streamlake.read.file_rows import FileRows, row_group_filter
from streamlake.read.live_rows import RowTest
from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO


@dataclass(frozen=True)
class ChangeReading:
    """All that reading the tasks of one range of changes needs; it pickles.

    `schemas`: the one that rows are read with first, then the table's others.
    """

    io: FileIO
    selection: ColumnSelection
    schemas: tuple[Schema, ...]
    name_mapping: NameMapping | None
    batch_size: int

    def rows(self) -> ChangedRows:
        """A reader, which keeps the delete files that it has read."""
        deletes = DeleteReader(self.io, self.schemas, self.name_mapping)
        return ChangedRows(FileRows(self.io, self.selection, deletes, self.name_mapping, self.batch_size))


@dataclass(frozen=True)
class ChangedRows:
    """Reads the tasks of one range of changes. Thread-safe."""

    files: FileRows

    def read(self, task: RowsTask) -> Iterator[pa.RecordBatch]:
        """The rows as batches of the selected columns, in file order, none of them empty."""
        if task.deleted_by is None:
            return self.files.read(task.rows)
        return self._deleted(task.rows, task.deleted_by)

    def _deleted(self, rows: FileScanTask, cause: FileScanTask) -> Iterator[pa.RecordBatch]:
        deletes = self.files.deletes
        before, hit = deletes.deleted_rows(rows), deletes.deleted_rows(cause)
        choice = _NewlyDeleted(before, hit)
        if choice.is_empty:
            return
        both = replace(
            rows,
            delete_files=(*rows.delete_files, *cause.delete_files),
            equality_deletes=(*rows.equality_deletes, *cause.equality_deletes),
        )
        yield from self.files.chosen(both, choice, self._groups(rows, cause, hit))

    def _groups(self, rows: FileScanTask, cause: FileScanTask, hit: DeletedRows) -> RowGroupFilter | None:
        """The test of row groups: by the filter, and by the deleted keys where keys alone decide."""
        by_filter = row_group_filter(rows)
        if len(hit.positions):
            return by_filter
        overlap = KeyOverlap(self.files.selection.table_schema)
        keys = [file for file in cause.delete_files if file.content == FileContent.EQUALITY_DELETES]

        def may_hold(group: DataFile) -> bool:
            return (by_filter is None or by_filter(group)) and overlap.any_may_hit(keys, group)

        return may_hold


@dataclass(frozen=True)
class _NewlyDeleted:
    """The rows of a file that are live before a change of its deletes, and that the change hits."""

    before: DeletedRows
    hit: DeletedRows

    @property
    def is_empty(self) -> bool:
        """Whether no row is hit, as far as it is known before reading any."""
        hit, before = self.hit.positions, self.before.positions
        if self.hit.keys or len(hit) > len(before):
            return False
        if not len(hit):
            return True
        found = np.minimum(np.searchsorted(before, hit), len(before) - 1)
        return bool((before[found] == hit).all())

    @property
    def keys(self) -> tuple[RowTest, ...]:
        """First the change, which hits few rows, and then the deletes before it."""
        return (_Missed(self.hit), *self.before.keys) if self.hit.keys else self.before.keys

    def live_positions(self, first: int, rows: int) -> Array:
        """(rows,) bool: which rows may be hit."""
        live = self.before.live_positions(first, rows)
        if not self.hit.keys:
            live &= ~self.hit.live_positions(first, rows)
        return live

    def live(self, batch: pa.RecordBatch, positions: pa.Array) -> Array:
        """(n,) bool: which rows of a batch are hit."""
        chosen: Array = self.before.live(batch, positions) & ~self.hit.live(batch, positions)
        return chosen


@dataclass(frozen=True)
class _Missed:
    """The rows that a change of deletes does not hit."""

    hit: DeletedRows

    def deleted(self, batch: pa.RecordBatch) -> Array:
        """(n,) bool: which rows it leaves alone."""
        return self.hit.live(batch, batch.column(ROW_POSITION.name))
