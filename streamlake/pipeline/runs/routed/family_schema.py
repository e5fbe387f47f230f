"""The common schema of several tables that one stream of rows feeds, to decode the stream's records with.

Place in the flow: on the driver. Invariant: for each column of one of the tables there is one here, of a type
that is as wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from streamlake.spec.partitioning.promotion import can_promote
from streamlake.spec.types.data_types import IcebergType, ListType, MapType, NestedField, StructType
from streamlake.spec.types.schema import Schema, fresh_schema

_ANY_VERSION = 2


def united(schemas: Iterable[Schema]) -> Schema:
    """All columns by name, in the order in which they come, with new ids; at least one schema is needed.

    Of two types where one can be widened to the other the wider one is taken, else the first. What is not
    required everywhere is optional.
    """
    several = list(schemas)
    if len(several) == 1:
        return several[0]
    fields = _united([schema.fields for schema in several])
    return fresh_schema(Schema(fields))


def _united(several: Sequence[tuple[NestedField, ...]]) -> tuple[NestedField, ...]:
    found: dict[str, NestedField] = {}
    seen: dict[str, int] = {}
    for fields in several:
        for part in fields:
            known = found.get(part.name)
            seen[part.name] = seen.get(part.name, 0) + 1
            if known is None:
                found[part.name] = replace(part, initial_default=None, write_default=None)
            else:
                found[part.name] = replace(
                    known, type=_wider(known.type, part.type), required=known.required and part.required
                )
    return tuple(
        replace(part, required=part.required and seen[part.name] == len(several)) for part in found.values()
    )


def _wider(one: IcebergType, other: IcebergType) -> IcebergType:
    if isinstance(one, StructType) and isinstance(other, StructType):
        return StructType(_united([one.fields, other.fields]))
    if isinstance(one, ListType) and isinstance(other, ListType):
        return replace(
            one,
            element_type=_wider(one.element_type, other.element_type),
            element_required=one.element_required and other.element_required,
        )
    if isinstance(one, MapType) and isinstance(other, MapType):
        return replace(
            one,
            value_type=_wider(one.value_type, other.value_type),
            value_required=one.value_required and other.value_required,
        )
    return other if can_promote(one, other, _ANY_VERSION) else one
