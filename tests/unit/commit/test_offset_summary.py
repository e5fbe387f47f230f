"""Offsets in a snapshot's summary: short for Kafka, bounded, and read back as they were."""

from __future__ import annotations

import json

import pytest

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.marker import marker_summary
from streamlake.commit.offset_summary import TEXT_LIMIT, committed_offsets, offsets_summary
from streamlake.source.offsets import Partition, SourceOffsets


def text(positions: dict[Partition, int]) -> str:
    return SourceOffsets(positions, first=positions, topic_ids={"orders": "x" * 22}).to_text()


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ({("orders", 1): 98, ("orders", 0): 120}, '{"orders":[120,98]}'),
        ({("orders", 3): 17}, '{"orders":{"3":17}}'),
        ({("b", 0): 1, ("a", 0): 2, ("a", 2): 0}, '{"a":{"0":2,"2":0},"b":[1]}'),
        ({("t", part): part for part in range(12)}, '{"t":[0,1,2,3,4,5,6,7,8,9,10,11]}'),
        ({}, "{}"),
    ],
)
def test_kafka_offsets_are_lists_of_numbers(positions: dict[Partition, int], expected: str) -> None:
    summary = offsets_summary((text({}),), (text(positions),))
    assert summary == {"streamlake.offsets": expected}
    assert committed_offsets(summary) == positions


def test_many_partitions_are_bounded() -> None:
    fits = {("t", part): 1_000_000_000 for part in range(700)}
    summary = offsets_summary((), (text(fits),))
    assert sum(map(len, summary.values())) <= TEXT_LIMIT
    assert committed_offsets(summary) == fits
    wide = {("t", part): part * 1_000_000_000 for part in range(2_000)}
    assert offsets_summary((), (text(wide),)) == {}
    identity = CheckpointIdentity("p", "job", 1, (), (text(wide),))
    assert marker_summary(identity)["streamlake.offsets-digest"] == identity.offsets_digest


@pytest.mark.parametrize("count", [64, 65, 700])
@pytest.mark.parametrize("spread", [0, 1, 255, 256, 70_000, 2**40, 2**62])
def test_offsets_of_wide_topics_are_packed(count: int, spread: int) -> None:
    positions = {("t", part): 7 + part * spread // count for part in range(count)} | {("narrow", 0): 3}
    summary = offsets_summary((), (text(positions),))
    assert committed_offsets(summary) == positions
    stored = json.loads(summary["streamlake.offsets"])
    assert isinstance(stored["t"], str) == (count > 64)
    assert stored["narrow"] == [3]


def test_a_wide_topic_does_not_repeat_itself_in_every_snapshot() -> None:
    positions = {("t", part): 1_000_000_000 + part % 50_000 for part in range(700)}
    listed = json.dumps({"t": list(positions.values())}, separators=(",", ":"))
    identity = CheckpointIdentity("p", "job", 1, (text(positions),), (text(positions),))
    summary = marker_summary(identity)
    assert "streamlake.first-offsets" not in summary
    assert 3 * sum(map(len, summary.values())) < len(listed)
    narrow = CheckpointIdentity("p", "job", 1, (), (text({("t", 0): 1}),))
    assert marker_summary(narrow)["streamlake.first-offsets"] == '{"t":[1]}'


def test_other_sources_keep_their_texts() -> None:
    summary = offsets_summary(('{"logOffset": 1}',), ('{"logOffset": 2}',))
    assert json.loads(summary["streamlake.end-offsets"]) == ['{"logOffset": 2}']
    assert json.loads(summary["streamlake.start-offsets"]) == ['{"logOffset": 1}']
    assert committed_offsets(summary) is None


def test_what_earlier_versions_wrote_is_read() -> None:
    positions = {("orders", 0): 5}
    assert committed_offsets({"streamlake.end-offsets": json.dumps([text(positions)])}) == positions


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"streamlake.offsets": "["},
        {"streamlake.offsets": "[1]"},
        {"streamlake.offsets": '{"t": 1}'},
        {"streamlake.offsets": '{"t": "12+2:AAE"}'},
        {"streamlake.offsets": '{"t": "12+2:AAEC"}'},
        {"streamlake.offsets": '{"t": "12"}'},
        {"streamlake.end-offsets": "1"},
        {"streamlake.end-offsets": '["a", "b"]'},
    ],
)
def test_what_tells_nothing(summary: dict[str, str]) -> None:
    assert committed_offsets(summary) is None
