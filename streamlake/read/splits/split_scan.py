"""Reads splits as Arrow batches: everything that a task has to know about the table, frozen and picklable.

Made on the driver from a table's metadata, used wherever splits are read: in tasks, or in threads of the
driver. It needs no table and no catalog. Invariant: reading a split again gives the same rows, whatever was
committed meanwhile, as long as its files exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.read.column_selection import ColumnSelection, select_columns
from streamlake.read.deletes import DeleteReader
from streamlake.read.file_rows import FileRows
from streamlake.read.splits.scan_split import ScanSplit
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO

DEFAULT_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class SplitScan:
    """Reads splits with one schema and one selection of columns.

    `schema` is the one that the filter was bound to; `other_schemas` are the table's others, newest first, in
    which key columns of equality deletes are found that it lacks. `columns`: names, None for all.
    """

    io: FileIO
    schema: Schema
    other_schemas: tuple[Schema, ...]
    columns: tuple[str, ...] | None
    name_mapping: str | None
    batch_rows: int = DEFAULT_BATCH_ROWS

    @staticmethod
    def of_table(
        metadata: TableMetadata, io: FileIO, schema: Schema, columns: Iterable[str] | None
    ) -> SplitScan:
        """The scan for a table's metadata. Raises InvalidOptionError for a column that there is not."""
        others = sorted(metadata.schemas, key=lambda each: -each.schema_id)
        scan = SplitScan(
            io,
            schema,
            tuple(others),
            None if columns is None else tuple(columns),
            metadata.properties.get(NAME_MAPPING_PROPERTY),
        )
        _ = scan.arrow_schema
        return scan

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._selection.arrow_schema

    def read(self, split: ScanSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a split in the order of its parts, in batches none of which is empty.

        Raises DataInvalidError for a damaged file, StorageError for one that cannot be read or is not there.
        """
        rows = self._rows
        for part in split.parts:
            yield from replace(rows, split=part.split).read(part.task)

    @cached_property
    def _selection(self) -> ColumnSelection:
        return select_columns(self.schema, self.columns)

    @cached_property
    def _rows(self) -> FileRows:
        """The reader of files, which keeps delete files that several data files share."""
        mapping = None if self.name_mapping is None else NameMapping.from_json(self.name_mapping)
        deletes = DeleteReader(self.io, [self.schema, *self.other_schemas], mapping)
        return FileRows(self.io, self._selection, deletes, mapping, self.batch_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
