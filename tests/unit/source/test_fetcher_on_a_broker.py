"""The source on real brokers, without Spark: what brokers and producers do to a log, and what must be read of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError
from kafka.net.transport import KafkaTCPTransport

from streamlake import KafkaSource
from streamlake.errors import DataLossError, DecodeError, SourceError
from streamlake.source import bulk_batches, consumers, expansion, fetcher
from streamlake.source.cluster import KafkaCluster
from streamlake.source.fetcher import fetch_range
from streamlake.source.offsets import OffsetRange
from streamlake.tasks.direct_reader import row_decoder
from tests.helpers.broker import KafkaBroker
from tests.helpers.error_catalogue import documented
from tests.helpers.processes import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
MEGABYTE = 1 << 20
LEADER_NOT_AVAILABLE = 5


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    yield kafka_broker
    consumers.close_idle_consumers()


@pytest.fixture(scope="module")
def second(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Another broker in the cluster of the first."""
    with KafkaBroker(tmp_path_factory.mktemp("second"), beside=kafka_broker) as broker:
        yield broker


def source_of(broker: KafkaBroker, topic: str, **options: object) -> KafkaSource:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return KafkaSource(broker.bootstrap_servers, topic, format="raw", options=named)


def read(
    source: KafkaSource, topic: str, start: int, until: int, chunk: int = 1_000, partition: int = 0
) -> pa.Table:
    batches = list(fetch_range(source, OffsetRange(topic, partition, start, until), chunk_records=chunk))
    return pa.Table.from_batches(batches) if batches else pa.table({"offset": [], "value": [], "key": []})


def log_end(source: KafkaSource, topic: str) -> int:
    with KafkaCluster(source) as cluster:
        return cluster.latest([(topic, 0)])[(topic, 0)]


