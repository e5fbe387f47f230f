"""streamlake's run in a process of its own: `python our_run.py SERVERS TOPIC MODE LOCATION BATCH`; prints one JSON object.

MODE is append, upsert or debezium, with `-v2` behind it for a table of format version 2. BATCH is the number of messages of a micro-batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

STARTED = time.time()

from streamlake import IcebergSink, KafkaSource, load_table  # noqa: E402
from streamlake.checkpoint.spark_directory import SparkDirectory  # noqa: E402
from streamlake.commit.offset_summary import source_offsets  # noqa: E402
from streamlake.pipeline.session import LEAN_JVM, spark_session  # noqa: E402
from tests.bench.peers import SCHEMA, micro_batches  # noqa: E402

FORMATS = {"append": "json", "upsert": "json", "debezium": "debezium-json"}


def main() -> None:
    servers, topic, name, location, batch = sys.argv[1:6]
    mode, _, version = name.partition("-v")
    # As `streamlake run` starts it.
    home = Path.cwd()
    spark = spark_session(
        "kafka-peers",
        master="local[2]",
        config={
            "spark.driver.memory": "1g",
            "spark.local.dir": str(home / "spark-local"),
            "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        },
        java_options=LEAN_JVM,
    )
    session_seconds = time.time() - STARTED
    options = {"starting-offsets": "earliest", "max-offsets-per-trigger": batch}
    if mode == "debezium":
        options["debezium.time-precision-mode"] = "microseconds"
    source = KafkaSource(
        bootstrap_servers=servers, topics=[topic], schema=SCHEMA, format=FORMATS[mode], options=options
    )
    changes = {} if mode == "append" else {"mode": "upsert", "key": ["id"]}
    new = {"format_version": int(version)} if version else {}
    sink = IcebergSink(location, create=True, **changes, **new)
    query = sink.start(
        source, checkpoint_location=str(Path("checkpoint").absolute()), trigger={"availableNow": True}
    )
    query_seconds = time.time() - STARTED
    query.awaitTermination()
    done_seconds = time.time() - STARTED
    sizes = [messages_of(int(report["batchId"])) for report in query.recentProgress]
    result = {
        "session_seconds": round(session_seconds, 2),
        "query_seconds": round(query_seconds, 2),
        "done_seconds": round(done_seconds, 2),
        **micro_batches.figures(query.recentProgress, sizes),
        "commits": len(load_table(location).snapshots),
        "summary": totals(location),
    }
    spark.stop()
    print(json.dumps(result))


def messages_of(checkpoint_id: int) -> int:
    """How many offsets a micro-batch has taken."""
    directory = SparkDirectory(str(Path("checkpoint").absolute()))
    before = _position(directory.end_offsets(checkpoint_id - 1))
    return _position(directory.end_offsets(checkpoint_id)) - before


def _position(offsets: tuple[str, ...] | None) -> int:
    """The sum of all partitions' offsets; there are none before the first micro-batch, which starts at 0."""
    known = source_offsets(offsets or ())
    return 0 if known is None else sum(known.positions.values())


def totals(location: str) -> dict[str, int]:
    """The totals in the newest snapshot's summary."""
    snapshot = load_table(location).current_snapshot
    assert snapshot is not None
    return {key: int(value) for key, value in snapshot.summary.items() if key.startswith("total-")}


if __name__ == "__main__":
    main()
