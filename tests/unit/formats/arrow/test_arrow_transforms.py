"""Whole-column transforms give what the scalar transforms and the specification's examples give."""

from __future__ import annotations

import random
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamlake.errors import FeatureUnsupportedError
from streamlake.formats.arrow.arrow_transforms import hash_array, transform_array
from streamlake.spec.partitioning.transforms import (
    Bucket,
    Day,
    Hour,
    Identity,
    Month,
    Transform,
    Truncate,
    UnknownTransform,
    Void,
    Year,
    murmur3_32,
)
from streamlake.spec.types.data_types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
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

# Dates that every calendar in use can show: the years 1 to 9999.
DAYS = (-719_162, 2_932_896)
MICROS = (DAYS[0] * 86_400_000_000, DAYS[1] * 86_400_000_000)
NANOS = (-(2**63) + 1, 2**63 - 1)


def numbers(low: int, high: int, count: int, rng: random.Random) -> list[int]:
    """Values over all magnitudes, with the edges."""
    edges = [low, high, 0, -1, 1] if low < 0 else [low, high]
    spread = [
        max(low, min(high, rng.choice((-1, 1)) * rng.getrandbits(rng.randint(1, 63)))) for _ in range(count)
    ]
    return [max(low, min(high, value)) for value in edges] + spread


def texts(count: int, rng: random.Random) -> list[str]:
    alphabet = "abcxyz019 äßéΩж中文字😀🇩"
    made = ["".join(rng.choices(alphabet, k=rng.randint(0, 23))) for _ in range(count)]
    return ["", "a", "ab", "abc", "abcd", "iceberg", "😀", "x" * 1000, "中" * 501, *made]


def columns(seed: int = 1, count: int = 300) -> list[tuple[IcebergType, pa.DataType, list[Any]]]:
    rng = random.Random(seed)
    binaries = [rng.randbytes(rng.randint(0, 40)) for _ in range(count)]
    columns: list[tuple[IcebergType, pa.DataType, list[Any]]] = [
        (IntegerType(), pa.int32(), numbers(-(2**31) + 1000, 2**31 - 1, count, rng)),
        (LongType(), pa.int64(), numbers(-(2**63) + 1000, 2**63 - 1, count, rng)),
        (DateType(), pa.date32(), numbers(*DAYS, count, rng)),
        (TimeType(), pa.time64("us"), numbers(0, 86_400_000_000 - 1, count, rng)),
        (TimestampType(), pa.timestamp("us"), numbers(*MICROS, count, rng)),
        (TimestamptzType(), pa.timestamp("us", "UTC"), numbers(*MICROS, count, rng)),
        (TimestampNsType(), pa.timestamp("ns"), numbers(*NANOS, count, rng)),
        (TimestamptzNsType(), pa.timestamp("ns", "UTC"), numbers(*NANOS, count, rng)),
        (StringType(), pa.string(), texts(count, rng)),
        (StringType(), pa.large_string(), texts(count, rng)),
        (BinaryType(), pa.binary(), binaries),
        (BinaryType(), pa.large_binary(), binaries),
        (FixedType(7), pa.binary(7), [rng.randbytes(7) for _ in range(count)]),
        (UUIDType(), pa.binary(16), [uuid.UUID(bytes=rng.randbytes(16)) for _ in range(count)]),
    ]
    for precision, scale in ((4, 2), (18, 3), (19, 0), (38, 10), (38, 38)):
        bound = 10**precision - 1
        unscaled = [0, 1, -1, 127, 128, -128, -129, 255, 256, bound, -bound]
        unscaled = [value for value in unscaled if abs(value) <= bound]
        unscaled += [
            rng.choice((-1, 1)) * rng.randint(0, 10 ** rng.randint(1, precision) - 1) for _ in range(count)
        ]
        values = [Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -scale)) for v in unscaled]
        columns.append((DecimalType(precision, scale), pa.decimal128(precision, scale), values))
    return columns


