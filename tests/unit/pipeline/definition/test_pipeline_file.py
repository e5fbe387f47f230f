"""Pipeline files: what is accepted, and what each mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.definition.pipeline_file import (
    DEFAULT_TRIGGER,
    FilesSettings,
    KafkaSettings,
    RateSettings,
    load_pipeline,
    parse_pipeline,
)
from streamlake.source.iceberg.iceberg_source import IcebergSource

KAFKA = """
name: orders
source:
  kafka:
    bootstrap-servers: [a:9092, b:9092]
    topics: orders
    schema: id long not null, amount decimal(10,2)
    include: [offset]
    options:
      starting-offsets: earliest
      max-offsets-per-trigger: 50000
      fail-on-data-loss: true
      kafka.sasl.password: ${KAFKA_PASSWORD}
sink:
  table: /lake/orders
  create: true
  partition-by: ["day(ts)", "bucket(16, id)"]
  sort-by: id
  format-version: 2
  properties:
    write.target-file-size-bytes: 134217728
checkpoint: /lake/_checkpoints/orders
trigger:
  processing-time: 1 minute
spark:
  master: local[4]
  log-level: warn
  config:
    spark.sql.shuffle.partitions: 4
"""

MINIMAL = """
source: {rate: {}}
sink: {table: /lake/rate}
checkpoint: /c
"""


def test_kafka_pipeline() -> None:
    pipeline = parse_pipeline(KAFKA, "orders.yaml", {"KAFKA_PASSWORD": "p}a$s"})
    assert pipeline.source == KafkaSettings(
        bootstrap_servers=("a:9092", "b:9092"),
        topics=("orders",),
        topic_pattern=None,
        schema="id long not null, amount decimal(10,2)",
        format="json",
        include=("offset",),
        options={
            "starting-offsets": "earliest",
            "max-offsets-per-trigger": "50000",
            "fail-on-data-loss": "true",
            "kafka.sasl.password": "p}a$s",
        },
    )
    assert pipeline.sink.table == "/lake/orders"
    assert pipeline.sink.arguments == {
        "create": True,
        "partition_by": ("day(ts)", "bucket(16, id)"),
        "sort_by": ("id",),
        "format_version": 2,
        "properties": {"write.target-file-size-bytes": "134217728"},
    }
    assert (pipeline.name, pipeline.checkpoint) == ("orders", "/lake/_checkpoints/orders")
    assert pipeline.trigger == {"processingTime": "1 minute"}
    assert not pipeline.ends_by_itself
    assert (pipeline.spark.master, pipeline.spark.log_level) == ("local[4]", "WARN")
    assert pipeline.spark.config == {"spark.sql.shuffle.partitions": "4"}


def test_defaults() -> None:
    pipeline = parse_pipeline(MINIMAL, "p.yaml", {})
    assert pipeline.source == RateSettings(rows_per_second=1_000, options={})
    assert pipeline.sink.arguments == {}
    assert pipeline.trigger == DEFAULT_TRIGGER
    assert (pipeline.name, pipeline.select, pipeline.where) == (None, (), None)
    assert (pipeline.spark.master, pipeline.spark.log_level) == (None, "ERROR")


def test_files_pipeline() -> None:
    text = """
    source:
      files: {path: /in, format: json, schema: "a int", max-files-per-trigger: 5, options: {multiLine: true}}
    select: ["a", "a + 1 AS b"]
    where: a > 0
    sink: {table: db.t, catalog: {type: hadoop, warehouse: /w}}
    checkpoint: /c
    trigger: available-now
    """
    pipeline = parse_pipeline(text, "p.yaml", {})
    assert pipeline.source == FilesSettings("/in", "json", "a int", 5, {"multiLine": "true"})
    assert pipeline.select == ("a", "a + 1 AS b")
    assert pipeline.where == "a > 0"
    assert pipeline.sink.arguments == {"catalog": {"type": "hadoop", "warehouse": "/w"}}
    assert pipeline.trigger == {"availableNow": True}
    assert pipeline.ends_by_itself


ICEBERG = """
source:
  iceberg:
    table: db.bronze
    catalog: {type: hadoop, warehouse: /w}
    filter: amount > 10
    columns: [id, amount]
    options:
      starting-strategy: incremental-from-latest-snapshot
      fail-on-data-loss: false
      monitor-interval: 5 s
