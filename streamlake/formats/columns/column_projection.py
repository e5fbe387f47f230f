"""Projects the columns of a file to the columns that the table's schema asks for (spec: Column Projection).

Compiled once per file from the file's Arrow schema (with field ids) and the projected table schema, then
applied to every batch. Fields are matched by id at every depth, so renamed, reordered, dropped and re-added
fields are read correctly. Promoted types are cast. A field that the file lacks becomes its partition
constant, its initial default, or null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from streamlake.errors import DataInvalidError
from streamlake.formats.arrow.arrow_ids import arrow_parts, field_id_of
from streamlake.formats.arrow.arrow_schema import arrow_type, schema_to_arrow
from streamlake.formats.arrow.constant_arrays import constant_array
from streamlake.formats.arrow.nested_arrays import with_children
from streamlake.spec.types.data_types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)
from streamlake.spec.types.schema import Schema

Convert = Callable[[pa.Array], pa.Array]


class Projection:
    """Converts the batches of one file to batches of `schema`."""

    def __init__(
        self, file_schema: pa.Schema, schema: Schema, path: str, constants: Mapping[int, Any] | None = None
    ) -> None:
        self.arrow_schema: pa.Schema = schema_to_arrow(schema)
        self._path = path
        by_id = {field_id_of(part): at for at, part in enumerate(file_schema)}
        self._columns: list[tuple[int | None, Convert | None, NestedField]] = []
        self._constants = dict(constants or {})
        for part in schema.fields:
            at = by_id.get(part.field_id)
            convert = (
                None if at is None else _conversion(file_schema.field(at).type, part.type, part.name, path)
            )
            self._columns.append((at, convert, part))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the projected schema. Raises DataInvalidError when a value does not fit its type."""
        columns = []
        for (at, convert, part), field in zip(self._columns, self.arrow_schema, strict=True):
            if at is None:
                columns.append(self._absent(part, batch.num_rows))
                continue
            try:
                column = batch.column(at) if convert is None else convert(batch.column(at))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as cause:
                raise DataInvalidError(
                    f"{self._path}: column {part.name} cannot be read as {part.type}: {cause}"
                ) from cause
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema) if columns else _only_rows(batch)

    def _absent(self, part: NestedField, rows: int) -> pa.Array:
        if part.field_id in self._constants:
            return constant_array(part.type, self._constants[part.field_id], rows)
        return _default(part, rows, self._path)


def _only_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([])


def _default(part: NestedField, rows: int, path: str) -> pa.Array:
    if part.initial_default is None and part.required:
        raise DataInvalidError(
            f"{path}: the required field {part.field_id} ({part.name}) is missing from the file and has no "
            "initial default; if the file has no field ids, the table needs a name mapping"
        )
    return constant_array(part.type, part.initial_default, rows)


def selected_fields(file_schema: pa.Schema, schema: Schema) -> list[str]:
    """Dotted paths of the file's leaves that a projection reads, for Parquet.

    For example "a", "s.x", "l.list.element.y".
    """
    by_id = {field_id_of(part): part for part in file_schema}
    paths: list[str] = []
    for part in schema.fields:
        source = by_id.get(part.field_id)
        if source is not None:
            paths += _leaf_paths(source, part.type, source.name)
    return paths


def _leaf_paths(source: pa.Field, type_: IcebergType, path: str) -> list[str]:
    parts = arrow_parts(source.type)
    if not parts or isinstance(type_, PrimitiveType):
        return [path]
    if isinstance(type_, StructType):
        by_id = {field_id_of(part): part for part in parts}
        wanted = [
            found
            for part in type_.fields
            if (inner := by_id.get(part.field_id)) is not None
            for found in _leaf_paths(inner, part.type, f"{path}.{inner.name}")
        ]
        # No field of the struct is in the file: any leaf shows which structs are null.
        return wanted or [_first_leaf(source, path)]
    return [path]


def _first_leaf(source: pa.Field, path: str) -> str:
    parts = arrow_parts(source.type)
    if not parts or not pa.types.is_struct(source.type):
        return path
    return _first_leaf(parts[0], f"{path}.{parts[0].name}")


def _conversion(source: pa.DataType, type_: IcebergType, name: str, path: str) -> Convert | None:
    """The function that converts arrays of `source` to arrays of `type_`, or None when none is needed."""
    if isinstance(type_, PrimitiveType):
        return _primitive(source, type_, name, path)
    if isinstance(type_, StructType) and pa.types.is_struct(source):
        return _struct(source, type_, name, path)
    if isinstance(type_, ListType) and _is_any_list(source):
        return _list(source, type_, name, path)
    if isinstance(type_, MapType) and pa.types.is_map(source):
        return _map(source, type_, name, path)
    raise DataInvalidError(f"{path}: column {name} is {source} in the file but {type_} in the table")


def _primitive(source: pa.DataType, type_: PrimitiveType, name: str, path: str) -> Convert | None:
    target = arrow_type(type_)
    if source.equals(target):
        return None
    if pa.types.is_nested(source):
        raise DataInvalidError(f"{path}: column {name} is {source} in the file but {type_} in the table")
    # Nanoseconds of a format that always stores them (ORC, INT96) are truncated to microseconds.
    safe = not (pa.types.is_timestamp(source) and source.unit == "ns")

    def convert(array: pa.Array) -> pa.Array:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if isinstance(target, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(target, array.cast(target.storage_type))
        return array.cast(target, safe=safe)

    return convert


def _struct(source: pa.DataType, type_: StructType, name: str, path: str) -> Convert | None:
    source_parts = arrow_parts(source)
    by_id = {field_id_of(part): at for at, part in enumerate(source_parts)}
    target = arrow_type(type_)
    steps: list[tuple[int | None, Convert | None, NestedField]] = []
    for part in type_.fields:
        at = by_id.get(part.field_id)
        step = None
        if at is not None:
            step = _conversion(source_parts[at].type, part.type, f"{name}.{part.name}", path)
        steps.append((at, step, part))
    if source.equals(target) and all(at == i and step is None for i, (at, step, _) in enumerate(steps)):
        return None

    def convert(array: pa.StructArray) -> pa.Array:
        parts = []
        for at, step, part in steps:
            if at is None:
                parts.append(_default(part, len(array), path))
            else:
                values = array.field(at)
                parts.append(values if step is None else step(values))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=arrow_parts(target), mask=mask)

    return convert


def _list(source: pa.DataType, type_: ListType, name: str, path: str) -> Convert | None:
    target = arrow_type(type_)
    plain = pa.list_(source.value_field)
    step = _conversion(source.value_type, type_.element_type, f"{name}.element", path)
    if step is None and source.equals(target):
        return None

    def convert(array: pa.Array) -> pa.Array:
        listed = array if array.type.equals(plain) else array.cast(plain)
        values = listed.values if step is None else step(listed.values)
        return with_children(listed, target, values)

    return convert


def _map(source: pa.DataType, type_: MapType, name: str, path: str) -> Convert | None:
    target = arrow_type(type_)
    key_step = _conversion(source.key_type, type_.key_type, f"{name}.key", path)
    value_step = _conversion(source.item_type, type_.value_type, f"{name}.value", path)
    if key_step is None and value_step is None and source.equals(target):
        return None

    def convert(array: pa.MapArray) -> pa.Array:
        keys = array.keys if key_step is None else key_step(array.keys)
        values = array.items if value_step is None else value_step(array.items)
        entries = pa.StructArray.from_arrays([keys, values], fields=arrow_parts(target))
        return with_children(array, target, entries)

    return convert


def _is_any_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    )
