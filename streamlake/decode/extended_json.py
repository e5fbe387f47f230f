"""MongoDB's documents in Extended JSON: {"$oid": ...}, {"$numberLong": ...}, {"$date": ...} and plain values.

Readings in the sense of `readings`, for the images of Debezium's MongoDB connector. A field's value may be wrapped in
one record and plain in the next; what is read in bulk is the form that samples show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamlake.decode.json_values import RESOLUTION_NANOS, mismatch
from streamlake.decode.nested_readings import ListOf, StructOf
from streamlake.decode.readings import ByForm, Epoch, Plain, Reading, form_of, one_field
from streamlake.decode.text_columns import NotBulkError
from streamlake.decode.text_readings import Digits, TextReal, TextWhole
from streamlake.spec.schema import Schema
from streamlake.spec.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    StructType,
    UUIDType,
)

_MILLIS = 1_000_000


@dataclass(frozen=True)
class Wrapped:
    """A plain value, or an object with one of the names of `wrappers` around it; `name` is read in bulk (None: plain)."""

    plain: Reading
    wrappers: Mapping[str, Reading]
    name: str | None

    @property
    def type(self) -> IcebergType:
        return self.plain.type

    @property
    def physical(self) -> IcebergType:
        return (
            self.plain.physical
            if self.name is None
            else one_field(self.name, self.wrappers[self.name].physical)
        )

    def column(self, array: pa.Array) -> pa.Array:
        if self.name is None:
            return self.plain.column(array)
        inner = array.field(0)
        if inner.null_count > array.null_count:
            raise NotBulkError
        return self.wrappers[self.name].column(inner)

    def value(self, found: Any, path: str) -> Any:
        name = wrapper_of(found)
        if name is None:
            return self.plain.value(found, path)
        if name not in self.wrappers:
            raise mismatch(path, self.type, found, f"'{name}' does not fit")
        value = self.wrappers[name].value(found[name], path)
        if value is None:
            raise mismatch(path, self.type, found, f"'{name}' is null")
        return value


def wrapper_of(found: Any) -> str | None:
    """The name of the wrapper around a value ("$oid"), or None."""
    if not isinstance(found, dict) or len(found) != 1:
        return None
    (name,) = found
    return str(name) if name.startswith("$") else None


def document_readings(schema: Schema, samples: Sequence[Mapping[str, Any]]) -> Mapping[str, Reading]:
    """Readings for documents; `samples` are some of them."""
    return {
        part.name: _reading(part.type, [document.get(part.name) for document in samples])
        for part in schema.fields
    }


def _reading(type_: IcebergType, samples: Sequence[Any]) -> Reading:
    present = [found for found in samples if found is not None]
    if isinstance(type_, StructType):
        inner = [found for found in present if isinstance(found, dict)]
        return StructOf(type_, document_readings(Schema(type_.fields), inner))
    if isinstance(type_, ListType):
        elements = [item for found in present if isinstance(found, list) for item in found]
        return ListOf(type_, _reading(type_.element_type, elements))
    wrappers = _wrappers(type_, present)
    name = next((wrapper_of(found) for found in present), None)
    return Wrapped(Plain(type_), wrappers, name if name in wrappers else None)


def _wrappers(type_: IcebergType, samples: Sequence[Any]) -> Mapping[str, Reading]:
    if isinstance(type_, StringType):
        return {"$oid": Plain(type_), "$symbol": Plain(type_)}
    if isinstance(type_, (IntegerType, LongType)):
        return {"$numberLong": TextWhole(type_), "$numberInt": TextWhole(type_)}
    if isinstance(type_, (FloatType, DoubleType)):
        return {"$numberDouble": TextReal(type_)}
    if isinstance(type_, DecimalType):
        return {"$numberDecimal": Plain(type_), "$numberLong": Plain(type_), "$numberInt": Plain(type_)}
    if isinstance(type_, UUIDType):
        return {"$uuid": Plain(type_)}
    if isinstance(type_, (BinaryType, FixedType)):
        return {"$binary": StructPart("base64", Plain(type_))}
    if type(type_) in RESOLUTION_NANOS:
        number = Epoch(type_, _MILLIS)
        forms: dict[str, Reading] = {
            "number": number,
            "text": Plain(type_),
            "object": Wrapped(number, {"$numberLong": Digits(number)}, "$numberLong"),
        }
        dates = [found["$date"] for found in samples if wrapper_of(found) == "$date"]
        return {"$date": ByForm(type_, forms, next((form_of(found) for found in dates), "number"))}
    return {}


@dataclass(frozen=True)
class StructPart:
    """One part of an object; the others are left."""

    name: str
    part: Reading

    @property
    def type(self) -> IcebergType:
        return self.part.type

    @property
    def physical(self) -> IcebergType:
        return one_field(self.name, self.part.physical)

    def column(self, array: pa.Array) -> pa.Array:
        inner = array.field(0)
        if inner.null_count > array.null_count:
            raise NotBulkError
        return self.part.column(inner)

    def value(self, found: Any, path: str) -> Any:
        if not isinstance(found, dict) or found.get(self.name) is None:
            raise mismatch(path, self.type, found, f"an object with '{self.name}' is needed")
        return self.part.value(found[self.name], path)
