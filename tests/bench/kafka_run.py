"""One run of the direct Kafka path in a process of its own: `python kafka_run.py SERVERS TOPIC HOME LIMIT`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

STARTED = time.time()

from streamlake import IcebergSink, KafkaSource  # noqa: E402
from tests.bench.data import DDL  # noqa: E402
from tests.helpers.spark import build_session  # noqa: E402


def main() -> None:
    servers, topic, home, limit = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    spark = build_session(home)
    source = KafkaSource(
        bootstrap_servers=servers,
        topics=[topic],
        schema=DDL,
        options={"starting-offsets": "earliest", "max-offsets-per-trigger": limit},
    )
    sink = IcebergSink(str(home / "t"), create=True)
    query = sink.start(source, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()
    wall = time.time() - STARTED
    batches = [
        (receipt.rows, progress["durationMs"]["triggerExecution"] / 1000)
        for receipt, progress in zip(sink.receipts, query.recentProgress, strict=False)
    ]
    steady = batches[1:]
    spark.stop()
    print(
        json.dumps(
            {
                "rows": sum(rows for rows, _ in batches),
                "checkpoint_seconds": [round(seconds, 3) for _, seconds in batches],
                "steady_messages_per_second": round(sum(r for r, _ in steady) / sum(s for _, s in steady)),
                "whole_run_seconds": round(wall, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
