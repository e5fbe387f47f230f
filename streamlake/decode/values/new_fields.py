"""Detection of new fields while records are decoded: fields without a column, or with a narrower one.

For tables that follow the schema of their stream. Decoders with a Watch raise NewSchemaError where a schema
comes with the records, and NewFieldsError where only values show the fields; `WatchingDecoder` then finds out
which these are. Invariant: a value that a column could be made for is never skipped. A field that is always
null has no type yet and is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamlake.decode.values.decoded import Decoded, Decoder
from streamlake.decode.values.record_limits import RecordLimits
from streamlake.errors import DecodeError, NewSchemaError
from streamlake.formats.arrow.arrow_ids import arrow_parts
from streamlake.spec.partitioning.promotion import can_promote
from streamlake.spec.types.data_types import IcebergType, ListType, MapType, NestedField, StructType
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_to_json
from streamlake.spec.types.type_text import type_text

_ANY_VERSION = 2
"""The format version whose promotions are used, because every reader has them."""


class NewFieldsError(Exception):
    """Records have fields with values and without a column.

    Not a ValueError, which decoders take for damaged records.
    """


@dataclass(frozen=True)
class Watch:
    """What a decoder watches for: new fields and, with `widen`, wider types.

    At the top of a row these are not new: `taken`, the columns that do not come from the value, and fields
    whose names begin with `metadata`.
    """

    widen: bool = False
    taken: frozenset[str] = frozenset()
    metadata: str | None = None

    def is_taken(self, name: str) -> bool:
        """Whether a top-level field of this name is not new."""
        return name in self.taken or (self.metadata is not None and name.startswith(self.metadata))

    @property
    def inside(self) -> Watch:
        """The watch for fields inside of a row's columns."""
        return Watch(self.widen)


def lacking(
    known: Sequence[NestedField], wanted: Iterable[NestedField], watch: Watch
) -> tuple[NestedField, ...]:
    """The wanted fields that `known` does not have, as optional ones, and those with wider types.

    A nested field comes inside of the fields that hold it.
    """
    by_name = {part.name: part for part in known}
    found = []
    for part in wanted:
        mine = by_name.get(part.name)
        if mine is None:
            if not watch.is_taken(part.name):
                found.append(replace(part, required=False))
            continue
        type_ = _lacking_type(mine.type, part.type, watch.inside)
        if type_ is not None:
            found.append(replace(mine, type=type_, required=True, initial_default=None, write_default=None))
    return tuple(found)


def _lacking_type(mine: IcebergType, wanted: IcebergType, watch: Watch) -> IcebergType | None:
    if isinstance(mine, StructType) and isinstance(wanted, StructType):
        parts = lacking(mine.fields, wanted.fields, watch)
        return StructType(parts) if parts else None
    if isinstance(mine, ListType) and isinstance(wanted, ListType):
        inner = _lacking_type(mine.element_type, wanted.element_type, watch)
        return None if inner is None else replace(mine, element_type=inner, element_required=True)
    if isinstance(mine, MapType) and isinstance(wanted, MapType):
        inner = _lacking_type(mine.value_type, wanted.value_type, watch)
        return None if inner is None else replace(mine, value_type=inner, value_required=True)
    return wanted if watch.widen and can_promote(mine, wanted, _ANY_VERSION) else None


def new_schema_error(fields: Sequence[NestedField], where: str) -> NewSchemaError:
    """The error that requests the fields; `where` says which records have them."""
    named = ", ".join(f"{part.name} {type_text(part.type)}" for part in fields)
    return NewSchemaError(
        f"{where}: the table has no column, or a narrower one, for {named}. Add or widen it, or let the "
        "table follow its stream: schema_evolution='add', or 'full' to widen",
        json.dumps(schema_to_json(Schema(tuple(fields)))),
    )


def require_columns(known: Schema, wanted: Schema, watch: Watch | None, where: str) -> None:
    """Raises NewSchemaError where records of the schema `wanted` have a field that `known` does not have."""
    fields = () if watch is None else lacking(known.fields, wanted.fields, watch)
    if fields:
        raise new_schema_error(fields, where)


