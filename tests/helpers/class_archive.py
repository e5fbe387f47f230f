"""A driver that does a bit of everything, so that its JVM, which archives its classes when it exits, has loaded them.

Usage: class_archive.py HOME
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake import IcebergSink
from tests.helpers.spark import QUICK, build_session

EXIT_SECONDS = 120


def main(home: Path) -> None:
    spark = build_session(home / "spark", extra=QUICK)
    (home / "in").mkdir(parents=True)
    for number in range(2):
        rows = pa.table({"id": [number, 7], "v": ["a", "b"]})
        pq.write_table(rows, home / "in" / f"{number}.parquet")
    frame = spark.readStream.schema("id long, v string").option("maxFilesPerTrigger", 1)
    sink = IcebergSink(str(home / "table"), create=True, mode="upsert", key=["id"])
    query = sink.start(
        frame.parquet(str(home / "in")).filter("id >= 0"),
        checkpoint_location=str(home / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination(100)
    assert spark.read.parquet(str(home / "in")).groupBy("id").count().count() == 3
    process = spark.sparkContext._gateway.proc
    spark.stop()
    # A JVM of PySpark ends with its stdin; the archive is written then.
    process.stdin.close()
    process.wait(EXIT_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
