"""`streamlake check`: every mistake that a pipeline would stop with is told before it starts, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.offset_entries import entry_path, entry_to_bytes
from streamlake.cli import main as cli
from streamlake.cli.commands.check import view
from streamlake.cli.views.rendering import terminal
from streamlake.commit.marker import Fence, Marker, marker_property, marker_summary
from streamlake.errors import SourceError, StorageError
from streamlake.operate.check import pipeline_check, topic_check
from streamlake.operate.check.check_points import Point, Points, Verdict
from streamlake.operate.check.pipeline_check import check_pipeline
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_to_bytes
from streamlake.records import RAW_RECORDS
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.storage.write_access import require_writable
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from tests.helpers.fake_cluster import FakeCluster
from tests.helpers.schema_registry import RegistryServer
from tests.helpers.tables import make_table

PIPELINE = """
name: orders
source:
  kafka:
    bootstrap-servers: b:1
    topics: {topics}
    {source}
sink: {{table: {table}, {sink}}}
checkpoint: {checkpoint}
"""


class World:
    """A pipeline file with a broker that is a dictionary."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.table = home / "t"
        self.checkpoint = home / "checkpoint"
        self.file = home / "orders.yaml"
        self.cluster = FakeCluster({("orders", 0): (0, 3), ("orders", 1): (0, 0)}, {"orders": "id-1"})
        self.values: list[bytes] = [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}']
        self.fetched: list[OffsetRange] = []
        self.refusal: Exception | None = None
        monkeypatch.setattr(pipeline_check, "KafkaCluster", self.cluster.of)
        monkeypatch.setattr(pipeline_check, "check_java", lambda: 'openjdk version "17.0.1"')
        monkeypatch.setattr(topic_check, "fetch_range", self.fetch)

    def fetch(self, source: Any, piece: OffsetRange, columns: Any) -> Iterator[pa.RecordBatch]:
        self.fetched.append(piece)
        if self.refusal is not None:
            raise self.refusal
        rows = [
            {"key": None, "value": value, "topic": piece.topic, "partition": piece.partition, "offset": at}
            for at, value in enumerate(self.values)
        ]
        yield pa.RecordBatch.from_pylist(rows, RAW_RECORDS)

    def write(
        self, topics: str = "orders", source: str = "schema: id long not null", sink: str = "create: true"
    ) -> None:
        self.file.write_text(
            PIPELINE.format(
                topics=topics, source=source, sink=sink, table=self.table, checkpoint=self.checkpoint
            )
        )

    def found(self, **pipeline: str) -> dict[str, Point]:
        """The points by what they are about; of several the worst."""
        self.write(**pipeline)
        points = check_pipeline(str(self.file), lambda pipeline: None)
        order = [Verdict.UNKNOWN, Verdict.RIGHT, Verdict.NOTE, Verdict.WARNING, Verdict.ERROR]
        return {each.about: each for each in sorted(points.found, key=lambda each: order.index(each.verdict))}

    def errors(self, **pipeline: str) -> dict[str, str]:
        found = self.found(**pipeline).values()
        return {each.about: each.message for each in found if each.verdict is Verdict.ERROR}

    def make_table(self, ddl: str = "id long not null", **more: Any) -> Table:
        return make_table(self.table, ddl, **more)

    def start_query(self, positions: dict[Any, int] | None = None) -> str:
        """A checkpoint directory as a query leaves it after its first checkpoint."""
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "commits").mkdir()
        (self.checkpoint / "metadata").write_text('{"id":"job-1"}')
        if positions is not None:
            text = SourceOffsets(positions, topic_ids={"orders": "id-1"}).to_text()
            (self.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"offset":1,"timestamp":1000}\n')
            entry = self.checkpoint / entry_path(0)
            entry.parent.mkdir(parents=True)
            entry.write_bytes(entry_to_bytes(text))
            (self.checkpoint / "commits" / "0").write_text("v1\n{}\n")
        return "job-1"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_pipeline_that_can_be_started(world: World) -> None:
    before = sorted(world.home.rglob("*"))
    found = world.found()
    assert {each.verdict for each in found.values()} == {Verdict.RIGHT}
    assert sorted(found) == ["checkpoint", "file", "java", "kafka", "offsets", "records", "table"]
    assert "orders (2)" in found["kafka"].message
    assert "3 offsets are due" in found["offsets"].message
    assert "newest 3 records" in found["records"].message
    assert "can be created: format version 2, id long" in found["table"].message
    assert world.fetched == [OffsetRange("orders", 0, 0, 3)]
    assert sorted(path for path in world.home.rglob("*") if path != world.file) == before


