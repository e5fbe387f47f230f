"""A folder that a file stream reads, and the sink that it goes into."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streamlake import IcebergSink, load_table
from tests.helpers.file_times import set_turn

DDL = "id bigint, category string, ts timestamp, amount double"


class Landing:
    """A folder that a file stream reads, one file per checkpoint."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        self.folder = home / "landing"
        self.folder.mkdir()
        self.checkpoint = str(home / "checkpoint")
        self.location = str(home / "table")
        self.rows = 0
        self.files = 0

    def land(self, rows: int = 100) -> None:
        ids = list(range(self.rows, self.rows + rows))
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "category": [f"c{number % 3}" for number in ids],
                "ts": pa.array([number * 3_600_000_000 for number in ids], pa.timestamp("us", "UTC")),
                "amount": [number / 4 for number in ids],
            }
        )
        path = self.folder / f"{self.files:04d}.parquet"
        pq.write_table(table, path.with_suffix(".tmp"))
        set_turn(path.with_suffix(".tmp"), self.files)
        path.with_suffix(".tmp").rename(path)
        self.rows += rows
        self.files += 1

    def frame(self, files_at_once: int = 1) -> DataFrame:
        reader = self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", files_at_once)
        return reader.option("pathGlobFilter", "*.parquet").parquet(str(self.folder))

    def run(self, sink: IcebergSink, frame: DataFrame | None = None) -> None:
        query = sink.start(
            self.frame() if frame is None else frame,
            checkpoint_location=self.checkpoint,
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    def sink(self, **options: object) -> IcebergSink:
        return IcebergSink(self.location, create=True, **options)

    def ids(self) -> list[int]:
        return sorted(load_table(self.location).scan(columns=["id"]).to_arrow()["id"].to_pylist())
