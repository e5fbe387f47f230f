"""Key types with values that are easily confused, and a plain model of when two keys are equal."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

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
    LongType,
    NestedField,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_TEXTS = ["", "a", "b", "aa", "a\x00", "\x00", "ab", "a\x00\x00b", "é", "\U0001f600", "x" * 31, "x" * 32]
_TEXTS += ["x" * 33, "y" * 64, "y" * 65, "key-0123456789-abcdefghijklmnopqrstuvwxyz-" * 5]
_BYTES = [b"\xff", b"\xff\xff", b"\xff\xff\xff", b"\xfe", b"\xffa", *(text.encode() for text in _TEXTS)]
_LONGS = [0, 1, -1, 42, 255, 256, 2**31, -(2**31), 2**63 - 1, -(2**63)]
_MICROS = [0, 1, -1, 1_700_000_000_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999]

VALUES: dict[IcebergType, list[Any]] = {
    BooleanType(): [True, False],
    IntegerType(): [0, 1, -1, 42, 2**31 - 1, -(2**31)],
    LongType(): _LONGS,
    FloatType(): [0.0, -0.0, 1.5, -1.5, math.nan, -math.nan, math.inf, -math.inf, 1.401298464324817e-45],
    DoubleType(): [0.0, -0.0, 0.1, -0.1, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1e308],
    DecimalType(9, 2): [decimal.Decimal(text) for text in ("0.00", "1.00", "-1.00", "9999999.99", "-0.01")],
    DecimalType(18, 0): [decimal.Decimal(n) for n in (0, 1, -1, 10**18 - 1, 1 - 10**18)],
    DecimalType(19, 3): [decimal.Decimal(n).scaleb(-3) for n in (0, 1, -1, 127, 128, -128, -129, 10**18)],
    DecimalType(38, 10): [
        decimal.Decimal(n).scaleb(-10, decimal.Context(prec=40)) for n in (0, -1, 2**64, -(2**64), 10**37)
    ],
    DateType(): [datetime.date(1970, 1, 1), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    TimeType(): [0, 1, 86_399_999_999],
    TimestampType(): _MICROS,
    TimestamptzType(): _MICROS,
    TimestampNsType(): _LONGS,
    TimestamptzNsType(): _LONGS,
    StringType(): _TEXTS,
    UUIDType(): [bytes(16), b"\xff" * 16, bytes(range(16))],
    FixedType(5): [bytes(5), b"\xff" * 5, b"abcde"],
    FixedType(8): [bytes(8), b"\xff" * 8, b"abcdefgh"],
    BinaryType(): _BYTES,
}


def fields_of(types: Sequence[IcebergType]) -> tuple[NestedField, ...]:
    """One optional field per type, c1, c2, ..."""
    return tuple(NestedField(at, f"c{at}", type_) for at, type_ in enumerate(types, 1))


def columns_of(types: Sequence[IcebergType], rows: Sequence[Sequence[Any]]) -> list[pa.Array]:
    """The rows as one Arrow column per type."""
    return [
        pa.array([row[at] for row in rows], arrow_type(type_)) if rows else pa.array([], arrow_type(type_))
        for at, type_ in enumerate(types)
    ]


def plain_key(row: Sequence[Any]) -> tuple[Any, ...]:
    """A Python value that is equal for two rows exactly when their keys are."""
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def key_types(max_columns: int = 3) -> st.SearchStrategy[list[IcebergType]]:
    """The types of a key's columns."""
    return st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=max_columns)


def rows_of(types: Sequence[IcebergType], max_rows: int = 40) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Rows of few distinct values, nulls among them."""
    return st.lists(
        st.tuples(*[st.none() | st.sampled_from(VALUES[type_]) for type_ in types]), max_size=max_rows
    )