sink: {table: /lake/silver, create: true}
checkpoint: /c
"""


def test_iceberg_pipeline() -> None:
    pipeline = parse_pipeline(ICEBERG, "p.yaml", {})
    assert pipeline.source == IcebergSource(
        "db.bronze",
        catalog={"type": "hadoop", "warehouse": "/w"},
        filter="amount > 10",
        columns=["id", "amount"],
        options={
            "starting-strategy": "incremental-from-latest-snapshot",
            "fail-on-data-loss": False,
            "monitor-interval": "5 s",
        },
    )
    assert not pipeline.ends_by_itself


def test_a_table_with_an_end_ends_by_itself() -> None:
    text = ICEBERG.replace("monitor-interval: 5 s", "end-snapshot-id: 42")
    assert parse_pipeline(text, "p.yaml", {}).ends_by_itself


def test_a_table_alone_is_enough() -> None:
    text = "source: {iceberg: {table: /lake/bronze}}\nsink: {table: /t}\ncheckpoint: /c"
    assert parse_pipeline(text, "p.yaml", {}).source == IcebergSource("/lake/bronze")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table: db.bronze", "tabel: db.bronze", r"source\.iceberg.*tabel.*did you mean 'table'.*line 4"),
        ("table: db.bronze", "table:", r"source\.iceberg\.table is missing \(line 4\)"),
        ("monitor-interval", "monitor-intervall", r"options.*did you mean 'monitor-interval'.*\(line 11\)"),
        ("5 s", "5 parsecs", r"source\.iceberg: monitor-interval is '5 parsecs'.*\(line 11\)"),
        ("from-latest-snapshot", "from-latest", r"starting-strategy is .*did you mean .*\(line 9\)"),
        ("monitor-interval: 5 s", "tag: eod", r"tag belongs to a batch.*\(line 11\)"),
        ("amount > 10", "amount >", r"source\.iceberg: .*amount >.*\(line 6\)"),
        ("[id, amount]", "['']", r"source\.iceberg: columns is empty.*\(line 7\)"),
        ("[id, amount]", "[id, 5.5, true]", r"columns must be a text or a list.*\(line 7\)"),
        ("monitor-interval: 5 s", "start-snapshot-id: 7", r"starting-strategy.*start-snapshot-id.*line 9"),
        ("/lake/silver", "'lake.{topic}'", r"sink\.table is 'lake\.\{topic\}'.*one table.*\(line 12\)"),
        ("create: true", "on-error: reject", r"sink\.on-error is reject.*topics.*\(line 12\)"),
        ("create: true", "route: m:f", r"sink\.route belongs to a sink of many tables"),
        (
            "checkpoint: /c",
            "checkpoint: /c\nwhere: a > 1",
            r"where does not apply to the iceberg source.*filter",
        ),
        (
            "checkpoint: /c",
            "checkpoint: /c\nselect: a",
            r"select does not apply to the iceberg source.*columns",
        ),
    ],
)
def test_mistakes_about_a_table(old: str, new: str, message: str) -> None:
    assert old in ICEBERG
    with pytest.raises(InvalidOptionError, match=message) as caught:
        parse_pipeline(ICEBERG.replace(old, new), "p.yaml", {})
    assert str(caught.value).startswith("p.yaml: ")
    assert "\n" not in str(caught.value)


def test_a_catalog_may_be_a_name() -> None:
    pipeline = parse_pipeline(MINIMAL.replace("/lake/rate", "db.t, catalog: prod"), "p.yaml", {})
    assert pipeline.sink.arguments == {"catalog": "prod"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("${A}", "x"),
        ("${A}-${B:-y}", "x-y"),
        ("${EMPTY:-}", ""),
        ("$${A} $A {A}", "${A} $A {A}"),
        ("${A:-other}", "x"),
    ],
)
def test_environment(given: str, expected: str) -> None:
    text = MINIMAL + f"spark: {{config: {{k: '{given}'}}}}\n"
    assert parse_pipeline(text, "p.yaml", {"A": "x"}).spark.config == {"k": expected}


def test_numbers_and_flags_may_come_from_the_environment() -> None:
    text = MINIMAL.replace("/lake/rate", "t, create: '${C}', format-version: '${V}'")
    assert parse_pipeline(text, "p.yaml", {"C": "true", "V": "3"}).sink.arguments == {
        "create": True,
        "format_version": 3,
    }


def test_a_value_of_the_environment_is_no_yaml() -> None:
    text = MINIMAL + "name: ${EVIL}\n"
    assert parse_pipeline(text, "p.yaml", {"EVIL": "a\nsink: {table: b}"}).name == "a\nsink: {table: b}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.yaml: source is missing"),
        ("- a", "p.yaml: a mapping of keys to values is needed here"),
        ("source: [", "p.yaml is not valid YAML"),
        (MINIMAL + "sink: {table: other}", "the key 'sink' is given twice"),
        (MINIMAL + "triger: available-now", r"p.yaml: unknown option 'triger'; did you mean 'trigger'\?"),
        (MINIMAL.replace("table: /lake/rate", "tabel: x"), r"p.yaml: sink: unknown option 'tabel'; did you mean 'table'\?"),
        (MINIMAL.replace("/lake/rate", "x, partition_by: [a]"), r"did you mean 'partition-by'\?"),
        (MINIMAL.replace("/lake/rate", ""), "p.yaml: sink.table is missing"),
        (MINIMAL.replace("checkpoint: /c", ""), "p.yaml: checkpoint is missing"),
        (MINIMAL.replace("rate: {}", "kafak: {}"), r"p.yaml: source: unknown option 'kafak'; did you mean 'kafka'\?"),
        (MINIMAL.replace("rate: {}", "rate: {}, files: {path: /x}"), "give exactly one of kafka, iceberg, files, rate"),
        (MINIMAL.replace("rate: {}", ""), "give exactly one of kafka, iceberg, files, rate"),
        (MINIMAL.replace("rate: {}", "rate: 7"), "p.yaml: source.rate: a mapping"),
        (MINIMAL.replace("rate: {}", "rate: {rows-per-second: many}"), "source.rate.rows-per-second must be a whole number"),
        (MINIMAL.replace("rate: {}", "rate: {rows-per-second: 0}"), "rows-per-second is 0; it must be at least 1"),
        (MINIMAL.replace("rate: {}", "rate: {rows-per-second: 1.5}"), "must be a whole number"),
        (MINIMAL.replace("rate: {}", "files: {path: /x, format: xml}"), "source.files.format is 'xml', which is not "
                                                                        "one of parquet"),
        (MINIMAL.replace("rate: {}", "files: {format: json}"), "source.files.path is missing"),
        (MINIMAL.replace("rate: {}", "kafka: {bootstrap-servers: a}"), "source.kafka: give either topics or topic-pattern"),
        (MINIMAL.replace("rate: {}", "kafka: {bootstrap-servers: a, topics: t, topic-pattern: t}"), "either topics or"),
        (MINIMAL.replace("rate: {}", "kafka: {topics: t}"), "source.kafka.bootstrap-servers is missing"),
        (MINIMAL.replace("rate: {}", "kafka: {bootstrap-servers: a, topics: [[t]]}"), "topics must be a text or a list of texts"),
        (
            MINIMAL.replace("rate: {}", "kafka: {bootstrap-servers: a, topics: t, options: {x: [1]}}"),
            "source.kafka.options.x must be a text, a number, true or false",
        ),
        (
            MINIMAL.replace("rate: {}", "kafka: {bootstrap-servers: a, topics: t}") + "where: a > 1",
            "where does not apply to the kafka source",
        ),
        (MINIMAL.replace("/lake/rate", "x, create: yep"), "sink.create must be true or false"),
        (MINIMAL.replace("/lake/rate", "x, mode: [append]"), "sink.mode must be a text"),
        (MINIMAL + "trigger: available-nwo", "trigger: unknown option 'available-nwo'; did you mean 'available-now'"),
        (MINIMAL + "trigger: {processing-time: 1 s, available-now: true}", "takes either available-now or processing-time"),
        (MINIMAL + "trigger: {available-now: false}", "can only be true"),
        (MINIMAL + "name: ${NOWHERE}", r"p.yaml: name needs the environment variable NOWHERE, which is not set"),
        (MINIMAL + "spark: {config: {a: '${NOWHERE}'}}", r"p.yaml: spark.config.a needs the environment variable NOWHERE"),
    ],
)  # fmt: skip
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        parse_pipeline(text, "p.yaml", {})


def test_messages_never_show_secrets() -> None:
    text = MINIMAL.replace("/lake/rate", "x, format-version: '${SECRET}'")
    with pytest.raises(InvalidOptionError) as caught:
        parse_pipeline(text, "p.yaml", {"SECRET": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"none\.yaml cannot be read: No such file"):
        load_pipeline(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe4")
    with pytest.raises(InvalidOptionError, match="is not UTF-8"):
        load_pipeline(tmp_path / "latin.yaml")


def test_a_file_takes_the_process_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLAKE_TEST_NAME", "from the environment")
    (tmp_path / "p.yaml").write_text(MINIMAL + "name: ${STREAMLAKE_TEST_NAME}\n")
    assert load_pipeline(tmp_path / "p.yaml").name == "from the environment"


def test_many_tables_and_the_settings_of_single_ones():
    text = """
