"""streamlake's run in a process of its own: `python our_run.py SERVERS TOPIC MODE LOCATION BATCH`; prints one JSON object.

MODE is append, upsert or debezium, with `-v2` behind it for a table of format version 2. BATCH is the number of messages of a
micro-batch. It takes the steps of `streamlake run`, from the pipeline file on, and looks at the query between them.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

STARTED = time.time()

import yaml  # noqa: E402

from streamlake.pipeline.definition.pipeline_file import load_pipeline  # noqa: E402
from streamlake.pipeline.spark.session import started_session  # noqa: E402
from streamlake.pipeline.spark.without_pandas import decide_about_pandas  # noqa: E402
from tests.bench.peers import SCHEMA  # noqa: E402

FORMATS = {"append": "json", "upsert": "json", "debezium": "debezium-json"}


def main() -> None:
    decide_about_pandas()
    servers, topic, name, location, batch = sys.argv[1:6]
    home = Path.cwd()
    file = home / "pipeline.yaml"
    file.write_text(yaml.safe_dump(pipeline_of(servers, topic, name, location, batch, home)))
    pipeline = load_pipeline(str(file))
    with started_session(
        name, is_lean=True, master=pipeline.spark.master, config=pipeline.spark.config
    ) as started:
        prepared = import_module("streamlake.pipeline.definition.running").PipelineRun(pipeline)
        spark = started()
        session_seconds = time.time() - STARTED
        query = prepared.start(spark)
        query_seconds = time.time() - STARTED
        query.awaitTermination()
        done_seconds = time.time() - STARTED
        reports = list(query.recentProgress)
    result = {
        "session_seconds": round(session_seconds, 2),
        "query_seconds": round(query_seconds, 2),
        "done_seconds": round(done_seconds, 2),
        **figures_of(reports, location),
    }
    print(json.dumps(result))


def pipeline_of(servers: str, topic: str, name: str, location: str, batch: str, home: Path) -> dict[str, Any]:
    """The pipeline file of a run."""
    mode, _, version = name.partition("-v")
    options = {"starting-offsets": "earliest", "max-offsets-per-trigger": batch}
    if mode == "debezium":
        options["debezium.time-precision-mode"] = "microseconds"
    sink: dict[str, Any] = {"table": location, "create": True}
    if mode != "append":
        sink |= {"mode": "upsert", "key": ["id"]}
    if version:
        sink["format-version"] = int(version)
    return {
        "source": {
            "kafka": {
                "bootstrap-servers": servers,
                "topics": [topic],
                "schema": SCHEMA,
                "format": FORMATS[mode],
                "options": options,
            }
        },
        "sink": sink,
        "checkpoint": str(home / "checkpoint"),
        "trigger": "available-now",
        "spark": {
            "master": "local[2]",
            "config": {
                "spark.driver.memory": "1g",
                "spark.local.dir": str(home / "spark-local"),
                "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
                "spark.sql.streaming.numRecentProgressUpdates": "1000",
            },
        },
    }


def figures_of(reports: list[Any], location: str) -> dict[str, Any]:
    """What Spark's reports and the table say of the run, in seconds, messages and rows."""
    micro_batches = import_module("tests.bench.peers.micro_batches")
    sizes = [messages_of(int(report["batchId"])) for report in reports]
    return {
        **micro_batches.figures(reports, sizes),
        "commits": len(import_module("streamlake").load_table(location).snapshots),
        "summary": totals(location),
    }


def totals(location: str) -> dict[str, int]:
    """The totals in the newest snapshot's summary."""
    snapshot = import_module("streamlake").load_table(location).current_snapshot
    assert snapshot is not None
    return {key: int(value) for key, value in snapshot.summary.items() if key.startswith("total-")}


def messages_of(checkpoint_id: int) -> int:
    """How many offsets a micro-batch has taken."""
    directory = import_module("streamlake.checkpoint.spark_directory").SparkDirectory(
        str(Path("checkpoint").absolute())
    )
    before = _position(directory.end_offsets(checkpoint_id - 1))
    return _position(directory.end_offsets(checkpoint_id)) - before


def _position(offsets: tuple[str, ...] | None) -> int:
    """The sum of all partitions' offsets; there are none before the first micro-batch, which starts at 0."""
    known = import_module("streamlake.commit.offset_summary").kafka_offsets(offsets or ())
    return sum((known or {}).values())


if __name__ == "__main__":
    main()
