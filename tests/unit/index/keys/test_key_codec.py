"""Keys are equal exactly when the values are, whatever the types and whatever the hashes collide on."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import InvalidOptionError
from streamlake.index.keys.key_codec import SEED, KeyCodec, Keys, bucket_of, concat_keys
from streamlake.spec.types.data_types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimeType,
    UnknownType,
    UUIDType,
    VariantType,
)
from tests.unit.index.key_samples import VALUES, columns_of, fields_of, key_types, plain_key, rows_of
from tests.unit.index.keys.test_xxh64 import undone, xxh64


def encoded(types: list[IcebergType], rows: list[Any]) -> Keys:
    return KeyCodec(fields_of(types)).encode(columns_of(types, rows))


def identities(keys: Keys) -> list[Any]:
    """A Python value per key that is equal exactly when the keys are."""
    nulls = [False] * len(keys) if keys.nulls is None else keys.nulls.tolist()
    data = [None] * len(keys) if keys.data is None else keys.data.to_pylist()
    return list(zip(keys.hashes.tolist(), nulls, data, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_keys_are_equal_when_the_values_are(data: st.DataObject) -> None:
    types = data.draw(key_types())
    rows = data.draw(rows_of(types))
    keys = encoded(types, rows)
    assert len(keys) == len(rows)
    assert keys.hashes.dtype == np.uint64
    assert keys.data is None or keys.data.null_count == 0
    by_value: dict[Any, Any] = {}
    for row, identity in zip(rows, identities(keys), strict=True):
        assert by_value.setdefault(plain_key(row), identity) == identity
    assert len(set(by_value.values())) == len(by_value)
    if keys.data is not None:
        assert len({identity[2] for identity in by_value.values()}) == len(by_value), (
            "bytes alone tell keys apart"
        )


@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_slices_chunks_and_other_layouts_encode_the_same(type_: IcebergType) -> None:
    rows = [(value,) for value in VALUES[type_]] + [(None,)]
    (column,) = columns_of([type_], rows)
    codec = KeyCodec(fields_of([type_]))
    expected = identities(codec.encode([column]))
    chunked = pa.chunked_array([column.slice(0, 1), column.slice(1, 0), column.slice(1)])
    assert identities(codec.encode([chunked])) == expected
    assert identities(codec.encode([column.slice(1)])) == expected[1:]
    assert identities(codec.encode([column.slice(0, len(column) - 1)])) == expected[:-1]
    assert identities(codec.encode([pa.chunked_array([], column.type)])) == []
    assert identities(codec.encode([pa.chunked_array([], column.type)])) == []
    if not pa.types.is_floating(column.type):
        assert identities(codec.encode([column.dictionary_encode()])) == expected
    if isinstance(type_, StringType):
        assert identities(codec.encode([column.cast(pa.large_string())])) == expected
        assert identities(codec.encode([column.cast(pa.string_view())])) == expected
    if isinstance(type_, UUIDType):
        assert identities(codec.encode([column.cast(pa.uuid())])) == expected


def test_what_stands_below_nulls_does_not_matter() -> None:
    for type_ in (LongType(), DecimalType(9, 2), DecimalType(38, 10), FixedType(5), UUIDType()):
        values = VALUES[type_][:3]
        (column,) = columns_of([type_], [(value,) for value in values])
        mask = pa.array([True, False, True]).buffers()[1]
        masked = pa.Array.from_buffers(column.type, 3, [mask, *column.buffers()[1:]])
        plain = columns_of([type_], [(values[0],), (None,), (values[2],)])[0]
        for types in ([type_], [type_, LongType()], [type_, StringType()]):
            more = [columns_of([other], [(VALUES[other][0],)] * 3)[0] for other in types[1:]]
            codec = KeyCodec(fields_of(types))
            assert identities(codec.encode([masked, *more])) == identities(codec.encode([plain, *more]))


def test_a_null_is_not_the_value_with_its_hash() -> None:
    value = undone(SEED, SEED, 8)
    keys = encoded([LongType()], [(value - 2**64 if value >= 2**63 else value,), (None,)])
    assert keys.hashes.tolist() == [SEED, SEED]
    assert keys.nulls.tolist() == [False, True]
    assert keys.take([0]).equal(keys.take([1])).tolist() == [False]
    assert keys.take([0]).equal(keys.take([0])).tolist() == [True]


def test_the_hash_is_a_chain_over_the_columns() -> None:
    keys = encoded([LongType(), StringType()], [(5, "five"), (None, "five"), (5, None), (None, None)])
    five = xxh64((5).to_bytes(8, "little"), SEED)
    assert keys.hashes.tolist() == [xxh64(b"five", five), xxh64(b"five", SEED), five, SEED]


def test_one_nan_and_one_zero() -> None:
    other_nan = np.array([0x7FF8DEADBEEF0001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    column = pa.array(np.concatenate([other_nan, [math.nan, 0.0, -0.0]]))
    hashes = KeyCodec(fields_of([DoubleType()])).encode([column]).hashes.tolist()
    assert len(set(hashes[:3])) == 1
    assert len(set(hashes[3:])) == 1
    assert column.to_numpy().view(np.uint64)[0] == 0x7FF8DEADBEEF0001, "the column stays as it is"


@pytest.mark.parametrize(
    ("types", "hash_is_key", "native"),
    [
        ([LongType()], True, True),
        ([IntegerType()], True, True),
        ([DecimalType(18, 0)], True, True),
        ([TimeType()], True, False),
        ([TimestampNsType()], True, False),
        ([TimestamptzNsType()], True, False),
        ([DecimalType(19, 3)], False, True),
        ([FixedType(8)], False, True),
        ([StringType()], False, True),
        ([UUIDType()], False, True),
        ([LongType(), IntegerType()], False, True),
        ([LongType(), TimeType()], False, False),
    ],
)
def test_what_a_codec_says_about_itself(types: list[IcebergType], hash_is_key: bool, native: bool) -> None:
    codec = KeyCodec(fields_of(types))
    assert (codec.hash_is_key, codec.is_native) == (hash_is_key, native)
    keys = codec.encode(columns_of(types, [tuple(VALUES[type_][1] for type_ in types)]))
    assert (keys.data is None) == hash_is_key
    assert pickle.loads(pickle.dumps(codec)) == codec


@pytest.mark.parametrize(
    "type_",
    [VariantType(), UnknownType(), ListType(2, LongType()), StructType((NestedField(2, "a", LongType()),))],
    ids=str,
)
def test_a_type_that_is_no_key_is_refused(type_: IcebergType) -> None:
    with pytest.raises(
        InvalidOptionError, match=r"key column 'who' has the type .*one of the types boolean, int"
    ):
        KeyCodec((NestedField(1, "who", type_),))


def test_a_key_has_a_column() -> None:
    with pytest.raises(InvalidOptionError, match="no column"):
        KeyCodec(())


def test_the_bytes_of_keys_are_kept_for_ever() -> None:
    """They are stored in the key index: another encoding would need another version of it."""
    assert encoded([StringType()], [("é",), ("",), (None,)]).data.to_pylist() == ["é".encode(), b"", b"\xff"]
    assert encoded([BinaryType()], [(b"\xff",), (b"a\xff",), (None,)]).data.to_pylist() == [
        b"\xff\xff",
        b"a\xff",
        b"\xff",
    ]
    assert encoded([FixedType(2)], [(b"\xff\x00",), (None,)]).data.to_pylist() == [b"\xff\x00", b""]
    assert encoded(
        [StringType(), IntegerType(), BinaryType()], [("ab", -2, b"c"), (None, None, b"")]
    ).data.to_pylist() == [
        b"\x00\x00\x00" + b"\xfe\xff\xff\xff" + b"\x02\x00\x00\x00" + b"ab" + b"c",
        b"\x01\x01\x00" + bytes(4) + bytes(4),
    ]
    assert encoded([LongType()], [(1,)]).hashes.view(np.int64).tolist() == [-7001672635703045582]
    assert encoded([TimestampType()], [(1,)]).hashes.view(np.int64).tolist() == [-7001672635703045582]


def test_take_concat_and_equal() -> None:
    for types in ([LongType()], [StringType()], [LongType(), StringType()]):
        rows = [tuple(VALUES[type_][at % 3] for type_ in types) for at in range(7)]
        keys = encoded(types, rows)
        with_null = encoded(types, [*rows, (None,) * len(types)])
        both = concat_keys([keys, with_null, keys.take(np.array([0, 0]))])
        assert identities(both) == identities(keys) + identities(with_null) + identities(keys)[:1] * 2
        assert identities(with_null.take(np.array([7, 0, 7]))) == [
            identities(with_null)[at] for at in (7, 0, 7)
        ]
        assert keys.equal(keys.take(np.array([0, 1, 2, 3, 1, 4, 6]))).tolist() == [True] * 4 + [
            True,
            False,
            True,
        ]
        assert concat_keys([keys]) is keys


def test_equal_sees_through_a_forced_collision() -> None:
    keys = encoded([StringType()], [("a",), ("b",), ("a",)])
    forced = replace(keys, hashes=np.zeros(3, dtype=np.uint64))
    assert forced.equal(forced.take(np.array([1, 1, 0]))).tolist() == [False, True, True]


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 2**31 - 1))
def test_buckets_are_ranges_of_the_hash(hashes: list[int], buckets: int) -> None:
    found = bucket_of(np.array(hashes, dtype=np.uint64), buckets)
    assert found.dtype == np.int32
    assert found.tolist() == [((value >> 32) * buckets) >> 32 for value in hashes]
    assert found.min() >= 0
    assert found.max() < buckets
    in_order = bucket_of(np.array(sorted(hashes), dtype=np.uint64), buckets)
    assert (np.diff(in_order) >= 0).all()
