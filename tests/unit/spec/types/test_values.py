"""Single-value serialization (Appendix D) and bounds cut to a width."""

from __future__ import annotations

import struct
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.spec.types import values
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
CASES = [
    (BooleanType(), True, b"\x01", True),
    (IntegerType(), -2, struct.pack("<i", -2), -2),
    (LongType(), 1 << 40, struct.pack("<q", 1 << 40), 1 << 40),
    (FloatType(), -0.5, struct.pack("<f", -0.5), -0.5),
    (DoubleType(), 1e300, struct.pack("<d", 1e300), 1e300),
    (DateType(), -719162, struct.pack("<i", -719162), "0001-01-01"),
    (TimeType(), 81068123456, struct.pack("<q", 81068123456), "22:31:08.123456"),
    (TimestampType(), 1510871468123456, struct.pack("<q", 1510871468123456), "2017-11-16T22:31:08.123456"),
    (
        TimestamptzType(),
        1510871468123456,
        struct.pack("<q", 1510871468123456),
        "2017-11-16T22:31:08.123456+00:00",
    ),
    (
        TimestampNsType(),
        1510871468123456789,
        struct.pack("<q", 1510871468123456789),
        "2017-11-16T22:31:08.123456789",
    ),
    (TimestamptzNsType(), -1, struct.pack("<q", -1), "1969-12-31T23:59:59.999999999+00:00"),
    (StringType(), "naïve", "naïve".encode(), "naïve"),
    (UUIDType(), UUID, UUID.bytes, str(UUID)),
    (FixedType(2), b"\x00\xff", b"\x00\xff", "00FF"),
    (BinaryType(), b"", b"", ""),
    (DecimalType(9, 2), Decimal("14.20"), b"\x05\x8c", "14.20"),
    (DecimalType(9, 2), Decimal("-1.28"), b"\x80", "-1.28"),
    (DecimalType(38, 0), Decimal(10**37), (10**37).to_bytes(16, "big"), "1" + "0" * 37),
]


@pytest.mark.parametrize(("type_", "value", "data", "json"), CASES, ids=lambda value: str(value)[:20])
def test_both_serializations(type_, value, data, json):
    assert values.to_bytes(type_, value) == data
    assert values.from_bytes(type_, data) == value
    assert values.to_json_value(type_, value) == json
    assert values.from_json_value(type_, json) == value


def test_values_written_before_a_promotion():
    assert values.from_bytes(LongType(), struct.pack("<i", -5)) == -5
    assert values.from_bytes(DoubleType(), struct.pack("<f", 0.5)) == 0.5


def test_nested_json_values():
    type_ = StructType(
        (
            NestedField(1, "a", ListType(2, DateType())),
            NestedField(3, "b", MapType(4, StringType(), 5, DecimalType(4, 1))),
        )
    )
    value = {"a": [0, None], "b": {"x": Decimal("1.5")}}
    json = {"1": ["1970-01-01", None], "3": {"keys": ["x"], "values": ["1.5"]}}
    assert values.to_json_value(type_, value) == json
    assert values.from_json_value(type_, json) == value


def test_a_decimal_is_never_rounded():
    with pytest.raises(ValueError, match="without rounding"):
        values.unscaled(Decimal("1.234"), 2)
    assert values.unscaled(Decimal("1E+3"), 2) == 100_000


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_minimal_bytes_are_minimal(number):
    data = values.minimal_bytes(number)
    assert int.from_bytes(data, "big", signed=True) == number
    if len(data) > 1:
        assert int.from_bytes(data[1:], "big", signed=True) != number


@given(st.text(max_size=12), st.integers(1, 6))
def test_upper_bound_of_a_string_is_not_below_it(text, width):
    upper = values.truncate_upper(StringType(), text, width)
    assert values.truncate_lower(StringType(), text, width) <= text
    if upper is not None:
        assert upper.encode() >= text.encode()
        assert len(upper) <= max(width, 0) or upper == text
    else:
        assert set(text[:width]) == {"\U0010ffff"}


@given(st.binary(max_size=12), st.integers(1, 6))
def test_upper_bound_of_bytes_is_not_below_them(data, width):
    upper = values.truncate_upper(BinaryType(), data, width)
    assert upper >= data if upper is not None else set(data[:width]) == {0xFF}


def test_surrogates_are_stepped_over():
    assert values.truncate_upper(StringType(), "\ud7ffzz", 1) == "\ue000"
