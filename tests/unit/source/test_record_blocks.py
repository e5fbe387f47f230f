"""Record batches parsed in bulk, against kafka-python's own record by record walk."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from streamlake import KafkaSource
from streamlake.errors import SourceError
from streamlake.source import bulk_batches, consumers, record_blocks, topic_now, wide_reads
from streamlake.source.bulk_batches import BulkWalk, block_of
from streamlake.source.record_blocks import RecordBlock, parse_blocks

BYTES = st.one_of(st.none(), st.binary(max_size=300), st.integers(0, 3).map(lambda n: b"x" * (n * 9_000)))
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=200))), max_size=4)
RECORDS = st.lists(st.tuples(st.integers(0, 2**45), BYTES, BYTES, HEADERS), min_size=1, max_size=40)
LIKE_RECORDS = [b"\0", b"\x0c\0\0\0\1\1\0", b"\x0e\0\0\0\1\2x\0", b"\x12\0\0\0", b"x" * 70, b"\0\x0c\0\0"]
"""Bytes that are a record, or begin like one, inside the values of records."""
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}


def batch_bytes(records, codec=0, offset=0, transactional=False):
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    builder = MemoryRecordsBuilder(
        magic=2,
        compression_type=codec,
        batch_size=1 << 30,
        offset=offset,
        transactional=transactional,
        **producer,
    )
    for timestamp, key, value, headers in records:
        assert builder.append(timestamp=timestamp, key=key, value=value, headers=headers) is not None
    builder.close()
    return bytes(builder.buffer())


def walk(kind, data, fetch_offset=0, level=IsolationLevel.READ_UNCOMMITTED, aborted=None):
    part = kind(
        fetch_offset,
        TopicPartition("t", 3),
        MemoryRecords(data),
        check_crcs=True,
        isolation_level=level,
        aborted_transactions=aborted,
    )
    records = []
    while part:
        records += part.take(5)
    return records, part.next_fetch_offset


def expected_rows(data, fetch_offset=0, **settings):
    records, position = walk(Fetcher.PartitionRecords, data, fetch_offset, **settings)
    rows = [(r.offset, r.timestamp, r.key, r.value, [(k, v) for k, v in r.headers]) for r in records]
    return rows, position


def bulk_rows(data, fetch_offset=0, kind=BulkWalk, **settings):
    records, position = walk(kind, data, fetch_offset, **settings)
    batch = parse_blocks([block_of(record) for record in records], "t", 3)
    rows = []
    micros = batch.column("timestamp").cast("int64").to_pylist()
    for row, moment in zip(batch.to_pylist(), micros, strict=True):
        if row["offset"] < fetch_offset:
            continue
        headers = [(entry["key"], entry["value"]) for entry in row["headers"]]
        rows.append((row["offset"], moment // 1000, row["key"], row["value"], headers))
        assert (row["topic"], row["partition"]) == ("t", 3)
    return rows, position


@settings(deadline=None, max_examples=60)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from(sorted(CODECS)), st.integers(0, 2**30))
def test_bulk_equals_the_walk(batches, codec, offset):
    data, at = b"", offset
    for records in batches:
        data += batch_bytes(records, CODECS[codec], at)
        at += len(records)
    fetch_offset = offset + len(batches[0]) // 2
    assert bulk_rows(data, fetch_offset) == expected_rows(data, fetch_offset)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**33),
            st.one_of(st.none(), st.binary(max_size=6)),
            st.one_of(st.none(), st.lists(st.sampled_from(LIKE_RECORDS), max_size=4).map(b"".join)),
            st.just([]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_where_records_begin_is_not_mistaken_for_what_looks_like_it(records):
    data = batch_bytes(records)
    assert bulk_rows(data) == expected_rows(data)


def test_records_of_text_are_found_without_a_walk(monkeypatch):
    def walked(*_):
        raise AssertionError("walked record by record")

    records = [(at, b"%d" % at, b'{"id": %d}' % at * (at % 90), []) for at in range(700)]
    data = batch_bytes(records) + batch_bytes(records, offset=700)
    expected = expected_rows(data)
    monkeypatch.setattr(record_blocks, "_chain", walked)
    assert bulk_rows(data) == expected


def test_aborted_transactions_are_left_out():
    class Aborted:
        producer_id, first_offset = 7, 2

    one = (5, b"k", b"v", [])
    data = (
        batch_bytes([one, one])
        + batch_bytes([one], offset=2, transactional=True)
        + batch_bytes([one], offset=3)
    )
    committed = {"level": IsolationLevel.READ_COMMITTED, "aborted": [Aborted()]}
    rows, position = bulk_rows(data, **committed)
    assert [row[0] for row in rows] == [0, 1, 3]
    assert (rows, position) == expected_rows(data, **committed)


def test_only_wanted_columns_are_filled():
    records, _ = walk(BulkWalk, batch_bytes([(5, b"k", b"v", [("h", b"x")])]))
    batch = parse_blocks([block_of(records[0])], "t", 0, ("value",))
    assert batch.column("key").null_count == batch.column("headers").null_count == 1
    assert batch.column("value").to_pylist() == [b"v"]


def test_log_append_time_is_the_time_of_all_records():
    records, _ = walk(BulkWalk, batch_bytes([(5, None, b"a", []), (6, None, b"b", [])]))
    block = block_of(records[0])
    stamped = RecordBlock(block.base_offset, block.last_offset, block.count, block.payload, 5, 1_234)
    times = parse_blocks([stamped], "t", 0).column("timestamp").cast("int64")
    assert times.to_pylist() == [1_234_000, 1_234_000]


def test_old_message_formats_become_blocks():
    builder = MemoryRecordsBuilder(magic=1, compression_type=0, batch_size=1 << 20, offset=9)
    builder.append(timestamp=77, key=None, value=b"old", headers=[])
    builder.append(timestamp=78, key=b"k" * 200, value=None, headers=[])
    builder.close()
    records, _ = walk(BulkWalk, bytes(builder.buffer()))
    rows = parse_blocks([block_of(record) for record in records], "t", 0).to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (9, None, b"old"),
        (10, b"k" * 200, None),
    ]


def test_a_time_of_zero_is_a_time():
    builder = MemoryRecordsBuilder(magic=1, compression_type=0, batch_size=1 << 20, offset=9)
    builder.append(timestamp=0, key=None, value=b"old", headers=[])
    builder.close()
    records, _ = walk(BulkWalk, bytes(builder.buffer()))
    times = parse_blocks([block_of(record) for record in records], "t", 0).column("timestamp").cast("int64")
    assert times.to_pylist() == [0]


@settings(deadline=None, max_examples=60)
@given(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from(sorted(CODECS)))
def test_single_records_lose_nothing(batches, codec):
    data, offset = b"", 5
    for records in batches:
        data += batch_bytes(records, CODECS[codec], offset)
        offset += len(records)
    assert bulk_rows(data, 7, kind=Fetcher.PartitionRecords) == expected_rows(data, 7)


class _OtherWalk(Fetcher.PartitionRecords):
    """That of a client that does not look for its batches where this one does."""


class _OtherNames:
    def __init__(self, fetch_offset, tp, records):
        self.records = records


@pytest.fixture
def warnings_again():
    """Each warning is logged once per process; here once per test."""
    cached = (bulk_batches.bulk_problem, bulk_batches._warn, wide_reads._warn)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@pytest.mark.parametrize("walk", [_OtherWalk, _OtherNames, object])
@pytest.mark.usefixtures("warnings_again")
def test_a_client_with_another_walk_is_read_record_by_record(walk, monkeypatch, caplog):
    assert bulk_batches.bulk_problem() is None
    bulk_batches.bulk_problem.cache_clear()
    monkeypatch.setattr(bulk_batches, "BulkWalk", walk)
    consumer = SimpleNamespace(_fetcher=SimpleNamespace(PartitionRecords=Fetcher.PartitionRecords))
    for _ in range(2):
        bulk_batches.read_in_bulk(consumer)
    assert consumer._fetcher.PartitionRecords is Fetcher.PartitionRecords
    [warning] = [record for record in caplog.records if record.name == bulk_batches.__name__]
    assert "Records are read one at a time, with the same result" in warning.getMessage()
    assert consumers.consumer_arguments(KafkaSource("b:1", "t", format="raw"))["max_poll_records"] == 8_192


@pytest.mark.usefixtures("warnings_again")
def test_a_consumer_without_a_known_fetcher_is_read_record_by_record(caplog):
    bulk_batches.read_in_bulk(SimpleNamespace())
    assert "has no fetcher" in caplog.text


@pytest.mark.usefixtures("warnings_again")
def test_a_client_that_cannot_read_widely_is_used_as_it_is(monkeypatch, caplog):
    assert wide_reads.client_arguments() == {"kafka_client": wide_reads.WideClient}
    monkeypatch.setattr(wide_reads, "KafkaNetClient", None)
    assert wide_reads.client_arguments() == {}
    assert "cannot be given larger reads" in caplog.text


def test_a_client_that_cannot_be_asked_for_topics_is_refused():
    with pytest.raises(SourceError, match=r"kafka-python \S+ is not a version that streamlake reads with"):
        topic_now.require_topic_questions(SimpleNamespace(_client=SimpleNamespace(send=None)))


def test_the_tested_clients_are_those_that_are_required():
    assert topic_now.TESTED_CLIENTS in Path(__file__).parents[3].joinpath("pyproject.toml").read_text()


def test_no_blocks_are_no_rows():
    assert parse_blocks([], "t", 0).num_rows == 0


@settings(deadline=None, max_examples=80)
@given(RECORDS, st.data())
def test_damage_is_an_error_and_never_a_crash(records, data):
    found, _ = walk(BulkWalk, batch_bytes(records))
    block = block_of(found[0])
    payload = bytearray(block.payload)
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    damaged = RecordBlock(block.base_offset, block.last_offset, block.count, bytes(payload), 0, None)
    with contextlib.suppress(SourceError):
        rows = parse_blocks([damaged], "t", 0)
        rows.validate(full=True)
        assert rows.num_rows == block.count


def test_a_block_that_is_cut_short_is_refused():
    found, _ = walk(BulkWalk, batch_bytes([(5, b"k", b"value", [])] * 3))
    block = block_of(found[0])
    for size in range(len(block.payload)):
        cut = RecordBlock(0, 2, 3, bytes(block.payload[:size]), 0, None)
        with pytest.raises(SourceError, match="t-0 from offset 0"):
            parse_blocks([cut], "t", 0)