def test_a_misspelt_topic_is_told_the_nearest(world: World) -> None:
    assert "did you mean 'orders'?" in world.found(topics="ordres")["kafka"].message


def test_a_running_pipeline_is_right_too(world: World) -> None:
    table = world.make_table()
    job = world.start_query({("orders", 0): 2, ("orders", 1): 0})
    texts = world_offsets(world)
    identity = CheckpointIdentity("orders", job, 0, (), texts)
    operation = AppendFiles(table)
    operation.set_summary(marker_summary(identity))
    operation.set_properties(marker_property("orders", "main", Marker.of(identity), Fence(1, "h"), (), 1))
    operation.commit()
    found = world.found()
    assert {each.verdict for each in found.values()} == {Verdict.RIGHT}
    assert "last checkpoint planned 0, done 0" in found["checkpoint"].message
    assert "1 offsets are due" in found["offsets"].message
    assert "directory agree" in found["lineage"].message
    assert "columns are the table's" in found["columns"].message


def world_offsets(world: World) -> tuple[str, ...]:
    from streamlake.checkpoint.spark_directory import SparkDirectory

    return SparkDirectory(str(world.checkpoint)).end_offsets(0) or ()


def test_rows_that_name_their_tables(world: World) -> None:
    template = f"{world.home}/e_{{row.id}}"
    world.table = Path(f"'{template}'")
    found = world.found()
    assert "by the field id" in found["routes"].message
    assert "none has been named yet" in found["table"].message
    assert not world.errors()
    world.start_query()
    (world.checkpoint / "streamlake").mkdir()
    named = {str(world.home / "e_1"): template}
    (world.checkpoint / TABLES_PATH).write_bytes(tables_to_bytes(named))
    make_table(world.home / "e_1", "other string not null")
    assert "e_1" in world.errors()["columns"], world.errors()
    world.table = Path(f"'{world.home}/e_{{row.it}}'")
    assert "rows have no such field; there is id" in world.errors()["routes"]
    world.table = Path(f"'{world.home}/e_{{route}}'")
    assert "cannot be imported" in world.errors(sink="create: true, route: 'no.such:one'")["routes"]


def test_the_file_is_wrong(world: World) -> None:
    assert "unknown option 'craete'" in world.errors(sink="craete: true")["file"]
    points = check_pipeline(str(world.home / "none.yaml"), lambda pipeline: None)
    assert [each.verdict for each in points.found] == [Verdict.ERROR]


class TestKafka:
    def test_no_answer(self, world: World) -> None:
        def silent() -> None:
            raise SourceError("Kafka at b:1 cannot be asked")

        world.cluster.topics = silent  # type: ignore[method-assign, assignment]
        found = world.found()
        assert found["kafka"].message == "Kafka at b:1 cannot be asked"
        assert not {"records", "offsets", "registry"} & set(found)
        assert found["table"].verdict is Verdict.RIGHT
        # Without a schema of its own it cannot be told what the table would be.
        assert world.found(source="format: json")["schema"].verdict is Verdict.UNKNOWN

    def test_missing_topics(self, world: World) -> None:
        errors = world.errors(topics="[orders, odrers]")
        assert list(errors) == ["kafka"]
        assert "no topic odrers" in errors["kafka"]

    def test_no_permission_to_read(self, world: World) -> None:
        world.refusal = SourceError("Kafka at b:1 does not let this user read [orders]")
        assert world.errors() == {"records": "Kafka at b:1 does not let this user read [orders]"}

    def test_records_of_another_form(self, world: World) -> None:
        world.values = [b'{"id": 1}', b"not json"]
        error = world.errors()["records"]
        assert "cannot be decoded" in error
        assert "orders" in error
        assert "offset 1" in error

    def test_records_that_would_be_rejected(self, world: World) -> None:
        world.values = [b"not json"]
        found = world.found(sink="create: true, on-error: reject")
        assert found["records"].verdict is Verdict.WARNING
        assert "would be rejected" in found["records"].message

    def test_an_empty_topic(self, world: World) -> None:
        world.cluster.logs = {("orders", 0): (5, 5)}
        found = world.found()
        assert found["records"].verdict is Verdict.UNKNOWN
        assert "0 offsets are due" in found["offsets"].message

    def test_starting_offsets(self, world: World) -> None:
        offsets = json.dumps(json.dumps({"orders": {"0": 77, "1": 0}}))
        source = f"schema: id long\n    options: {{starting-offsets: {offsets}}}"
        assert "offset 77 of orders-0 does not exist" in world.errors(source=source)["offsets"]

    def test_an_envelope_needs_a_mode(self, world: World) -> None:
        source = "format: debezium-json\n    schema: id long not null"
        world.values = []
        assert "sink.mode: upsert" in world.errors(source=source)["mode"]
        assert "mode" not in world.errors(source=source, sink="create: true, mode: upsert, key: id")


