"""One append run in a process of its own: `python append_run.py ENGINE INPUT HOME`; prints one JSON object.

ENGINE is streamlake, or iceberg (Spark's own sink with Iceberg's runtime). All stream the same files, one per checkpoint, into a fresh table.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

STARTED = time.time()

from tests.bench.data import DDL  # noqa: E402
from tests.helpers.jars import iceberg_runtime, jars  # noqa: E402
from tests.helpers.spark import ICE_CATALOG, build_session  # noqa: E402


def main() -> None:
    engine, source, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = build_session(home, runtime_jars=jars(iceberg_runtime()) if engine == "iceberg" else ())
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(source)
    checkpoint = str(home / "checkpoint")
    if engine == "iceberg":
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {ICE_CATALOG}.db")
        spark.sql(f"CREATE TABLE {ICE_CATALOG}.db.t ({DDL}) USING iceberg")
        writer = frame.writeStream.format("iceberg").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).toTable(f"{ICE_CATALOG}.db.t")
        location = home / ICE_CATALOG / "db" / "t"
    else:
        from streamlake import IcebergSink

        location = home / "t"
        sink = IcebergSink(str(location), create=True)
        query = sink.start(frame, checkpoint_location=checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    wall = time.time() - STARTED
    batches = [
        (progress["numInputRows"], progress["durationMs"]["triggerExecution"] / 1000)
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    steady = batches[1:]
    data = [path.stat().st_size for path in (location / "data").rglob("*.parquet")]
    spark.stop()
    print(
        json.dumps(
            {
                "rows": sum(rows for rows, _ in batches),
                "checkpoint_seconds": [round(seconds, 3) for _, seconds in batches],
                "steady_rows_per_second": round(sum(r for r, _ in steady) / sum(s for _, s in steady)),
                "whole_run_seconds": round(wall, 2),
                "bytes": sum(data),
                "files": len(data),
            }
        )
    )


if __name__ == "__main__":
    main()
