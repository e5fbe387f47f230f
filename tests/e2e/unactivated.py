"""A user's program for a Python that nobody activated: `unactivated.py HOME`, a directory of files into a table."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streamlake import IcebergSink, load_table


def main(home: Path) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    spark.range(10).write.mode("overwrite").parquet(str(home / "landing"))
    frame = spark.readStream.schema("id bigint").parquet(str(home / "landing"))
    sink = IcebergSink(str(home / "table"), create=True)
    checkpoint = str(home / "checkpoint")
    sink.start(frame, checkpoint_location=checkpoint, trigger={"availableNow": True}).awaitTermination()
    print(load_table(str(home / "table")).scan().to_arrow().num_rows, "rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
