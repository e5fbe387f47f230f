"""spark-submit entry point: the change streams of a database's tables become Iceberg tables that follow them, without a jar.

    spark-submit jobs/cdc.py --bootstrap-servers broker:9092 --name shop \
        --topic-pattern 'shop\\.public\\.(?P<table>.+)' --table '/lake/shop/{table}' \
        --checkpoint /lake/_checkpoints/shop

A topic that is made later becomes a table then. Columns and keys are those of the database where the records bring their
schemas, else they are inferred.
"""

from __future__ import annotations

import argparse

from streamlake import IcebergTables, KafkaSource
from streamlake.pipeline.spark.session import spark_session
from streamlake.source.kafka_source import ENVELOPES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-servers", required=True)
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", help="names, separated by commas")
    topics.add_argument("--topic-pattern", help="a regular expression that whole names match")
    parser.add_argument("--format", default="debezium-json", choices=ENVELOPES)
    parser.add_argument(
        "--table",
        required=True,
        help="a table per topic: {topic}, or named groups of the pattern, in its name",
    )
    parser.add_argument("--catalog", help="name of a catalog that PyIceberg's configuration has")
    parser.add_argument("--checkpoint", required=True, help="Spark's checkpoint directory, one per stream")
    parser.add_argument("--name", required=True, help="name of the stream, the same at every start")
    parser.add_argument("--delete-mode", default="position", help="position, copy-on-write or equality")
    parser.add_argument("--schema-evolution", help="none, add or full: how far tables follow the database")
    parser.add_argument("--on-error", default="fail", choices=["fail", "reject"])
    parser.add_argument("--interval", default="10 seconds", help='"now": take what is there and stop')
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="of the KafkaSource"
    )
    options = parser.parse_args()

    source = KafkaSource(
        bootstrap_servers=options.bootstrap_servers,
        topics=options.topics,
        topic_pattern=options.topic_pattern,
        format=options.format,
        options=dict(pair.split("=", 1) for pair in options.option),
    )
    tables = IcebergTables(
        options.table,
        options.catalog,
        mode="upsert",
        delete_mode=options.delete_mode,
        schema_evolution=options.schema_evolution,
        on_error=options.on_error,
        pipeline=options.name,
        on_commit=print,
    )
    now = options.interval == "now"
    spark = spark_session(options.name)
    query = tables.start(
        source,
        checkpoint_location=options.checkpoint,
        trigger={"availableNow": True} if now else {"processingTime": options.interval},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