def as_arrow(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(arrow_type):
        storage = pa.int32() if arrow_type.bit_width == 32 else pa.int64()
        return pa.array(values, storage).cast(arrow_type)
    return pa.array([v.bytes if isinstance(v, uuid.UUID) else v for v in values], arrow_type)


def as_values(array: pa.Array, source: IcebergType) -> list[Any]:
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    values = array.to_pylist()
    return [
        uuid.UUID(bytes=v) if isinstance(v, bytes) and isinstance(source, UUIDType) else v for v in values
    ]


TRANSFORMS: list[Transform] = [
    Identity(), Bucket(1), Bucket(16), Bucket(1_000_003), Truncate(1), Truncate(3), Truncate(10), Truncate(997),
    Year(), Month(), Day(), Hour(), Void(),
]  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_every_transform_equals_the_scalar_one(transform: Transform) -> None:
    checked = 0
    for source, arrow_type, values in columns():
        if not transform.accepts(source):
            continue
        with_nulls = [None if at % 7 == 3 else value for at, value in enumerate(values)]
        array = as_arrow(with_nulls, arrow_type)
        result = transform_array(transform, array, source)
        expected = [transform.apply(value, source) for value in with_nulls]
        assert as_values(result, source) == expected, f"{transform}({source})"
        assert len(result) == len(array)
        sliced = transform_array(transform, array.slice(5, 40), source)
        assert as_values(sliced, source) == expected[5:45], f"{transform}({source}) of a slice"
        assert len(transform_array(transform, array.slice(0, 0), source)) == 0
        nothing = transform_array(transform, pa.nulls(3, array.type), source)
        assert nothing.null_count == 3
        checked += 1
    assert checked >= 4


def test_result_types() -> None:
    days = as_arrow([1, None], pa.date32())
    assert transform_array(Bucket(4), days, DateType()).type == pa.int32()
    assert transform_array(Year(), days, DateType()).type == pa.int32()
    assert transform_array(Month(), days, DateType()).type == pa.int32()
    assert transform_array(Day(), days, DateType()).type == pa.date32()
    assert transform_array(Void(), days, DateType()).type == pa.date32()
    micros = as_arrow([1], pa.timestamp("us"))
    assert transform_array(Hour(), micros, TimestampType()).type == pa.int32()
    number = as_arrow([Decimal("1.25")], pa.decimal128(9, 2))
    assert transform_array(Truncate(10), number, DecimalType(9, 2)).type == pa.decimal128(9, 2)


SPEC_HASHES: list[tuple[IcebergType, pa.DataType, Any, int]] = [
    (IntegerType(), pa.int32(), 34, 2017239379),
    (LongType(), pa.int64(), 34, 2017239379),
    (DecimalType(9, 2), pa.decimal128(9, 2), Decimal("14.20"), -500754589),
    (DateType(), pa.date32(), parse_date("2017-11-16"), -653330422),
    (TimeType(), pa.time64("us"), parse_time("22:31:08"), -662762989),
    (TimestampType(), pa.timestamp("us"), parse_timestamp("2017-11-16T22:31:08"), -2047944441),
    (TimestampType(), pa.timestamp("us"), parse_timestamp("2017-11-16T22:31:08.000001"), -1207196810),
    (TimestamptzType(), pa.timestamp("us", "UTC"), parse_timestamp("2017-11-16T14:31:08-08:00"), -2047944441),
    (TimestampNsType(), pa.timestamp("ns"), parse_timestamp_ns("2017-11-16T22:31:08.000001001"), -1207196810),
    (
        TimestamptzNsType(),
        pa.timestamp("ns", "UTC"),
        parse_timestamp_ns("2017-11-16T14:31:08-08:00"),
        -2047944441,
    ),
    (StringType(), pa.string(), "iceberg", 1210000089),
    (UUIDType(), pa.binary(16), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
    (FixedType(4), pa.binary(4), bytes([0, 1, 2, 3]), -188683207),
    (BinaryType(), pa.binary(), bytes([0, 1, 2, 3]), -188683207),
]


@pytest.mark.parametrize(("source", "arrow_type", "value", "expected"), SPEC_HASHES, ids=str)
def test_hash_examples_of_the_specification(source: Any, arrow_type: Any, value: Any, expected: int) -> None:
    array = as_arrow([value, None, value], arrow_type)
    hashes = hash_array(array)
    assert hashes[0] == expected & 0xFFFFFFFF
    assert hashes[2] == hashes[0]
    bucket = transform_array(Bucket(100), array, source).to_pylist()
    assert bucket == [(expected & 0x7FFFFFFF) % 100, None, (expected & 0x7FFFFFFF) % 100]


def test_truncate_examples_of_the_specification() -> None:
    assert transform_array(Truncate(10), pa.array([1, -1], pa.int32()), IntegerType()).to_pylist() == [0, -10]
    assert transform_array(Truncate(10), pa.array([1, -1], pa.int64()), LongType()).to_pylist() == [0, -10]
    decimals = pa.array([Decimal("10.65"), Decimal("-10.65")], pa.decimal128(9, 2))
    assert transform_array(Truncate(50), decimals, DecimalType(9, 2)).to_pylist() == [
        Decimal("10.50"),
        Decimal("-11.00"),
    ]
    assert transform_array(Truncate(3), pa.array(["iceberg"]), StringType()).to_pylist() == ["ice"]
    assert transform_array(Truncate(3), pa.array([bytes([1, 2, 3, 4, 5])]), BinaryType()).to_pylist() == [
        bytes([1, 2, 3])
    ]


def test_time_before_1970_rounds_down() -> None:
    micros = as_arrow([parse_timestamp("1969-12-31T22:59:59.999999"), -1, 0], pa.timestamp("us"))
    assert transform_array(Year(), micros, TimestampType()).to_pylist() == [-1, -1, 0]
    assert transform_array(Month(), micros, TimestampType()).to_pylist() == [-1, -1, 0]
    assert as_values(transform_array(Day(), micros, TimestampType()), TimestampType()) == [-1, -1, 0]
    assert transform_array(Hour(), micros, TimestampType()).to_pylist() == [-2, -1, 0]


def test_very_long_strings_hash_like_short_ones() -> None:
    rng = random.Random(3)
    values = [rng.randbytes(size) for size in (100_003, 5, 0, 64, 90_000, 257, 4, 3)] + [b"abcdefgh"] * 50
    hashes = hash_array(pa.array(values, pa.binary()))
    assert [int(h) for h in hashes] == [murmur3_32(value) & 0xFFFFFFFF for value in values]


def test_more_rows_than_one_block() -> None:
    rng = random.Random(4)
    values = [rng.randbytes(rng.randint(0, 12)) for _ in range(70_000)]
    hashes = hash_array(pa.array(values, pa.binary()))
    assert [int(h) for h in hashes] == [murmur3_32(value) & 0xFFFFFFFF for value in values]
    longs = [rng.getrandbits(63) - (1 << 62) for _ in range(70_000)]
    hashes = hash_array(pa.array(longs, pa.int64()))
    assert [int(h) for h in hashes] == [
        murmur3_32(v.to_bytes(8, "little", signed=True)) & 0xFFFFFFFF for v in longs
    ]


def test_dictionary_extension_and_view_arrays_are_unwrapped() -> None:
    texts = ["iceberg", None, "abc", "iceberg", "a longer string than fits inline"]
    plain = transform_array(Bucket(100), pa.array(texts), StringType())
    for array in (
        pa.array(texts).dictionary_encode(),
        pa.array(texts, pa.string_view()),
        pa.chunked_array([pa.array(texts[:2]), pa.array(texts[2:])]),
    ):
        assert transform_array(Bucket(100), array, StringType()).equals(plain)
        assert transform_array(Truncate(2), array, StringType()).to_pylist() == ["ic", None, "ab", "ic", "a "]
    binaries = pa.array([b"abc", None], pa.binary_view())
    assert transform_array(Truncate(2), binaries, BinaryType()).to_pylist() == [b"ab", None]
    value = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    extension = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([value.bytes, None], pa.binary(16)))
    assert transform_array(Bucket(100), extension, UUIDType()).to_pylist() == [1488055340 % 100, None]


def test_other_units_and_decimal_widths() -> None:
    seconds = pa.array([-1, 0, 3600], pa.int64()).cast(pa.timestamp("s"))
    assert transform_array(Hour(), seconds, TimestampType()).to_pylist() == [-1, 0, 1]
    millis = pa.array([34], pa.int64()).cast(pa.timestamp("ms"))
    micros = pa.array([34_000], pa.int64()).cast(pa.timestamp("us"))
    assert hash_array(millis)[0] == hash_array(micros)[0]
    wide = pa.array([Decimal("14.20"), None], pa.decimal256(9, 2))
    assert hash_array(wide)[0] == -500754589 & 0xFFFFFFFF
    assert transform_array(Truncate(100), wide, DecimalType(9, 2)).to_pylist() == [Decimal("14.00"), None]


def test_an_all_null_column_without_type() -> None:
    assert transform_array(Bucket(4), pa.nulls(2), LongType()).to_pylist() == [None, None]


def test_what_has_no_transform_is_refused() -> None:
    with pytest.raises(FeatureUnsupportedError, match="no bucket hash"):
        transform_array(Bucket(4), pa.array([1.5]), DoubleType())
    with pytest.raises(FeatureUnsupportedError, match="truncate"):
        transform_array(Truncate(4), pa.array([1.5]), DoubleType())
    with pytest.raises(FeatureUnsupportedError, match="Time transforms"):
        transform_array(Year(), pa.array([1.5]), DoubleType())
    with pytest.raises(FeatureUnsupportedError, match="zorder"):
        transform_array(UnknownTransform("zorder"), pa.array([1]), LongType())
