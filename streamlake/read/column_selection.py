"""Which columns a scan returns, and which columns it has to read for them.

`columns=["a", "s.b", "_row_id"]` becomes the output columns in that order (a struct keeps its chosen fields
only) and a read schema that also holds the columns of the filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.read.metadata_columns import BY_NAME
from streamlake.spec.expressions.binding import unknown_column
from streamlake.spec.expressions.expressions import Expression, predicates
from streamlake.spec.types.data_types import NestedField
from streamlake.spec.types.schema import Schema


@dataclass(frozen=True)
class ColumnSelection:
    """The selected columns of a scan.

    `table_schema` is the whole schema of the scanned snapshot; `output` holds the returned columns, in order.
    """

    table_schema: Schema
    output: Schema

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows that the scan returns, with field ids as metadata."""
        return schema_to_arrow(self.output)

    @cached_property
    def metadata_columns(self) -> tuple[NestedField, ...]:
        """The returned columns that are not columns of the table, such as `_file`."""
        return tuple(
            part for part in self.output.fields if part.field_id not in self.table_schema.fields_by_id
        )

    def read_schema(self, filter_: Expression, keys: Schema) -> Schema:
        """The columns to read from a data file: for the output, for the filter, and keys of equality deletes.

        A struct that they share has the fields of all; keys that the table no longer has come last.
        """
        wanted = {part.field_id for part in _leaves(self.output.fields)}
        wanted.update(predicate.ref.field_id for predicate in predicates(filter_))
        wanted.update(part.field_id for part in _leaves(keys.fields))
        names = [name for field_id, name in self.table_schema.names_by_id.items() if field_id in wanted]
        dropped = [part for part in keys.fields if part.field_id not in self.table_schema.fields_by_id]
        selected = self.table_schema.select(names)
        return replace(selected, fields=selected.fields + tuple(dropped))


def _leaves(fields: Iterable[NestedField]) -> Iterable[NestedField]:
    """The fields that hold values: everything except structs, whose fields are used instead."""
    for part in fields:
        inner = getattr(part.type, "fields", None)
        if inner:
            yield from _leaves(inner)
        else:
            yield part


def select_columns(schema: Schema, columns: Iterable[str] | None) -> ColumnSelection:
    """The selection for `columns` (None: every column of the table; "*" includes them among others).

    Raises InvalidOptionError for a column that does not exist, with the nearest name.
    """
    if columns is None:
        return ColumnSelection(schema, replace(schema, identifier_field_ids=()))
    if isinstance(columns, str):
        raise InvalidOptionError(f"columns is a list of names, not a string; write columns=[{columns!r}]")
    names: dict[str, list[str]] = {}
    for name in columns:
        for each in schema.column_names if name == "*" else [name]:
            top = _top_level_name(schema, each)
            names.setdefault(top, []).append(each)
    fields = []
    for top, chosen in names.items():
        if schema.find(top) is None:
            fields.append(BY_NAME[top])
        else:
            fields.extend(schema.select(chosen).fields)
    return ColumnSelection(schema, replace(schema, fields=tuple(fields), identifier_field_ids=()))


def _top_level_name(schema: Schema, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidOptionError(f"columns holds names, not {type(name).__name__}: {name!r}")
    found = schema.find(name)
    if found is None:
        if name in BY_NAME:
            return name
        raise unknown_column(f"columns {name!r}", name, schema)
    top = found
    while (parent := schema.parents.get(top.field_id)) is not None:
        top = schema.fields_by_id[parent]
    return top.name


def field_path(schema: Schema, field_id: int) -> tuple[str, ...]:
    """The names from the top-level column down to a field."""
    path = [schema.fields_by_id[field_id].name]
    while (parent := schema.parents.get(field_id)) is not None:
        path.append(schema.fields_by_id[parent].name)
        field_id = parent
    return tuple(reversed(path))