source:
  kafka: {bootstrap-servers: "b:1", topic-pattern: 'shop\\.public\\.(?P<table>.+)', format: debezium-json}
sink:
  table: lake.{table}
  mode: upsert
  tables:
    lake.orders: {key: [id], partition-by: ['bucket(4, id)']}
checkpoint: /c
"""
    pipeline = parse_pipeline(text, "cdc.yaml", {})
    assert pipeline.sink.is_many
    assert pipeline.sink.arguments["tables"] == {
        "lake.orders": {"key": ("id",), "partition_by": ("bucket(4, id)",)}
    }
    with pytest.raises(
        InvalidOptionError,
        match=r"sink\.tables describes single tables of a sink of many tables, but 'lake\.t'",
    ):
        parse_pipeline(text.replace("lake.{table}", "lake.t"), "cdc.yaml", {})
    with pytest.raises(InvalidOptionError, match=r"sink\.max-tables belongs to a sink of many tables"):
        parse_pipeline(MINIMAL.replace("/lake/rate", "/lake/rate, max-tables: 7"), "p.yaml", {})
    with pytest.raises(InvalidOptionError, match=r"partition-bi.*did you mean 'partition-by'"):
        parse_pipeline(text.replace("partition-by", "partition-bi"), "cdc.yaml", {})
