"""An idle topic: what is staged is committed without waiting for the next record, and a commit that failed is noticed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import IcebergTables, KafkaSource, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import StorageError
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import AVAILABLE_NOW, CONTINUOUSLY, RUN_SECONDS, KafkaStream
from tests.helpers.processes import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

LONG = {"commit.retry.num-retries": "1000", "commit.retry.min-wait-ms": "20000"}
SHORT = {"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "10"}


@pytest.fixture
def stream(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> KafkaStream:
    return KafkaStream(kafka_broker, tmp_path)


def away(patch: pytest.MonkeyPatch) -> None:
    """The catalog takes the first checkpoint and no other."""
    commit = Committer.commit

    def committed(self: Committer, committable: Any, *more: Any) -> CommitReceipt:
        if committable.identity.checkpoint_id >= 1:
            raise StorageError("the catalog is away")
        return commit(self, committable, *more)

    patch.setattr(Committer, "commit", committed)


def leave_staged(stream: KafkaStream, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """Two checkpoints that are done for Spark and staged; the query is stopped in the middle of an outage."""
    with monkeypatch.context() as patch:
        away(patch)
        stream.produce(range(10))  # before the query is there, whose first checkpoint is empty else
        query, _ = stream.start(
            CONTINUOUSLY, stream.sink(max_pending_checkpoints=4, properties=LONG, **settings)
        )
        query.processAllAvailable()
        for checkpoint_id in (1, 2):
            stream.produce(range(10 * checkpoint_id, 10 * checkpoint_id + 10))
            wait_until(
                lambda done=checkpoint_id: SparkDirectory(stream.checkpoint).last_completed >= done,  # type: ignore[misc]
                RUN_SECONDS,
                "a checkpoint that is done for Spark",
            )
        query.stop()
    assert stream.ids() == list(range(10))


@pytest.mark.parametrize("trigger", [CONTINUOUSLY, AVAILABLE_NOW], ids=["continuously", "available-now"])
def test_what_was_staged_is_committed_though_no_record_comes(
    stream: KafkaStream, trigger: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_staged(stream, monkeypatch)
    planned = SparkDirectory(stream.checkpoint).last_completed
    if trigger is AVAILABLE_NOW:
        stream.run(stream.sink(max_pending_checkpoints=4))
        assert stream.ids() == list(range(30))
    else:
        query, _ = stream.start(trigger, stream.sink(max_pending_checkpoints=4))
        try:
            stream.wait_for_ids(range(30), query)
            assert SparkDirectory(stream.checkpoint).last_completed == planned, "no empty micro-batch"
            stream.produce(range(30, 40))
            query.processAllAvailable()
            stream.wait_for_ids(range(40), query)
        finally:
            query.stop()
    stream.produce(range(40, 45))
    stream.run(stream.sink())
    assert stream.ids() == [*range(30 if trigger is AVAILABLE_NOW else 40), *range(40, 45)]
    table = open_table(stream.location)
    check_table(table, files_exist=True)
    assert len(table.snapshots) == SparkDirectory(stream.checkpoint).last_completed + 1


def test_a_commit_that_fails_ends_an_idle_query(stream: KafkaStream, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        away(patch)
        stream.produce(range(10))  # before the query is there, which else may take them in two checkpoints
        query, sink = stream.start(CONTINUOUSLY, stream.sink(max_pending_checkpoints=4, properties=SHORT))
        stream.wait_for_ids(range(10), query)
        stream.produce(range(10, 20))
        started = time.monotonic()
        with pytest.raises(StorageError, match=r"the catalog is away\. checkpoint 1 .* is staged"):
            query.awaitTermination(RUN_SECONDS)
        assert time.monotonic() - started < 30
        assert isinstance(sink.error, StorageError)
    stream.run(stream.sink())
    assert stream.ids() == list(range(20))


def test_each_of_many_tables_commits_what_it_has_staged(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [kafka_broker.create_topic() for _ in range(3)]
    source = KafkaSource(kafka_broker.bootstrap_servers, topics, schema="id long")
    checkpoint = str(tmp_path / "checkpoint")

    def ids(topic: str) -> list[int]:
        return sorted(load_table(str(tmp_path / topic)).scan().to_arrow()["id"].to_pylist())

    def produce(number: int) -> None:
        for topic in topics[:2] if number else topics:
            kafka_broker.produce(topic, [json.dumps({"id": number}).encode()])

    made: list[IcebergTables] = []

    def start(trigger: dict[str, Any], **settings: Any) -> Any:
        tables = IcebergTables(str(tmp_path / "{topic}"), max_pending_checkpoints=4, **settings)
        made.append(tables)
        return tables.start(source, checkpoint_location=checkpoint, trigger=trigger)

    produce(0)
    assert start(AVAILABLE_NOW, properties=LONG).awaitTermination(RUN_SECONDS)
    with monkeypatch.context() as patch:
        away(patch)
        query = start(CONTINUOUSLY)
        produce(1)
        wait_until(
            lambda: SparkDirectory(checkpoint).last_completed >= 1, RUN_SECONDS, "the second checkpoint"
        )
        query.stop()
    assert [ids(topic) for topic in topics] == [[0], [0], [0]]
    query = start(CONTINUOUSLY)
    try:
        wait_until(lambda: ids(topics[0]) == ids(topics[1]) == [0, 1], 30, "what is staged for two tables")
        assert query.isActive
    finally:
        query.stop()
    assert ids(topics[2]) == [0]
    assert sorted(Path(str(each.table)).name for each in made[0].receipts) == sorted(topics)


def test_each_of_the_tables_that_rows_name_commits_what_it_has_staged(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_broker.create_topic()
    source = KafkaSource(kafka_broker.bootstrap_servers, topic, schema="id long, country string")
    checkpoint = str(tmp_path / "checkpoint")

    def ids(country: str) -> list[int]:
        return sorted(load_table(str(tmp_path / f"of_{country}")).scan().to_arrow()["id"].to_pylist())

    def produce(number: int, *countries: str) -> None:
        kafka_broker.produce(
            topic, [json.dumps({"id": number, "country": each}).encode() for each in countries]
        )

    def start(trigger: dict[str, Any], **settings: Any) -> Any:
        tables = IcebergTables(str(tmp_path / "of_{row.country}"), max_pending_checkpoints=4, **settings)
        return tables.start(source, checkpoint_location=checkpoint, trigger=trigger)

    produce(0, "de", "fr", "es")
    assert start(AVAILABLE_NOW, properties=LONG).awaitTermination(RUN_SECONDS)
    with monkeypatch.context() as patch:
        away(patch)
        query = start(CONTINUOUSLY)
        produce(1, "de", "fr")
        wait_until(
            lambda: SparkDirectory(checkpoint).last_completed >= 1, RUN_SECONDS, "the second checkpoint"
        )
        query.stop()
    assert [ids(country) for country in ("de", "fr", "es")] == [[0], [0], [0]]
    query = start(CONTINUOUSLY)
    try:
        wait_until(lambda: ids("de") == ids("fr") == [0, 1], 60, "what is staged for two tables")
        assert query.isActive
        produce(2, "de", "it")
        query.processAllAvailable()
        wait_until(lambda: ids("de") == [0, 1, 2], RUN_SECONDS, "what comes later")
    finally:
        query.stop()
    assert (ids("fr"), ids("es"), ids("it")) == ([0, 1], [0], [2])
    for country in ("de", "fr", "es", "it"):
        check_table(open_table(str(tmp_path / f"of_{country}")), files_exist=True)
