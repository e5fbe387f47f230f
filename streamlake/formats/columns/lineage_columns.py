"""Metadata columns of a row: `_file`, `_pos`, `_row_id`, `_last_updated_sequence_number`.

Readers add them when the projected schema asks for their reserved field ids (spec: Reserved Field IDs, Row
Lineage). Invariant: a `_row_id` or sequence number stored in the file takes precedence over the inherited
one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.data_types import LongType, NestedField, StringType
from streamlake.spec.types.schema import Schema

Array = Any  # numpy arrays; numpy's type stubs are not required

FILE_PATH = NestedField(2147483646, "_file", StringType(), required=True)
ROW_POSITION = NestedField(2147483645, "_pos", LongType(), required=True)
ROW_ID = NestedField(2147483540, "_row_id", LongType())
LAST_UPDATED_SEQUENCE_NUMBER = NestedField(2147483539, "_last_updated_sequence_number", LongType())
_COMPUTED = frozenset({FILE_PATH.field_id, ROW_POSITION.field_id})
_INHERITED = frozenset({ROW_ID.field_id, LAST_UPDATED_SEQUENCE_NUMBER.field_id})


@dataclass(frozen=True)
class RowLineage:
    """What the rows of one file inherit from its manifest entry; None where the entry has no value."""

    first_row_id: int | None = None
    sequence_number: int | None = None


class LineageColumns:
    """Fills the reserved columns of a projected schema for one file."""

    def __init__(self, schema: Schema, path: str, lineage: RowLineage) -> None:
        self._path, self._lineage = path, lineage
        self._schema = schema_to_arrow(schema)
        self._reserved = [
            (at, part.field_id)
            for at, part in enumerate(schema.fields)
            if part.field_id in _COMPUTED or part.field_id in _INHERITED
        ]
        self.needs_positions = any(
            field_id in (ROW_POSITION.field_id, ROW_ID.field_id) for _, field_id in self._reserved
        )

    @property
    def is_idle(self) -> bool:
        """Whether the schema asks for none of the reserved columns."""
        return not self._reserved

    def fill(self, batch: pa.RecordBatch, position: int) -> pa.RecordBatch:
        """The batch with its reserved columns filled; `position` is that of its first row in the file."""
        return batch if self.is_idle else self.fill_rows(batch, _counted(position, batch.num_rows))

    def fill_rows(self, batch: pa.RecordBatch, positions: Array) -> pa.RecordBatch:
        """The batch with its reserved columns filled; `positions` (n,) int64 are those of its rows."""
        if self.is_idle:
            return batch
        columns = list(batch.columns)
        rows = batch.num_rows
        for at, field_id in self._reserved:
            if field_id == FILE_PATH.field_id:
                columns[at] = pa.repeat(pa.scalar(self._path), rows)
            elif field_id == ROW_POSITION.field_id:
                columns[at] = pa.array(positions)
            elif field_id == ROW_ID.field_id:
                first = self._lineage.first_row_id
                if first is not None:
                    columns[at] = pc.coalesce(columns[at], pa.array(positions + first))
            elif None not in (self._lineage.first_row_id, self._lineage.sequence_number):
                # Rows without an id have no lineage at all, as in a table that was just upgraded.
                columns[at] = pc.coalesce(columns[at], pa.scalar(self._lineage.sequence_number, pa.int64()))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _counted(first: int, rows: int) -> Array:
    counted: Array = np.arange(first, first + rows, dtype=np.int64)
    return counted


def stored_schema(schema: Schema) -> Schema:
    """The projected schema with computed columns made optional, because no file stores them."""
    return replace(
        schema,
        fields=tuple(
            replace(part, required=False) if part.field_id in _COMPUTED else part for part in schema.fields
        ),
    )
