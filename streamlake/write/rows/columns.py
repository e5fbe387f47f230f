"""Source columns of partition and sort fields, found by field id, also inside structs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import FeatureUnsupportedError
from streamlake.spec.types.schema import Schema


class SourceColumn:
    """The column with a field id, in tables of the table's schema.

    Raises FeatureUnsupportedError when the schema has no such column.
    """

    def __init__(self, schema: Schema, field_id: int, used_by: str) -> None:
        path: list[str] = []
        at: int | None = field_id
        while at is not None:
            part = schema.field(at)
            if part is None:
                raise FeatureUnsupportedError(
                    f"{used_by} refers to the column with field id {field_id}, which the table's current "
                    "schema does not have; replace the field, then write again"
                )
            path.append(part.name)
            at = schema.parents.get(at)
        self._name, *self._inner = reversed(path)
        self.name = ".".join((self._name, *self._inner))
        self.type = schema.fields_by_id[field_id].type

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The values of the column; null where a struct around them is null."""
        column = rows.column(self._name)
        return pc.struct_field(column, self._inner) if self._inner else column
