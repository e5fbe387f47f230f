"""A user's own program with nothing but pip: no jar, no settings. `plain_session.py HOME MASTER [SERVERS TOPIC]`.

With a topic of Kafka it streams that too, directly into the table `direct`, and with SQL in between into `shaped`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from streamlake import IcebergSink, KafkaSource, load_table


def main(home: Path, master: str, servers: str = "", topic: str = "") -> None:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    jars = spark.sparkContext._jsc.sc().listJars().mkString(",")
    (home / "landing").mkdir()
    for number in range(3):
        rows = spark.range(number * 1000, (number + 1) * 1000, 1, 4).withColumn(
            "part", (col("id") % 3).cast("int")
        )
        rows.write.mode("append").parquet(str(home / "landing"))
    frame = spark.readStream.schema("id bigint, part int").option("maxFilesPerTrigger", 4)
    sink = IcebergSink(
        str(home / "table"),
        create=True,
        partition_by=["part"],
        properties={"write.distribution-mode": "none"},
    )
    query = sink.start(
        frame.parquet(str(home / "landing")),
        checkpoint_location=str(home / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()

    def where(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        for _ in batches:
            yield pa.record_batch({"parent": [os.getppid()]})

    executors = {row.parent for row in spark.range(0, 8, 1, 8).mapInArrow(where, "parent long").collect()}
    ids = load_table(str(home / "table")).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    answer = {
        "jars": jars,
        "ids": len(ids),
        "read_by_spark": spark.read.format("streamlake").load(str(home / "table")).count(),
        "distinct": len(set(ids)),
        "snapshots": len(load_table(str(home / "table")).snapshots),
        "daemons": len(executors),
    }
    if topic:
        _stream_topic(spark, home, servers, topic)
    print("ANSWER " + json.dumps(answer))
    spark.stop()


def _stream_topic(spark: SparkSession, home: Path, servers: str, topic: str) -> None:
    source = KafkaSource(
        bootstrap_servers=servers,
        topics=[topic],
        schema="id long, part int",
        options={"max-offsets-per-trigger": 1000, "min-partitions": 4},
    )
    reader = spark.readStream.format("streamlake-kafka").option("bootstrap-servers", servers)
    frame = reader.option("topics", topic).option("schema", "id long, part int").load()
    for name, records in {"direct": source, "shaped": frame.where("part = 1")}.items():
        sink = IcebergSink(str(home / name), create=True)
        query = sink.start(
            records, checkpoint_location=str(home / f"{name}-checkpoint"), trigger={"availableNow": True}
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
