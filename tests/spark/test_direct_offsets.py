"""Ticks and the log of Kafka offsets: what is read again, who waits, who is fenced, what is refused."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake import load_table
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.commit.offset_summary import kafka_offsets
from streamlake.errors import DataLossError, FencedError, SourceError
from streamlake.pipeline.direct.offset_log import OffsetLog
from streamlake.pipeline.kafka.direct_offsets import KAFKA_OFFSETS
from streamlake.source.offsets import SourceOffsets
from tests.helpers.kafka_stream import CONTINUOUSLY, RUN_SECONDS, KafkaStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker


@pytest.fixture
def stream(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> KafkaStream:
    return KafkaStream(kafka_broker, tmp_path)


def entry(stream: KafkaStream, number: int) -> Path:
    return Path(stream.checkpoint, "streamlake", "offsets", str(number))


def test_an_entry_is_never_written_over_and_is_forgotten_after_sparks(spark: SparkSession, tmp_path: Path):
    name = "spark.sql.streaming.minBatchesToRetain"
    kept = spark.conf.get(name)
    spark.conf.set(name, "2")
    try:
        log = OffsetLog(spark, str(tmp_path), KAFKA_OFFSETS)
    finally:
        spark.conf.set(name, kept)
    ends = [SourceOffsets({("t", 0): number}) for number in range(30)]
    for number, end in enumerate(ends):
        log.add(number, end)
    assert log.read(29) == ends[29]
    with pytest.raises(FencedError, match="only one is started"):
        log.add(29, ends[0])
    assert log.read(29) == ends[29]
    names = {path.name for path in (tmp_path / "streamlake" / "offsets").iterdir()}
    assert {name for name in names if name.isdigit()} == {str(number) for number in range(8, 30)}
    assert not [name for name in names if "tmp" in name]
    assert log.read(7) is None


def test_a_tick_that_waits_reads_nothing_and_is_stopped_at_once(stream: KafkaStream):
    stream.produce(range(10))
    query, _ = stream.start(CONTINUOUSLY)
    try:
        stream.wait_for_ids(range(10), query)
        query.processAllAvailable()
        directory = SparkDirectory(stream.checkpoint)
        assert directory.last_planned == directory.last_completed == 0
        snapshots = len(load_table(stream.location).snapshots)
        time.sleep(1)
        assert query.isActive
        assert not entry(stream, 1).exists()
        started = time.monotonic()
    finally:
        query.stop()
    assert time.monotonic() - started < 5
    assert query.exception() is None
    assert query.awaitTermination(RUN_SECONDS) is True
    stream.produce(range(10, 20))
    stream.run()
    assert stream.ids() == list(range(20))
    assert len(load_table(stream.location).snapshots) == snapshots + 1
    assert entry(stream, 1).exists()


def test_spark_itself_stops_a_query_that_waits(spark: SparkSession, stream: KafkaStream):
    stream.produce(range(5))
    query, _ = stream.start(CONTINUOUSLY)
    stream.wait_for_ids(range(5), query)
    [plain] = spark.streams.active
    started = time.monotonic()
    plain.stop()
    assert time.monotonic() - started < 5
    assert not query.isActive
    assert query.exception() is None
    query.stop()


def test_processing_all_that_is_there_while_more_arrives(stream: KafkaStream):
    query, _ = stream.start({"processingTime": "200 milliseconds"}, max_offsets_per_trigger=30)
    try:
        for first in range(0, 200, 50):
            stream.produce(range(first, first + 50))
            query.processAllAvailable()
            assert stream.ids() == list(range(first + 50))
    finally:
        query.stop()


def test_a_checkpoint_is_read_again_as_its_entry_says(stream: KafkaStream):
    """Killed between the entry and the commit: what was produced meanwhile belongs to the next one."""
    stream.produce(range(10))
    stream.run()
    stream.produce(range(10, 20))
    stream.run()
    for path in (
        entry(stream, 2),
        Path(stream.checkpoint, "offsets", "2"),
        Path(stream.checkpoint, "offsets", ".2.crc"),
    ):
        path.unlink(missing_ok=True)
    for name in ("1", ".1.crc"):
        Path(stream.checkpoint, "commits", name).unlink(missing_ok=True)
    stream.produce(range(20, 30))
    sink = stream.run()
    assert [receipt.checkpoint_id for receipt in sink.receipts] == [1, 2]
    directory = SparkDirectory(stream.checkpoint)
    assert [kafka_offsets(directory.end_offsets(number) or ()) for number in range(3)] == [
        {(stream.topic, 0): 10},
        {(stream.topic, 0): 20},
        {(stream.topic, 0): 30},
    ]
    assert stream.ids() == list(range(30))


def test_a_checkpoint_of_a_topic_that_was_made_anew_is_not_read_again(stream: KafkaStream):
    """Killed between the entry and the commit; the new topic has records at the offsets of the old one."""
    stream.produce(range(10))
    stream.run()
    end = entry(stream, 0).read_text().replace('": 10', '": 20')
    entry(stream, 1).write_text(end)
    stream.produce(range(10, 20))
    stream.recreate_topic()
    stream.produce(range(100, 130))
    query, sink = stream.start(CONTINUOUSLY)
    with pytest.raises(DataLossError, match=f"topic {stream.topic} was deleted and created again"):
        query.awaitTermination(RUN_SECONDS)
    assert isinstance(sink.error, DataLossError)
    assert stream.ids() == list(range(10))
    stream.run(fail_on_data_loss=False)
    assert stream.ids() == [*range(10), *range(100, 130)]


def test_another_driver_has_planned_the_checkpoint_meanwhile(stream: KafkaStream):
    stream.produce(range(10))
    query, sink = stream.start(CONTINUOUSLY)
    stream.wait_for_ids(range(10), query)
    query.processAllAvailable()
    entry(stream, 1).write_bytes(entry(stream, 0).read_bytes())
    stream.produce(range(10, 20))
    with pytest.raises(FencedError, match="another driver runs the same checkpoint directory"):
        query.awaitTermination(RUN_SECONDS)
    assert isinstance(sink.error, FencedError)
    assert stream.ids() == list(range(10))


def test_a_directory_without_its_entries_is_refused(stream: KafkaStream):
    stream.produce(range(10))
    stream.run()
    entry(stream, 0).unlink()
    with pytest.raises(SourceError, match=r"streamlake/offsets/0 is missing.*starting-offsets"):
        stream.run()


def test_what_a_copy_of_a_running_directory_lacks_is_told(stream: KafkaStream):
    """Spark has finished the checkpoint, and its entry is not there: the one before is not where it ended."""
    stream.produce(range(10))
    stream.run()
    stream.produce(range(10, 20))
    stream.run()
    for name in ("2", ".2.crc"):
        Path(stream.checkpoint, "offsets", name).unlink(missing_ok=True)
    entry(stream, 1).unlink()
    with pytest.raises(SourceError, match=r"streamlake/offsets/1 is missing"):
        stream.run()


def test_a_directory_of_another_kind_of_query_is_refused(spark: SparkSession, stream: KafkaStream):
    stream.produce(range(10))
    frame = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    done = threading.Event()
    query = (
        frame.writeStream.foreachBatch(lambda *_: done.set())
        .option("checkpointLocation", stream.checkpoint)
        .start()
    )
    try:
        assert done.wait(RUN_SECONDS)
    finally:
        query.stop()
    with pytest.raises(
        SourceError, match="not the offset log of a query that reads Kafka or a table directly"
    ):
        stream.run()


def test_a_trigger_without_micro_batches_is_refused_and_once_ends(stream: KafkaStream):
    stream.produce(range(10))
    query, _ = stream.start({"once": True})
    assert query.awaitTermination(RUN_SECONDS) is True
    assert stream.ids() == list(range(10))
