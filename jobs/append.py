"""spark-submit entry point: a directory that files land in becomes an Iceberg table.

spark-submit jobs/append.py --source /in/events --table /lake/events --checkpoint /lake/_checkpoints/events
"""

from __future__ import annotations

import argparse

from streamlake import IcebergSink
from streamlake.pipeline.spark.session import spark_session


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", required=True, help="directory of Parquet files")
    parser.add_argument("--table", required=True, help="location of the table; created if it is not there")
    parser.add_argument("--checkpoint", required=True, help="Spark's checkpoint directory, one per stream")
    parser.add_argument("--partition-by", nargs="*", default=[], help='for example "day(ts)" category')
    parser.add_argument("--files-per-checkpoint", type=int, default=100)
    options = parser.parse_args()

    spark = spark_session(f"append to {options.table}")
    schema = spark.read.parquet(options.source).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", options.files_per_checkpoint)
    sink = IcebergSink(options.table, create=True, partition_by=options.partition_by, on_commit=print)
    query = sink.start(
        stream.parquet(options.source),
        checkpoint_location=options.checkpoint,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
