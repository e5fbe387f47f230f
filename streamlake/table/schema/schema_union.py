"""Union by name: changes a table's schema so that it holds rows of another schema.

Fields are matched by name at every depth. It lies between a stream's schema and `SchemaEdit`. Invariant: no
field is removed or narrowed, so rows of the table and rows of the other schema both fit the result. Where
that is impossible, all problems are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from streamlake.errors import SchemaMismatchError
from streamlake.spec.partitioning.promotion import can_promote
from streamlake.spec.types.data_types import (
    DateType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    children,
)
from streamlake.spec.types.schema import Schema
from streamlake.table.schema.schema_edit import SchemaEdit
from streamlake.table.schema.schema_tree import Node


def never(wanted: IcebergType, present: IcebergType) -> bool:
    """Accepts no values of another type."""
    return False


@dataclass(frozen=True)
class UnionRules:
    """What a union may do besides adding optional columns.

    - `widen`: promote types.
    - `relax`: make a column optional that is optional in the other schema. `relax_absent`: also one that the
      other schema lacks.
    - `docs`: take over comments.
    - `fits(wanted, present)`: whether values of another type can be written to a column without a promotion;
      then the type is no problem.
    - `dates`: promote dates to timestamps, which Iceberg's own engines do not read yet.
    - `plain`: added structs have only optional parts, whatever they are in the other schema, and no two names
      may differ in case only. `defaults`: added columns keep their defaults nevertheless.
    """

    widen: bool = True
    relax: bool = True
    relax_absent: bool = False
    docs: bool = True
    fits: Callable[[IcebergType, IcebergType], bool] = never
    dates: bool = True
    plain: bool = False
    defaults: bool = False


def unite(edit: SchemaEdit, wanted: Schema, rules: UnionRules) -> list[str]:
    """Apply the union to `edit`. Returns the problems; if there are any, `edit` must not be used any more."""
    union = _Union(edit, rules)
    union.fields(None, edit.columns, wanted.fields)
    return union.problems


class _Union:
    def __init__(self, edit: SchemaEdit, rules: UnionRules) -> None:
        self._edit = edit
        self._rules = rules
        self._version = edit.format_version
        self.problems: list[str] = []

    def fields(self, parent: Node | None, present: list[Node], wanted: Iterable[NestedField]) -> None:
        by_name = {node.field.name: node for node in present}
        folded = {name.lower(): name for name in by_name}
        named = list(wanted)
        for part in named:
            node = by_name.get(part.name)
            if node is not None:
                self._field(node, part)
                continue
            path = part.name if parent is None else f"{parent.path}.{part.name}"
            twin = folded.setdefault(part.name.lower(), part.name)
            if self._rules.plain and twin != part.name:
                self.problems.append(
                    f"the column '{path}' differs from '{twin}' in upper and lower case only, which most "
                    "readers cannot distinguish"
                )
                continue
            self._add(parent, part)
        if self._rules.relax_absent:
            given = {part.name for part in named}
            for name, node in by_name.items():
                if name not in given and node.field.write_default is None:
                    self._relax(node)

    def _add(self, parent: Node | None, part: NestedField) -> None:
        if self._rules.plain:
            part = _plain(part)
            if not self._rules.defaults:
                part = replace(part, initial_default=None, write_default=None)
        self._edit.add(parent, replace(part, required=False))

    def _field(self, node: Node, wanted: NestedField) -> None:
        if self._rules.relax and node.field.required and not wanted.required:
            self._relax(node)
        if self._rules.docs and wanted.doc is not None:
            self._edit.describe(node, wanted.doc)
        self._type(node, wanted.type)

    def _relax(self, node: Node) -> None:
        try:
            self._edit.make_optional(node)
        except SchemaMismatchError as error:
            self.problems.append(str(error))

    def _type(self, node: Node, wanted: IcebergType) -> None:
        present = node.field.type
        if isinstance(present, StructType) and isinstance(wanted, StructType):
            self.fields(node, node.parts, wanted.fields)
        elif (isinstance(present, ListType) and isinstance(wanted, ListType)) or (
            isinstance(present, MapType) and isinstance(wanted, MapType)
        ):
            for inner, part in zip(node.parts, children(wanted), strict=True):
                self._field(inner, replace(part, doc=None))
        elif not (isinstance(present, PrimitiveType) and isinstance(wanted, PrimitiveType)):
            self.problems.append(self._edit.not_promotable(node, wanted))
        elif present != wanted and not can_promote(wanted, present, self._version):
            self._primitive(node, wanted)

    def _primitive(self, node: Node, wanted: PrimitiveType) -> None:
        allowed = self._rules.dates or not isinstance(node.field.type, DateType)
        if self._rules.widen and allowed and can_promote(node.field.type, wanted, self._version):
            try:
                self._edit.promote(node, wanted)
            except SchemaMismatchError as error:
                self.problems.append(str(error))
        elif not self._rules.fits(wanted, node.field.type):
            self.problems.append(self._edit.not_promotable(node, wanted))


def _plain(part: NestedField) -> NestedField:
    """The field with optional parts. Keys of maps are always required."""
    type_ = part.type
    if isinstance(type_, StructType):
        type_ = StructType(tuple(replace(_plain(inner), required=False) for inner in type_.fields))
    elif isinstance(type_, ListType):
        type_ = replace(type_, element_type=_plain(type_.element).type, element_required=False)
    elif isinstance(type_, MapType):
        type_ = replace(type_, value_type=_plain(type_.value).type, value_required=False)
    return replace(part, type=type_)
