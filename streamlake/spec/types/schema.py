"""A table schema: fields with ids, found by id or by dotted name (spec: Schemas and Data Types)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from streamlake.spec.types.data_types import IcebergType, ListType, MapType, NestedField, StructType, children


def _walk(
    fields: Iterable[NestedField], prefix: str, parent: int | None
) -> Iterator[tuple[NestedField, str, int | None]]:
    for part in fields:
        name = f"{prefix}{part.name}"
        yield part, name, parent
        yield from _walk(children(part.type), f"{name}.", part.field_id)


@dataclass(frozen=True)
class Schema:
    """Top-level fields in order, the schema's id, and the identifier field ids (the table's key, if any)."""

    fields: tuple[NestedField, ...]
    schema_id: int = 0
    identifier_field_ids: tuple[int, ...] = ()
    extra: dict[str, object] = field(default_factory=dict, compare=False, hash=False)

    @property
    def struct(self) -> StructType:
        """The fields as a struct type."""
        return StructType(self.fields)

    @cached_property
    def fields_by_id(self) -> dict[int, NestedField]:
        """Field id -> field, list elements and map keys and values included."""
        return {part.field_id: part for part, _, _ in _walk(self.fields, "", None)}

    @cached_property
    def names_by_id(self) -> dict[int, str]:
        """Field id -> dotted name ("a.b", "tags.element", "attributes.value")."""
        return {part.field_id: name for part, name, _ in _walk(self.fields, "", None)}

    @cached_property
    def parents(self) -> dict[int, int]:
        """Field id -> id of the field that contains it; top-level fields are absent."""
        return {
            part.field_id: parent for part, _, parent in _walk(self.fields, "", None) if parent is not None
        }

    @cached_property
    def ids_by_name(self) -> dict[str, int]:
        """The field id of each dotted name."""
        return {name: field_id for field_id, name in self.names_by_id.items()}

    @property
    def column_names(self) -> list[str]:
        """The names of the top-level fields, in order."""
        return [part.name for part in self.fields]

    @property
    def highest_field_id(self) -> int:
        """The highest field id, 0 for an empty schema."""
        return max(self.fields_by_id, default=0)

    @property
    def identifier_names(self) -> list[str]:
        """The dotted names of the identifier fields."""
        return [self.names_by_id[field_id] for field_id in self.identifier_field_ids]

    def field(self, field_id: int) -> NestedField | None:
        """The field with an id at any depth, or None."""
        return self.fields_by_id.get(field_id)

    def find(self, name: str) -> NestedField | None:
        """The field with a dotted name, or None."""
        field_id = self.ids_by_name.get(name)
        return None if field_id is None else self.fields_by_id[field_id]

    def name_of(self, field_id: int) -> str | None:
        """The dotted name of a field id, or None."""
        return self.names_by_id.get(field_id)

    def select(self, names: Iterable[str]) -> Schema:
        """The schema narrowed to dotted names, in schema order. A parent is kept with its chosen parts only.

        Raises KeyError with the first name that does not exist.
        """
        wanted: set[int] = set()
        for name in names:
            found = self.find(name)
            if found is None:
                raise KeyError(name)
            wanted.add(found.field_id)
        return replace(self, fields=_prune(self.fields, wanted), identifier_field_ids=())

    def __str__(self) -> str:
        return "table {\n" + "".join(f"  {part}\n" for part in self.fields) + "}"


def _prune(fields: Iterable[NestedField], wanted: set[int]) -> tuple[NestedField, ...]:
    kept = []
    for part in fields:
        if part.field_id in wanted:
            kept.append(part)
        elif isinstance(part.type, StructType):
            inner = _prune(part.type.fields, wanted)
            if inner:
                kept.append(replace(part, type=StructType(inner)))
        elif any(child.field_id in wanted or _prune((child,), wanted) for child in children(part.type)):
            kept.append(part)
    return tuple(kept)


def relaxed(schema: Schema, field_ids: Iterable[int]) -> Schema:
    """The schema with these fields optional, at any depth."""
    chosen = frozenset(field_ids)

    def part_of(part: NestedField) -> NestedField:
        return replace(part, type=type_of(part.type), required=part.required and part.field_id not in chosen)

    def type_of(type_: IcebergType) -> IcebergType:
        if isinstance(type_, StructType):
            return StructType(tuple(map(part_of, type_.fields)))
        if isinstance(type_, ListType):
            element = part_of(type_.element)
            return replace(type_, element_type=element.type, element_required=element.required)
        if isinstance(type_, MapType):
            value = part_of(type_.value)
            return replace(type_, value_type=value.type, value_required=value.required)
        return type_

    return replace(schema, fields=tuple(map(part_of, schema.fields)))


def assign_fresh_ids(fields: Iterable[NestedField], next_id: Callable[[], int]) -> tuple[NestedField, ...]:
    """The same fields with new ids, level by level as in Iceberg: a struct's own fields come first."""
    level = [replace(part, field_id=next_id()) for part in fields]
    return tuple(replace(part, type=_fresh_type(part.type, next_id)) for part in level)


def _fresh_type(type_: IcebergType, next_id: Callable[[], int]) -> IcebergType:
    if isinstance(type_, StructType):
        return StructType(assign_fresh_ids(type_.fields, next_id))
    if isinstance(type_, ListType):
        element_id = next_id()
        return ListType(element_id, _fresh_type(type_.element_type, next_id), type_.element_required)
    if isinstance(type_, MapType):
        key_id, value_id = next_id(), next_id()
        return MapType(
            key_id,
            _fresh_type(type_.key_type, next_id),
            value_id,
            _fresh_type(type_.value_type, next_id),
            type_.value_required,
        )
    return type_


def fresh_schema(schema: Schema) -> Schema:
    """The schema of a new table: ids from 1, schema id 0, identifier fields carried over by name."""
    counter = iter(range(1, 1_000_000))
    renumbered = Schema(assign_fresh_ids(schema.fields, lambda: next(counter)))
    identifiers = tuple(renumbered.ids_by_name[name] for name in schema.identifier_names)
    return replace(renumbered, identifier_field_ids=identifiers)
