"""`spark.readStream.format("streamlake-kafka")` on a real broker: records as rows, SQL in between, then the sink."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import DecodeError
from streamlake.pipeline.kafka.kafka_data_source import register
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import AVAILABLE_NOW, CONTINUOUSLY, RUN_SECONDS, KafkaStream, value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.helpers.broker import KafkaBroker


class FrameStream(KafkaStream):
    """The same topic and table with a DataFrame between them."""

    spark: SparkSession

    def frame(self, **options: object) -> DataFrame:
        given = {
            "bootstrap-servers": self.broker.bootstrap_servers,
            "topics": self.topic,
            "schema": "id long, name string",
            **{key.replace("_", "-"): option for key, option in options.items()},
        }
        reader = self.spark.readStream.format("streamlake-kafka")
        for key, option in given.items():
            if option is not None:
                reader = reader.option(key, option)
        return reader.load()

    def write(self, frame: DataFrame, **sink_options: object) -> list[int]:
        """Everything that is there now; returns the rows of each checkpoint."""
        sink = self.sink(**sink_options)
        query = sink.start(frame, checkpoint_location=self.checkpoint, trigger=AVAILABLE_NOW)
        assert query.awaitTermination(RUN_SECONDS)
        return [receipt.rows for receipt in sink.receipts]


@pytest.fixture
def stream(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> FrameStream:
    register(spark)
    stream = FrameStream(kafka_broker, tmp_path, partitions=2)
    stream.spark = spark
    return stream


def test_sql_in_between(stream: FrameStream, spark: SparkSession):
    stream.produce(range(100))
    stream.produce(range(100, 150), partition=1)
    stream.frame(include="partition").createOrReplaceTempView("arrivals")
    shaped = spark.sql("select id, upper(name) as name, `partition` as part from arrivals where id % 2 = 0")
    stream.write(shaped, partition_by=["part"])
    rows = load_table(stream.location).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": n, "name": f"N{n}", "part": int(n >= 100)} for n in range(0, 150, 2)]


def test_restarts_and_new_partitions(stream: FrameStream):
    stream.produce(range(100))
    stream.write(stream.frame())
    stream.write(stream.frame())
    assert stream.ids() == list(range(100))
    stream.produce(range(100, 120), partition=1)
    stream.broker.add_partitions(stream.topic, 3)
    stream.produce(range(120, 130), partition=2)
    stream.write(stream.frame())
    assert stream.ids() == list(range(130))
    for name in ("commits/2", "commits/.2.crc"):
        Path(stream.checkpoint, name).unlink(missing_ok=True)
    stream.produce(range(130, 140), partition=2)
    stream.write(stream.frame(min_partitions=4))
    assert stream.ids() == list(range(140))
    check_table(open_table(stream.location), files_exist=True)


def test_records_that_arrive_while_running_in_steps(stream: FrameStream):
    def start():  # type: ignore[no-untyped-def]
        frame = stream.frame(max_offsets_per_trigger=30)
        return stream.sink().start(frame, checkpoint_location=stream.checkpoint, trigger=CONTINUOUSLY)

    stream.produce(range(100))
    for more in (range(100, 150), range(150, 210)):
        query = start()
        try:
            stream.wait_for_ids(range(more.start), query)
            stream.produce(more, partition=1)
            stream.wait_for_ids(range(more.stop), query)
        finally:
            query.stop()
    snapshots = load_table(stream.location).snapshots
    assert all(int(snapshot.summary["added-records"]) <= 30 for snapshot in snapshots)
    assert stream.ids() == list(range(210))


def test_columns_of_the_record_and_a_spark_schema(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
):
    register(spark)
    stream = FrameStream(kafka_broker, tmp_path, config={"retention.ms": "-1"})
    stream.spark = spark
    at = datetime(2024, 5, 1, 12, 30, 15, 250_000, tzinfo=timezone.utc)
    stream.broker.produce(
        stream.topic,
        [
            (b"k\xff", b'{"id": 1, "s": {"a": [1, null]}, "u": "0f8b1f4c-32c5-4c5b-9a0f-6a1f8d2b3c4d"}'),
            (b"tombstone", None),
        ],
        partition=0,
        headers=[("trace", b"\x00\x01")],
        timestamp_ms=int(at.timestamp() * 1000),
    )
    frame = stream.frame(
        schema="id long, s struct<a: array<int>>, u uuid",
        include="key,topic,partition,offset,timestamp,headers",
    )
    assert dict(frame.dtypes)["u"] == "string"
    stream.write(frame)
    assert load_table(stream.location).scan().to_arrow().to_pylist() == [
        {
            "id": 1,
            "s": {"a": [1, None]},
            "u": "0f8b1f4c-32c5-4c5b-9a0f-6a1f8d2b3c4d",
            "key": b"k\xff",
            "topic": stream.topic,
            "partition": 0,
            "offset": 0,
            "timestamp": at,
            "headers": [{"key": "trace", "value": b"\x00\x01"}],
        }
    ]


def test_an_inferred_schema(stream: FrameStream):
    stream.broker.produce(stream.topic, [b'{"id": 1, "price": 2}', b'{"id": 2, "price": 2.5}'], partition=0)
    frame = stream.frame(schema=None, format="json")
    assert dict(frame.dtypes) == {"id": "bigint", "price": "double"}
    stream.write(frame)
    assert stream.ids() == [1, 2]


def test_kafkas_own_columns(stream: FrameStream):
    stream.broker.produce(stream.topic, [(b"k", b"\x00v"), (b"t", None)], partition=0)
    frame = stream.frame(schema=None, format="raw")
    assert set(frame.columns) == {"key", "value", "topic", "partition", "offset", "timestamp", "headers"}
    stream.write(frame.select("key", "value", "offset"))
    rows = load_table(stream.location).scan().to_arrow().sort_by("offset").to_pylist()
    assert rows == [{"key": b"k", "value": b"\x00v", "offset": 0}, {"key": b"t", "value": None, "offset": 1}]


def test_data_loss(stream: FrameStream):
    stream.produce(range(50))
    stream.write(stream.frame())
    stream.produce(range(50, 100))
    stream.broker.delete_records(stream.topic, {0: 70})
    with pytest.raises(
        StreamingQueryException, match=rf"DataLossError: {stream.topic}-0: offsets 50 to 69 are no"
    ):
        stream.write(stream.frame())
    stream.write(stream.frame(fail_on_data_loss=False))
    assert stream.ids() == [*range(50), *range(70, 100)]


def test_a_record_that_cannot_be_decoded(stream: FrameStream):
    stream.broker.produce(stream.topic, [value(0), b'{"id": 1, "nickname": "x"}'], partition=0)
    with pytest.raises(DecodeError, match=rf"{stream.topic}-0 offset 1: .*nickname"):
        stream.write(stream.frame(**{"json.unknown-fields": "fail"}))
    assert stream.ids() == []
    stream.write(stream.frame())
    assert stream.ids() == [0, 1]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"starting_offset": "earliest"}, "did you mean 'starting-offsets'"),
        ({"schema": "at time"}, "Spark has no type for"),
        ({"topics": None}, "exactly one of topics and topic_pattern"),
    ],
)
def test_mistakes(stream: FrameStream, options: dict[str, object], problem: str):
    with pytest.raises((AnalysisException, StreamingQueryException), match=problem):
        stream.write(stream.frame(**options))
