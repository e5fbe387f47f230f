"""Reads the rows of one data file that a snapshot added or removed.

Where deletes made the difference, the rows are read by position: positions that the new deletes add to the
old ones, or rows whose key the new deletes have, found by the key columns of row groups that can have such
keys. All other columns are read only where such a row is. Invariant: a row that was deleted before is not
deleted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamlake.formats.columns.file_batches import RowGroupFilter
from streamlake.formats.columns.lineage_columns import ROW_POSITION
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.formats.deletes.position_deletes import merged_positions
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

    def read_together(self, tasks: Sequence[RowsTask]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of tasks of one data file that all know them by position, in file order for each task.

        Each batch comes with the index of its task. The file is read once.
        """
        wanted = [self._positions(task) for task in tasks]
        everything = merged_positions(wanted)
        if not len(everything):
            return
        at = 0
        for batch in self.files.chosen(tasks[0].rows, _AtPositions(everything), None):
            read = everything[at : at + batch.num_rows]
            at += len(read)
            for index, positions in enumerate(wanted):
                low, high = np.searchsorted(positions, (read[0], read[-1] + 1))
                if low < high:
                    mine = np.searchsorted(read, positions[low:high])
                    yield index, batch if len(mine) == len(read) else batch.take(pa.array(mine))

    def _positions(self, task: RowsTask) -> Array:
        """The positions of a task's rows, ascending."""
        assert task.deleted_by is not None
        deletes = self.files.deletes
        before, hit = deletes.deleted_positions(task.rows), deletes.deleted_positions(task.deleted_by)
        return _without(hit, before)

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
class _AtPositions:
    """The rows of a file at some positions, which are ascending."""

    positions: Array

    @property
    def keys(self) -> tuple[RowTest, ...]:
        """There are none."""
        return ()

    def live_positions(self, first: int, rows: int) -> Array:
        """(rows,) bool: which rows are chosen."""
        chosen: Array = np.zeros(rows, dtype=bool)
        low, high = np.searchsorted(self.positions, (first, first + rows))
        chosen[self.positions[low:high] - first] = True
        return chosen

    def live(self, batch: pa.RecordBatch, positions: pa.Array) -> Array:
        """(n,) bool: which rows of a batch are chosen."""
        return np.isin(positions.to_numpy(zero_copy_only=False), self.positions, assume_unique=True)


@dataclass(frozen=True)
class _NewlyDeleted:
    """The rows of a file that are live before a change of its deletes, and that the change hits."""

    before: DeletedRows
    hit: DeletedRows

    @property
    def is_empty(self) -> bool:
        """Whether no row is hit, as far as it is known before reading any."""
        hit, before = self.hit.positions, self.before.positions
        return not (self.hit.keys or len(hit) > len(before) or len(_without(hit, before)))

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


def _without(positions: Array, others: Array) -> Array:
    """The positions that are not among others; both are ascending."""
    if not len(others):
        return positions
    found = np.minimum(np.searchsorted(others, positions), len(others) - 1)
    left: Array = positions[others[found] != positions]
    return left
