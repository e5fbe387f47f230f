"""Choice of the converter for a column of Debezium's rows: by the record's schema, else by the target's type.

A schema says everything. Without one, three things decide together: the target's type, the form of the JSON
value, and the connector's settings (`debezium.*`). Where they leave two meanings open, the value is refused
(a number in a timestamp column may count milli-, micro- or nanoseconds). Invariant: no conversion loses
anything, unless `debezium.lossy-conversion` allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamlake.decode.cdc.debezium.debezium_options import ALLOW, REJECT, DebeziumOptions
from streamlake.decode.converters.converter import (
    ByForm,
    Converter,
    Days,
    Epoch,
    Hex,
    Plain,
    Refused,
    Single,
    TimeOfDay,
    WellKnownBinary,
    Zulu,
    form_of,
)
from streamlake.decode.converters.decimal_converters import Unscaled, VariableScale
from streamlake.decode.converters.lossy_converters import lossy
from streamlake.decode.converters.nested_converters import ListOf, MapOf, StructOf
from streamlake.decode.json.json_values import RESOLUTION_NANOS
from streamlake.decode.values.connect_schema import DECIMAL, GEOMETRIES, VARIABLE_SCALE, ConnectSchema
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
    StringType,
    StructType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.schema import Schema

_TIME_NANOS = {
    "io.debezium.time.Time": 1_000_000,
    "org.apache.kafka.connect.data.Time": 1_000_000,
    "io.debezium.time.MicroTime": 1_000,
    "io.debezium.time.NanoTime": 1,
}
_TIMESTAMP_NANOS = {
    "io.debezium.time.Timestamp": 1_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1,
}
_DATES = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
_TEMPORAL: tuple[type[IcebergType], ...] = (DateType, TimeType, *RESOLUTION_NANOS)
_WIDER: dict[str, tuple[type[IcebergType], ...]] = {
    "boolean": (BooleanType,),
    "int8": (IntegerType, LongType, FloatType, DoubleType, DecimalType),
    "int16": (IntegerType, LongType, FloatType, DoubleType, DecimalType),
    "int32": (IntegerType, LongType, DoubleType, DecimalType),
    "int64": (IntegerType, LongType, DecimalType),
    "float": (FloatType, DoubleType),
    "float32": (FloatType, DoubleType),
    "double": (DoubleType, DecimalType),
    "float64": (DoubleType, DecimalType),
    "string": (StringType, DecimalType, UUIDType, *_TEMPORAL),
    "bytes": (BinaryType, FixedType),
}
"""Connect type -> column types that hold its values, or refuse the single values that do not fit."""
_LOSSY: dict[str, tuple[type[IcebergType], ...]] = {
    "int32": (FloatType,),
    "int64": (FloatType, DoubleType),
    "double": (FloatType,),
    "float64": (FloatType,),
}
"""Connect type -> column types that hold its values approximately."""


def converters_by_schema(
    schema: Schema, connect: ConnectSchema, options: DebeziumOptions
) -> Mapping[str, Converter]:
    """The converters of the target's columns that the record's row schema has; others have none."""
    return {
        part.name: converter_by_schema(part.type, connect.fields[part.name], options)
        for part in schema.fields
        if part.name in connect.fields
    }


def converter_by_schema(type_: IcebergType, connect: ConnectSchema, options: DebeziumOptions) -> Converter:
    """The converter of values of `connect` for a column of `type_`."""
    converter = _exact_by_schema(type_, connect, options)
    if options.lossy_conversion == REJECT:
        return converter
    if isinstance(type_, _LOSSY.get(connect.type, ())) and not connect.name:
        return Plain(type_)
    return lossy(converter)


def _exact_by_schema(type_: IcebergType, connect: ConnectSchema, options: DebeziumOptions) -> Converter:
    name = connect.name or ""
    if name in (DECIMAL, VARIABLE_SCALE):
        if not isinstance(type_, (DecimalType, StringType)):
            return _refused(type_, connect)
        return Unscaled(type_, connect.scale) if name == DECIMAL else VariableScale(type_)
    if name in GEOMETRIES and isinstance(type_, BinaryType):
        return WellKnownBinary(type_)
    if name in _DATES and isinstance(type_, DateType):
        return Days()
    if name in _TIME_NANOS and isinstance(type_, TimeType):
        return TimeOfDay(_TIME_NANOS[name])
    if name in _TIMESTAMP_NANOS and type(type_) in RESOLUTION_NANOS:
        return Epoch(type_, _TIMESTAMP_NANOS[name])
    nested = _nested_by_schema(type_, connect, options)
    if nested is not None:
        return nested
    if connect.type == "string" and isinstance(type_, (DateType, TimeType)):
        return Zulu(type_)
    if connect.type == "string" and isinstance(type_, (BinaryType, FixedType)):
        return _binary_text(type_, options)
    if connect.type in ("float", "float32") and isinstance(type_, DoubleType):
        return Single()
    return Plain(type_) if isinstance(type_, _WIDER.get(connect.type, ())) else _refused(type_, connect)


def _nested_by_schema(
    type_: IcebergType, connect: ConnectSchema, options: DebeziumOptions
) -> Converter | None:
    if connect.type == "struct" and isinstance(type_, StructType):
        return StructOf(type_, converters_by_schema(Schema(type_.fields), connect, options))
    if connect.items is None:
        return None
    if connect.keys is None and isinstance(type_, ListType):
        return ListOf(type_, converter_by_schema(type_.element_type, connect.items, options))
    if connect.keys is not None and isinstance(type_, MapType):
        return MapOf(
            type_,
            converter_by_schema(type_.key_type, connect.keys, options),
            converter_by_schema(type_.value_type, connect.items, options),
        )
    return None


def converters_by_options(
    schema: Schema, samples: Sequence[Mapping[str, Any]], options: DebeziumOptions
) -> Mapping[str, Converter]:
    """The converters for rows without a schema; `samples` are JSON rows that show the forms of values."""
    return {
        part.name: converter_by_options(part.type, [row.get(part.name) for row in samples], options)
        for part in schema.fields
    }


def converter_by_options(type_: IcebergType, samples: Sequence[Any], options: DebeziumOptions) -> Converter:
    """The converter of a column of `type_` without a schema; `samples` are JSON values."""
    present = [
        found for found in samples if found is not None and found != options.unavailable_value_placeholder
    ]
    if isinstance(type_, StructType):
        inner = [found for found in present if isinstance(found, dict)]
        return StructOf(type_, converters_by_options(Schema(type_.fields), inner, options))
    if isinstance(type_, ListType):
        elements = [item for found in present if isinstance(found, list) for item in found]
        return ListOf(type_, converter_by_options(type_.element_type, elements, options))
    if isinstance(type_, MapType):
        return MapOf(type_, Plain(type_.key_type), converter_by_options(type_.value_type, [], options))
    forms = _forms(type_, options)
    if forms is None:
        return Plain(type_)
    if options.lossy_conversion == ALLOW:
        forms = {form: lossy(converter) for form, converter in forms.items()}
    form = next((form_of(found) for found in present if form_of(found) in forms), next(iter(forms)))
    return ByForm(type_, forms, form)


def needs_samples(type_: IcebergType) -> bool:
    """Whether the form of the values decides how a column of `type_` is read."""
    if isinstance(type_, StructType):
        return any(needs_samples(part.type) for part in type_.fields)
    if isinstance(type_, ListType):
        return needs_samples(type_.element_type)
    return isinstance(type_, (DecimalType, BinaryType, StringType, *_TEMPORAL))


def _forms(type_: IcebergType, options: DebeziumOptions) -> Mapping[str, Converter] | None:
    """The converters by form, the usual form first; None for types that have one form only."""
    if isinstance(type_, DecimalType):
        precise = options.decimal_handling_mode == "precise"
        text: Converter = Unscaled(type_, type_.scale) if precise else Plain(type_)
        return {"text": text, "number": Plain(type_), "object": VariableScale(type_)}
    if isinstance(type_, StringType):
        return {"text": Plain(type_), "object": VariableScale(type_)}
    if isinstance(type_, BinaryType):
        return {"text": _binary_text(type_, options), "object": WellKnownBinary(type_)}
    if isinstance(type_, DateType):
        return {"number": Days(), "text": Zulu(type_)}
    if isinstance(type_, TimeType):
        unit = options.time_nanos
        number: Converter = _unclear(type_) if unit is None else TimeOfDay(unit)
        return {"number": number, "text": Zulu(type_)}
    if type(type_) in RESOLUTION_NANOS:
        unit = options.timestamp_nanos
        if unit is None:
            return {"text": Plain(type_), "number": _unclear(type_)}
        if isinstance(type_, (TimestamptzType, TimestamptzNsType)):
            return {"text": Plain(type_), "number": Epoch(type_, unit)}
        return {"number": Epoch(type_, unit), "text": Plain(type_)}
    return None


def _binary_text(type_: IcebergType, options: DebeziumOptions) -> Converter:
    return Hex(type_) if options.binary_handling_mode == "hex" else Plain(type_)


def _unclear(type_: IcebergType) -> Converter:
    return Refused(
        type_,
        "a number can be milli-, micro- or nanoseconds: let the connector send schemas, or set "
        "debezium.time-precision-mode to what the connector has (microseconds, nanoseconds, connect)",
    )


def _refused(type_: IcebergType, connect: ConnectSchema) -> Converter:
    return Refused(type_, f"the record's schema says {connect.name or connect.type}, which does not fit")
