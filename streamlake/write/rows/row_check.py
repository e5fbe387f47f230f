"""The row check: aligns rows of a stream with the table's schema; errors name column and row.

First step of a writer task. Columns are found by name, converted without loss (`conversion`), and required
values must be present. Nothing is copied when the rows have the table's types already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import NewSchemaError, SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.arrow.constant_arrays import constant_array
from streamlake.options import suggestion
from streamlake.spec.types.data_types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    children,
)
from streamlake.spec.types.schema import Schema, relaxed
from streamlake.spec.types.type_json import schema_to_json
from streamlake.write.rows.conversion import NotConvertibleError, converted

Array = np.ndarray[Any, Any]

_Found = tuple[str, pa.BooleanArray] | None
"""A dotted name, and which rows are wrong there."""


class RowCheck:
    """Checks and aligns tables of rows for one Iceberg table, and counts rows, so that errors can name them.

    Row numbers count from 0 over all rows that this instance has seen, which are the rows of one task. Raises
    FeatureUnsupportedError for a schema with a type that is not written.
    """

    def __init__(self, schema: Schema, table: str) -> None:
        self._schema = schema
        self._table = table
        self._arrow_schema = schema_to_arrow(schema)
        self._rows_seen = 0

    def align(self, rows: pa.Table, missing: Mapping[str, Array] | None = None) -> pa.Table:
        """The rows with exactly the table's columns, in its order and in its Arrow types.

        An optional column that the rows lack is filled with its write default or null. `missing` has (n,)
        bool for columns whose value is filled in later: there a null is allowed. Raises SchemaMismatchError
        for an unknown, repeated or missing column, a type or value that does not fit, and a null where the
        table requires a value; the message names column and row.
        """
        if rows.column_names != self._arrow_schema.names:
            rows = self._in_order(rows)
        columns = [
            self._converted(column, part)
            for column, part in zip(rows.columns, self._schema.fields, strict=True)
        ]
        null_places = [
            found
            for column, part in zip(columns, self._schema.fields, strict=True)
            if (found := self._null_in(column, part, None if missing is None else missing.get(part.name)))
        ]
        if null_places:
            raise self._nulls_in(null_places)
        self._rows_seen += rows.num_rows
        return pa.Table.from_arrays(columns, schema=self._arrow_schema)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        known = self._schema.column_names
        names = rows.column_names
        for name in names:
            if name not in known:
                near = suggestion(name, [column for column in known if column not in names])
                hint = f"Did you mean '{near}'?" if near else f"The table's columns are {', '.join(known)}."
                raise SchemaMismatchError(
                    f"{self._table}: the rows have the column '{name}', which the table lacks. {hint} Drop "
                    "or rename it in the stream, or add it to the table."
                )
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatchError(
                f"{self._table}: the rows have the column '{twice}' twice. Rename or drop one."
            )
        columns = [
            rows.column(part.name) if part.name in names else self._filled(part, rows.num_rows)
            for part in self._schema.fields
        ]
        return pa.Table.from_arrays(columns, names=known)

    def _filled(self, part: NestedField, rows: int) -> pa.ChunkedArray:
        if part.required and part.write_default is None:
            raise SchemaMismatchError(
                f"{self._table}: the rows lack the column '{part.name}', which the table requires. Add it to "
                "the stream, or make it optional in the table."
            )
        return pa.chunked_array([constant_array(part.type, part.write_default, rows)])

    def _converted(self, column: pa.ChunkedArray, part: NestedField) -> pa.ChunkedArray:
        target = self._arrow_schema.field(part.name).type
        if isinstance(part.type, PrimitiveType) and column.type == target:
            return column
        chunks = []
        row = self._rows_seen
        for chunk in column.chunks:
            try:
                chunks.append(converted(chunk, part.type, part.name))
            except NotConvertibleError as error:
                where = "" if error.row is None else f", row {row + error.row}"
                raise SchemaMismatchError(
                    f"{self._table}: column '{error.path}'{where}: {error.message}"
                ) from error
            row += len(chunk)
        return pa.chunked_array(chunks, type=target)

    def _null_in(
        self, column: pa.ChunkedArray, part: NestedField, missing: Array | None
    ) -> tuple[str, int] | None:
        """Dotted name and row of a null where the table requires a value; None when there is none."""
        if part.required and column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            if missing is not None:
                nulls &= ~missing
            if nulls.any():
                return part.name, int(np.argmax(nulls))
        if not _has_required_part(part.type):
            return None
        row = 0
        for chunk in column.chunks:
            found = _null_part(chunk, part.type, part.name)
            if found is not None:
                path, bad = found
                return path, row + bad.index(True).as_py()
            row += len(chunk)
        return None

    def _way_out(self, path: str) -> str:
        part = self._schema.find(path)
        if part is not None and part.field_id in self._schema.identifier_field_ids:
            return "It is part of the table's key: filter or fill such rows in the stream."
        return "Filter or fill such rows in the stream, or make the column optional in the table."

    def _nulls_in(self, null_places: Sequence[tuple[str, int]]) -> NewSchemaError:
        """The error for the first of these nulls. It asks for all of their columns to be made optional."""
        path, row = null_places[0]
        found = [self._schema.find(name) for name, _ in null_places]
        wanted = relaxed(self._schema, [part.field_id for part in found if part is not None])
        return NewSchemaError(
            f"{self._table}: column '{path}', row {self._rows_seen + row}: the value is null and the table "
            f"requires one. {self._way_out(path)}",
            json.dumps(schema_to_json(wanted)),
        )


def _has_required_part(type_: IcebergType) -> bool:
    inner = children(type_)[1:] if isinstance(type_, MapType) else children(type_)
    return any(part.required or _has_required_part(part.type) for part in inner)


def _null_part(array: pa.Array, type_: IcebergType, path: str) -> _Found:
    """The first required part that is null inside a value that is not null itself."""
    if isinstance(type_, StructType):
        for at, part in enumerate(type_.fields):
            found = _nulls_of(array.field(at), part, f"{path}.{part.name}")
            if found is not None:
                bad = pc.and_(found[1], array.is_valid())
                if pc.any(bad).as_py():
                    return found[0], bad
    elif isinstance(type_, (ListType, MapType)):
        part = children(type_)[-1]
        lists = _value_lists(array) if isinstance(type_, MapType) else array
        found = _nulls_of(lists.flatten(), part, f"{path}.{part.name}")
        if found is not None:
            rows: Any = np.zeros(len(array), dtype=bool)
            rows[pc.list_parent_indices(lists).filter(found[1]).to_numpy()] = True
            return found[0], pa.array(rows)
    return None


def _nulls_of(values: pa.Array, part: NestedField, path: str) -> _Found:
    if part.required and values.null_count:
        return path, values.is_null()
    return _null_part(values, part.type, path) if _has_required_part(part.type) else None


def _value_lists(maps: pa.Array) -> pa.Array:
    """The values of maps as lists."""
    type_ = pa.list_(pa.field("value", maps.type.item_type))
    buffers = maps.buffers()[:2]
    return pa.Array.from_buffers(
        type_, len(maps), buffers, maps.null_count, maps.offset, children=[maps.items]
    )
