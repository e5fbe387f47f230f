"""spark-submit entry point: a Kafka topic of JSON records becomes an Iceberg table, without a jar.

    spark-submit jobs/kafka_append.py --bootstrap-servers broker:9092 --topics orders \
        --schema "id long not null, ts timestamp, amount decimal(10,2)" \
        --table /lake/orders --checkpoint /lake/_checkpoints/orders --partition-by "day(ts)"
"""

from __future__ import annotations

import argparse

from streamlake import IcebergSink, KafkaSource
from streamlake.pipeline.spark.session import spark_session


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topics", required=True, help="names, separated by commas")
    parser.add_argument("--schema", help="columns of the JSON value; inferred when left out")
    parser.add_argument("--table", required=True, help="location of the table; created if it is not there")
    parser.add_argument("--checkpoint", required=True, help="Spark's checkpoint directory, one per stream")
    parser.add_argument("--partition-by", nargs="*", default=[], help='for example "day(ts)" category')
    parser.add_argument("--interval", default="10 seconds", help='"now": take what is there and stop')
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="of the KafkaSource"
    )
    options = parser.parse_args()

    source = KafkaSource(
        bootstrap_servers=options.bootstrap_servers,
        topics=options.topics,
        schema=options.schema,
        options=dict(pair.split("=", 1) for pair in options.option),
    )
    now = options.interval == "now"
    spark = spark_session(f"{options.topics} to {options.table}")
    sink = IcebergSink(options.table, create=True, partition_by=options.partition_by, on_commit=print)
    query = sink.start(
        source,
        checkpoint_location=options.checkpoint,
        trigger={"availableNow": True} if now else {"processingTime": options.interval},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
