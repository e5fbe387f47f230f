"""Buckets are ranges of the hash space, whoever computes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.index.bucketing import hash_range, split_by_bucket
from streamlake.index.keys.keys import bucket_of
from streamlake.index.runs.entries import SUPERSEDES
from streamlake.index.runs.lookup import KeyIndex
from streamlake.storage.local import LocalFileIO
from tests.unit.index.models import FILES, Codec, Row, answers

IO = LocalFileIO()


@given(buckets=st.integers(1, 5000), data=st.data())
def test_ranges_are_those_of_bucket_of(buckets, data):
    bucket = data.draw(st.integers(0, buckets - 1))
    low, high = hash_range(bucket, buckets)
    edges = np.array([low, high], dtype=np.uint64)
    assert bucket_of(edges, buckets).tolist() == [bucket, bucket]
    assert low == 0 or bucket_of(np.array([low - 1], dtype=np.uint64), buckets).tolist() == [bucket - 1]
    assert (high == 2**64 - 1) == (bucket == buckets - 1)


@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 64])
def test_split_by_bucket(buckets):
    codec = Codec(data=True, sequence_values="bytes")
    entries = codec.entries([Row(key, key % 6, key, SUPERSEDES, sequence_value=key) for key in range(500)])
    parts = split_by_bucket(entries, buckets)
    assert len(parts) == buckets
    assert sum(map(len, parts)) == 500
    for bucket, part in enumerate(parts):
        assert (bucket_of(part.keys.hashes, buckets) == bucket).all()
    keys = list(range(510))
    whole = answers(KeyIndex([entries], set(FILES)), codec, keys)
    assert answers(KeyIndex(parts, set(FILES)), codec, keys) == whole
