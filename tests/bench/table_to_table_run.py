"""One table to another in a process of its own: `python table_to_table_run.py ENGINE SOURCE HOME FILES`; prints one JSON object.

ENGINE is streamlake (the direct path), or iceberg (Spark's stream of Iceberg's runtime into its sink). Both read the same table
from its first snapshot on, FILES data files per micro-batch, into a fresh table.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.time()

from tests.bench.data import DDL  # noqa: E402
from tests.helpers.jars import iceberg_runtime, jars  # noqa: E402
from tests.helpers.spark import ICE_CATALOG, build_session  # noqa: E402

AVAILABLE_NOW: dict[str, Any] = {"availableNow": True}


def main() -> None:
    engine, source, home, files = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    is_peer = engine == "iceberg"
    spark = build_session(home, runtime_jars=jars(iceberg_runtime()) if is_peer else ())
    checkpoint = str(home / "checkpoint")
    if is_peer:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {ICE_CATALOG}.db")
        spark.sql(f"CREATE TABLE {ICE_CATALOG}.db.t ({DDL}) USING iceberg")
        reader = spark.readStream.format("iceberg").option("streaming-max-files-per-micro-batch", files)
        writer = reader.load(f"file://{source}").writeStream.format("iceberg")
        writer = writer.option("checkpointLocation", checkpoint).trigger(**AVAILABLE_NOW)
        query = writer.toTable(f"{ICE_CATALOG}.db.t")
        location = home / ICE_CATALOG / "db" / "t"
    else:
        from streamlake import IcebergSink, IcebergSource

        options = {
            "starting-strategy": "incremental-from-earliest-snapshot",
            "max-files-per-trigger": files,
        }
        location = home / "t"
        sink = IcebergSink(str(location), create=True)
        query = sink.start(
            IcebergSource(source, options=options), checkpoint_location=checkpoint, trigger=AVAILABLE_NOW
        )
    query.awaitTermination()
    wall = time.time() - STARTED
    seconds = [progress["durationMs"]["triggerExecution"] / 1000 for progress in query.recentProgress]
    if is_peer:
        rows = [progress["numInputRows"] for progress in query.recentProgress]
    else:
        rows = [receipt.rows for receipt in sink.receipts]
    batches = [each for each in zip(rows, seconds, strict=False) if each[0]]
    steady = batches[1:]
    spark.stop()
    result = {
        "rows": sum(count for count, _ in batches),
        "checkpoint_seconds": [round(took, 3) for _, took in batches],
        "steady_rows_per_second": round(sum(r for r, _ in steady) / sum(s for _, s in steady)),
        "whole_run_seconds": round(wall, 2),
        "bytes": sum(path.stat().st_size for path in (location / "data").rglob("*.parquet")),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
