"""The driver process of the demo's query: `python -m streamlake.demo.demo_driver`.

It is a process of its own, so that it can be killed. `demo_process` starts it, with its settings as JSON in
the only argument. It reports events on stdout, one JSON object a line; a line on stdin lets it begin.
Invariant: it does not outlive its parent.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamlake.commit.receipt import CommitReceipt
from streamlake.demo.demo_orders import CHANGE_SCHEMA, FILES_PER_CHECKPOINT, KEY, OPERATION, VERSION
from streamlake.demo.demo_process import CHECKPOINT, DONE, FAILED, READY, STOPPED, DriverSettings
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.definition.running import POLL_SECONDS
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.spark.session import spark_session

PARTITION_BY = ("region",)
# A JVM that lives for half a minute on few cores is better off with the quick compiler and the simple
# collector.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


class SimulatedCrashError(Exception):
    """Raised by the demo in its own query."""


class Events:
    """Sends events to the parent. Other output to stdout, for example of a JVM, goes to stderr."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def emit(self, event: str, **details: Any) -> None:
        """Send an event."""
        self._out.write(json.dumps({"event": event, **details}) + "\n")
        self._out.flush()

    def emit_receipt(self, receipt: CommitReceipt) -> None:
        """Send the end of a checkpoint."""
        self.emit(CHECKPOINT, receipt=asdict(receipt))


def main() -> None:
    """Run the driver; exits with 1 after an error, which is sent as an event."""
    events = Events()
    begin = threading.Event()
    threading.Thread(target=_follow_parent, args=(begin,), daemon=True).start()
    try:
        settings = DriverSettings(**json.loads(sys.argv[1]))
        spark = _session(settings)
        events.emit(READY)
        begin.wait()
        _stream(spark, settings, events)
        events.emit(DONE)
    except Exception as error:  # noqa: BLE001  reported to the demo, which ends
        events.emit(FAILED, message=str(error), usage=isinstance(error, InvalidOptionError))
        sys.exit(1)


def _session(settings: DriverSettings) -> SparkSession:
    """Spark with all its temporary files where the parent removes them, as nothing does after a SIGKILL."""
    return spark_session(
        "streamlake demo",
        config={"spark.local.dir": settings.scratch},
        java_options=f'{JAVA_OPTIONS} "-Djava.io.tmpdir={settings.scratch}"',
    )


def _follow_parent(begin: threading.Event) -> None:
    if sys.stdin.readline():
        begin.set()
        sys.stdin.read()
    # The JVM ends too, because its own stdin closes.
    os._exit(1)


def _stream(spark: SparkSession, settings: DriverSettings, events: Events) -> None:
    """Run the query to the end of the changes; on the way stop it once at the worst moment, and go on."""

    def emit_and_stop(receipt: CommitReceipt) -> None:
        events.emit_receipt(receipt)
        if receipt.checkpoint_id == settings.stop_after:
            raise SimulatedCrashError(f"after checkpoint {receipt.checkpoint_id}")

    try:
        _run_query(spark, settings, emit_and_stop)
    except StreamingQueryException as error:
        if SimulatedCrashError.__name__ not in str(error):
            raise
        events.emit(STOPPED, checkpoint_id=settings.stop_after)
        _run_query(spark, settings, events.emit_receipt)


def _run_query(
    spark: SparkSession, settings: DriverSettings, on_commit: Callable[[CommitReceipt], None]
) -> None:
    changes = spark.readStream.schema(from_arrow_schema(CHANGE_SCHEMA))
    changes = changes.option("maxFilesPerTrigger", FILES_PER_CHECKPOINT)
    sink = IcebergSink(
        settings.table,
        mode="upsert",
        key=[KEY],
        row_kind=OPERATION,
        sequence_by=[VERSION],
        delete_mode="position",
        create=True,
        partition_by=PARTITION_BY,
        format_version=3,
        pipeline="demo",
        on_commit=on_commit,
    )
    query = sink.start(
        changes.parquet(settings.landing),
        checkpoint_location=settings.checkpoint,
        trigger={"availableNow": True},
    )
    try:
        while not query.awaitTermination(POLL_SECONDS):
            pass
    finally:
        query.stop()


if __name__ == "__main__":
    main()