class TestTable:
    def test_not_there(self, world: World) -> None:
        assert "set sink.create: true" in world.errors(sink="mode: append")["table"]

    @pytest.mark.parametrize(
        ("sink", "message"),
        [
            ("create: true, partition-by: day(ts)", "ts"),
            ("create: true, sort-by: nope", "nope"),
            ("create: true, mode: upsert, key: nope", "key column 'nope'"),
            ("create: true, mode: upsert", "needs a key"),
            ("create: true, properties: {write.format.default: xls}", "xls"),
            ("create: true, format-version: 4", "4"),
        ],
    )
    def test_it_cannot_be_created(self, sink: str, message: str, world: World) -> None:
        assert message in world.errors(sink=sink)["table"]

    def test_no_place_for_it(self, world: World) -> None:
        world.table = world.home / "orders.yaml" / "t"
        assert "Not a directory" in world.errors()["table"]

    def test_columns(self, world: World) -> None:
        world.make_table("id string, at timestamp not null")
        error = world.errors(source="schema: id long, more string")["columns"]
        assert "no column more" in error
        assert "requires at" in error
        assert "id is long in the stream and string in the table" in error

    def test_columns_that_the_table_follows(self, world: World) -> None:
        world.make_table("id long", properties={"streamlake.schema-evolution": "add"})
        found = world.found(source="schema: id long, more string")
        assert found["columns"].verdict is Verdict.RIGHT
        assert "more is added" in found["columns"].message

    def test_the_key(self, world: World) -> None:
        world.make_table("id long not null", format_version=2)
        sink = "mode: upsert, key: [{}]"
        assert world.found(sink=sink.format("id"))["key"].verdict is Verdict.RIGHT
        assert "ident" in world.errors(sink=sink.format("ident"))["key"]
        assert "no key is known" in world.errors(sink="mode: upsert")["key"]

    def test_a_mode_that_does_not_fit(self, world: World) -> None:
        world.make_table("id long, category string", partition_by=("category",))
        error = world.errors(sink="mode: upsert, key: id, delete-mode: equality")["key"]
        assert "Use delete-mode: position" in error

    def test_something_else_where_the_rejects_are_kept(self, world: World) -> None:
        sink = "create: true, on-error: reject"
        assert "rejects" not in world.errors(sink=sink)
        make_table(Path(f"{world.table}__rejects"), "id long")
        assert "is no rejects table" in world.errors(sink=sink)["rejects"]

    def test_a_branch(self, world: World) -> None:
        world.make_table()
        assert world.found(sink="branch: audit")["table"].verdict is Verdict.WARNING

    def test_a_catalog(self, world: World) -> None:
        catalog = f"{{type: hadoop, warehouse: {world.home}/w}}"
        world.write(sink=f"create: true, catalog: {catalog}")
        text = world.file.read_text().replace(str(world.table), "db.orders")
        world.file.write_text(text)
        points = check_pipeline(str(world.file), lambda pipeline: None)
        assert points.is_right
        assert "the catalog answers" in [each.message for each in points.found]
        world.file.write_text(text.replace("type: hadoop", "type: hadop"))
        [error] = [
            each
            for each in check_pipeline(str(world.file), lambda _: None).found
            if each.verdict is Verdict.ERROR
        ]
        assert (error.about, "did you mean 'hadoop'" in error.message) == ("catalog", True)


