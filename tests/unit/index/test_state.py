"""The index state comes back as it was written, or not at all."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from streamlake.errors import IndexDamagedError
from streamlake.index.runs.run import RunRef
from streamlake.index.state import IndexState


def run(bucket: int, name: str, buckets: int = 4) -> RunRef:
    return RunRef(f"/t/metadata/_index/{name}.run", bucket, buckets, 10, 200, 0xFFFF_FFFF, 3)


STATE = IndexState(
    table_uuid="9c1e7b0a",
    key_ids=(1, 2),
    sequence_ids=(7,),
    buckets=4,
    runs=(run(0, "c"), run(2, "b"), run(0, "a")),
    created_ms=1_700_000_000_000,
    base_snapshot_id=2**62,
    key_types=("long", "string"),
    sequence_types=("timestamptz",),
)


@pytest.mark.parametrize(
    "state",
    [
        STATE,
        replace(STATE, runs=(), base_snapshot_id=None, sequence_ids=()),
        replace(STATE, message_key='{"partitioner":"murmur2","parts":[]}', shuffled_until=(2, 17)),
    ],
)
def test_a_state_comes_back(state):
    assert IndexState.from_bytes(state.to_bytes(), "/s") == state


def test_a_state_from_before_there_were_message_keys_can_be_read():
    body = STATE.to_bytes().partition(b"\n")[2]
    body = body.replace(b'"message_key":"","shuffled_until":[0,0],', b"")
    header = f"streamlake index state 1, {len(body)} bytes, crc32 {zlib.crc32(body):08x}\n".encode()
    assert b"shuffled" not in body
    assert IndexState.from_bytes(header + body, "/s") == STATE


def test_runs_by_bucket():
    assert [ref.path[-5] for ref in STATE.runs_of(0)] == ["c", "a"]
    assert STATE.runs_of(1) == ()
    assert list(STATE.runs_by_bucket()) == [0, 2]
    state = STATE.with_runs([run(2, "e"), run(0, "d")], replaced=[run(0, "c")])
    assert [ref.path[-5] for ref in state.runs_of(0)] == ["d", "a"]
    assert [ref.path[-5] for ref in state.runs_of(2)] == ["e", "b"]


def test_every_truncation_is_noticed():
    data = STATE.to_bytes()
    for length in range(len(data)):
        with pytest.raises(IndexDamagedError, match=r"/s: .*rebuild the index"):
            IndexState.from_bytes(data[:length], "/s")
    with pytest.raises(IndexDamagedError):
        IndexState.from_bytes(data + b" ", "/s")


def test_every_flipped_bit_is_noticed():
    data = STATE.to_bytes()
    for at in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(IndexDamagedError):
            IndexState.from_bytes(bytes(flipped), "/s")


def test_other_versions_are_named():
    with pytest.raises(IndexDamagedError, match="format version 2, this is streamlake for version 1"):
        IndexState.from_bytes(replace(STATE, format=2).to_bytes(), "/s")


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"runs":[{"path":1}]}', b'{"runs":{}}', b"null", b"\xff"])
def test_a_body_of_another_shape_is_noticed(body):
    header = f"streamlake index state 1, {len(body)} bytes, crc32 {zlib.crc32(body):08x}\n".encode()
    with pytest.raises(IndexDamagedError, match="cannot be read"):
        IndexState.from_bytes(header + body, "/s")


@pytest.mark.parametrize("stray", [run(4, "x"), run(-1, "x"), run(0, "x", buckets=8)])
def test_runs_of_other_buckets_are_noticed(stray):
    with pytest.raises(IndexDamagedError, match="contradicts itself"):
        IndexState.from_bytes(replace(STATE, runs=(stray,)).to_bytes(), "/s")
