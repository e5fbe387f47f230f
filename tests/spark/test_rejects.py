"""Records that cannot become rows, on a real broker: to the rejects table, once, or the stream stops as it was told to."""

from __future__ import annotations

import json
import signal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from streamlake import IcebergSink, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.cli.commands.replay_rejects import run as replay_rejects
from streamlake.cli.commands.run import receipt_line
from streamlake.errors import DecodeError, InvalidOptionError, TableNotFoundError, TooManyRejectsError
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.pipeline.definition.running import run_pipeline
from streamlake.pipeline.runs.rejected.rejects_table import rejects_name
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import write_rows
from tests.helpers.command_line import streamlake
from tests.helpers.invariants import check_table
from tests.helpers.kafka_stream import KafkaStream, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker


@pytest.fixture
def stream(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path) -> KafkaStream:
    return KafkaStream(kafka_broker, tmp_path, partitions=2)


def rejects(stream: KafkaStream) -> list[dict[str, Any]]:
    try:
        table = load_table(rejects_name(stream.location))
    except TableNotFoundError:
        return []
    check_table(open_table(rejects_name(stream.location)), files_exist=True)
    return table.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()


def test_bad_records_go_to_the_rejects_and_good_ones_to_the_table(stream: KafkaStream):
    stream.produce(range(100))
    sink = stream.sink(on_error="reject", pipeline="numbers")
    assert stream.run(sink).receipts[-1].counters["rejected-records"] == 0
    assert rejects(stream) == []

    stream.broker.produce(
        stream.topic, [b"{", value(100), b'{"id": "x"}'], partition=0, headers=[("h", b"1")]
    )
    stream.broker.produce(stream.topic, [value(101), b"\xff"], partition=1)
    sink = stream.sink(on_error="reject", pipeline="numbers")
    receipt = stream.run(sink).receipts[-1]
    assert (receipt.rows, receipt.counters["rejected-records"]) == (2, 3)
    assert "committed, 2 rows (3 rejects), " in receipt_line(receipt)
    assert stream.ids() == list(range(102))
    found = rejects(stream)
    assert [(row["partition"], row["offset"], row["value"]) for row in found] == [
        (0, 100, b"{"),
        (0, 102, b'{"id": "x"}'),
        (1, 1, b"\xff"),
    ]
    assert found[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert {(row["topic"], row["pipeline"], row["checkpoint_id"]) for row in found} == {
        (stream.topic, "numbers", 1)
    }
    assert "a whole number is needed" in found[1]["error_message"]
    snapshots = load_table(stream.location).snapshots
    assert snapshots[-1].summary["streamlake.rejected-records"] == "3"
    assert "streamlake.rejected-records" not in snapshots[0].summary

    # A checkpoint that has nothing but rejects is committed as well: its marker tells of them.
    stream.broker.produce(stream.topic, [b"["], partition=1)
    receipt = stream.run(stream.sink(on_error="reject", pipeline="numbers")).receipts[-1]
    assert (receipt.rows, receipt.counters["rejected-records"]) == (0, 1)
    assert len(rejects(stream)) == 4
    assert len(load_table(rejects_name(stream.location)).snapshots) == 2


def test_changes_that_do_not_fit_their_table_are_rejects(stream: KafkaStream):
    create_table(
        stream.location, "id long not null, v decimal(4,2) not null", format_version=3, properties={}
    )
    changes = [
        {"op": "c", "id": 1, "v": "1.25"},
        {"op": "c", "id": 2, "v": "100.00"},
        {"op": "c", "id": 3, "v": None},
        {"op": "zap", "id": 4, "v": "1.00"},
        {"op": "u", "id": 1, "v": "2.50"},
        {"op": "c", "id": 5, "v": "5.00"},
        {"op": "d", "id": 5},
        {"op": "c", "id": None, "v": "1.00"},
    ]
    stream.broker.produce(stream.topic, [json.dumps(change).encode() for change in changes], partition=0)
    sink = IcebergSink(
        stream.location, mode="upsert", key=["id"], row_kind="op", on_error="reject", pipeline="changes"
    )
    schema = "op string, id long, v decimal(10,2)"
    receipt = stream.run(sink, schema=schema).receipts[-1]
    assert receipt.counters["rejected-records"] == 4
    rows = load_table(stream.location).scan().to_arrow().to_pylist()
    assert [(row["id"], str(row["v"])) for row in rows] == [(1, "2.50")]
    found = rejects(stream)
    assert [row["offset"] for row in found] == [1, 2, 3, 7]
    assert {row["error_class"] for row in found} == {"SchemaMismatchError"}


def test_changes_that_lack_a_value_are_rejects(stream: KafkaStream):
    create_table(
        stream.location,
        "id long not null, v string",
        format_version=3,
        properties={"streamlake.upsert.unset-values": "reject"},
    )
    source = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "lsn": 1}
    values = ["a", "__debezium_unavailable_value", "b", "__debezium_unavailable_value"]
    changes = [
        {"op": "u", "before": None, "after": {"id": id, "v": v}, "source": {**source, "lsn": at}}
        for at, (id, v) in enumerate(zip((1, 1, 2, 3), values, strict=True))
    ]
    stream.broker.produce(stream.topic, [json.dumps(change).encode() for change in changes], partition=0)
    arguments: dict[str, Any] = {"mode": "upsert", "key": ["id"], "pipeline": "changes"}
    schema = "id long not null, v string"
    with pytest.raises(DecodeError, match=r"offset 3.*on_error='reject'"):
        stream.run(IcebergSink(stream.location, **arguments), schema=schema, format="debezium-json")
    sink = IcebergSink(stream.location, **arguments, on_error="reject")
    receipt = stream.run(sink, schema=schema, format="debezium-json").receipts[-1]
    assert receipt.counters["rejected-records"] == 1
    rows = load_table(stream.location).scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    [found] = rejects(stream)
    assert (found["offset"], json.loads(found["value"])) == (3, changes[3])


