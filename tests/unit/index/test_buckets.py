"""Buckets are ranges of the hash space, whoever computes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.index.buckets import hash_range, overlapping, rebucket, split_by_bucket
from streamlake.index.entries import SUPERSEDES
from streamlake.index.keys import bucket_of
from streamlake.index.lookup import KeyIndex
from streamlake.index.run import open_run
from streamlake.index.run_writer import RunWriter
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
    codec = Codec(data=True, guards="bytes")
    entries = codec.entries([Row(key, key % 6, key, SUPERSEDES, guard=key) for key in range(500)])
    parts = split_by_bucket(entries, buckets)
    assert len(parts) == buckets
    assert sum(map(len, parts)) == 500
    for bucket, part in enumerate(parts):
        assert (bucket_of(part.keys.hashes, buckets) == bucket).all()
    keys = list(range(510))
    whole = answers(KeyIndex([entries], set(FILES)), codec, keys)
    assert answers(KeyIndex(parts, set(FILES)), codec, keys) == whole


@settings(max_examples=25, deadline=None)
@given(old=st.integers(1, 9), new=st.integers(1, 9))
def test_rebucket(old, new, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    codec = Codec(data=False, guards="int64")
    older = codec.entries([Row(key, 0, key, 0, guard=1) for key in range(300)])
    newer = codec.entries([Row(key, 1, key, SUPERSEDES, guard=2) for key in range(100, 200)])
    runs = {
        bucket: list(parts)
        for bucket, parts in enumerate(
            zip(split_by_bucket(newer, old), split_by_bucket(older, old), strict=True)
        )
    }
    made = []
    for bucket in range(new):
        some = {number: runs[number] for number in overlapping(bucket, new, old)}
        writer = RunWriter(IO, f"{directory}/{bucket}.run", bucket, new)
        made.append(open_run(IO, rebucket(some, set(FILES), writer, bucket, new)))
    assert sum(map(len, made)) == 300
    for bucket, run in enumerate(made):
        assert (run.ref.bucket, run.ref.buckets) == (bucket, new)
        assert not any(file.own for file in run.paths)
        for part in run.entries():
            assert (bucket_of(part.keys.hashes, new) == bucket).all()
    keys = list(range(310))
    whole = answers(KeyIndex([newer, older], set(FILES)), codec, keys)
    assert answers(KeyIndex(made, set(FILES)), codec, keys) == whole
