"""`streamlake warm-up`: runs a small query once and archives the JVM's classes for later sessions."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.spark.class_archive import ArchiveDraft, archive_path
from streamlake.pipeline.spark.session import LEAN_JVM, check_java, lean_spark
from streamlake.pipeline.spark.worker_start import start_workers


def warm_up() -> tuple[Path, int]:
    """Make the archive of the JVM's classes anew; returns its path and its size in bytes.

    Raises InvalidOptionError where Java is missing or too old, StreamlakeError where Java writes no archive,
    OSError.
    """
    path = archive_path(check_java(), LEAN_JVM)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = ArchiveDraft(path)
    with tempfile.TemporaryDirectory(prefix="streamlake-warm-up-") as home:
        spark = lean_spark(
            "streamlake warm-up",
            draft.java_options,
            master="local[2]",
            config={"spark.local.dir": home, "spark.sql.warehouse.dir": f"{home}/warehouse"},
        )
        try:
            _train(spark, home)
        finally:
            spark.stop()
        return path, draft.keep()


def _train(spark: SparkSession, home: str) -> None:
    """Everything that a JVM does on the direct path: ticks, workers, Arrow both ways, a shuffle of bytes."""
    start_workers(spark)
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    sink = IcebergSink(f"{home}/table", mode="upsert", key=["value"], create=True)
    query = sink.start(ticks, checkpoint_location=f"{home}/checkpoint", trigger={"availableNow": True})
    query.awaitTermination()
