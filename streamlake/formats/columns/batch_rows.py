"""Casts incoming rows to the Arrow schema of the file that is written.

This is the first step of every data file writer, and does nothing when the schemas are equal already.
Invariant: the result has the file's columns in the file's order and types, and no null in a required column.
A value is never changed to fit.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import SchemaMismatchError
from streamlake.formats.arrow.arrow_ids import arrow_parts


def conforming_rows(data: pa.Table | pa.RecordBatch, schema: pa.Schema, path: str) -> pa.Table:
    """`data` as a table of `schema`.

    Columns are found by name and cast without loss. Raises SchemaMismatchError when a column is missing,
    unknown or of a type that does not convert, when a value does not fit, and when a required value is null.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    if table.column_names != schema.names:
        table = _in_order(table, schema, path)
    columns = [
        column if column.type.equals(field.type) else _cast(column, field, path)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    for column, field in zip(columns, schema, strict=True):
        _require_values(column, field, path)
    return pa.Table.from_arrays(columns, schema=schema)


def _in_order(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    missing = [name for name in schema.names if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in schema.names]
    if missing or unknown:
        problems = "; ".join(
            f"{what} {', '.join(names)}"
            for what, names in (("the rows lack", missing), ("the table lacks", unknown))
            if names
        )
        raise SchemaMismatchError(
            f"{path}: {problems}. Select the table's columns: {', '.join(schema.names)}"
        )
    return table.select(schema.names)


def _cast(column: pa.ChunkedArray, field: pa.Field, path: str) -> pa.ChunkedArray:
    try:
        if isinstance(field.type, pa.BaseExtensionType) and not isinstance(column.type, pa.BaseExtensionType):
            storage = column.cast(field.type.storage_type)
            chunks = [pa.ExtensionArray.from_storage(field.type, chunk) for chunk in storage.chunks]
            return pa.chunked_array(chunks, type=field.type)
        return column.cast(field.type)
    except pa.ArrowNotImplementedError as cause:
        raise SchemaMismatchError(
            f"{path}: column {field.name} is {column.type} but the table's is {field.type}; convert it before"
        ) from cause
    except pa.ArrowInvalid as cause:
        raise SchemaMismatchError(
            f"{path}: a value of column {field.name} ({column.type}) does not fit the table's type "
            f"{field.type}: {cause}"
        ) from cause


def _require_values(column: pa.ChunkedArray, field: pa.Field, path: str) -> None:
    if not field.nullable and column.null_count:
        raise SchemaMismatchError(f"{path}: {column.null_count} nulls in the required column {field.name}")
    if _has_required_part(field.type):
        for chunk in column.chunks:
            _require_parts(chunk, field.type, field.name, path)


@lru_cache(maxsize=1024)
def _has_required_part(type_: pa.DataType) -> bool:
    return any(not part.nullable or _has_required_part(part.type) for part in arrow_parts(type_))


def _require_parts(array: pa.Array, type_: pa.DataType, name: str, path: str) -> None:
    """Check the required fields of structs that are not null themselves."""
    present = array.filter(pc.is_valid(array)) if array.null_count else array
    if pa.types.is_struct(type_):
        parts = present.flatten()
    elif pa.types.is_map(type_):
        whole = pa.concat_arrays([present]) if present.offset else present
        parts = [whole.keys, whole.items]
    else:
        parts = [present.flatten()]
    for part, field in zip(parts, arrow_parts(type_), strict=True):
        full_name = f"{name}.{field.name}"
        if not field.nullable and part.null_count:
            raise SchemaMismatchError(f"{path}: {part.null_count} nulls in the required field {full_name}")
        if _has_required_part(field.type):
            _require_parts(part, field.type, full_name, path)