def test_every_codec_empty_values_null_keys_and_headers(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    written: list[tuple[bytes | None, bytes | None]] = []
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        records = [
            (None, b""),
            (b"", b"x"),
            (b"k", None),
            (None, b"%a" % codec),
            *((b"k", b"v" * n) for n in range(300)),
        ]
        broker.produce(
            topic, records, compression_type=codec, headers=[("h", b"1")] if codec == "lz4" else None
        )
        written += records
    table = read(source_of(broker, topic), topic, 0, len(written))
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == written
    assert table["offset"].to_pylist() == list(range(len(written)))
    assert sum(len(headers) for headers in table["headers"].to_pylist()) == 304
    inside = read(source_of(broker, topic), topic, 150, 450, chunk=100)
    assert inside["offset"].to_pylist() == list(range(150, 450))


def test_record_by_record_where_the_client_cannot_be_read_in_bulk(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic()
    for codec in (None, "zstd"):
        records = [
            (b"k%d" % at if at % 3 else None, b"v" * at if at % 7 or at % 3 == 0 else None)
            for at in range(300)
        ]
        broker.produce(topic, records, compression_type=codec, headers=[("h", b"1"), ("n", b"")])
    source = source_of(broker, topic)
    in_bulk = read(source, topic, 0, 600)
    for module in (consumers, bulk_batches):
        monkeypatch.setattr(module, "bulk_problem", lambda: "it is another one")
    singly = read(source, topic, 0, 600)
    assert singly.to_pylist() == in_bulk.to_pylist()
    assert singly["headers"].to_pylist()[-1] == [{"key": "h", "value": b"1"}, {"key": "n", "value": b""}]
    assert read(source, topic, 150, 450, chunk=100)["offset"].to_pylist() == list(range(150, 450))


def test_messages_of_ten_megabytes(broker: KafkaBroker) -> None:
    topic = broker.create_topic(config={"max.message.bytes": str(16 * MEGABYTE)})
    values = [bytes([at]) * (10 * MEGABYTE + at) for at in range(3)]
    broker.produce(topic, [b"small", *values, b"small"], max_request_size=16 * MEGABYTE)
    table = read(source_of(broker, topic), topic, 0, 5)
    assert [len(value) for value in table["value"].to_pylist()] == [5, *map(len, values), 5]
    assert table["value"].to_pylist()[1:4] == values


def test_aborted_and_committed_transactions(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic, acks="all")
    try:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for at in range(20):
                producer.send(topic, b"%d-%d" % (number, at), partition=0)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()
    committed = source_of(broker, topic)
    until = log_end(committed, topic)
    assert until == 6 * 21  # each transaction ends with a marker, which takes an offset
    values = read(committed, topic, 0, until)["value"].to_pylist()
    assert values == [b"%d-%d" % (number, at) for number in (0, 2, 4) for at in range(20)]
    everything = source_of(broker, topic, isolation_level="read_uncommitted")
    assert read(everything, topic, 0, until).num_rows == 120
    aborted = read(committed, topic, 21, 42)
    assert aborted.num_rows == 0
    inside = read(committed, topic, 50, 100)["offset"].to_pylist()
    assert inside == [*range(50, 62), *range(84, 100)]


def test_a_compacted_topic_with_holes(broker: KafkaBroker) -> None:
    compacted = {
        "cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0",
    }  # fmt: skip
    topic = broker.create_topic(config=compacted)
    source = source_of(broker, topic)
    for number in range(6):
        broker.produce(topic, [(b"k%d" % (at % 10), b"%d" % (number * 100 + at)) for at in range(100)])
        time.sleep(0.06)
    until = log_end(source, topic)
    assert until == 600
    wait_until(lambda: read(source, topic, 0, until).num_rows < 200, 20, "the broker's log cleaner")
    table = read(source, topic, 0, until)
    offsets = table["offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    assert offsets[-10:] == list(range(590, 600))
    assert table["value"].to_pylist() == [b"%d" % offset for offset in offsets]
    hole = next(offset for offset in range(600) if offset not in offsets)
    assert read(source, topic, hole, hole + 1).num_rows == 0


def test_retention_passes_the_start_of_a_range(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [b"%d" % at for at in range(100)])
    broker.delete_records(topic, {0: 60})
    with pytest.raises(
        DataLossError, match=r"offset 10 can no longer be read.*first available offset is 60"
    ) as raised:
        read(source_of(broker, topic), topic, 10, 90)
    documented("data-loss-error", raised.value)
    lenient = source_of(broker, topic, fail_on_data_loss=False)
    assert read(lenient, topic, 10, 90)["offset"].to_pylist() == list(range(60, 90))
    assert read(lenient, topic, 10, 50).num_rows == 0


def test_a_topic_that_is_deleted_before_its_range_is_read(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "_CHECK_SECONDS", 0.5)
    topic = broker.create_topic()
    broker.produce(topic, [b"x"] * 10)
    broker.delete_topic(topic)
    with pytest.raises((DataLossError, SourceError), match=f"{topic}-0"):
        read(source_of(broker, topic, fetch_timeout_ms=8_000), topic, 0, 10)


def test_a_partition_that_was_added(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    source = source_of(broker, topic)
    broker.produce(topic, [b"old"])
    assert read(source, topic, 0, 1).num_rows == 1
    broker.add_partitions(topic, 2)
    broker.produce(topic, [b"new"], partition=1)
    assert read(source, topic, 0, 1, partition=1)["value"].to_pylist() == [b"new"]


def test_a_second_micro_batch_makes_no_connection(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    original = KafkaTCPTransport.__init__

    def count(self: Any, *arguments: Any, **more: Any) -> None:
        made.append(self)
        original(self, *arguments, **more)

    monkeypatch.setattr(KafkaTCPTransport, "__init__", count)
    topic = broker.create_topic()
    broker.produce(topic, [b"%d" % at for at in range(5_000)])
    source = source_of(broker, topic)
    made.clear()
    assert read(source, topic, 0, 2_000).num_rows == 2_000
    assert made
    first = len(made)
    assert read(source, topic, 2_000, 4_000, chunk=100).num_rows == 2_000
    assert read(source_of(broker, topic), topic, 4_000, 5_000).num_rows == 1_000
    assert len(made) == first


def test_who_stops_reading_early_leaves_nothing_behind(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [b"%d" % at for at in range(5_000)])
    source = source_of(broker, topic)
    chunks = fetch_range(source, OffsetRange(topic, 0, 0, 5_000), chunk_records=500)
    assert next(chunks).num_rows >= 500
    chunks.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if "read-ahead" in thread.name]
    assert read(source, topic, 0, 5_000).num_rows == 5_000


def in_small_fetches(broker: KafkaBroker, topic: str, **options: object) -> KafkaSource:
    """A source whose fetches bring few records each, so that most of a range is still with the broker."""
    few = {"kafka.max.partition.fetch.bytes": 4_000, "kafka.fetch.max.bytes": 4_000}
    return source_of(broker, topic, **few, **options)


def test_the_broker_is_restarted_within_a_range(broker: KafkaBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [b"%d" % at for at in range(20_000)])
    source = in_small_fetches(broker, topic)
    chunks = fetch_range(source, OffsetRange(topic, 0, 0, 20_000), ("value",), chunk_records=500)
    values = next(chunks)["value"].to_pylist()
    broker.stop()
    broker.start()
    for chunk in chunks:
        values += chunk["value"].to_pylist()
    assert values == [b"%d" % at for at in range(20_000)]


def test_a_connection_that_is_refused_for_a_moment(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tells of it at times, and reconnects by itself at others."""
    topic = broker.create_topic()
    broker.produce(topic, [b"%d" % at for at in range(2_000)])
    polls = []

    def poll(self: KafkaConsumer, *arguments: object, **named: object) -> object:
        polls.append(1)
        if len(polls) in (2, 3):
            raise KafkaConnectionError("111 ECONNREFUSED")
        return whole(self, *arguments, **named)

    whole = KafkaConsumer.poll
    monkeypatch.setattr(KafkaConsumer, "poll", poll)
    chunks = fetch_range(
        in_small_fetches(broker, topic), OffsetRange(topic, 0, 0, 2_000), ("value",), chunk_records=100
    )
    values = [value for chunk in chunks for value in chunk["value"].to_pylist()]
    assert values == [b"%d" % at for at in range(2_000)]
    assert len(polls) > 3


def state_of(broker: KafkaBroker, topic: str) -> tuple[int, int]:
    """Leader of the topic's partition (-1: none) and error code, as `broker` tells its clients."""
    with broker.admin() as admin:
        (partition,) = admin.describe_topics([topic])[0]["partitions"]
    return partition["leader_id"], partition["error_code"]


def test_the_leader_goes_away_and_comes_back(
    broker: KafkaBroker, second: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "_CHECK_SECONDS", 0.2)
    topic = second.create_topic()
    broker.produce(topic, [b"%d" % at for at in range(20_000)])
    source = in_small_fetches(broker, topic)
    chunks = fetch_range(source, OffsetRange(topic, 0, 0, 20_000), ("value",), chunk_records=500)
    values = next(chunks)["value"].to_pylist()
    with KafkaCluster(source) as cluster, ThreadPoolExecutor(2) as aside:
        assert cluster.latest([(topic, 0)]) == {(topic, 0): 20_000}
        second.stop()
        wait_until(
            lambda: state_of(broker, topic) == (-1, LEADER_NOT_AVAILABLE), 20, "a partition without leader"
        )
        rest = aside.submit(lambda: [value for chunk in chunks for value in chunk["value"].to_pylist()])
        ends = aside.submit(cluster.latest, [(topic, 0)])
        with_short_timeout = source_of(broker, topic, fetch_timeout_ms=1_000)
        with pytest.raises(SourceError, match=f"sent nothing of {topic}-0.*leader is down"):
            read(with_short_timeout, topic, 10_000, 10_001)
        hasty = source_of(broker, topic, **{"kafka.bootstrap.timeout.ms": 500})
        with pytest.raises(SourceError, match=r"answers, but for 0\.5 s not the leader of a partition"):
            log_end(hasty, topic)
        assert not rest.done()
        assert not ends.done()
        second.start()
        assert ends.result(30) == {(topic, 0): 20_000}
        values += rest.result(30)
    assert values == [b"%d" % at for at in range(20_000)]


def test_another_broker_becomes_the_leader_within_a_range(
    broker: KafkaBroker, second: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = second.create_topic()
    broker.produce(topic, [b"%d" % at for at in range(20_000)])
    source = in_small_fetches(broker, topic)
    chunks = fetch_range(source, OffsetRange(topic, 0, 0, 20_000), ("value",), chunk_records=500)
    values = next(chunks)["value"].to_pylist()
    with KafkaCluster(source) as cluster:
        assert cluster.latest([(topic, 0)]) == {(topic, 0): 20_000}
        broker.take_over(topic)
        wait_until(lambda: state_of(second, topic) == (broker.node, 0), 20, "the new leader")
        with caplog.at_level(logging.DEBUG, "kafka.consumer.fetcher"):
            for chunk in chunks:
                values += chunk["value"].to_pylist()
        assert cluster.latest([(topic, 0)]) == {(topic, 0): 20_000}
    assert "NotLeaderForPartitionError" in caplog.text
    assert values == [b"%d" % at for at in range(20_000)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_that_grow_are_read_in_parts(
    broker: KafkaBroker, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record is lost between the parts, from wherever a range begins, and one that is too large is there to be refused."""
    topic = broker.create_topic()
    written = [bytes([65 + at % 26]) * (at * 37 % 4_000) for at in range(500)]
    written[250] = b"Z" * 200_000
    broker.produce(topic, [(b"k", value) for value in written], compression_type=codec)
    monkeypatch.setattr(expansion, "BLOCK_BYTES", 20_000)
    source = source_of(broker, topic, **{"record.max-bytes": "50000"})
    for start, until in ((0, 500), (3, 251), (250, 251), (251, 500), (499, 500)):
        table = read(source, topic, start, until)
        wanted = [value[:50_001] for value in written[start:until]]
        assert table["offset"].to_pylist() == list(range(start, until))
        assert table["value"].to_pylist() == wanted
    decoder = row_decoder(source)
    raw = next(fetch_range(source, OffsetRange(topic, 0, 250, 251)))
    assert [reject.reason for reject in decoder.decode(raw, keep_rejects=True).rejects] == [
        "it has more bytes than record.max-bytes allows, 50000"
    ]
    with pytest.raises(DecodeError, match=rf"{topic}-0 offset 250: it has more bytes"):
        decoder.decode(raw)
