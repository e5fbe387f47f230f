"""Spark's run in a process of its own: `python spark_run.py SERVERS TOPIC MODE LOCATION BATCH`; prints one JSON object.

Spark's Kafka source, from_json, and Iceberg's Spark runtime: its streaming sink for MODE append, MERGE INTO in foreachBatch,
merge-on-read, for upsert and debezium; `-v2` or `-v3` behind MODE is the table's format version. BATCH is the number of
messages of a micro-batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

STARTED = time.time()

from streamlake import load_table  # noqa: E402
from tests.bench.peers import SCHEMA, micro_batches  # noqa: E402
from tests.bench.peers.our_run import totals  # noqa: E402
from tests.bench.peers.parts import SPARK_KAFKA  # noqa: E402
from tests.helpers.jars import iceberg_runtime, jars  # noqa: E402
from tests.helpers.spark import ICE_CATALOG, build_session  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("merge", "update", "delete")}
COLUMNS = [column.split()[0] for column in SCHEMA.split(", ")]
NULLABLE = SCHEMA.replace(" not null", "")
IN_DEBEZIUM = NULLABLE.replace("ts timestamp_ntz", "ts bigint")
TABLE = f"{ICE_CATALOG}.db.t"
NEWEST = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY _at DESC) AS _rank FROM changes) WHERE _rank = 1"
VALUES = ", ".join(f"c.{name}" for name in COLUMNS)
ASSIGNMENTS = ", ".join(f"t.{name} = c.{name}" for name in COLUMNS)
MERGE = f"""
MERGE INTO {TABLE} AS t USING ({NEWEST}) AS c ON t.id = c.id
WHEN MATCHED AND c._op = 'd' THEN DELETE
WHEN MATCHED THEN UPDATE SET {ASSIGNMENTS}
WHEN NOT MATCHED AND c._op <> 'd' THEN INSERT ({", ".join(COLUMNS)}) VALUES ({VALUES})
"""


def rows_of(frame: DataFrame, mode: str) -> DataFrame:
    """The table's columns, and for upserts `_op` and `_at` beside them."""
    if mode == "append":
        return frame.selectExpr(f"from_json(cast(value AS string), '{NULLABLE}') AS v").select("v.*")
    if mode == "upsert":
        parsed = frame.selectExpr(f"from_json(cast(value AS string), '{NULLABLE}') AS v", "offset AS _at")
        return parsed.selectExpr("v.*", "'u' AS _op", "_at")
    envelope = f"before struct<id: bigint>, after struct<{IN_DEBEZIUM}>, op string"
    parsed = frame.where("value IS NOT NULL").selectExpr(
        f"from_json(cast(value AS string), '{envelope}') AS v", "offset AS _at"
    )
    after = {name: f"v.after.{name}" for name in COLUMNS}
    after["id"] = "coalesce(v.after.id, v.before.id)"
    after["ts"] = "cast(timestamp_micros(v.after.ts) AS timestamp_ntz)"
    return parsed.selectExpr(*(f"{value} AS {name}" for name, value in after.items()), "v.op AS _op", "_at")


def start(spark: SparkSession, rows: DataFrame, mode: str) -> StreamingQuery:
    """The query, on its way to the present end of the topic."""
    checkpoint = str(Path("checkpoint").absolute())
    if mode == "append":
        writer = rows.writeStream.format("iceberg").outputMode("append").option("fanout-enabled", "true")
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).toTable(TABLE)

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("changes")
        batch.sparkSession.sql(MERGE)

    writer = rows.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def main() -> None:
    servers, topic, name, location, batch = sys.argv[1:6]
    mode, _, version = name.partition("-v")
    home = Path(location).parents[2]
    spark = build_session(
        home,
        runtime_jars=[*jars(iceberg_runtime()), *jars(SPARK_KAFKA)],
        extra={"spark.driver.memory": "4g"},
    )
    session_seconds = time.time() - STARTED
    properties = {"format-version": version or "2", **(MERGE_ON_READ if mode != "append" else {})}
    pairs = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE {TABLE} ({NULLABLE}) USING iceberg TBLPROPERTIES ({pairs})")
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch)
        .option("kafka.max.partition.fetch.bytes", 8388608)
        .option("kafka.max.poll.records", 10000)
        .load()
    )
    query = start(spark, rows_of(frame, mode), mode)
    query_seconds = time.time() - STARTED
    query.awaitTermination()
    done_seconds = time.time() - STARTED
    result = {
        "session_seconds": round(session_seconds, 2),
        "query_seconds": round(query_seconds, 2),
        "done_seconds": round(done_seconds, 2),
        **micro_batches.figures(query.recentProgress),
        "commits": len(load_table(location).snapshots),
        "summary": totals(location),
    }
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
