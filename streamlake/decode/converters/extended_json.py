"""Converters of MongoDB's Extended JSON: {"$oid": ...}, {"$date": ...} and the like, and plain values.

Debezium writes version 1 of it (the driver's JsonMode.STRICT); version 2 is read as well.

For the images of Debezium's MongoDB connector. A field's value may be wrapped in one record and plain in the
next. The form that samples show is read in bulk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.converters.converter import ByForm, Converter, Epoch, Leaf, Plain, form_of, one_field
from streamlake.decode.converters.nested_converters import ListOf, StructOf
from streamlake.decode.converters.text_converters import Digits, TextReal, TextWhole
from streamlake.decode.json.json_values import RESOLUTION_NANOS, mismatch
from streamlake.decode.values import text_values
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema

_MILLIS = 1_000_000
_BINARY, _TYPE, _BASE64, _SUBTYPE = "$binary", "$type", "base64", "subType"
_UUIDS = frozenset({"04", "4"})
"""The subtype of UUIDs. Older drivers use 03, with the bytes in an order that the driver chose."""
_STRING = StringType()
_UUID_BYTES = 16


@dataclass(frozen=True)
class Wrapped:
    """A value, plain or in an object with a name of `wrappers`; `name` is read in bulk (None: plain)."""

    plain: Converter
    wrappers: Mapping[str, Converter]
    name: str | None

    @property
    def type(self) -> IcebergType:
        """The column's type."""
        return self.plain.type

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        if self.name is None:
            return self.plain.physical
        wrapper = self.wrappers[self.name]
        return wrapper.physical if isinstance(wrapper, Binary) else one_field(self.name, wrapper.physical)

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        if self.name is None:
            return self.plain.column(array)
        wrapper = self.wrappers[self.name]
        if isinstance(wrapper, Binary):
            return wrapper.column(array)
        inner = array.field(0)
        if inner.null_count > array.null_count:
            raise NotBulkError
        return wrapper.column(inner)

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
        name = wrapper_of(found)
        if name is None:
            return self.plain.value(found, path)
        if name not in self.wrappers:
            raise mismatch(path, self.type, found, f"'{name}' does not fit")
        wrapper = self.wrappers[name]
        value = wrapper.value(found if isinstance(wrapper, Binary) else found[name], path)
        if value is None:
            raise mismatch(path, self.type, found, f"'{name}' is null")
        return value


def wrapper_of(found: Any) -> str | None:
    """The name of the wrapper around a value ("$oid"), or None."""
    if not isinstance(found, dict):
        return None
    if found.keys() == {_BINARY, _TYPE}:
        return _BINARY
    if len(found) != 1:
        return None
    (name,) = found
    return str(name) if name.startswith("$") else None


def document_converters(schema: Schema, samples: Sequence[Mapping[str, Any]]) -> Mapping[str, Converter]:
    """The converters for documents; `samples` are some of them."""
    return {
        part.name: _converter(part.type, [document.get(part.name) for document in samples])
        for part in schema.fields
    }


def _converter(type_: IcebergType, samples: Sequence[Any]) -> Converter:
    present = [found for found in samples if found is not None]
    if isinstance(type_, StructType):
        inner = [found for found in present if isinstance(found, dict)]
        return StructOf(type_, document_converters(Schema(type_.fields), inner))
    if isinstance(type_, ListType):
        elements = [item for found in present if isinstance(found, list) for item in found]
        return ListOf(type_, _converter(type_.element_type, elements))
    wrappers = _wrappers(type_, present)
    name = next((wrapper_of(found) for found in present), None)
    return Wrapped(Plain(type_), wrappers, name if name in wrappers else None)


