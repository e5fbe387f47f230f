"""Fits rows of a stream that feeds several tables to the columns of one of them.

It runs on the executors, on the rows that one table gets of a batch. The stream is decoded with the columns
of all its tables. Invariant: a value that the table has no column for is never dropped silently where the
table follows its stream: then the table is asked to change. Where it does not follow, the value is ignored
like any field without a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from streamlake.decode.values.new_fields import Watch, lacking, new_schema_error
from streamlake.records import (
    KEY_CHANGE,
    MISSING_FIELDS,
    PLACE,
    ROW_KIND,
    ROW_ORDER,
    ROW_SEQUENCE,
    TRUNCATE_BELOW,
)
from streamlake.spec.types.data_types import IcebergType, PrimitiveType
from streamlake.spec.types.schema import Schema
from streamlake.write.rows.conversion import NotConvertibleError, converted

_OF_CHANGES = frozenset(
    {KEY_CHANGE, PLACE, ROW_KIND, ROW_ORDER, ROW_SEQUENCE, TRUNCATE_BELOW, MISSING_FIELDS}
)


@dataclass(frozen=True)
class TableFit:
    """Fits rows to one table.

    `table` is the table's schema, `stream` that of the rows, `row_kind` the rows' column with row kinds.
    `watch` None: the table does not follow its stream. `name` names the table in errors.
    """

    name: str
    table: Schema
    stream: Schema
    row_kind: str | None = None
    watch: Watch | None = None

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, without columns that the table does not have. Raises NewSchemaError."""
        if self.watch is not None and self.table != self.stream:
            self._require_columns(rows, self.watch)
        kept = [name for name in rows.schema.names if name in self._kept]
        return rows if len(kept) == rows.num_columns else rows.select(kept)

    @cached_property
    def _kept(self) -> frozenset[str]:
        kinds = () if self.row_kind is None else (self.row_kind,)
        return frozenset({*self.table.column_names, *_OF_CHANGES, *kinds})

    def _require_columns(self, rows: pa.RecordBatch, watch: Watch) -> None:
        asked = []
        for part in self.stream.fields:
            if part.name in _OF_CHANGES or part.name == self.row_kind or part.name not in rows.schema.names:
                continue
            column = rows.column(part.name)
            mine = self.table.find(part.name)
            if column.null_count == len(column) or (mine is not None and mine.type == part.type):
                continue
            if mine is None or not _fits(column, mine.type, part.name):
                asked.append(part)
        fields = lacking(self.table.fields, asked, watch)
        if fields:
            raise new_schema_error(fields, self.name)


def _fits(column: pa.Array, type_: IcebergType, name: str) -> bool:
    """Whether the values fit a primitive column of another type; other types are compared as such."""
    if not isinstance(type_, PrimitiveType):
        return False
    try:
        converted(column, type_, name)
    except NotConvertibleError:
        return False
    return True
