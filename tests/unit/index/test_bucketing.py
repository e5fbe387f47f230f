"""Buckets by a message's key: rows, encoded keys and entries agree, and an index moves into them whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.index.bucketing import Bucketing
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.message_key import KeyPart, MessageKey
from streamlake.index.runs.entries import SUPERSEDES, TOMBSTONE, RunFile, sort_entries
from streamlake.index.runs.lookup import KeyIndex
from streamlake.index.runs.merge import split_runs
from streamlake.index.runs.run import open_run
from streamlake.index.runs.run_writer import RunWriter
from streamlake.spec.types.data_types import LongType, NestedField, StringType
from streamlake.storage.local import LocalFileIO

ID = KeyCodec((NestedField(1, "id", LongType()),))
PAIR = KeyCodec((NestedField(1, "tenant", StringType()), NestedField(2, "id", LongType())))
BY_ID = MessageKey("murmur2", (KeyPart(b'{"id":'), KeyPart(column=0, form="json"), KeyPart(b"}")))
BY_PAIR = MessageKey("crc32", (KeyPart(column=0), KeyPart(b"/"), KeyPart(column=1)))


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.none() | st.text(max_size=9), st.none() | st.integers(-(2**63), 2**63 - 1))),
    count=st.integers(1, 40),
)
def test_rows_and_their_encoded_keys_are_in_one_bucket(rows, count):
    for codec, message_key in ((PAIR, BY_PAIR), (ID, BY_ID), (ID, None)):
        columns = [
            pa.array([row[-len(codec.fields) :][at] for row in rows], arrow_type(part.type))
            for at, part in enumerate(codec.fields)
        ]
        bucketing = Bucketing(count, message_key)
        found = bucketing.of_columns(columns, codec)
        assert found.dtype == np.int32
        assert ((found >= 0) & (found < count)).all()
        assert bucketing.of_keys(codec.encode(columns), codec).tolist() == found.tolist()
        assert Bucketing.named(count, bucketing.name) == bucketing


@pytest.mark.parametrize("message_key", [None, BY_ID])
def test_an_index_in_other_buckets_answers_as_before(message_key, tmp_path):
    io, files = LocalFileIO(), [RunFile("a", own=True), RunFile("b", own=False)]
    live = {"a", "b"}

    def entries(ids, file, flags):
        ids = np.array(ids, dtype=np.int64)
        return sort_entries(
            ID.encode([pa.array(ids)]),
            np.full(len(ids), file),
            ids,
            np.full(len(ids), flags),
            files,
            sequence_values=SequenceValues(ids),
            times=np.full(len(ids), 1_000),
        )

    older = entries(range(3_000), 0, 0)
    newer = entries(range(1_000, 2_000), 1, SUPERSEDES)
    gone = entries(range(500, 700), -1, TOMBSTONE)
    runs = [gone, newer, older]
    after = Bucketing(6, message_key)
    refs = split_runs(
        runs,
        live,
        lambda part: after.split(part, ID),
        lambda bucket: RunWriter(io, f"{tmp_path}/{bucket}.run", bucket, after.count),
    )
    assert [(ref.bucket, ref.buckets) for ref in refs] == [(bucket, 6) for bucket in range(6)]
    asked = ID.encode([pa.array(np.arange(3_100))])
    whole = KeyIndex(runs, live).lookup(asked)
    expected = {
        int(query): (whole.paths[whole.file[at]], int(whole.positions[at]))
        for at, query in enumerate(whole.query.tolist())
    }
    assert len(expected) == 2_800
    buckets = after.of_keys(asked, ID)
    found = {}
    for ref in refs:
        run = open_run(io, ref)
        assert not any(file.own for file in run.paths)
        mine = np.flatnonzero(buckets == ref.bucket)
        hits = KeyIndex([run], live).lookup(asked.take(mine))
        for at, query in enumerate(hits.query.tolist()):
            found[int(mine[query])] = (hits.paths[hits.file[at]], int(hits.positions[at]))
    assert found == expected
    assert sum(ref.tombstones for ref in refs) == 200


def test_what_fails_half_way_leaves_nothing(tmp_path):
    io = LocalFileIO()
    ids = np.arange(100)
    entries = sort_entries(
        ID.encode([pa.array(ids)]), np.zeros(100), ids, np.zeros(100), [RunFile("a", own=True)]
    )

    def writer(bucket):
        if bucket == 2:
            raise OSError("full")
        return RunWriter(io, f"{tmp_path}/{bucket}.run", bucket, 4)

    with pytest.raises(OSError, match="full"):
        split_runs([entries], {"a"}, lambda part: Bucketing(4, BY_ID).split(part, ID), writer)
    assert not list(tmp_path.iterdir())
