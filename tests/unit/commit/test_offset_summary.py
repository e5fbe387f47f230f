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
    wide = {("t", part): 1_000_000_000 for part in range(1_000)}
    assert offsets_summary((), (text(wide),)) == {}
    identity = CheckpointIdentity("p", "job", 1, (), (text(wide),))
    assert marker_summary(identity)["streamlake.offsets-digest"] == identity.offsets_digest


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
        {"streamlake.end-offsets": "1"},
        {"streamlake.end-offsets": '["a", "b"]'},
    ],
)
def test_what_tells_nothing(summary: dict[str, str]) -> None:
    assert committed_offsets(summary) is None