def test_more_rejects_than_allowed_stop_the_stream_and_commit_nothing(stream: KafkaStream):
    for partition in (0, 1):
        stream.broker.produce(stream.topic, [value(partition), b"{", b"["], partition=partition)
    with pytest.raises(
        TooManyRejectsError, match=r"4 records of this checkpoint.*max_rejects allows 3.*offset 1"
    ):
        stream.run(stream.sink(on_error="reject", max_rejects=3))
    assert (stream.ids(), rejects(stream)) == ([], [])
    data = Path(rejects_name(stream.location), "data")
    assert not list(data.rglob("*.parquet"))
    stream.run(stream.sink(on_error="reject", max_rejects=4))
    assert (stream.ids(), len(rejects(stream))) == ([0, 1], 4)


def test_policies(stream: KafkaStream, spark: SparkSession):
    stream.broker.produce(stream.topic, [value(0), b"{"], partition=0)
    with pytest.raises(DecodeError, match="offset 1"):
        stream.run(stream.sink())
    assert rejects(stream) == []
    with pytest.raises(InvalidOptionError, match="KafkaSource"):
        stream.sink(on_error="reject").start(
            spark.readStream.format("rate").load(), checkpoint_location=stream.checkpoint
        )
    with pytest.raises(InvalidOptionError, match="reject"):
        stream.sink(on_error="rejct")
    with pytest.raises(InvalidOptionError, match="max_rejects"):
        stream.sink(max_rejects=3)
    with pytest.raises(InvalidOptionError, match="at least 1"):
        stream.sink(on_error="reject", max_rejects=0)


RECORDS = 6_000
PIPELINE = """
name: payments
source:
  kafka:
    bootstrap-servers: {servers}
    topics: {topic}
    schema: {schema}
    options: {{max-offsets-per-trigger: 2500{options}}}
sink: {{table: {home}/table, on-error: reject}}
checkpoint: {home}/checkpoint
trigger: available-now
"""
STRICT = "id long not null, at timestamptz, amount decimal(12,2), payload binary"
MENDED = "id decimal(18,0) not null, at timestamptz, amount decimal(12,4), payload binary"


def good(number: int) -> dict[str, Any]:
    return {"id": number, "at": "2024-05-01T00:00:00Z", "amount": number / 4, "payload": "aGk="}


