"""Schema inference from a sample of JSON records.

Runs on the driver, once, when neither the user nor a table defines the columns. Types are chosen so that
every record of the sample fits exactly. Where the sample contradicts itself, the user is asked for a schema.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import count
from typing import Any

from streamlake.decode.json.json_values import parse_object
from streamlake.decode.values import text_values
from streamlake.errors import DecodeError
from streamlake.spec.types.data_types import (
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from streamlake.spec.types.schema import Schema, fresh_schema

_LOG = logging.getLogger(__name__)
_Ids = Iterator[int]
_OfTexts = Callable[[list[str]], IcebergType]


def infer_schema(values: Iterable[bytes], *, texts_are_text: bool = False) -> Schema:
    """An Iceberg schema, all columns optional, in the order in which the sample first shows them.

    Types are boolean, long (double where some values have a fraction), string, struct and list. Texts become
    date, timestamp or timestamptz where every text of the sample is one, unless `texts_are_text`. A field
    that is always null becomes string. Raises DecodeError when a value is not a JSON object, or when a field
    has types that do not go together.
    """
    merged: dict[str, list[Any]] = {}
    seen = 0
    for value in values:
        try:
            found = parse_object(value)
        except ValueError as error:
            raise DecodeError(
                f"no schema can be inferred, because a record cannot be read: {error}: {value[:200]!r}"
            ) from error
        seen += 1
        for name, part in found.items():
            merged.setdefault(name, []).append(part)
    if not merged:
        raise DecodeError(
            f"no schema can be inferred from {seen} records without fields; pass schema='id long, ...'"
        )
    ids = count(1)
    text = _any_text if texts_are_text else _text
    return fresh_schema(Schema(_fields(merged, "", ids, text)))


def _fields(merged: dict[str, list[Any]], prefix: str, ids: _Ids, text: _OfTexts) -> tuple[NestedField, ...]:
    return tuple(
        NestedField(next(ids), name, _type(values, f"{prefix}{name}", ids, text))
        for name, values in merged.items()
    )


def _type(values: list[Any], path: str, ids: _Ids, text: _OfTexts) -> IcebergType:
    present = [value for value in values if value is not None]
    kinds = {_kind(value) for value in present}
    if not kinds:
        _LOG.warning(
            "field '%s' is null in the whole sample: taken as string; pass a schema if it is not", path
        )
        return StringType()
    if kinds == {"number", "fraction"}:
        kinds = {"fraction"}
    if len(kinds) > 1:
        raise DecodeError(
            f"no schema can be inferred: field '{path}' holds {' and '.join(sorted(kinds))}; pass a schema "
            "without it"
        )
    kind = kinds.pop()
    if kind == "object":
        inner: dict[str, list[Any]] = {}
        for value in present:
            for name, part in value.items():
                inner.setdefault(name, []).append(part)
        if not inner:
            raise DecodeError(
                f"no schema can be inferred: field '{path}' is an object without fields; pass a schema"
            )
        return StructType(_fields(inner, f"{path}.", ids, text))
    if kind == "array":
        elements = [item for value in present for item in value]
        return ListType(next(ids), _type(elements, f"{path}.element", ids, text))
    if kind == "text":
        return text(present)
    return {"boolean": BooleanType(), "number": LongType(), "fraction": DoubleType()}[kind]


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        # A number beyond a long's range is not treated as a whole number.
        return "number" if -(1 << 63) <= value < 1 << 63 else "fraction"
    if isinstance(value, (Decimal, float)):
        return "fraction"
    return "text" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _text(values: list[str]) -> IcebergType:
    """Date or timestamp where every text is one; else string."""
    if all(_accepts(text_values.days, value) for value in values):
        return DateType()
    if all(len(value) > 10 and _accepts(text_values.timestamp_micros, value) for value in values):
        zoned = sum(text_values.has_zone(value) for value in values)
        if zoned == len(values):
            return TimestamptzType()
        if zoned == 0:
            return TimestampType()
    return StringType()


def _any_text(_: list[str]) -> IcebergType:
    return StringType()


def _accepts(read: Any, text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True
