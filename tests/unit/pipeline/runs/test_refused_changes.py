"""Changes that writer tasks refuse: their records are found again, and go to the rejects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamlake.decode.rejected_records import REJECTS, RejectStamp
from streamlake.errors import DecodeError
from streamlake.pipeline.runs.rejected import refused_changes as module
from streamlake.pipeline.runs.rejected.refused_changes import not_kept, refused_changes, write_refused
from streamlake.source.kafka_source import KafkaSource
from streamlake.write.files.result import Refused, WriteResult
from tests.unit.decode.raw_records import raw_batch
from tests.unit.write.targets import make_target, read_all

SOURCE = KafkaSource("h:1", "orders", schema="id long")
STAMP = RejectStamp("p", 3, 1_700_000_000_000_000)


def rejects_target(location):
    return replace(make_target(location), schema=REJECTS)


def result(*refused):
    return WriteResult("job", 3, 0, 0, refused=refused)


def refused(offset, topic="orders", partition=3):
    return Refused(topic, partition, offset, f"{offset} lacks a value")


@pytest.fixture
def fetched(monkeypatch):
    """The ranges that are fetched, of a topic whose value is the offset."""
    ranges = []

    def fetch(source, piece, columns):
        ranges.append((piece.topic, piece.partition, piece.start, piece.until))
        offsets = range(piece.start, piece.until)
        yield raw_batch([{"value": str(at)} for at in offsets], piece.topic, piece.start)

    monkeypatch.setattr(module, "fetch_range", fetch)
    return ranges


def test_records_are_fetched_again_those_near_each_other_together(fetched, tmp_path):
    found = refused_changes([result(refused(7), refused(5)), result(), result(refused(900_000))])
    written = write_refused(SOURCE, found, rejects_target(tmp_path), STAMP)
    assert fetched == [("orders", 3, 5, 8), ("orders", 3, 900_000, 900_001)]
    rows = read_all(written.data_files).to_pylist()
    assert [(row["offset"], row["value"], row["error_message"]) for row in rows] == [
        (at, str(at).encode(), f"{at} lacks a value") for at in (5, 7, 900_000)
    ]
    assert {(row["error_class"], row["pipeline"], row["checkpoint_id"]) for row in rows} == {
        ("SchemaMismatchError", "p", 3)
    }


def test_a_change_without_a_record_is_an_error():
    with pytest.raises(DecodeError, match="Its record is not known"):
        refused_changes([result(Refused(None, None, None, "it lacks a value"))])


def test_a_record_that_is_gone_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "fetch_range", lambda *_: iter(()))
    with pytest.raises(DecodeError, match="0 of their records are still in Kafka"):
        write_refused(SOURCE, [refused(1)], rejects_target(tmp_path), STAMP)


def test_without_rejects_it_says_what_to_do():
    text = str(not_kept([refused(1), refused(2)]))
    assert "orders-3 offset 1: 1 lacks a value; 2 changes" in text
    assert "on_error='reject'" in text