def _wrappers(type_: IcebergType, samples: Sequence[Any]) -> Mapping[str, Converter]:
    if isinstance(type_, StringType):
        return {"$oid": Plain(type_), "$symbol": Plain(type_)}
    if isinstance(type_, (IntegerType, LongType)):
        return {"$numberLong": TextWhole(type_), "$numberInt": TextWhole(type_)}
    if isinstance(type_, (FloatType, DoubleType)):
        whole = WholeReal(type_)
        return {"$numberDouble": TextReal(type_), "$numberLong": whole, "$numberInt": whole}
    if isinstance(type_, DecimalType):
        return {"$numberDecimal": Plain(type_), "$numberLong": Plain(type_), "$numberInt": Plain(type_)}
    if isinstance(type_, UUIDType):
        return {"$uuid": Plain(type_), _BINARY: _binary(type_, samples)}
    if isinstance(type_, (BinaryType, FixedType)):
        return {_BINARY: _binary(type_, samples)}
    if type(type_) in RESOLUTION_NANOS:
        number = Epoch(type_, _MILLIS)
        forms: dict[str, Converter] = {
            "number": number,
            "text": Plain(type_),
            "object": Wrapped(number, {"$numberLong": Digits(number)}, "$numberLong"),
        }
        dates = [found["$date"] for found in samples if wrapper_of(found) == "$date"]
        return {"$date": ByForm(type_, forms, next((form_of(found) for found in dates), "number"))}
    return {}


def _binary(type_: IcebergType, samples: Sequence[Any]) -> Binary:
    shown = [found[_BINARY] for found in samples if wrapper_of(found) == _BINARY]
    return Binary(type_, is_flat=not shown or isinstance(shown[0], str))


@dataclass(frozen=True)
class Binary(Leaf):
    """Binary values of both versions of Extended JSON.

    Version 1 has {"$binary": base64, "$type": "00"}, version 2 {"$binary": {"base64": ..., "subType": "00"}}.

    `is_flat`: the first form is read in bulk. A column of UUIDs takes only UUIDs.
    """

    type: IcebergType
    is_flat: bool

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        names = (_BINARY, _TYPE) if self.is_flat else (_BASE64, _SUBTYPE)
        bytes_ = FixedType(_UUID_BYTES) if isinstance(self.type, UUIDType) else self.type
        parts = StructType((NestedField(0, names[0], bytes_), NestedField(0, names[1], _STRING)))
        return parts if self.is_flat else one_field(_BINARY, parts)

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        parts = array if self.is_flat else array.field(0)
        data, subtypes = parts.field(0), parts.field(1)
        if parts.null_count > array.null_count or data.null_count > array.null_count:
            raise NotBulkError
        if isinstance(self.type, UUIDType):
            known = pc.is_in(subtypes, pa.array(list(_UUIDS)))
            if not pc.all(pc.or_(known, data.is_null()), min_count=0).as_py():
                raise NotBulkError
        return data

    def _value(self, found: Any) -> bytes:
        data: Any = found[_BINARY]
        subtype = found.get(_TYPE)
        if isinstance(data, dict):
            data, subtype = data.get(_BASE64), data.get(_SUBTYPE)
        if not isinstance(data, str):
            raise ValueError("an object with its bytes in base64 is needed")
        length = self.type.length if isinstance(self.type, FixedType) else None
        if isinstance(self.type, UUIDType):
            if subtype not in _UUIDS:
                raise ValueError(f"binary data of the subtype {subtype!r} is not a UUID, which has '04'")
            length = _UUID_BYTES
        return text_values.base64_bytes(data, length)


@dataclass(frozen=True)
class WholeReal(Leaf):
    """Digits of a whole number as a float or a double that is exactly that number."""

    type: IcebergType
    physical: IcebergType = _STRING

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        try:
            return TextWhole(LongType()).column(array).cast(arrow_type(self.type))
        except pa.ArrowInvalid as error:
            raise NotBulkError from error

    def _value(self, found: Any) -> float:
        whole = TextWhole(LongType())._value(found)
        real = float(np.float32(whole)) if isinstance(self.type, FloatType) else float(whole)
        if int(real) != whole:
            raise ValueError(f"it has more digits than {self.type} holds")
        return real
