"""One upsert run in a process of its own: `python upsert_run.py ENGINE SOURCE HOME [BASE]`; prints one JSON object.

ENGINE is streamlake (position deletes by the key index) or merge (foreachBatch MERGE INTO, merge-on-read, with Iceberg's
runtime), with `-v2` or `-v3` for the format version. Both stream the same files of changes, one per checkpoint, into a
fresh table, or into one over the data files of the table at BASE.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

STARTED = time.time()

from streamlake import load_table  # noqa: E402
from tests.bench.data import DDL  # noqa: E402
from tests.helpers.forks import table_of_same_files  # noqa: E402
from tests.helpers.jars import iceberg_runtime, jars  # noqa: E402
from tests.helpers.spark import ICE_CATALOG, build_session  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("merge", "update", "delete")}
MERGE = f"""
MERGE INTO {ICE_CATALOG}.db.t AS t USING (
  SELECT * EXCEPT (_at) FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS _at FROM changes
  ) WHERE _at = 1
) AS c ON t.id = c.id
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *
"""


def merge_into(frame: DataFrame, checkpoint: str) -> StreamingQuery:
    """The peer: each micro-batch merged into the table by Iceberg's runtime."""

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("changes")
        batch.sparkSession.sql(MERGE)

    writer = frame.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def upsert(frame: DataFrame, checkpoint: str, location: Path, version: int) -> StreamingQuery:
    """Ours."""
    from streamlake import IcebergSink

    # The version is that of a new table.
    new = {} if location.exists() else {"create": True, "format_version": version}
    sink = IcebergSink(str(location), mode="upsert", key=["id"], delete_mode="position", **new)
    return sink.start(frame, checkpoint_location=checkpoint, trigger={"availableNow": True})


def main() -> None:
    name, source, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    base = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    engine, _, version = name.partition("-v")
    version_number = int(version or (2 if engine == "merge" else 3))
    properties = {"format-version": str(version_number), **(MERGE_ON_READ if engine == "merge" else {})}
    spark = build_session(home, runtime_jars=jars(iceberg_runtime()) if engine == "merge" else ())
    session_seconds = time.time() - STARTED
    location = home / ICE_CATALOG / "db" / "t"
    if base is not None:
        table_of_same_files(location, DDL, base, properties)
    elif engine == "merge":
        pairs = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        spark.sql(f"CREATE TABLE {ICE_CATALOG}.db.t ({DDL}) USING iceberg TBLPROPERTIES ({pairs})")
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(source)
    checkpoint = str(home / "checkpoint")
    if engine == "merge":
        query = merge_into(frame, checkpoint)
    else:
        query = upsert(frame, checkpoint, location, version_number)
    query.awaitTermination()
    wall = time.time() - STARTED
    batches = [
        (progress["numInputRows"], progress["durationMs"]["triggerExecution"] / 1000)
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    spark.stop()
    rows, steady = sum(count for count, _ in batches), batches[1:]
    seconds = [duration for _, duration in steady]
    result = {
        "rows": rows,
        "checkpoint_seconds": [round(duration, 3) for _, duration in batches],
        "steady_checkpoint_seconds": round(statistics.median(seconds), 3),
        "steady_rows_per_second": round(sum(count for count, _ in steady) / sum(seconds)),
        "whole_run_seconds": round(wall, 2),
        "session_seconds": round(session_seconds, 2),
        "whole_run_rows_per_second": round(rows / wall),
    }
    print(json.dumps(result | table_facts(location)))


def table_facts(location: Path) -> dict[str, object]:
    """What a run has left: bytes written below the table, live files, deletes."""
    table = load_table(str(location))
    written = [path.stat().st_size for path in location.rglob("*") if path.is_file()]
    assert table.current_snapshot is not None
    summary = table.current_snapshot.summary
    return {
        "location": str(location),
        "bytes_written": sum(written),
        "live_rows": table.scan().count(),
        **{
            key.replace("-", "_"): int(summary.get(key, 0))
            for key in (
                "total-data-files",
                "total-delete-files",
                "total-position-deletes",
                "total-equality-deletes",
            )
        },
    }


if __name__ == "__main__":
    main()
