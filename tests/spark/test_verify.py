"""`verify` on tables that hold what their source says, and on tables that miss, double, invent or change rows."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from streamlake import IcebergSink, KafkaSource, load_table, verify
from streamlake.catalog.open import open_table
from streamlake.cli import main as cli
from streamlake.cli.commands import verify as verify_command
from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.operate.verify.verification import Verification
from tests.helpers.batch_write import append
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.row_deltas import row_delta
from tests.helpers.tables import make_table

if TYPE_CHECKING:
    from tests.helpers.broker import KafkaBroker

DDL = "id long, v string"


def rows(*pairs: tuple[int | None, str | None]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([key for key, _ in pairs], pa.int64()),
            "v": pa.array([value for _, value in pairs], pa.string()),
        }
    )


def many(count: int, start: int = 0) -> pa.Table:
    return rows(*((key, f"v{key}") for key in range(start, start + count)))


@pytest.fixture
def location(tmp_path: Path) -> str:
    """100 rows in two data files, some of them deleted and replaced: what `many(100)` says."""
    table = make_table(tmp_path / "t", DDL, format_version=3)
    append(table, rows(*((key, "old") for key in range(50))))
    append(table, many(50, 50))
    row_delta(table, range(50), many(50)).commit()
    return table.location


def counts(found: Verification) -> tuple[int, int, int, int]:
    return found.missing, found.extra, found.different, found.duplicates


def frame(spark: SparkSession, content: pa.Table, home: Path, name: str = "oracle") -> Any:
    return spark.read.parquet(parquet(content, home, name))


def parquet(content: pa.Table, home: Path, name: str = "oracle") -> str:
    home.mkdir(exist_ok=True)
    pq.write_table(content, home / f"{name}.parquet")
    return str(home / f"{name}.parquet")


@pytest.mark.parametrize("key", [(), ("id",)])
def test_equal(key: tuple[str, ...], spark: SparkSession, location: str, tmp_path: Path) -> None:
    found = verify(location, frame(spark, many(100), tmp_path), key=key)
    assert (found.is_equal, counts(found)) == (True, (0, 0, 0, 0))
    assert (found.source_rows, found.table_rows, found.examples, found.notes) == (100, 100, {}, ())
    assert found.snapshot_id == open_table(location).current_snapshot.snapshot_id


def test_every_problem_by_key(spark: SparkSession, location: str, tmp_path: Path) -> None:
    append(open_table(location), rows((3, "v3"), (3, "v3"), (500, "new"), (None, "null")))
    oracle = pa.concat_tables([many(99), rows((600, "lost"), (601, None))])
    changed = oracle.set_column(
        1, "v", pa.array(["other" if at < 2 else value for at, value in enumerate(oracle["v"].to_pylist())])
    )
    found = verify(location, frame(spark, changed, tmp_path), key=["id"])
    assert counts(found) == (2, 3, 2, 2)
    assert (found.source_rows, found.table_rows) == (101, 104)
    assert found.differing_columns == {"v": 2}
    assert {each["key"]["id"] for each in found.examples["missing"]} == {600, 601}
    assert {each["key"]["id"] for each in found.examples["extra"]} == {99, 500, None}
    [duplicate] = found.examples["duplicate"]
    assert (duplicate["key"], duplicate["source_rows"], duplicate["table_rows"]) == ({"id": 3}, 1, 3)
    assert sorted(each["key"]["id"] for each in found.examples["different"]) == [0, 1]
    assert found.examples["different"][0]["columns"]["v"]["source"] == "other"
    assert {each["row"]["v"] for each in found.examples["missing"]} == {"lost", None}


def test_every_problem_without_a_key(spark: SparkSession, location: str, tmp_path: Path) -> None:
    append(open_table(location), rows((3, "v3"), (3, "v3"), (500, "new"), (None, None)))
    oracle = pa.concat_tables([many(99), rows((7, "v7"), (600, "lost"), (None, None), (None, None))])
    found = verify(location, frame(spark, oracle, tmp_path), key=(), examples=2)
    # (7, v7) and (null, null) once more in the source, and (600, lost); 99 and 500 are in the table only.
    assert counts(found) == (3, 2, 0, 2)
    assert len(found.examples["missing"]) == 2
    assert found.examples["duplicate"][0]["row"] == {"id": 3, "v": "v3"}


def test_rows_of_one_key_are_compared_as_often_as_they_are_there(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", DDL)
    append(table, rows((1, "a"), (1, "b"), (1, "c"), (2, "a"), (2, "a")))
    same = rows((2, "a"), (1, "c"), (1, "a"), (2, "a"), (1, "b"))
    found = verify(table.location, frame(spark, same, tmp_path), key=["id"])
    assert (found.is_equal, found.source_duplicates) == (True, 2)
    for at, other in enumerate((rows((1, "a"), (1, "a"), (1, "c"), (2, "a"), (2, "a")), same.slice(1))):
        found = verify(table.location, frame(spark, other, tmp_path, f"other{at}"), key=["id"])
        assert counts(found) == ((0, 0, 1, 0), (0, 0, 0, 1))[at]


def test_values_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    """Null, NaN, decimals, times and nested values, written by the sink's conversions and read from Parquet."""
    ddl = (
        "k double, d decimal(12,3), t timestamptz, n timestamp_ntz, y date, b binary, f float, "
        "s struct<a: int, b: list<string>>, m map<string, long>"
    )
    content = pa.table(
        {
            "k": pa.array([0.0, float("nan"), None, 1.5]),
            "d": pa.array(
                [Decimal("1.500"), None, Decimal("-1.500"), Decimal("0.000")], pa.decimal128(12, 3)
            ),
            "t": pa.array(
                [datetime(2024, 1, 1, 12, tzinfo=timezone.utc), None] * 2, pa.timestamp("us", "UTC")
            ),
            "n": pa.array([datetime(2024, 1, 1, 12, 0, 0, 123456), None] * 2, pa.timestamp("us")),
            "y": pa.array([date(1969, 12, 31), None] * 2),
            "b": pa.array([b"", b"\x00", None, b"x"]),
            "f": pa.array([float("nan"), 1.0, None, -0.0], pa.float32()),
            "s": pa.array(
                [{"a": 1, "b": []}, None, {"a": None, "b": None}, {"a": 2, "b": ["x", None]}],
                pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
            ),
            "m": pa.array([[("a", 1), ("b", 2)], [], None, [("c", None)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    table = make_table(tmp_path / "t", ddl)
    append(table, content)
    # -0.0 equals 0.0 in a key; the entries of a map have no order.
    shuffled = content.set_column(0, "k", pa.array([-0.0, float("nan"), None, 1.5]))
    shuffled = shuffled.set_column(
        8, "m", pa.array([[("b", 2), ("a", 1)], [], None, [("c", None)]], pa.map_(pa.string(), pa.int64()))
    )
    assert verify(table.location, frame(spark, shuffled, tmp_path), key=["k"]).is_equal
    changed = content
    for column, other in {
        "d": pa.array([Decimal("1.501"), None, Decimal("-1.500"), Decimal("0.000")], pa.decimal128(12, 3)),
        "n": pa.array([datetime(2024, 1, 1, 12, 0, 0, 123457), None] * 2, pa.timestamp("us")),
        "b": pa.array([None, b"\x00", None, b"x"]),
        "f": pa.array([float("nan"), 1.0, None, 0.0], pa.float32()),
    }.items():
        changed = changed.set_column(content.column_names.index(column), column, other)
    found = verify(table.location, frame(spark, changed, tmp_path, "changed"), key=["k"])
    assert found.differing_columns == {"d": 1, "n": 2, "b": 1, "f": 1}
    assert found.different == 3


def test_columns_and_branches(spark: SparkSession, location: str, tmp_path: Path) -> None:
    from streamlake.table.updates.manage_refs import ManageRefs

    wider = many(100).append_column("more", pa.array(range(100)))
    with pytest.raises(InvalidOptionError, match="has the column 'more'"):
        verify(location, frame(spark, wider, tmp_path), key=["id"])
    assert verify(location, frame(spark, wider, tmp_path), key=["id"], columns=["v"]).is_equal
    narrow = frame(spark, many(100).select(["id"]), tmp_path, "narrow")
    found = verify(location, narrow, key=["id"])
    assert (found.different, found.notes) == (
        100,
        ("the source has no column 'v': the table must hold its default, or null",),
    )
    assert verify(location, narrow, key=["id"], columns=[]).is_equal
    table = open_table(location)
    ManageRefs(table).create_branch("audit").commit()
    append(table, many(1, 1_000), branch="audit")
    assert verify(table, frame(spark, many(100), tmp_path), key=["id"]).is_equal
    assert counts(verify(table, frame(spark, many(100), tmp_path), key=["id"], branch="audit")) == (
        0,
        1,
        0,
        0,
    )


def test_an_empty_table_and_an_empty_source(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", DDL)
    nothing = frame(spark, many(0), tmp_path)
    assert verify(table.location, nothing).is_equal
    found = verify(table.location, frame(spark, many(3), tmp_path, "some"))
    assert (counts(found), found.snapshot_id) == ((3, 0, 0, 0), None)
    append(table, many(3))
    assert counts(verify(table.location, nothing)) == (0, 3, 0, 0)


def test_another_table(spark: SparkSession, location: str, tmp_path: Path) -> None:
    other = make_table(tmp_path / "other", "v string, id int", partition_by=("bucket(3, id)",))
    append(other, many(100).set_column(0, "id", many(100)["id"].cast(pa.int32())))
    assert verify(location, load_table(other.location), key=["id"]).is_equal
    append(open_table(location), many(1, 5_000))
    assert counts(verify(location, load_table(other.location), key=["id"])) == (0, 1, 0, 0)


def test_changes(spark: SparkSession, tmp_path: Path) -> None:
    """The last change of a key is what the table has to hold, by sequence_by."""
    make_table(tmp_path / "t", "id long, v string, n long", format_version=3)
    upserts = LocalUpserts(str(tmp_path / "t"), key=["id"], sequence_by=["n"])
    events = [
        *((key, f"first {key}", 1, "I") for key in range(40)),
        *((key, f"second {key}", 2, "U") for key in range(0, 40, 2)),
        *((key, None, 3, "D") for key in range(0, 40, 5)),
        *((key, f"late {key}", 0, "U") for key in range(0, 40, 10)),
        *((key, "before", 9, "-U") for key in range(40)),
    ]
    names = ("id", "v", "n", "op")
    types = (pa.int64(), pa.string(), pa.int64(), pa.string())
    log = pa.table(
        {name: pa.array([each[at] for each in events], types[at]) for at, name in enumerate(names)}
    )
    codes = {"I": 0, "U": 2, "D": 3, "-U": 1}
    kinds = pa.array([codes[each[3]] for each in events], pa.int8())
    changes = log.drop_columns(["op"]).append_column("_row_kind", kinds)
    for start in range(0, changes.num_rows, 20):
        upserts.checkpoint(changes.slice(start, 20))
    given: dict[str, Any] = {"mode": "upsert", "key": ["id"], "sequence_by": ["n"], "row_kind": "op"}
    oracle = frame(spark, log, tmp_path)
    found = verify(upserts.location, oracle, **given)
    assert (found.is_equal, found.source_rows, found.table_rows) == (True, 32, 32)
    upserts.checkpoint(pa.table({"id": [1, 5, 99], "v": ["x", "back", "new"], "n": [100, 100, 100]}))
    found = verify(upserts.location, oracle, **given)
    assert counts(found) == (0, 2, 1, 0)
    assert found.differing_columns == {"v": 1, "n": 1}
    with pytest.raises(InvalidOptionError, match="sequence_by"):
        verify(upserts.location, oracle, **{**given, "sequence_by": ()})


def test_a_value_that_no_table_row_can_be(spark: SparkSession, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", "id int, v string")
    append(table, rows((1, "a")).set_column(0, "id", pa.array([1], pa.int32())))
    with pytest.raises(SchemaMismatchError, match="id"):
        verify(table.location, frame(spark, rows((2**40, "a")), tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "upsrt"}, "Did you mean 'upsert'"),
        ({"mode": "upsert", "key": ()}, "key"),
        ({"mode": "changelog", "key": ["id"], "sequence_by": ["v"]}, "row_kind"),
        ({"sequence_by": ["v"]}, "belong to the modes"),
        ({"key": ["nope"]}, "nope"),
        ({"columns": ["nope"]}, "nope"),
    ],
)
def test_refusals(
    arguments: dict[str, Any], message: str, spark: SparkSession, location: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        verify(location, frame(spark, many(1), tmp_path), **arguments)


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`streamlake verify` on the session of the tests, which it must not stop; returns its exit code."""

    class Borrowed:
        def __init__(self, session: SparkSession) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        def stop(self) -> None:
            pass

    monkeypatch.setattr(verify_command, "spark_session", lambda *names, **settings: Borrowed(spark))

    def call(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["verify", *arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return call


def test_command(command: Any, location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = parquet(many(100), tmp_path / "oracle", "a")
    assert command(location, "--against", path, "--key", "id") == 0
    text = capsys.readouterr().out
    assert "verdict" in text
    assert "equal" in text
    assert "NOT EQUAL" not in text
    append(open_table(location), rows((3, "v3"), (700, "x")))
    parquet(rows((1_000, "lost")), tmp_path / "oracle", "b")
    assert command(location, "--against", f"{tmp_path}/oracle/*.parquet", "--key", "id") == 1
    text = capsys.readouterr().out
    for shown in ("NOT EQUAL", "Missing: in the source", "id=1000", "Extra", "id=700", "Duplicate", "id=3"):
        assert shown in text
    assert command(location, "--against", str(tmp_path / "oracle"), "--key", "id", "--json") == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["is_equal"], content["missing"], content["extra"], content["duplicates"]) == (
        False,
        1,
        1,
        1,
    )
    assert content["examples"]["missing"][0]["key"] == {"id": 1_000}
    assert command(location, "--against", location) == 0


def test_command_with_a_pipeline_file(
    command: Any, location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"number": key, "text": f"v{key}"}) for key in range(120)]
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    pipeline = tmp_path / "p.yaml"
    pipeline.write_text(
        f"""
name: p
source:
  files: {{path: {tmp_path}/in, format: json, schema: "number long, text string"}}
select: [number AS id, text AS v]
where: number < 100
sink: {{table: {location}}}
checkpoint: {tmp_path}/checkpoint
"""
    )
    assert command("--pipeline", str(pipeline)) == 0
    assert f"the source of {pipeline}" in capsys.readouterr().out
    assert command("--pipeline", str(pipeline), "--key", "id", "--json") == 0


def test_wrong_usage_is_exit_code_2(
    command: Any, location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(location) == 2
    assert "give --against SOURCE, --pipeline FILE.yaml or --postgres DSN" in capsys.readouterr().err
    assert command(location, "--against", str(tmp_path / "none")) == 2
    assert "neither a table nor a file" in capsys.readouterr().err
    assert command(str(tmp_path / "none"), "--against", location) == 2
    assert command(location, "--against", str(tmp_path / "none.parquet")) == 2
    assert command(location, "--against", location, "--mode", "overwrite") == 2
    assert command(location, "--against", location, "--option", "a=b") == 2


class TestTopic:
    DDL = "op string, id long, n long, v string"

    @pytest.fixture
    def stream(self, kafka_broker: KafkaBroker, tmp_path: Path) -> tuple[KafkaSource, str, Any]:
        """A topic of changes in two partitions, the table that the sink has made of it, and how to go on."""
        topic = kafka_broker.create_topic(partitions=2)
        source = KafkaSource(kafka_broker.bootstrap_servers, topic, schema=self.DDL)
        sink = IcebergSink(
            str(tmp_path / "t"), mode="upsert", key=["id"], row_kind="op", create=True, pipeline="p"
        )

        def go_on(changes: list[tuple[str, int, int, str | None]], *, run: bool = True) -> None:
            for op, key, number, value in changes:
                record = json.dumps({"op": op, "id": key, "n": number, "v": value}).encode()
                kafka_broker.produce(topic, [record], partition=key % 2)
            if run:
                query = sink.start(
                    source, checkpoint_location=str(tmp_path / "c"), trigger={"availableNow": True}
                )
                query.awaitTermination(60)

        go_on([("c", key, 1, f"first {key}") for key in range(20)])
        go_on(
            [
                *(("u", key, 2, "second") for key in range(5)),
                ("d", 7, 3, None),
                ("d", 8, 3, None),
                ("c", 8, 4, "again"),
            ]
        )
        return source, sink.table, go_on

    def test_topic(
        self,
        spark: SparkSession,
        stream: tuple[KafkaSource, str, Any],
        command: Any,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        source, location, go_on = stream
        given: dict[str, Any] = {"mode": "upsert", "key": ["id"], "row_kind": "op"}
        found = verify(location, source, **given)
        assert (found.is_equal, found.source_rows, found.notes) == (True, 19, ())
        # What is not committed yet is not compared, unless it is asked for.
        go_on([("u", 1, 9, "newer"), ("d", 2, 9, None)], run=False)
        found = verify(location, source, **given)
        assert found.is_equal
        assert "2 offsets are newer than what pipeline 'p' has committed" in found.notes[0]
        assert counts(verify(location, source, **given, until="latest")) == (0, 1, 1, 0)
        # Lost, doubled and made-up rows.
        table = open_table(location)
        row_delta(table, [3]).commit()
        append(table, pa.table({"id": [4, 900], "n": [2, 0], "v": ["second", "made up"]}))
        found = verify(location, source, **given)
        assert counts(found) == (1, 1, 0, 1)
        assert found.examples["missing"][0]["key"] == {"id": 3}
        server = f"kafka://{source.bootstrap_servers}/{source.topics[0]}"
        arguments = ["--mode", "upsert", "--key", "id", "--row-kind", "op", "--schema", self.DDL, "--json"]
        assert command(location, "--against", server, *arguments) == 1
        assert json.loads(capsys.readouterr().out)["missing"] == 1
