"""spark-submit entry point: a Kafka topic of changes, as JSON, is upserted into an Iceberg table, without a jar.

    spark-submit jobs/kafka_upsert.py --bootstrap-servers broker:9092 --topics orders \
        --schema "op string, id long, version long, customer string, amount decimal(10,2)" \
        --row-kind op --key id --sequence-by version \
        --table /lake/orders --checkpoint /lake/_checkpoints/orders --name orders
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
    parser.add_argument("--name", required=True, help="name of the stream, the same at every start")
    parser.add_argument("--key", nargs="+", required=True, help="columns that tell rows apart")
    parser.add_argument("--row-kind", help="the column that says insert, update or delete")
    parser.add_argument("--sequence-by", nargs="*", default=[], help="columns that tell newer from older")
    parser.add_argument("--mode", default="upsert", choices=["upsert", "changelog"])
    parser.add_argument("--delete-mode", default="position", help="position, copy-on-write or equality")
    parser.add_argument("--partition-by", nargs="*", default=[], help='for example "bucket(16, id)"')
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
    sink = IcebergSink(
        options.table,
        mode=options.mode,
        create=True,
        key=options.key,
        row_kind=options.row_kind,
        sequence_by=options.sequence_by,
        delete_mode=options.delete_mode,
        partition_by=options.partition_by,
        pipeline=options.name,
        on_commit=print,
    )
    now = options.interval == "now"
    spark = spark_session(options.name)
    query = sink.start(
        source,
        checkpoint_location=options.checkpoint,
        trigger={"availableNow": True} if now else {"processingTime": options.interval},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
