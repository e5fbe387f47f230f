"""What `streamlake warm-up` does: a lean session that runs a small query, recorded for the sessions after it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from streamlake.pipeline.class_archive import ArchiveDraft, archive_path
from streamlake.pipeline.session import LEAN_JVM, check_java, lean_spark
from streamlake.pipeline.sink import IcebergSink
from streamlake.pipeline.worker_start import start_workers


def warm_up() -> tuple[Path, int]:
    """Make the archive of the JVM's classes anew; returns where it is and its size in bytes.

    Raises InvalidOptionError where Java is missing or too old, StreamlakeError where it writes none, OSError.
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
    """All that a JVM does for the direct path: ticks, workers, Arrow from and to them, a shuffle of bytes."""
    start_workers(spark)
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    sink = IcebergSink(f"{home}/table", mode="upsert", key=["value"], create=True)
    query = sink.start(ticks, checkpoint_location=f"{home}/checkpoint", trigger={"availableNow": True})
    query.awaitTermination()
