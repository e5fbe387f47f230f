"""Values come back out of encoded keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.index.keys.key_codec import SEED, KeyCodec
from streamlake.index.keys.key_columns import Strings
from streamlake.index.keys.key_values import key_values
from streamlake.index.keys.xxh64 import hash_ints, hash_longs, int_of_hash, long_of_hash
from streamlake.spec.types.data_types import IntegerType, LongType, NestedField, StringType, UUIDType

VALUES = {
    IntegerType(): st.integers(-(2**31), 2**31 - 1),
    LongType(): st.integers(-(2**63), 2**63 - 1),
    StringType(): st.text(max_size=12),
    UUIDType(): st.binary(min_size=16, max_size=16),
}


@pytest.mark.parametrize("seed", [0, SEED, 2**40 + 7])
def test_hashes_of_words_can_be_undone(seed):
    generator = np.random.default_rng(1)
    longs = np.append(generator.integers(-(2**63), 2**63 - 1, 5_000), [0, -1, 2**63 - 1, -(2**63)])
    ints = longs.astype(np.int32)
    seeds = np.full(len(longs), seed, dtype=np.uint64)
    assert (long_of_hash(hash_longs(longs, seeds), seed) == longs).all()
    assert (int_of_hash(hash_ints(ints, seeds), seed) == ints).all()


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_values_come_back(data):
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    fields = tuple(NestedField(at + 1, f"c{at}", type_) for at, type_ in enumerate(types))
    codec = KeyCodec(fields)
    rows = data.draw(st.integers(0, 8))
    given_ = [data.draw(st.lists(st.none() | VALUES[type_], min_size=rows, max_size=rows)) for type_ in types]
    keys = codec.encode(
        [pa.array(values, arrow_type(type_)) for values, type_ in zip(given_, types, strict=True)]
    )
    found = key_values(fields, keys, SEED)
    for column, values, type_ in zip(found, given_, types, strict=True):
        nulls = [False] * rows if column.nulls is None else column.nulls.tolist()
        assert nulls == [value is None for value in values]
        if isinstance(column, Strings):
            got = [value.decode() for value in column.values.to_pylist()]
        elif type_ == UUIDType():
            got = [bytes(row) for row in column.values]
        else:
            got = column.values.tolist()
        assert [value for value, null in zip(got, nulls, strict=True) if not null] == [
            value for value in values if value is not None
        ]
