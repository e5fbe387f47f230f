"""Reads change splits as Arrow batches: all that a task has to know about the table, frozen and picklable.

    pieces of a split -> rows of their files -> paired where both kinds are there -> record batches

The counterpart of `splits.split_scan` for changes; it needs no table and no catalog either. Invariant:
reading a split again gives the same changes, whatever was committed meanwhile, as long as its files exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import pyarrow as pa

from streamlake.ahead import in_order
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.read.changes.change_columns import ChangeColumns
from streamlake.read.changes.change_splits import AddedPart, ChangedFile, ChangeSplit, PairedChanges
from streamlake.read.changes.change_tasks import RowsTask, SnapshotChanges
from streamlake.read.changes.changed_rows import ChangedRows, ChangeReading
from streamlake.read.changes.pairing import TaskRows, paired_changes
from streamlake.read.splits.split_scan import DEFAULT_BATCH_ROWS
from streamlake.records import RowKind
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

_Place = tuple[int, int]
"""Number of the snapshot, and of the task within it."""
_PlacedTask = tuple[_Place, RowsTask]


@dataclass(frozen=True)
class ChangeSplitScan:
    """Reads change splits with one schema and one selection of columns, `readers` files at a time."""

    columns: ChangeColumns
    reading: ChangeReading
    readers: int = 2

    @staticmethod
    def of_table(
        metadata: TableMetadata, io: FileIO, schema: Schema, columns: ChangeColumns
    ) -> ChangeSplitScan:
        """The scan for a table's metadata; `schema` is the one that rows are read with."""
        others = sorted(metadata.schemas, key=lambda each: -each.schema_id)
        text = metadata.properties.get(NAME_MAPPING_PROPERTY)
        mapping = None if text is None else NameMapping.from_json(text)
        schemas = (schema, *others)
        return ChangeSplitScan(columns, ChangeReading(io, columns.read, schemas, mapping, DEFAULT_BATCH_ROWS))

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the changes."""
        return self.columns.arrow_schema

    def read(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        """The changes of a split in the order of its pieces, in batches none of which is empty.

        Raises DataInvalidError for a damaged file, StorageError for one that cannot be read or is not there.
        """
        for is_paired, pieces in groupby(split.pieces, lambda piece: isinstance(piece, PairedChanges)):
            if not is_paired:
                yield from in_order(pieces, self._one_sided, workers=self.readers)
                continue
            for piece in pieces:
                assert isinstance(piece, PairedChanges)
                yield from self._paired(piece)

    def _one_sided(self, piece: Any) -> Iterator[pa.RecordBatch]:
        kind = RowKind.INSERT
        if isinstance(piece, AddedPart):
            found = replace(self._rows.files, split=piece.part.split).read(piece.part.task)
        else:
            assert isinstance(piece, ChangedFile)
            kind = RowKind.INSERT if piece.task.is_added else RowKind.DELETE
            found = self._rows.read(piece.task)
        for batch in found:
            yield self.columns.one_sided(batch, kind, piece.snapshot)

    def _paired(self, piece: PairedChanges) -> Iterator[pa.RecordBatch]:
        read = partial(self._placed_rows, piece=piece)
        found = list(in_order(_read_at_once(piece.changes), read, workers=self.readers))
        found.sort(key=lambda each: each[0])
        together: list[list[TaskRows]] = [[] for _ in range(1 if piece.is_net else len(piece.changes))]
        for (snapshot, _), rows in found:
            together[0 if piece.is_net else snapshot].append(rows)
        del found
        snapshots = [each.snapshot for each in piece.changes]
        for at in range(len(together)):
            rows_of, together[at] = together[at], []
            finished = paired_changes(self.columns, snapshots, rows_of)
            del rows_of
            batches = finished.to_batches(max_chunksize=self.reading.batch_size)
            yield from (batch for batch in batches if batch.num_rows)

    def _placed_rows(
        self, tasks: Sequence[_PlacedTask], *, piece: PairedChanges
    ) -> Iterator[tuple[_Place, TaskRows]]:
        """The rows of tasks of one data file that belong to the piece, each with the place of its task."""
        if len(tasks) == 1:
            read: Iterator[tuple[int, pa.RecordBatch]] = ((0, rows) for rows in self._rows.read(tasks[0][1]))
        else:
            read = self._rows.read_together([task for _, task in tasks])
        for index, batch in read:
            place, task = tasks[index]
            if piece.parts > 1:
                batch = batch.filter(pa.array(self.columns.parts(batch, piece.parts) == piece.part))
            yield place, TaskRows(place[0], task.is_added, batch)

    @cached_property
    def _rows(self) -> ChangedRows:
        """The reader of files, which keeps delete files that several data files share."""
        return self.reading.rows()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _read_at_once(changes: Sequence[SnapshotChanges]) -> list[list[_PlacedTask]]:
    """All tasks, those together for which a file is read once."""
    found: list[list[_PlacedTask]] = []
    by_file: dict[str, list[_PlacedTask]] = {}
    for number, each in enumerate(changes):
        for at, task in enumerate(each.tasks):
            path = task.rows.data_file.file_path
            if task.is_by_position and path in by_file:
                by_file[path].append(((number, at), task))
                continue
            found.append([((number, at), task)])
            if task.is_by_position:
                by_file[path] = found[-1]
    return found
