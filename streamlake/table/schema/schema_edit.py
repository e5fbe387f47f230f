"""A schema while it is being changed: a tree of fields that checks which changes each field allows.

Made from a metadata; `result` gives the new schema, and nothing outside changes. Invariants: new ids continue
from the table's `last-column-id` and are never given twice; the columns that the table's partition specs,
sort order and identifier fields use keep what these need.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.options import suggestion
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.promotion import can_promote, keeps_partitions, promoted_value
from streamlake.spec.partitioning.transforms import Void
from streamlake.spec.types.data_types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
)
from streamlake.spec.types.schema import Schema, assign_fresh_ids
from streamlake.spec.types.type_text import type_text
from streamlake.spec.types.values import to_bytes
from streamlake.table.schema.schema_tree import Node, found, node_of

_HIGHEST_ID = 2_147_483_447
"""Higher ids are those of metadata columns (spec: Reserved Field IDs)."""


class SchemaEdit:
    """The current schema of `base`, changed step by step. Each step sees the result of those before it.

    Steps raise InvalidOptionError for columns that do not exist or already do, SchemaMismatchError for
    changes that the specification or the table does not allow.
    """

    def __init__(self, base: TableMetadata) -> None:
        self._base = base
        self.format_version = base.format_version
        self.last_column_id = base.last_column_id
        self.columns: list[Node] = [node_of(part, None) for part in base.schema.fields]
        self._nodes = {node.field.field_id: node for column in self.columns for node in column.walk()}
        self._identifiers = list(base.schema.identifier_field_ids)
        self.steps: list[str] = []
        """What was changed, in words."""
        self.made_required: list[Node] = []
        """The fields that were made required."""

    def result(self) -> Schema:
        """The schema as it is now, with the base's schema id."""
        fields = tuple(column.built() for column in self.columns)
        return replace(self._base.schema, fields=fields, identifier_field_ids=tuple(self._identifiers))

    def find(self, path: str) -> Node | None:
        """The field with a dotted name, or None. Field names may contain dots themselves."""
        return found(self.columns, path)

    def need(self, path: str) -> Node:
        """The field with a dotted name.

        Raises InvalidOptionError when there is none, naming a similar one.
        """
        node = self.find(path)
        if node is None:
            names = [each.path for column in self.columns for each in column.walk()]
            near = suggestion(path, names)
            hint = f"Did you mean '{near}'?" if near else f"There are {', '.join(names)}."
            raise self._unknown(f"the table has no column '{path}'. {hint}")
        return node

    def add(self, parent: Node | None, part: NestedField) -> Node:
        """Add a field to a struct (None: to the table). Its id and those of its parts are assigned anew.

        A default applies to older rows and to later ones that lack the field.
        """
        parent = self._struct_of(parent, part.name)
        siblings = self.columns if parent is None else parent.parts
        path = part.name if parent is None else f"{parent.path}.{part.name}"
        if any(node.field.name == part.name for node in siblings):
            raise self._unknown(f"the column '{path}' is there already")
        if part.required and part.initial_default is None:
            raise self._refused(
                f"the required column '{path}' cannot be added without a default: the rows that are there "
                "have no value for it. Add it as an optional column, or give a default (format version 3)"
            )
        if part.initial_default is not None or part.write_default is not None:
            self._require_default(path, part.type, part.initial_default, part.write_default)
        fresh = assign_fresh_ids((part,), self._next_id)[0]
        node = node_of(fresh, parent)
        siblings.append(node)
        self._nodes.update({each.field.field_id: each for each in node.walk()})
        self.steps.append(f"added {path} {part.type}")
        return node

    def promote(self, node: Node, type_: IcebergType) -> None:
        """Give a primitive field a wider type."""
        old = node.field.type
        if old == type_:
            return
        self._require_no_map_key(node)
        if not can_promote(old, type_, self.format_version):
            raise self._refused(f"{self.not_promotable(node, type_)}")
        for spec in self._base.specs:
            for part in spec.fields:
                if part.source_id == node.field.field_id and not keeps_partitions(part.transform, old):
                    raise self._refused(
                        f"the column '{node.path}' cannot go from {old} to {type_}: the partition field "
                        f"'{part.name}' ({part.transform}) would have other values than the rows that are "
                        "there"
                    )
        if node.field.field_id in self._identifiers and isinstance(type_, (FloatType, DoubleType)):
            raise self._refused(f"the column '{node.path}' is an identifier field, which cannot be a {type_}")
        node.field = replace(
            node.field,
            type=type_,
            initial_default=promoted_value(node.field.initial_default, old, type_),
            write_default=promoted_value(node.field.write_default, old, type_),
        )
        self.steps.append(f"widened {node.path} from {old} to {type_}")

    def not_promotable(self, node: Node, type_: IcebergType) -> str:
        """Why a field cannot get a type, as text for a message."""
        old = node.field.type
        hint = ""
        if can_promote(old, type_, self.format_version):
            hint = (
                "; types are only widened where that is asked for (schema_evolution='full'; dates by "
                "UpdateSchema)"
            )
        elif can_promote(old, type_, 3):
            hint = "; that takes format version 3"
        elif isinstance(old, PrimitiveType) and isinstance(type_, PrimitiveType):
            hint = (
                "; types can only be widened (int to long, float to double, a decimal to more digits of the "
                "same scale)"
            )
        return (
            f"the column '{node.path}' is {type_text(node.built().type)} and cannot become "
            f"{type_text(type_)}{hint}"
        )

    def make_optional(self, node: Node) -> None:
        """Make a required field optional; no change when it is optional already."""
        if not node.field.required:
            return
        self._require_no_map_key(node)
        for inner in node.walk():
            if inner.field.field_id in self._identifiers:
                raise self._refused(
                    f"the column '{node.path}' cannot become optional: '{inner.path}' is an identifier field "
                    "of the table, and those are never null"
                )
        node.field = replace(node.field, required=False)
        self.steps.append(f"made {node.path} optional")

    def make_required(self, node: Node) -> None:
        """Make an optional field required; no change when it is required already.

        Whether rows have nulls in it is for the caller to find out: see `made_required`.
        """
        if node.field.required:
            return
        self._require_own_field(node)
        above = node.parent
        while above is not None:
            if not above.is_struct or not above.field.required:
                raise self._refused(
                    f"the column '{node.path}' cannot become required: '{above.path}' can be null or repeated"
                )
            above = above.parent
        node.field = replace(node.field, required=True)
        self.made_required.append(node)
        self.steps.append(f"made {node.path} required")

    def rename(self, node: Node, name: str) -> None:
        """Give a field another name; no change when it has it already."""
        if node.field.name == name:
            return
        if node.parent is not None and not node.parent.is_struct:
            raise self._refused(f"'{node.path}' is the {node.field.name} of another type and has no name")
        siblings = self.columns if node.parent is None else node.parent.parts
        if not name or any(other.field.name == name for other in siblings):
            raise self._unknown(
                f"the column '{node.path}' cannot be renamed to '{name}', which is there already"
            )
        old = node.path
        node.field = replace(node.field, name=name)
        self.steps.append(f"renamed {old} to {node.path}")

    def describe(self, node: Node, doc: str | None) -> None:
        """Set the doc of a field; None removes it."""
        if node.field.doc != doc:
            self._require_own_field(node)
            node.field = replace(node.field, doc=doc)
            self.steps.append(f"described {node.path}")

    def set_write_default(self, node: Node, value: Any) -> None:
        """Set the default of rows written later. The default of older rows does not change."""
        if node.field.write_default == value:
            return
        self._require_own_field(node)
        if value is not None:
            self._require_default(node.path, node.field.type, None, value)
        elif node.field.required and node.field.initial_default is not None:
            raise self._refused(f"the required column '{node.path}' needs a default")
        node.field = replace(node.field, write_default=value)
        self.steps.append(f"set the default of {node.path}")

    def delete(self, node: Node) -> None:
        """Delete a field from the schema. Its id is never given to another field."""
        siblings = self.columns if node.parent is None else node.parent.parts
        if (node.parent is not None and not node.parent.is_struct) or len(siblings) == 1:
            raise self._refused(f"'{node.path}' cannot be deleted: what it is a part of needs it")
        for inner in node.walk():
            self._require_unused(node, inner)
        siblings.remove(node)
        for inner in node.walk():
            del self._nodes[inner.field.field_id]
        self.steps.append(f"deleted {node.path}")

    def move(self, node: Node, at: Node | None, *, after: bool) -> None:
        """Move a field before or after another of the same struct.

        Without the other, `after` moves it to the end, else to the start.
        """
        siblings = self.columns if node.parent is None else node.parent.parts
        if (at is not None and (at.parent is not node.parent or at is node)) or (
            node.parent is not None and not node.parent.is_struct
        ):
            raise self._refused(f"'{node.path}' can only be moved among the other fields of its struct")
        siblings.remove(node)
        if at is None:
            siblings.insert(len(siblings) if after else 0, node)
        else:
            siblings.insert(siblings.index(at) + after, node)
        self.steps.append(f"moved {node.path}")

    def identify_by(self, nodes: Iterable[Node]) -> None:
        """Set the identifier fields (spec: Identifier Field IDs)."""
        chosen = list(nodes)
        for node in chosen:
            above: Node | None = node
            while above is not None:
                if not above.field.required or (above is not node and not above.is_struct):
                    raise self._refused(
                        f"'{node.path}' cannot be an identifier field: it or what it is in can be null or "
                        "repeated"
                    )
                above = above.parent
            if not isinstance(node.field.type, PrimitiveType) or isinstance(
                node.field.type, (FloatType, DoubleType)
            ):
                raise self._refused(
                    f"'{node.path}' cannot be an identifier field: its type is {node.field.type}"
                )
        ids = [node.field.field_id for node in chosen]
        if ids != self._identifiers:
            self._identifiers = ids
            self.steps.append(f"set the identifier fields to {', '.join(node.path for node in chosen)}")

    def _struct_of(self, parent: Node | None, name: str) -> Node | None:
        """The struct for a field named below `parent`. Lists and maps stand for their elements and values."""
        if parent is not None and isinstance(parent.field.type, (ListType, MapType)):
            parent = parent.parts[-1]
        if parent is not None and not parent.is_struct:
            raise self._refused(
                f"'{name}' cannot be added to '{parent.path}', which is {parent.field.type} and no struct"
            )
        if parent is not None:
            self._require_no_map_key(parent)
        return parent

    def _require_unused(self, node: Node, inner: Node) -> None:
        field_id = inner.field.field_id
        users = [
            f"partition field '{part.name}' of spec {spec.spec_id}"
            for spec in self._base.specs
            for part in spec.fields
            if part.source_id == field_id and not isinstance(part.transform, Void)
        ]
        if any(part.source_id == field_id for part in self._base.sort_order.fields):
            users.append("sort order")
        if field_id in self._identifiers:
            users.append("set of identifier fields")
        if users:
            raise self._refused(
                f"the column '{node.path}' cannot be deleted: the table's {users[0]} rests on '{inner.path}'"
            )

    def _require_no_map_key(self, node: Node) -> None:
        if node.is_in_map_key:
            raise self._refused(f"'{node.path}' is the key of a map or in it, and keys do not change")

    def _require_own_field(self, node: Node) -> None:
        if node.parent is not None and not node.parent.is_struct:
            raise self._refused(
                f"'{node.path}' is a part of a list or map, which has neither doc nor default"
            )

    def _require_default(self, path: str, type_: IcebergType, *values: Any) -> None:
        if self.format_version < 3:
            raise self._refused(
                f"the column '{path}' cannot have a default: that takes format version 3, and the table has "
                f"{self.format_version}"
            )
        if not isinstance(type_, PrimitiveType):
            raise self._refused(f"the column '{path}' is {type_}, which can have no default but null")
        for value in values:
            try:
                if value is not None:
                    to_bytes(type_, value)
            except (TypeError, ValueError, ArithmeticError, AttributeError, struct.error) as error:
                raise self._unknown(f"the default {value!r} of '{path}' is no {type_} ({error})") from error

    def _next_id(self) -> int:
        if self.last_column_id >= _HIGHEST_ID:
            raise self._refused("all field ids are used up")
        self.last_column_id += 1
        return self.last_column_id

    def _unknown(self, problem: str) -> InvalidOptionError:
        return InvalidOptionError(f"{self._base.location}: {problem}")

    def _refused(self, problem: str) -> SchemaMismatchError:
        return SchemaMismatchError(f"{self._base.location}: {problem}")
