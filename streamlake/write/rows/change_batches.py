"""Gathers batches of changes into few large tables, whichever optional columns each batch has.

First step of an upsert task. A batch has MISSING_FIELDS, PLACE and KEY_CHANGE only where one of its changes
needs them, and that must not split the changes into many tables. Invariant: no change and no mask is lost,
and changes stay in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streamlake.formats.arrow.missing_fields import as_missing_fields_type, common_missing_fields_type
from streamlake.records import KEY_CHANGE, MISSING_FIELDS, PLACE

_OPTIONAL = (MISSING_FIELDS, PLACE, KEY_CHANGE)


def gather_changes(batches: Iterable[pa.RecordBatch], max_bytes: int, max_rows: int) -> Iterator[pa.Table]:
    """Tables of consecutive batches whose other columns are the same.

    Each table has at least one batch, else at most the given bytes or rows. It has the optional
    columns that any of its batches has.
    """
    waiting: list[pa.RecordBatch] = []
    common: pa.Schema | None = None
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        batch_bytes = batch.nbytes
        schema = _common(batch.schema)
        if waiting and (
            rows + batch.num_rows > max_rows or size + batch_bytes > max_bytes or not schema.equals(common)
        ):
            yield _table(waiting)
            waiting, rows, size = [], 0, 0
        common = schema
        waiting.append(batch)
        rows += batch.num_rows
        size += batch_bytes
    if waiting:
        yield _table(waiting)


def _common(schema: pa.Schema) -> pa.Schema:
    if not any(name in schema.names for name in _OPTIONAL):
        return schema
    return pa.schema([part for part in schema if part.name not in _OPTIONAL])


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    types = {
        name: [batch.schema.field(name).type for batch in batches if name in batch.schema.names]
        for name in _OPTIONAL
    }
    if not any(types.values()):
        return pa.Table.from_batches(batches)
    common = _common(batches[0].schema)
    table = pa.Table.from_batches([batch.select(common.names) for batch in batches])
    for name, found in types.items():
        if found:
            type_ = common_missing_fields_type(found) if name == MISSING_FIELDS else found[0]
            table = table.append_column(name, [_typed(batch, name, type_) for batch in batches])
    return table


def _typed(batch: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
    """An optional column of a batch; all null where the batch does not have it."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, type_)
    column = batch.column(name)
    return as_missing_fields_type(column, type_) if name == MISSING_FIELDS else column
