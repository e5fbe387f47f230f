"""The sink's modes upsert and changelog under a real Structured Streaming query, against a model of the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamlake import KafkaSource, create_table, load_table
from streamlake.commit.receipt import Outcome
from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.pipeline.key_index import indexed_rows
from streamlake.pipeline.spark import task_outcome
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.batch_write import append
from tests.helpers.change_stream import ChangeStream, Row
from tests.helpers.invariants import check_table, live_data_files

if TYPE_CHECKING:
    from tests.helpers.broker import KafkaBroker
    from tests.helpers.readers import DuckDbReader


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> ChangeStream:
    return ChangeStream(spark, tmp_path)


def puts(ids: range, value: str, parts: int = 2) -> Iterator[Row]:
    return (("+U", number, f"p{number % parts}", f"{value}-{number}") for number in ids)


def deletes(ids: range) -> Iterator[Row]:
    return (("-D", number, None, None) for number in ids)


@pytest.mark.parametrize(
    ("mode", "version", "content"),
    [
        ("position", None, FileContent.POSITION_DELETES),
        ("position", 2, FileContent.POSITION_DELETES),
        ("equality", None, FileContent.EQUALITY_DELETES),
        ("copy-on-write", None, None),
    ],
)
def test_upserts(
    mode: str,
    version: int | None,
    content: FileContent | None,
    stream: ChangeStream,
    duckdb_reader: DuckDbReader,
) -> None:
    stream.land(puts(range(600), "first"))
    stream.land([*puts(range(0, 600, 3), "second"), *deletes(range(1, 60, 3)), *puts(range(600, 650), "new")])
    # Within a checkpoint the last change of a key counts.
    stream.land(
        [
            *puts(range(40), "old"),
            *deletes(range(20)),
            *puts(range(10), "third"),
            *deletes(range(9_000, 9_003)),
        ]
    )
    # An update comes as its row before and after; the first is of no meaning here.
    stream.land(
        [("-U", 100, "p0", "second-?"), ("+U", 100, "p0", "fourth"), ("-U", 101, "p1", "first-101")],
        model=False,
    )
    stream.apply([("+U", 100, "p0", "fourth")])
    sink = stream.run(stream.sink(delete_mode=mode, format_version=version, partition_by=["bucket(2, id)"]))
    stream.check()
    table = stream.table
    assert table.format_version == (version or (3 if mode == "position" else 2))
    assert len(table.snapshots) == 4
    assert {file.content for file in stream.deletes()} == ({content} if content else set())
    found = duckdb_reader.sql(
        f"select id, part, v from {duckdb_reader.relation(stream.location)} order by id"
    )
    assert list(zip(*found.to_pydict().values(), strict=True)) == stream.expected()
    counters = [dict(receipt.counters) for receipt in sink.receipts]
    assert [counter["changes"] for counter in counters] == [600, 270, 73, 1]
    assert [counter["deletes"] for counter in counters] == [0, 20, 13, 0]
    assert counters[2]["replaced-in-checkpoint"] == 30
    if mode != "equality":
        assert [counter["inserts"] for counter in counters] == [600, 50, 9, 0]
        assert [counter["updates"] for counter in counters] == [0, 200, 21, 1]
        assert [counter["deletes-of-unknown-keys"] for counter in counters] == [0, 0, 7, 0]


@pytest.mark.parametrize("mode", ["position", "equality", "copy-on-write"])
def test_changelog(mode: str, stream: ChangeStream) -> None:
    """The stream says what is deleted: an insert of its own deletes nothing."""
    stream.land([("+I", 1, "p", "a"), ("+I", 2, "p", "a"), ("+I", 3, "p", "a"), ("+I", 4, "p", "a")])
    stream.land([("-U", 1, "p", "a"), ("+U", 1, "q", "b"), ("-D", 2, "p", "a"), ("+I", 5, "p", "a")])
    stream.land(
        [
            ("-U", 1, "q", "b"),
            ("+U", 1, "p", "c"),
            ("-D", 1, "p", "c"),
            ("+I", 2, "p", "d"),
            ("-D", 3, None, None),
        ]
    )
    stream.run(stream.sink(mode="changelog", delete_mode=mode))
    stream.check()
    assert [row[0] for row in stream.rows()] == [2, 4, 5]


def test_append_only_frames_are_upserts_and_the_key_is_the_tables(stream: ChangeStream) -> None:
    stream.land(puts(range(100), "first"))
    stream.land(puts(range(50, 150), "second"))
    schema = replace(parse_ddl("id bigint not null, part string, v string"), identifier_field_ids=(1,))
    create_table(str(stream.location), schema)
    stream.run(stream.sink(key=(), row_kind=None, create=False), stream.frame(kinds=False))
    stream.check()


def test_a_table_without_a_known_key_is_refused(stream: ChangeStream) -> None:
    stream.land(puts(range(10), "first"))
    create_table(str(stream.location), stream.columns)
    with pytest.raises(InvalidOptionError, match="no key is known"):
        stream.run(stream.sink(key=(), create=False))
    with pytest.raises(SchemaMismatchError, match=r"idd.*Did you mean 'id'"):
        stream.run(stream.sink(key=["idd"], create=False))
    stream.run(stream.sink(create=False))
    stream.check()


def test_the_order_inside_an_input_partition_is_that_of_its_rows(stream: ChangeStream) -> None:
    changes = [
        ("-D" if turn == 6 and number % 5 == 0 else "+U", number, "p", f"{turn}-{number}")
        for turn in range(7)
        for number in range(500)
    ]
    stream.land(changes)
    sink = stream.run(stream.sink(properties={"streamlake.upsert.buckets": "5"}))
    stream.check()
    assert sink.receipts[0].rows == 400
    assert sink.receipts[0].counters["replaced-in-checkpoint"] == 3_000


def test_sequence_by_orders_across_input_partitions_and_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = ChangeStream(spark, tmp_path, "id bigint, seq bigint, v string")
    # Two files are two input partitions of one checkpoint, whose order nobody knows.
    even = [("+U", number, 10 + number % 2 * 5, "even file") for number in range(100)]
    odd = [("+U", number, 12, "odd file") for number in range(100)]
    stream.land(even, model=False)
    stream.land(odd, model=False)
    stream.apply((*row[:2], max(row[2], 12), "even file" if row[2] > 12 else "odd file") for row in even)
    late = [("+U", number, 3, "too late") for number in range(30)]
    newer = [("-D", number, 20, None) for number in range(40, 50)]
    stream.land([*late, *newer], model=False)
    stream.land([("+U", 1_000, 1, "new"), ("+U", 1_000, 0, "late in the same file")], model=False)
    stream.apply([*newer, ("+U", 1_000, 1, "new")])
    # Later than nothing, but than the delete: it brings back no row.
    stream.land([("+U", number, 19, "too late") for number in range(40, 45)], model=False)
    stream.land([("+U", number, 21, "again") for number in range(45, 50)])
    sink = stream.run(stream.sink(sequence_by=["seq"]), stream.frame(files=2))
    stream.check()
    assert [receipt.counters["late"] for receipt in sink.receipts] == [0, 30, 5]
    assert [receipt.rows for receipt in sink.receipts] == [100, 1, 5]


def test_files_that_nothing_orders_are_warned_of(
    stream: ChangeStream, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        stream.land(puts(range(5 * number, 5 * number + 5), "v"))
    words = "reads 2 files in one micro-batch and has no sequence_by"
    stream.run(frame=stream.frame(files=2))
    assert caplog.text.count(words) == 1
    for files, sequence in ((1, None), (2, ["v"])):
        caplog.clear()
        for number in range(4):
            stream.land(puts(range(5 * number, 5 * number + 5), "w"))
        stream.run(stream.sink(sequence_by=sequence), stream.frame(files=files))
        assert words not in caplog.text
    stream.check()


def test_composite_keys_of_text(spark: SparkSession, tmp_path: Path) -> None:
    stream = ChangeStream(spark, tmp_path, "region string, name string, v bigint", ("region", "name"))
    # A table that the sink creates requires its keys; one that is there may have nulls in them.
    create_table(stream.location, "region string, name string, v long", format_version=3)
    names = ["", "a", "ab", "Zürich", "κλειδί", "x" * 300, None]
    keys = [(region, name) for region in ("", "a", "aa", None) for name in names]
    stream.land([("+U", *key, 1) for key in keys])
    stream.land([("+U", *key, 2) for key in keys[::3]])
    stream.land([("-D", *key, None) for key in keys[::4]])
    stream.run()
    stream.check()
    assert len(stream.rows()) == len(keys) - len(keys[::4])


def test_rows_that_move_to_another_partition(stream: ChangeStream) -> None:
    stream.land(puts(range(200), "first", parts=2))
    stream.land(puts(range(0, 200, 2), "second", parts=3))
    stream.land(puts(range(0, 200, 5), "third", parts=5))
    stream.run(stream.sink(partition_by=["part"]))
    stream.check()


def test_an_evolved_partition_spec(stream: ChangeStream, iceberg_spark: SparkSession) -> None:
    """Old rows are deleted where they are: in the spec and partition of their data file."""
    stream.land(puts(range(200), "first"))
    stream.run(stream.sink(partition_by=["part"]))
    jvm = iceberg_spark._jvm
    conf = iceberg_spark._jsparkSession.sessionState().newHadoopConf()
    java = jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(f"file://{stream.location}")
    terms = jvm.org.apache.iceberg.expressions.Expressions
    java.updateSpec().removeField("part").addField(terms.bucket("id", 2)).commit()
    stream.land([*puts(range(0, 200, 3), "second"), *deletes(range(1, 30, 3))])
    stream.land(puts(range(0, 200, 2), "third"))
    stream.run()
    stream.check()
    assert {file.spec_id for file in live_data_files(stream.table)} == {0, 1}


def test_empty_checkpoints_commit_nothing_but_every_nth(stream: ChangeStream) -> None:
    stream.land(puts(range(50), "first"))
    stream.run()
    for _ in range(2):
        stream.land(puts(range(1_000, 1_010), "not taken"), model=False)
    sink = stream.run(stream.sink(max_continuous_empty_commits=2), stream.frame().where("id < 1000"))
    assert [receipt.outcome for receipt in sink.receipts] == [Outcome.EMPTY, Outcome.COMMITTED]
    # Deletes of keys that are not there make no file either.
    stream.land(deletes(range(2_000, 2_005)))
    stream.land(puts(range(20), "second"))
    after = stream.run()
    assert [receipt.outcome for receipt in after.receipts] == [Outcome.EMPTY, Outcome.COMMITTED]
    stream.check()


def test_branch_writes(stream: ChangeStream) -> None:
    stream.land(puts(range(100), "first"))
    stream.run()
    main = stream.rows()
    stream.land([*puts(range(0, 100, 2), "second"), *deletes(range(1, 20, 2))])
    stream.run(stream.sink(branch="audit"))
    assert stream.rows() == main
    assert stream.rows(ref="audit") == stream.expected()
    stream.land(puts(range(200, 210), "third"))
    stream.run(stream.sink(branch="audit"))
    assert stream.rows() == main
    assert stream.rows(ref="audit") == stream.expected()
    check_table(stream.table, files_exist=True)


def test_a_large_table_is_indexed_by_spark(stream: ChangeStream, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(str(stream.location), stream.columns, format_version=3)
    for first in (0, 3_000):
        rows = list(puts(range(first, first + 3_000), "first"))
        names = [part.name for part in stream.schema.fields]
        append(
            stream.table,
            pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))).drop_columns(["op"]),
        )
        stream.apply(rows)
    jobs: list[int] = []
    run_parts = task_outcome.run_parts

    def counted(session: object, work: object, parts: list[object]) -> list[object]:
        jobs.append(len(parts))
        return run_parts(session, work, parts)

    monkeypatch.setattr(indexed_rows, "_ROWS_ON_DRIVER", 1_000)
    monkeypatch.setattr(indexed_rows, "run_parts", counted)
    stream.land([*puts(range(0, 6_000, 7), "second"), *deletes(range(1, 6_000, 70))])
    stream.land(puts(range(0, 6_000, 11), "third"))
    stream.run()
    assert jobs[0] == 2, "a task for each of the files; after that the parts of each bucket are merged"
    assert len(jobs) == 2
    stream.check()
    assert load_table(str(stream.location)).scan().count() == len(stream.model)


def test_changes_straight_from_kafka(kafka_broker: KafkaBroker, stream: ChangeStream) -> None:
    """The order of a key's changes is that of their offsets, however many tasks read a Kafka partition."""
    topic = kafka_broker.create_topic(partitions=2)
    for turn in range(8):
        changes = [
            ("d" if (turn + number) % 7 == 0 else "u", number, f"p{number % 2}", f"{turn}-{number}")
            for number in range(100)
        ]
        stream.apply(("-D" if row[0] == "d" else "+U", *row[1:]) for row in changes)
        for partition in range(2):
            mine = [row for row in changes if row[1] % 2 == partition]
            records = (json.dumps(dict(zip(("op", "id", "part", "v"), row, strict=True))) for row in mine)
            kafka_broker.produce(topic, map(str.encode, records), partition=partition)
    source = KafkaSource(
        bootstrap_servers=kafka_broker.bootstrap_servers,
        topics=[topic],
        schema="op string, id long not null, part string, v string",
        options={"max-offsets-per-trigger": 500, "min-partitions": 5},
    )
    sink = stream.sink(partition_by=["part"])
    query = sink.start(source, checkpoint_location=stream.checkpoint, trigger={"availableNow": True})
    assert query.awaitTermination(120)
    assert len(sink.receipts) == 2
    stream.check()
    table = stream.table
    assert table.schema.column_names == ["id", "part", "v"]
    assert table.schema.identifier_field_ids == (table.schema.find("id").field_id,)