def text(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


DAMAGE = (
    lambda number: text(good(number))[:-3],
    lambda number: b"\xff\xfe" + text(good(number)),
    lambda number: b"[%d]" % number,
    lambda number: b"",
    lambda number: text(good(number)) * 2,
    lambda number: b'{"id":1,' + text(good(number))[1:],
    lambda number: text({**good(number), "payload": "?"}),
    # From here on the next schema and options read them.
    lambda number: text({**good(number), "id": str(number)}),
    lambda number: text({**good(number), "amount": f"{number}.0625"}),
    lambda number: text({**good(number), "at": 1_714_521_600_000}),
)
"""Ten kinds of damage."""
HELPED_BY_SETTINGS = 3


def damaged(number: int) -> int | None:
    """Which damage a record has: one in a hundred has one."""
    return number // 100 % len(DAMAGE) if number % 100 == 17 else None


def mend(rejects_table: str) -> None:
    """What somebody does about records that no setting helps with: write them right, where they are kept."""
    table = open_table(rejects_table)
    rows = load_table(rejects_table).scan().to_arrow()
    numbers = [row["offset"] * 2 + row["partition"] for row in rows.to_pylist()]
    values = pa.array([text(good(number)) for number in numbers], pa.binary())
    target = WriteTarget.for_table(
        table.metadata, io=table.io, job_id="mend", checkpoint_id=0, operation_uuid="mend"
    )
    at = rows.column_names.index("value")
    result = write_rows(target, rows.set_column(at, "value", values).to_batches(), 0, 0, 0)
    overwrite = OverwriteFiles(table).overwrite_by_filter("true")
    for file in result.data_files:
        overwrite.add_file(file)
    overwrite.commit()


def test_ten_kinds_of_damage_through_a_kill_and_two_replays(
    spark: SparkSession,
    stream: KafkaStream,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    for partition in (0, 1):
        numbers = range(partition, RECORDS, 2)
        kinds = ((number, damaged(number)) for number in numbers)
        values = [text(good(at)) if kind is None else DAMAGE[kind](at) for at, kind in kinds]
        stream.broker.produce(stream.topic, values, partition=partition)
    create_table(stream.location, "id decimal(18,0), at timestamptz, amount decimal(12,4), payload binary")
    file = tmp_path / "payments.yaml"

    def write(schema: str, options: str = "") -> None:
        servers = stream.broker.bootstrap_servers
        file.write_text(
            PIPELINE.format(
                servers=servers, topic=stream.topic, schema=schema, options=options, home=tmp_path
            )
        )

    write(STRICT)
    # The table has its second checkpoint, and the rejects have not.
    armed = {"STREAMLAKE_FAILPOINTS": "after-swap=kill,nth=3"}
    killed = streamlake("run", file, cwd=tmp_path, extra=armed)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    bad = [number for number in range(RECORDS) if damaged(number) is not None]
    assert len(bad) == RECORDS // 100
    before = len(rejects(stream))
    assert 0 < before < len(bad)
    state = run_pipeline(load_pipeline(file), spark)
    assert state.checkpoints == 2
    whole = sorted(set(range(RECORDS)) - set(bad))
    assert stream.ids() == whole
    found = rejects(stream)
    assert sorted(row["offset"] * 2 + row["partition"] for row in found) == bad
    assert len({row["checkpoint_id"] for row in found}) == 3

    write(MENDED, ", json.timestamp-format: epoch-millis")
    capsys.readouterr()
    assert replay_rejects(str(file), table=None, where=None, limit=None, as_json=True) == 1
    [told] = json.loads(capsys.readouterr().out)
    helped = [number for number in bad if (damaged(number) or 0) >= len(DAMAGE) - HELPED_BY_SETTINGS]
    assert (told["records"], told["failed"]) == (len(helped), len(bad) - len(helped))
    assert stream.ids() == sorted({*whole, *helped})
    mend(rejects_name(stream.location))
    assert replay_rejects(str(file), table=None, where=None, limit=None, as_json=True) == 0
    assert stream.ids() == list(range(RECORDS))
    assert rejects(stream) == []
    assert run_pipeline(load_pipeline(file), spark).rows == 0


def test_numbers_that_a_decimal_has_no_room_for_are_rejects(stream: KafkaStream):
    """Those that have it are read back from the table as they were."""
    create_table(stream.location, "id long, a decimal(38,30), b decimal(38,20)", properties={})
    fields = [
        {"name": "id", "type": "long"},
        {"name": "a", "type": "long"},
        {"name": "b", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    rows = [
        (99_999_999, 10**18 - 1),
        (10**18, 1),
        (1, 3402823669209384635),
        (-99_999_999, 1 - 10**18),
        (1, -(2**127)),
    ]
    plain = fastavro.parse_schema(
        {**schema, "fields": [*fields[:2], {"name": "b", "type": "bytes"}]}, expand=True
    )
    records = []
    for id, (a, b) in enumerate(rows):
        out = BytesIO()
        fastavro.schemaless_writer(
            out, plain, {"id": id, "a": a, "b": b.to_bytes(b.bit_length() // 8 + 1, "big", signed=True)}
        )
        records.append(out.getvalue())
    stream.broker.produce(stream.topic, records, partition=0)
    options: dict[str, Any] = {"format": "avro", "avro.schema": json.dumps(schema), "schema": None}
    with pytest.raises(DecodeError, match=r"offset 1\b.*does not fit decimal\(38, 30\)"):
        stream.run(stream.sink(pipeline="numbers"), **options)
    stream.run(stream.sink(on_error="reject", pipeline="numbers"), **options)
    found = load_table(stream.location).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": id, "a": rows[id][0], "b": rows[id][1]} for id in (0, 3)]
    assert [row["offset"] for row in rejects(stream)] == [1, 2, 4]


def test_records_that_would_end_a_worker_are_rejects(stream: KafkaStream):
    """Too deep for a reader that looks for new columns, too wide, and a date that no column holds."""
    deep = b'{"id": 1, "x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"
    wide = b'{"f0": 0, ' + b", ".join(b'"f%d": 1' % number for number in range(60_000)) + b"}"
    late = b'{"id": 2, "day": "+999999999-01-01"}'
    create_table(stream.location, "id long, name string, day date", properties={})
    stream.broker.produce(
        stream.topic, [value(0), deep, value(1), wide, late, *map(value, range(2, 50))], partition=0
    )
    settings: dict[str, Any] = {"pipeline": "numbers", "schema_evolution": "add"}
    with pytest.raises(DecodeError, match=r"offset 1\b.*nested too deeply"):
        stream.run(stream.sink(**settings), schema=None)
    stream.run(stream.sink(on_error="reject", **settings), schema=None)
    assert stream.ids() == list(range(50))
    assert [(row["offset"], row["value"] in (deep, wide, late)) for row in rejects(stream)] == [
        (1, True),
        (3, True),
        (4, True),
    ]
