"""Reads the live, matching rows of a Parquet file with deletes, row group by row group.

Deleted positions are known before anything is read. Then the columns of the filter and of the equality
deletes are read, and the other columns only for row groups in which a row is left. Invariant: at most one row
group's first columns, of its live rows, are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamlake.formats.columns.lineage_columns import ROW_POSITION
from streamlake.formats.parquet.row_groups import RowGroup, RowGroups
from streamlake.read.arrow_filter import to_arrow_filter
from streamlake.spec.expressions.expressions import Expression, predicates
from streamlake.spec.types.schema import Schema

Array = np.ndarray[Any, Any]


class RowTest(Protocol):
    """A test of whole batches, called with the tested columns and `_pos`."""

    def deleted(self, batch: pa.RecordBatch) -> Array:
        """(n,) bool: which rows are left out."""
        ...


class RowChoice(Protocol):
    """Which rows of one file are read: by position first, and then by tests of the rows that are left."""

    @property
    def keys(self) -> tuple[RowTest, ...]:
        """The tests, in the order in which they are called; each gets the rows that passed those before."""
        ...

    def live_positions(self, first: int, rows: int) -> Array:
        """(rows,) bool: which of the rows from position `first` on may be chosen."""
        ...

    def live(self, batch: pa.RecordBatch, positions: pa.Array) -> Array:
        """(n,) bool: which rows of a batch are chosen, given the position of each in the file."""
        ...


class LiveRows:
    """Reads the row groups of one open file as batches of `schema`."""

    def __init__(
        self, file: RowGroups, schema: Schema, deleted: RowChoice, keys: Schema, residual: Expression
    ) -> None:
        self._file = file
        self._deleted = deleted
        self._filter = to_arrow_filter(residual, schema)
        looked_at = {part.field_id for part in keys.fields}
        looked_at |= {_top_level(schema, predicate.ref.field_id) for predicate in predicates(residual)}
        first = [part for part in schema.fields if part.field_id in looked_at]
        others = [part for part in schema.fields if part.field_id not in looked_at and part != ROW_POSITION]
        self._tests = bool(deleted.keys) or self._filter is not None
        if self._tests or (ROW_POSITION in schema.fields and not others):
            first.append(ROW_POSITION)
        elif ROW_POSITION in schema.fields:
            others.append(ROW_POSITION)
        self._first = replace(schema, fields=tuple(first), identifier_field_ids=())
        self._others = replace(schema, fields=tuple(others), identifier_field_ids=())
        self._names = [part.name for part in schema.fields]

    def of(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """Batches of the live rows of a row group, none of them empty; columns in the order of the schema."""
        live = self._deleted.live_positions(group.first, group.rows)
        if not live.any():
            return
        kept = list(self._tested(group, live)) if self._first.fields else None
        if kept is not None and not kept:
            return
        if not self._others.fields:
            for batch in kept or ():
                yield batch.select(self._names)
            return
        known = None if kept is None else pa.Table.from_batches(kept)
        taken = 0
        for batch in self._file.batches(group, self._others, live):
            rows = batch.num_rows
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            if known is not None:
                for name, column in zip(known.column_names, known.columns, strict=True):
                    columns[name] = column.slice(taken, rows).combine_chunks()
            taken += rows
            yield pa.RecordBatch.from_arrays([columns[name] for name in self._names], names=self._names)

    def _tested(self, group: RowGroup, live: Array) -> Iterator[pa.RecordBatch]:
        """The first columns of the rows that pass every test; `live` is updated to these rows."""
        if not self._tests:
            yield from self._file.batches(group, self._first, live)
            return
        passed: Array = np.zeros(len(live), dtype=bool)
        for batch in self._file.batches(group, self._first, live):
            if self._filter is not None:
                batch = batch.filter(self._filter)
            for test in self._deleted.keys:
                deleted = test.deleted(batch)
                if deleted.any():
                    batch = batch.filter(pa.array(~deleted))
            if batch.num_rows:
                passed[batch.column(ROW_POSITION.name).to_numpy() - group.first] = True
                yield batch
        live[:] = passed


def _top_level(schema: Schema, field_id: int) -> int:
    while (parent := schema.parents.get(field_id)) is not None:
        field_id = parent
    return field_id
