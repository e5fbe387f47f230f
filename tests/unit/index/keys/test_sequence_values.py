"""SequenceValues order as their columns do."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.index.keys.sequence_values import (
    SequenceCodec,
    SequenceValues,
    compare,
    concat_sequence_values,
)
from streamlake.spec.types.data_types import (
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    VariantType,
)
from tests.unit.index.key_samples import VALUES, columns_of, fields_of, key_types


def sortable(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_guards_order_as_the_values_do(data: st.DataObject) -> None:
    types = data.draw(key_types())
    row = st.tuples(*[st.sampled_from(VALUES[type_]) for type_ in types])
    rows = data.draw(st.lists(st.tuples(row, row), min_size=1, max_size=30))
    codec = SequenceCodec(fields_of(types))
    left = codec.encode(columns_of(types, [pair[0] for pair in rows]))
    right = codec.encode(columns_of(types, [pair[1] for pair in rows]))
    expected = [tuple(map(sortable, first)) < tuple(map(sortable, second)) for first, second in rows]
    assert compare(left, right).tolist() == expected
    assert left.is_numeric == codec.is_numeric
    assert left.values.dtype == np.int64 if codec.is_numeric else left.values.type == pa.large_binary()
    same = [tuple(map(sortable, first)) == tuple(map(sortable, second)) for first, second in rows]
    neither = ~compare(left, right) & ~compare(right, left)
    assert neither.tolist() == same


@pytest.mark.parametrize("types", [[LongType()], [StringType()], [LongType(), StringType()]], ids=str)
def test_take_and_concat(types: list[IcebergType]) -> None:
    rows = [tuple(sorted(VALUES[type_])[at] for type_ in types) for at in range(4)]
    sequence_values = SequenceCodec(fields_of(types)).encode(columns_of(types, rows))
    assert compare(
        sequence_values.take(np.array([0, 3])), sequence_values.take(np.array([1, 1]))
    ).tolist() == [True, False]
    both = concat_sequence_values([sequence_values, sequence_values.take(np.array([2]))])
    assert len(both) == 5
    assert not compare(both, both).any()
    assert not compare(both.take(np.array([4])), sequence_values.take(np.array([2]))).any()
    assert concat_sequence_values([sequence_values]) is sequence_values


@pytest.mark.parametrize("types", [[LongType()], [StringType()], [LongType(), DoubleType()]], ids=str)
def test_no_rows(types: list[IcebergType]) -> None:
    none = SequenceCodec(fields_of(types)).encode(columns_of(types, []))
    assert len(none) == 0
    assert compare(none, none).tolist() == []


def test_a_null_is_refused_with_its_place() -> None:
    codec = SequenceCodec((NestedField(1, "lsn", LongType()), NestedField(2, "part", StringType())))
    columns = [pa.array([1, 2, 3]), pa.chunked_array([["a", "b"], [None]])]
    with pytest.raises(SchemaMismatchError, match=r"^lake/t: column 'part', row 2: .*null.*Fill or filter"):
        codec.encode(columns, "lake/t")


@pytest.mark.parametrize("type_", [VariantType(), ListType(2, LongType())], ids=str)
def test_a_type_without_order_is_refused(type_: IcebergType) -> None:
    with pytest.raises(InvalidOptionError, match=r"'lsn' of `sequence_by` has the type"):
        SequenceCodec((NestedField(1, "lsn", type_),))


def test_a_guard_has_a_column_and_travels() -> None:
    with pytest.raises(InvalidOptionError, match="no column"):
        SequenceCodec(())
    codec = SequenceCodec(fields_of([LongType()]))
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert SequenceValues(np.array([1, 2])).take(np.array([1])).values.tolist() == [2]
