"""Reads change splits as Arrow batches: all that a task has to know about the table, frozen and picklable.

    pieces of a split -> rows of their files -> paired where both kinds are there -> record batches

The counterpart of `splits.split_scan` for changes; it needs no table and no catalog either. Invariant:
reading a split again gives the same changes, whatever was committed meanwhile, as long as its files exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import pyarrow as pa

from streamlake.ahead import in_order
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.read.changes.change_columns import ChangeColumns
from streamlake.read.changes.change_splits import AddedPart, ChangedFile, ChangeSplit, PairedChanges
from streamlake.read.changes.change_tasks import RowsTask
from streamlake.read.changes.changed_rows import ChangedRows, ChangeReading
from streamlake.read.changes.pairing import TaskRows, paired_changes
from streamlake.read.splits.split_scan import DEFAULT_BATCH_ROWS
from streamlake.records import RowKind
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO


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
        tasks = [(at, task) for at, each in enumerate(piece.changes) for task in each.tasks]
        read = partial(self._part, part=piece.part, parts=piece.parts)
        found = list(in_order(tasks, read, workers=self.readers))
        finished = paired_changes(self.columns, [each.snapshot for each in piece.changes], found)
        del found
        batches = finished.to_batches(max_chunksize=self.reading.batch_size)
        yield from (batch for batch in batches if batch.num_rows)

    def _part(self, numbered: tuple[int, RowsTask], *, part: int, parts: int) -> Iterator[TaskRows]:
        """The rows of a task that belong to one part of all rows."""
        snapshot, task = numbered
        for batch in self._rows.read(task):
            if parts > 1:
                batch = batch.filter(pa.array(self.columns.parts(batch, parts) == part))
            yield TaskRows(snapshot, task.is_added, batch)

    @cached_property
    def _rows(self) -> ChangedRows:
        """The reader of files, which keeps delete files that several data files share."""
        return self.reading.rows()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
