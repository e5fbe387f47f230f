"""A driver of the crash matrix: `matrix_driver.py HOME SETTINGS`. It dies of what STREAMLAKE_FAILPOINTS says.

SETTINGS is a JSON object: mode, format-version, ahead (how far writing runs ahead of committing), the input's own
(landing; or upstream; or servers, topic, how many records a checkpoint takes, and on-error), and `foreign`: whether another writer commits while the first checkpoint of this run waits to be committed. The file HOME/started appears when
the query runs, `receipts` gets a line of JSON per receipt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamlake import IcebergSink, IcebergSource, KafkaSource, failpoints
from streamlake.catalog.open import open_table
from streamlake.commit.receipt import CommitReceipt
from streamlake.pipeline.key_index import index_files
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.table.producers.append_files import AppendFiles
from tests.crash import change_log
from tests.crash.change_log import APPEND, DDL, FOREIGN
from tests.helpers.batch_write import write_files
from tests.helpers.spark import QUICK, build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2,4]"
"""A task that dies is run again."""
LIGHT = {
    **QUICK,
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
}
WAIT_SECONDS = 300


def main(home: Path, settings: dict[str, Any]) -> None:
    spark = build_session(home / "spark", master=MASTER, extra=LIGHT)
    # So that a stream of a few checkpoints deletes index files.
    index_files.KEPT_STATES, index_files._AT_ONCE = 2, 1
    if settings["foreign"]:
        _let_others_commit()
    source = input_of(spark, settings)
    receipts = Path(settings["receipts"])

    def noted(receipt: CommitReceipt) -> None:
        told = {
            "id": receipt.checkpoint_id,
            "outcome": receipt.outcome.value,
            "counters": dict(receipt.counters),
        }
        with open(receipts, "a") as file:
            file.write(json.dumps(told) + "\n")

    query = _sink(home, settings, noted).start(
        source, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True}
    )
    (home / "started").touch()
    assert query.awaitTermination(WAIT_SECONDS), f"still running after {WAIT_SECONDS} s: {query.lastProgress}"
    spark.stop()


def input_of(spark: SparkSession, settings: dict[str, Any]) -> Any:
    """The folder, the table or the topic of these settings."""
    if "upstream" in settings:
        options = {
            "starting-strategy": "incremental-from-earliest-snapshot",
            "max-planning-snapshot-count": "1",
        }
        return IcebergSource(settings["upstream"], options=options)
    if "landing" in settings:
        return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(settings["landing"])
    return KafkaSource(
        bootstrap_servers=settings["servers"],
        topics=[settings["topic"]],
        schema="op string, id long, part int, payload string",
        options={"max-offsets-per-trigger": settings["records"]},
    )


def _sink(home: Path, settings: dict[str, Any], noted: Callable[[CommitReceipt], None]) -> IcebergSink:
    mode = settings["mode"]
    table: dict[str, Any] = {
        "max_pending_checkpoints": settings["ahead"],
        "on_error": settings.get("on-error", "fail"),
        "on_commit": noted,
        "create": True,
        "format_version": settings["format-version"],
        "partition_by": ["part"],
        "pipeline": "matrix",
    }
    if mode == APPEND:
        return IcebergSink(str(home / "table"), **table)
    return IcebergSink(
        str(home / "table"),
        mode="upsert",
        key=["id", "part"],
        row_kind="op",
        delete_mode=mode,
        properties={"streamlake.upsert.buckets": "2"},
        **table,
    )


def _let_others_commit() -> None:
    """Another writer's append, once, between the staging of a checkpoint and its commit. Not a victim itself."""
    plain = UpsertRun.commit
    done: list[int] = []

    def commit(run: UpsertRun, committable: Any, results: Any = None, *more: Any, **named: Any) -> Any:
        if results is not None and not done:
            done.append(committable.identity.checkpoint_id)
            _append(run.table.location, done[0])
        return plain(run, committable, results, *more, **named)

    UpsertRun.commit = commit  # type: ignore[method-assign]


def _append(location: str, checkpoint: int) -> None:
    armed, failpoints._armed = failpoints._armed, {}
    try:
        table = open_table(location)
        ids, parts, payloads = zip(*change_log.foreign_rows(checkpoint), strict=True)
        rows = pa.table(
            {"id": pa.array(ids, pa.int64()), "part": pa.array(parts, pa.int32()), "payload": payloads}
        )
        operation = AppendFiles(table)
        operation.set_summary({FOREIGN: str(checkpoint)})
        for file in write_files(table, rows).data_files:
            operation.append_file(file)
        operation.commit()
    finally:
        failpoints._armed = armed


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