class TestCheckpoint:
    def test_it_cannot_be_written(self, world: World) -> None:
        world.checkpoint.write_text("a file")
        assert "is not a directory" in world.errors()["checkpoint"]

    def test_of_another_source(self, world: World) -> None:
        world.start_query()
        (world.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"logOffset":3}\n')
        assert "another source" in world.errors()["checkpoint"]

    def test_records_are_gone(self, world: World) -> None:
        world.start_query({("orders", 0): 1, ("orders", 1): 0})
        world.cluster.logs = {("orders", 0): (2, 3), ("orders", 1): (0, 0)}
        assert "retention has removed them" in world.errors()["offsets"]

    def test_a_new_directory_for_a_pipeline_that_has_written(self, world: World) -> None:
        table = world.make_table()
        operation = AppendFiles(table)
        marker = Marker("job-0", 7, "digest", None)
        operation.set_properties(marker_property("orders", "main", marker, Fence(1, "h")))
        operation.commit()
        assert "last wrote" in world.errors()["lineage"]
        world.start_query({("orders", 0): 1, ("orders", 1): 0})
        error = world.errors()["lineage"]
        assert "as job job-0" in error
        assert "streamlake recover" in error
        assert open_table(str(world.table)).metadata.properties == table.metadata.properties


def test_write_options(world: World) -> None:
    """They are compared with the table that is there, or is to be made."""
    given = "create: true, write-options: {write-format: avro, compression-codec: gzip, compression-level: "
    assert not world.errors(sink=f"{given}9}}, write-parallelism: 2")
    assert "the highest level of gzip" in world.errors(sink=f"{given}12}}")["table"]
    assert "'write-format'" in world.errors(sink="create: true, write-options: {write-formt: avro}")["file"]
    world.make_table(properties={"write.format.default": "orc"})
    assert not world.errors(sink=f"{given}9}}")
    found = world.errors(sink="write-options: {compression-level: 9}")["table"]
    assert "compression-level means nothing to orc files" in found


class TestRegistry:
    SOURCE = (
        "format: confluent-avro\n    options: {{schema-registry.url: '{url}', schema-registry.retries: 0}}"
    )
    AVRO = '{"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"}]}'

    @pytest.fixture
    def registry(self) -> Iterator[RegistryServer]:
        with RegistryServer().running() as server:
            yield server

    def test_schemas(self, registry: RegistryServer, world: World) -> None:
        world.values = []
        source = self.SOURCE.format(url=registry.url)
        errors = world.errors(source=source)
        assert "orders-value" in errors["registry"]
        registry.register("orders-value", self.AVRO)
        found = world.found(source=source)
        assert "newest schemas of orders" in found["registry"].message
        assert "can be created: format version 2, id long" in found["table"].message
        world.make_table("id long")
        assert "fit the table" in world.found(source=source)["registry"].message

    def test_a_table_for_another_schema(self, registry: RegistryServer, world: World) -> None:
        world.values = []
        registry.register("orders-value", self.AVRO)
        world.make_table("id binary")
        assert "id" in world.errors(source=self.SOURCE.format(url=registry.url))["registry"]

    def test_an_envelopes_schema(self, registry: RegistryServer, world: World) -> None:
        world.values = []
        source = self.SOURCE.format(url=registry.url).replace("confluent-avro", "debezium-avro")
        sink = "create: true, mode: upsert, key: id"
        source += "\n    schema: id long not null"
        assert "orders-value" in world.errors(source=source, sink=sink)["registry"]
        registry.register("orders-value", self.AVRO)
        assert "newest schemas of orders" in world.found(source=source, sink=sink)["registry"].message

    def test_no_registry(self, world: World) -> None:
        source = self.SOURCE.format(url="http://127.0.0.1:1")
        assert "127.0.0.1:1" in world.errors(source=source)["registry"]


class TestManyTables:
    def errors(self, world: World, sink: str = "mode: append") -> list[tuple[str, str]]:
        world.write(topics="[orders, returns]", sink=sink)
        world.file.write_text(world.file.read_text().replace(str(world.table), f"'{world.home}/{{topic}}'"))
        found = check_pipeline(str(world.file), lambda pipeline: None).found
        self.right = [each.message for each in found if each.verdict is Verdict.RIGHT]
        return [(each.about, each.message) for each in found if each.verdict is Verdict.ERROR]

    def test_each_table_is_looked_at(self, world: World) -> None:
        world.cluster.logs[("returns", 0)] = (0, 3)
        assert self.errors(world) == []
        assert f"{world.home}/orders: table, records as they should be" in self.right
        make_table(world.home / "returns", "id string")
        [(about, told)] = self.errors(world)
        assert (about, str(world.home / "returns") in told) == ("columns", True)
        assert f"{world.home}/returns: table, records as they should be" in self.right

    def test_settings_of_one(self, world: World) -> None:
        world.cluster.logs[("returns", 0)] = (0, 3)
        sink = f"partition-by: 'bucket(4, id)', tables: {{'{world.home}/returns': {{partition-by: nope}}}}"
        [(about, told)] = self.errors(world, sink)
        assert (about, "returns cannot be created" in told, "nope" in told) == ("table", True, True)

    def test_settings_of_a_table_that_no_topic_leads_to(self, world: World) -> None:
        world.cluster.logs[("returns", 0)] = (0, 3)
        [(about, told)] = self.errors(world, "tables: {retruns: {partition-by: id}}")
        assert about == "table"
        assert told == (
            f"sink.tables has 'retruns', which is the table of no topic; did you mean '{world.home}/returns'?"
        )


