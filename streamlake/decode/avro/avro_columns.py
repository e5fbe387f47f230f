"""Avro values to the columns that change events ask for, in bulk: the counterpart of `json_columns`.

Used for change events in bulk. Avro's plan reads each part as it is encoded, or directly as its column's type
where both mean the same. Text becomes timestamps, decimals or bytes here, as it does in JSON. Invariant: a
column holds what the record-by-record path would give, or NotBulkError is raised. Nulls become nulls of any
type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.avro.avro_connect import value_type
from streamlake.decode.avro.avro_decoder import AvroDecoder, Payloads
from streamlake.decode.avro.avro_schema import AvroArray, AvroField, AvroFixed, AvroMap, AvroRecord, AvroType
from streamlake.decode.json.json_values import RESOLUTION_NANOS
from streamlake.decode.values import text_columns
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema

Step = Callable[[pa.Array], pa.Array]
"""From the stored column to the requested one; None where they are the same."""

_AS_IT_IS: dict[str, tuple[type[IcebergType], ...]] = {
    "boolean": (BooleanType,),
    "int": (IntegerType, LongType),
    "long": (IntegerType, LongType),
    "float": (FloatType, DoubleType),
    "double": (DoubleType,),
    "string": (StringType, UUIDType),
    "enum": (StringType,),
    "bytes": (BinaryType, FixedType),
    "fixed": (BinaryType,),
}
"""The column types that Avro's plan reads directly, whatever the logical type is."""
_PLAIN: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "enum": StringType(),
    "bytes": BinaryType(),
}
_EXACT_NUMBERS = (DecimalType, FloatType, DoubleType)


class AvroColumns:
    """Reads records of `writer` into the optional columns `fields`; `where` names the writer's schema.

    Raises SchemaMismatchError for fields that the plan refuses, and ValueError for a writer's schema that
    Kafka Connect does not have.
    """

    def __init__(self, writer: AvroRecord, fields: Sequence[NestedField], where: str) -> None:
        stored, self._steps = _parts(writer, fields)
        self._decoder = AvroDecoder(Schema(stored), writer, where=where)

    def read(self, payloads: Payloads) -> list[pa.Array]:
        """One array per field, (n,) each. Raises NotBulkError."""
        arrays = self._decoder.whole(payloads)
        return [
            array if step is None else step(array) for array, step in zip(arrays, self._steps, strict=True)
        ]


def _parts(
    writer: AvroRecord, fields: Sequence[NestedField]
) -> tuple[tuple[NestedField, ...], list[Step | None]]:
    stored, steps = [], []
    for part in fields:
        written: AvroField | None = writer.field(part.name)
        # A field that the writer does not have is null.
        type_, step = (part.type, None) if written is None else _part(written.type, part.type)
        stored.append(NestedField(0, part.name, type_))
        steps.append(step)
    return tuple(stored), steps


def _part(writer: AvroType, wanted: IcebergType) -> tuple[IcebergType, Step | None]:
    """The type that the plan reads, and the step from there to `wanted`."""
    writer, _ = value_type(writer)
    if isinstance(writer, AvroRecord) and isinstance(wanted, StructType):
        fields, steps = _parts(writer, wanted.fields)
        same = all(step is None for step in steps)
        return StructType(fields), None if same else lambda array: _struct(array, wanted, steps)
    if isinstance(writer, AvroArray) and isinstance(wanted, ListType):
        element, inner = _part(writer.items, wanted.element_type)
        return ListType(0, element), None if inner is None else lambda array: _list(array, wanted, inner)
    if isinstance(writer, AvroMap) and isinstance(wanted, MapType):
        value, of_value = _part(writer.values, wanted.value_type)
        if of_value is None and isinstance(wanted.key_type, StringType):
            return MapType(0, StringType(), 0, value), None
    elif isinstance(wanted, _AS_IT_IS.get(writer.kind, ())) or (
        writer.kind in ("int", "long") and writer.logical is None and isinstance(wanted, _EXACT_NUMBERS)
    ):
        return wanted, None
    if writer.kind in ("string", "enum"):
        return StringType(), lambda array: _of_text(array, wanted)
    if writer.kind == "double" and isinstance(wanted, DecimalType):
        return DoubleType(), lambda array: _of_text(array.cast(pa.string()), wanted)
    return _plain_type(writer), lambda array: _nothing(array, wanted)


def _plain_type(writer: AvroType) -> IcebergType:
    """The type that holds values as they are encoded, all parts optional."""
    writer, _ = value_type(writer)
    if isinstance(writer, AvroRecord):
        return StructType(tuple(NestedField(0, part.name, _plain_type(part.type)) for part in writer.fields))
    if isinstance(writer, AvroArray):
        return ListType(0, _plain_type(writer.items))
    if isinstance(writer, AvroMap):
        return MapType(0, StringType(), 0, _plain_type(writer.values))
    return FixedType(writer.size) if isinstance(writer, AvroFixed) else _PLAIN[writer.kind]


def _struct(array: pa.Array, wanted: StructType, steps: Sequence[Step | None]) -> pa.Array:
    parts = [array.field(at) if step is None else step(array.field(at)) for at, step in enumerate(steps)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(wanted)), mask=mask)


def _list(array: pa.Array, wanted: ListType, step: Step) -> pa.Array:
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets: Any = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(
        pa.array(offsets), step(array.flatten()), type=arrow_type(wanted), mask=mask
    )


def _of_text(text: pa.Array, wanted: IcebergType) -> pa.Array:
    if isinstance(wanted, DateType):
        return text_columns.dates(text)
    if isinstance(wanted, TimeType):
        return text_columns.times(text)
    if isinstance(wanted, (BinaryType, FixedType)):
        return text_columns.base64_values(text, wanted.length if isinstance(wanted, FixedType) else None)
    try:
        if isinstance(wanted, DecimalType):
            return text_columns.decimals(text, arrow_type(wanted))
        if type(wanted) in RESOLUTION_NANOS:
            if isinstance(wanted, (TimestampType, TimestampNsType)):
                text = pc.if_else(pc.ends_with(text, "Z"), pc.utf8_slice_codeunits(text, 0, -1), text)
            return text.cast(arrow_type(wanted))
    except pa.ArrowInvalid as error:
        raise NotBulkError from error
    return _nothing(text, wanted)


def _nothing(array: pa.Array, wanted: IcebergType) -> pa.Array:
    """A column of nulls only. Values are left to the record-by-record path."""
    if array.null_count < len(array):
        raise NotBulkError
    return pa.nulls(len(array), arrow_type(wanted))


def avro_columns(writer: AvroRecord, fields: Sequence[NestedField], where: str) -> AvroColumns:
    """The reader of these columns. Raises NotBulkError where the class raises another error.

    The record-by-record path then reports what is wrong.
    """
    try:
        return AvroColumns(writer, fields, where)
    except (SchemaMismatchError, ValueError) as error:
        raise NotBulkError from error
