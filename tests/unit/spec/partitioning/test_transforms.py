"""Transforms against the specification's own examples (Appendix B) and hand-computed edges."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.spec.partitioning.transforms import (
    Bucket,
    Day,
    Hour,
    Identity,
    Month,
    Truncate,
    UnknownTransform,
    Void,
    Year,
    hash_value,
    murmur3_32,
    parse_transform,
)
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.types.values import parse_date, parse_time, parse_timestamp, parse_timestamp_ns

AT = "2017-11-16T22:31:08"


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (IntegerType(), 34, 2017239379),
        (LongType(), 34, 2017239379),
        (DecimalType(9, 2), Decimal("14.20"), -500754589),
        (DateType(), parse_date("2017-11-16"), -653330422),
        (TimeType(), parse_time("22:31:08"), -662762989),
        (TimestampType(), parse_timestamp(AT), -2047944441),
        (TimestampType(), parse_timestamp(AT + ".000001"), -1207196810),
        (TimestamptzType(), parse_timestamp("2017-11-16T14:31:08-08:00"), -2047944441),
        (TimestamptzType(), parse_timestamp("2017-11-16T14:31:08.000001-08:00"), -1207196810),
        (TimestampNsType(), parse_timestamp_ns(AT), -2047944441),
        (TimestampNsType(), parse_timestamp_ns(AT + ".000001001"), -1207196810),
        (TimestamptzNsType(), parse_timestamp_ns("2017-11-16T14:31:08.000001001-08:00"), -1207196810),
        (StringType(), "iceberg", 1210000089),
        (UUIDType(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
        (FixedType(4), b"\x00\x01\x02\x03", -188683207),
        (BinaryType(), b"\x00\x01\x02\x03", -188683207),
    ],
    ids=lambda value: str(value)[:24],
)
def test_hash_matches_the_specification(type_, value, expected):
    assert hash_value(value, type_) == expected


def test_hash_of_empty_and_odd_lengths():
    assert murmur3_32(b"") == 0
    assert murmur3_32(b"a") == 1009084850
    assert [murmur3_32(b"abcdefg"[:length]) for length in (2, 3)] == [-1681926305, -1277324294]


def test_types_without_a_hash_are_refused():
    assert not Bucket(4).accepts(DoubleType())
    with pytest.raises(FeatureUnsupportedError, match="boolean"):
        hash_value(True, BooleanType())


@pytest.mark.parametrize(
    ("width", "type_", "value", "expected"),
    [
        (10, IntegerType(), 1, 0),
        (10, IntegerType(), -1, -10),
        (10, LongType(), 17, 10),
        (10, LongType(), -20, -20),
        (50, DecimalType(9, 2), Decimal("10.65"), Decimal("10.50")),
        (50, DecimalType(9, 2), Decimal("-0.05"), Decimal("-0.50")),
        (3, StringType(), "iceberg", "ice"),
        (3, StringType(), "ü€😀x", "ü€😀"),
        (3, BinaryType(), b"\x01\x02\x03\x04\x05", b"\x01\x02\x03"),
        (3, StringType(), None, None),
    ],
)
def test_truncate(width, type_, value, expected):
    assert Truncate(width).apply(value, type_) == expected


@pytest.mark.parametrize(
    ("transform", "text", "expected"),
    [
        (Year(), "2017-11-16", 47),
        (Month(), "2017-11-16", 574),
        (Day(), "2017-11-16", 17486),
        (Year(), "1969-12-31", -1),
        (Month(), "1969-12-31", -1),
        (Day(), "1969-12-31", -1),
        (Month(), "1970-01-01", 0),
        (Year(), "0001-01-01", -1969),
    ],
)
def test_dates(transform, text, expected):
    assert transform.apply(parse_date(text), DateType()) == expected


@pytest.mark.parametrize(
    ("transform", "expected"), [(Year(), 47), (Month(), 574), (Day(), 17486), (Hour(), 419686)]
)
def test_timestamps_of_both_units(transform, expected):
    assert transform.apply(parse_timestamp(AT), TimestampType()) == expected
    assert transform.apply(parse_timestamp_ns(AT), TimestampNsType()) == expected


def test_time_before_the_epoch_rounds_down():
    assert Hour().apply(-1, TimestampType()) == -1
    assert Day().apply(-1, TimestampType()) == -1
    assert Hour().apply(-3_600_000_000, TimestampType()) == -1


def test_texts_round_trip():
    for text in (
        "identity",
        "bucket[16]",
        "truncate[4]",
        "year",
        "month",
        "day",
        "hour",
        "void",
        "zorder[3]",
    ):
        assert str(parse_transform(text)) == text
    assert isinstance(parse_transform("zorder[3]"), UnknownTransform)
    with pytest.raises(DataInvalidError, match="at least 1"):
        parse_transform("bucket[0]")


def test_unknown_transform_cannot_be_written():
    with pytest.raises(FeatureUnsupportedError, match="zorder"):
        UnknownTransform("zorder").apply(1, LongType())


def test_human_texts():
    assert Day().human(17486, TimestampType()) == "2017-11-16"
    assert Month().human(-1, DateType()) == "1969-12"
    assert Year().human(-1, DateType()) == "1969"
    assert Hour().human(419686, TimestampType()) == "2017-11-16-22"
    assert Identity().human(True, BooleanType()) == "true"
    assert Identity().human(None, StringType()) == "null"
    assert Identity().human(b"\x00\xff", BinaryType()) == "AP8="
    assert Void().human(None, StringType()) == "null"
    assert Identity().human(Decimal("-0.50"), DecimalType(9, 2)) == "-0.50"
