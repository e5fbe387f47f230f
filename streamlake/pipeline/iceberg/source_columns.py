"""The columns of a stream over a table, and how they differ from those of the micro-batch before.

Columns are known by their ids: a column keeps the name that the stream began with as long as its target does
not follow the source's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamlake.formats.arrow.arrow_schema import schema_from_arrow
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.data_types import IcebergType, ListType, MapType, NestedField, StructType
from streamlake.spec.types.schema import Schema

_BESIDE = 1 << 30
"""Field ids of metadata columns, above those of any table; a table that is created assigns its own."""


@dataclass(frozen=True)
class SourceColumns:
    """The rows of a micro-batch have `schema`; its identifier fields are the source's, where all of them are
    read. `unread` are columns that the table has by now and rows are not read with, `renamed` has old -> new
    name of columns since the micro-batch before. `defaults` has the values that columns have in the rows of
    files that are older than they are.
    """

    schema: Schema
    unread: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


def source_columns(
    metadata: TableMetadata, start: TableOffset | None, end: TableOffset, selected: Schema, rows: pa.Schema
) -> SourceColumns:
    """The columns of the micro-batch between two offsets: those of the table that are `selected`, and what
    `rows` have beside them.
    """
    read, newest = metadata.schema_by_id(end.planning.schema_id), metadata.schema
    # Where columns were chosen nobody expects others.
    is_all = all(selected.field(part.field_id) is not None for part in read.fields)
    unread = tuple(part.name for part in newest.fields if is_all and read.field(part.field_id) is None)
    renamed = {}
    begun_with = None if start is None else start.planning.schema_id
    for before in [each for each in metadata.schemas if each.schema_id == begun_with]:
        for part in selected.fields:
            old = before.field(part.field_id)
            if old is not None and old.name != part.name:
                renamed[old.name] = part.name
    defaults = {
        part.name: part.initial_default for part in selected.fields if part.initial_default is not None
    }
    return SourceColumns(rows_schema(read, selected, rows), unread, renamed, defaults)


def rows_schema(table: Schema, selected: Schema, rows: pa.Schema) -> Schema:
    """The Iceberg schema of rows: the columns `selected` of the schema `table` with their docs, and the
    metadata columns that `rows` have beside them. Without the defaults of columns: rows that are read have
    them already.
    """
    known = {part.name: replace(part, initial_default=None, write_default=None) for part in selected.fields}
    others = schema_from_arrow([part for part in rows if part.name not in known]).fields
    first = _BESIDE
    beside = {part.name: replace(part, field_id=first + at) for at, part in enumerate(others)}
    fields = tuple(known.get(name) or beside[name] for name in rows.names)
    keys = set(table.identifier_field_ids)
    is_keyed = keys <= {part.field_id for part in fields}
    return Schema(fields, identifier_field_ids=table.identifier_field_ids if is_keyed else ())


def with_types_of(schema: Schema, newer: Schema) -> Schema:
    """The schema with the types that its columns have in a newer one, by field id: values of files that were
    written since do not fit the older ones.
    """

    def part_of(part: NestedField) -> NestedField:
        return replace(part, type=type_of(part.type, part.field_id))

    def type_of(type_: IcebergType, field_id: int) -> IcebergType:
        if isinstance(type_, StructType):
            return StructType(tuple(map(part_of, type_.fields)))
        if isinstance(type_, ListType):
            return replace(type_, element_type=type_of(type_.element_type, type_.element_id))
        if isinstance(type_, MapType):
            return replace(type_, value_type=type_of(type_.value_type, type_.value_id))
        found = newer.field(field_id)
        return type_ if found is None else found.type

    return replace(schema, fields=tuple(map(part_of, schema.fields)))