def has_new_fields(found: pa.DataType, asked: pa.DataType, is_known: Callable[[str], bool]) -> bool:
    """Whether Arrow's reader found values in fields not requested; `is_known` is for top-level names."""
    if pa.types.is_struct(found) and pa.types.is_struct(asked):
        types = {part.name: part.type for part in asked}
        return any(
            has_new_fields(part.type, types[part.name], _none)
            if part.name in types
            else not is_known(part.name) and _holds_values(part.type)
            for part in found
        )
    if pa.types.is_list(found) and pa.types.is_list(asked):
        return has_new_fields(found.value_type, asked.value_type, _none)
    return False


def _none(_: str) -> bool:
    return False


def _holds_values(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_holds_values(part.type) for part in arrow_parts(type_))
    return not pa.types.is_null(type_)


def is_value(found: Any) -> bool:
    """Whether a parsed JSON value shows a type: it is not null, and not made of nulls only."""
    if isinstance(found, dict):
        return any(is_value(part) for part in found.values())
    if isinstance(found, list):
        return any(is_value(part) for part in found)
    return found is not None


def unknown_part(found: dict[str, Any], known: Sequence[NestedField], watch: Watch) -> dict[str, Any]:
    """The values of a parsed JSON object that have no field, inside of their objects and arrays.

    Values that show no type are left out.

    For a map, these are parts of its values, in an array.
    """
    types = {part.name: part.type for part in known}
    parts = {
        name: _unknown_of(value, types[name]) if name in types else value
        for name, value in found.items()
        if not watch.is_taken(name)
    }
    return {name: part for name, part in parts.items() if is_value(part)}


def _unknown_of(value: Any, type_: IcebergType) -> Any:
    if isinstance(type_, StructType) and isinstance(value, dict):
        return unknown_part(value, type_.fields, Watch())
    if isinstance(type_, ListType) and isinstance(value, list):
        return [part for part in (_unknown_of(item, type_.element_type) for item in value) if is_value(part)]
    if isinstance(type_, MapType):
        parts = [_unknown_of(item, type_.value_type) for item in map_values(value)]
        return [part for part in parts if is_value(part)]
    return None


def map_values(found: Any) -> list[Any]:
    """The values of a map in parsed JSON: those of an object, or of an array of {"key", "value"}."""
    if isinstance(found, dict):
        return list(found.values())
    entries = found if isinstance(found, list) else ()
    return [entry.get("value") for entry in entries if isinstance(entry, dict)]


def watching(watch: Watch | None, path: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of JsonColumns for a watch on the object at a path."""
    return {} if watch is None else {"watched": path, "known": watch.is_taken}


class WatchingDecoder:
    """A decoder that requests the columns that its records need.

    `watched` raises NewFieldsError, `plain` decodes the same records without a watch. For a batch, `wanted`
    gives the fields that have no column, and `outgrown` the columns that its values are too large for.
    """

    def __init__(
        self,
        watched: Decoder,
        plain: Callable[[], Decoder],
        wanted: Callable[[pa.RecordBatch], Sequence[NestedField]],
        outgrown: Callable[[pa.RecordBatch], Sequence[NestedField]],
        limits: RecordLimits,
    ) -> None:
        self.schema = watched.schema
        self._watched = watched
        self._plain = plain
        self._wanted = wanted
        self._outgrown = outgrown
        self._limits = limits

    def decode(self, raw: pa.RecordBatch, *, keep_rejects: bool = False) -> Decoded:
        """See Decoder. Raises NewSchemaError."""
        with self._limits.applied():
            return self._decoded(raw, keep_rejects)

    def _decoded(self, raw: pa.RecordBatch, keep_rejects: bool) -> Decoded:
        try:
            decoded = self._watched.decode(raw, keep_rejects=keep_rejects)
        except NewFieldsError:
            _ask_for(self._wanted(raw), raw)
            return self._plain().decode(raw, keep_rejects=keep_rejects)
        except DecodeError:
            _ask_for(self._outgrown(raw), raw)
            raise
        if decoded.rejects:
            damaged = raw.take(pa.array([reject.record for reject in decoded.rejects]))
            _ask_for(self._outgrown(damaged), damaged)
        return decoded


def _ask_for(fields: Sequence[NestedField], raw: pa.RecordBatch) -> None:
    if fields:
        topic, partition, offset = (raw.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
        raise new_schema_error(fields, f"{topic}-{partition} from offset {offset} on")