class TestOtherSources:
    FILES = "source: {{files: {{path: {home}/in, schema: id long}}}}\nsink: {{table: {home}/t, create: true}}\ncheckpoint: {home}/c\n"

    def points(self, world: World, text: str) -> dict[str, Point]:
        world.file.write_text(text.format(home=world.home))
        found = check_pipeline(str(world.file), lambda pipeline: None).found
        return {each.about: each for each in found}

    def test_files(self, world: World) -> None:
        assert self.points(world, self.FILES)["files"].verdict is Verdict.ERROR
        (world.home / "in").mkdir()
        found = self.points(world, self.FILES)
        assert {each.verdict for each in found.values()} == {Verdict.RIGHT}
        inferred = self.points(world, self.FILES.replace(", schema: id long", ""))
        assert "no schema can be inferred" in inferred["files"].message

    def test_rate(self, world: World) -> None:
        text = "source: {{rate: {{}}}}\nsink: {{table: {home}/t, create: true}}\ncheckpoint: {home}/c\n"
        found = self.points(world, text)
        assert "can be created: format version 2, timestamp timestamptz, value long" in found["table"].message
        assert "checkpoint" in found
        found = self.points(world, f"select: [value]\n{text}")
        assert found["schema"].verdict is Verdict.UNKNOWN


class TestCommand:
    def call(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", *arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code

    def test_exit_codes(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        world.write()
        assert self.call(str(world.file)) == 0
        assert "the pipeline can be started" in capsys.readouterr().out
        assert self.call(str(world.file), "--json") == 0
        assert json.loads(capsys.readouterr().out)["is_right"]
        world.write(topics="odrers")
        assert self.call(str(world.file), "--json") == 1
        content = json.loads(capsys.readouterr().out)
        assert [each["about"] for each in content["points"] if each["verdict"] == "error"] == ["kafka"]

    def test_arguments_that_contradict_each_other(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        world.write(sink="partition-by: id")
        assert self.call(str(world.file)) == 1
        assert "create: true" in capsys.readouterr().out

    def test_verdict(self, capsys: pytest.CaptureFixture[str]) -> None:
        points = Points([Point("a", Verdict.ERROR, "x"), Point("b", Verdict.WARNING, "y")])
        terminal().print(view(points))
        assert "cannot be started: 1 error, 1 warning" in capsys.readouterr().out


def test_write_access(tmp_path: Path) -> None:
    require_writable(str(tmp_path / "a" / "b"))
    require_writable(f"file://{tmp_path}/a")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is not a directory"):
        require_writable(str(tmp_path / "file" / "c"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_write_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(StorageError, match="may not create files"):
        require_writable(str(tmp_path / "a"))


def test_a_source_table_that_no_record_is_of(world: World) -> None:
    def change(table: str) -> bytes:
        return json.dumps(
            {"database": "shop", "table": table, "type": "insert", "ts": 1, "data": {"id": 1}}
        ).encode()

    world.values = [change("users"), change("log")]
    keyed = {"sink": "mode: upsert, key: [id], create: true"}
    source = "schema: id long not null\n    format: maxwell-json\n    options: {{source-tables: {}}}"
    (told,) = [
        each.message
        for each in world.found(source=source.format("shop.Users"), **keyed).values()
        if each.verdict is Verdict.WARNING
    ]
    assert "no record is of the table 'shop.Users'" in told
    assert "did you mean 'shop.users'?" in told
    found = world.found(source=source.format("shop.users"), **keyed)
    assert {each.verdict for each in found.values()} == {Verdict.RIGHT}
