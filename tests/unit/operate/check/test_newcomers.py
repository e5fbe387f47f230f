"""`streamlake check` answers a newcomer's mistakes: what it prints is short, names the mistake, and says what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlake.checkpoint.table_note import Calls, Noted, note_path, note_to_bytes
from streamlake.cli.commands.check import view
from streamlake.cli.views.rendering import terminal
from streamlake.operate.check.check_points import Verdict
from streamlake.operate.check.pipeline_check import check_pipeline
from streamlake.pipeline.definition.running import PipelineRun
from streamlake.storage.locations import noted_table
from streamlake.tables import create_table
from tests.helpers.tables import make_table
from tests.unit.operate.check.test_pipeline_check import World

FILES = "source: {{files: {{path: {home}, format: json, schema: {schema}}}}}\nsink: {{table: {table}, {sink}}}\ncheckpoint: {home}/c\n"
MOST_LINES = 10


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def printed(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints about a file, without the columns; each point in few lines."""
    points = check_pipeline(str(path), PipelineRun)
    terminal().print(view(points))
    shown = capsys.readouterr().out
    assert sum(len(each.message) > 110 * MOST_LINES for each in points.found) == 0
    assert "Traceback" not in shown
    return "\n".join(
        [f"{each.verdict.value}: {each.message}" for each in points.found] + [shown.splitlines()[-1].strip()]
    )


def of_files(world: World, capsys: pytest.CaptureFixture[str], **parts: str) -> str:
    given = {"home": str(world.home), "table": f"{world.home}/t", "schema": "id long", "sink": "create: true"}
    world.file.write_text(FILES.format(**{**given, **parts}))
    return printed(world.file, capsys)


def of_topic(world: World, capsys: pytest.CaptureFixture[str], **parts: str) -> str:
    world.write(**parts)
    return printed(world.file, capsys)


class TestPlaces:
    def test_no_file_can_be_made_there(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        """The root user's permissions allow everything; the file system does not."""
        world.table = Path("/proc/lake/orders")
        world.checkpoint = Path("/proc/checkpoints/orders")
        text = of_topic(world, capsys)
        assert (
            "error: /proc/lake/orders cannot be created: /proc/lake/orders cannot be written: /proc takes no file"
            in text
        )
        assert "error: /proc/checkpoints/orders cannot be written: /proc takes no file" in text
        assert "choose another place" in text
        assert text.endswith("the pipeline cannot be started: 2 errors")

    def test_also_where_only_spark_knows_the_columns(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        world.file.write_text(
            "source: {rate: {}}\nselect: [value]\nsink: {table: /proc/t, create: true}\ncheckpoint: /proc/c\n"
        )
        assert "error: /proc/t cannot be written" in printed(world.file, capsys)

    def test_nothing_is_left(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        before = sorted(world.home.rglob("*"))
        assert of_topic(world, capsys).endswith("the pipeline can be started")
        assert sorted(path for path in world.home.rglob("*") if path != world.file) == before
        table = make_table(world.table, "id long not null")
        before = sorted(world.home.rglob("*"))
        assert of_topic(world, capsys).endswith("the pipeline can be started")
        assert sorted(world.home.rglob("*")) == before
        assert table.location == str(world.table)

    def test_a_name_without_its_catalog(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        text = of_files(world, capsys, table="db.orders")
        assert (
            "error: 'db.orders' is a name in a catalog, and no catalog is given: name the catalog, or write "
            "./db.orders for a directory of this name" in text
        )
        assert text.endswith("the pipeline cannot be started: 1 error")

    def test_a_dropped_table(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        world.start_query({("orders", 0): 1, ("orders", 1): 0})
        named = noted_table(str(world.table), None)
        note = world.checkpoint / note_path(named, "main")
        note.parent.mkdir(parents=True, exist_ok=True)
        noted = Noted("11111111-1111-1111-1111-111111111111", True, 0, calls=Calls.EVERY)
        note.write_bytes(note_to_bytes(noted, named, "main"))
        text = of_topic(world, capsys)
        assert "Continuing would" in text
        assert "ways out" in text
        assert text.endswith("the pipeline cannot be started: 1 error")


class TestProperties:
    def test_a_misspelt_one(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        text = of_files(world, capsys, sink="create: true, properties: {write.target-file-size: 1000000}")
        assert text.splitlines()[0] == (
            "error: there is no table property 'write.target-file-size'; did you mean "
            "'write.target-file-size-bytes'?"
        )

    def test_one_of_iceberg_that_is_for_others(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sink = "create: true, properties: {read.parquet.vectorization.enabled: false, owner: me, write.parquet.bloom-filter-enabled.column.id: true}"
        text = of_files(world, capsys, sink=sink)
        assert (
            "note: streamlake stores read.parquet.vectorization.enabled, "
            "write.parquet.bloom-filter-enabled.column.id with the table and does not use them" in text
        )
        assert "owner" not in text
        assert text.endswith("the pipeline can be started")

    def test_one_that_nobody_knows(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        text = of_files(world, capsys, sink="create: true, properties: {write.turbo: true}")
        assert "warning: neither streamlake nor Iceberg has a table property 'write.turbo'" in text
        assert text.endswith("the pipeline can be started: 1 warning")

    def test_one_of_the_table(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        make_table(world.home / "t", "id long", properties={"commit.retry.num-retry": "3"})
        text = of_files(world, capsys, sink="mode: append")
        assert "'commit.retry.num-retry'; did you mean 'commit.retry.num-retries'?" in text


class TestColumns:
    def test_columns_that_the_schema_lacks(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        make_table(world.home / "t", "id long, amount double, at timestamp")
        text = of_files(world, capsys)
        assert (
            "note: the stream does not have amount, at of the table: null in every row that it writes" in text
        )
        assert text.endswith("the pipeline can be started")

    def test_required_columns_that_the_schema_lacks(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_table(world.home / "t", "id long, amount double not null")
        text = of_files(world, capsys)
        assert "error: the stream does not fit" in text
        assert "the table requires amount, which the stream does not have" in text

    @pytest.mark.parametrize(
        ("stream", "table", "is_told"),
        [
            ("decimal(12,3)", "decimal(10,2)", True),
            ("decimal(12,2)", "decimal(10,2)", True),
            ("decimal(10,2)", "decimal(12,3)", False),
            ("long", "int", True),
            ("int", "long", False),
            ("long", "decimal(10,2)", True),
            ("int", "decimal(12,2)", False),
        ],
    )
    def test_narrower_columns(
        self, stream: str, table: str, is_told: bool, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_table(world.home / "t", f"v {table}")
        text = of_files(world, capsys, schema=f"'v {stream}'", sink="mode: append")
        assert (
            "a record with a value that does not fit stops the stream. Widen the column" in text
        ) is is_told

    def test_all_records_would_be_rejected(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        make_table(world.table, "id long, amount decimal(10,2)")
        world.values = [b'{"id": 1, "amount": 1.255}', b'{"id": 2, "amount": 0.001}']
        parts = {"source": "schema: 'id long, amount decimal(12,3)'", "sink": "on-error: reject"}
        text = of_topic(world, capsys, **parts)
        assert (
            "warning: amount is decimal(12, 3) in the stream and decimal(10, 2) in the table: a record with a "
            "value that does not fit is rejected" in text
        )
        assert "error: all of the newest 2 records would be rejected: orders-0 offset 0: " in text
        world.values.append(b'{"id": 3, "amount": 1.25}')
        text = of_topic(world, capsys, **parts)
        assert "warning: 2 of the newest 3 records would be rejected: orders-0 offset 0: " in text
        assert text.endswith("the pipeline can be started: 2 warnings")
        text = of_topic(world, capsys, source=parts["source"], sink="mode: append")
        assert "error: 2 of the newest 3 records cannot be decoded, or written: orders-0 offset 0: " in text

    def test_fields_that_are_dropped(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        world.values = [
            b'{"id": 1, "qty": 2, "who": {"name": "a"}, "items": [{"sku": 1}]}',
            b'{"id": 2, "qty": 3, "none": null}',
        ]
        schema = "schema: 'id long not null, items array<struct<n: int>>'"
        text = of_topic(world, capsys, source=schema)
        assert (
            "warning: fields of the newest 2 records have no column, and are dropped: qty (in 2), items.sku "
            "(in 1), who.name (in 1). Add columns" in text
        )
        assert "none" not in text.partition("dropped")[2].partition("Add")[0]
        follows = of_topic(world, capsys, source=schema, sink="create: true, schema-evolution: add")
        assert "have no column" not in follows


class TestKeys:
    UPSERT = "mode: upsert, key: id, create: true"

    def test_the_key_of_a_new_table_is_required(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        world.values = [b'{"id": 1}', b"{}"]
        text = of_topic(world, capsys, source="schema: id long, v string", sink=self.UPSERT)
        assert "error: 1 of the newest 2 records cannot be decoded, or written: orders-0 offset 1: " in text
        assert "id" in text.partition("offset 1: ")[2].splitlines()[0]
        text = of_topic(
            world, capsys, source="schema: id long, v string", sink=f"{self.UPSERT}, on-error: reject"
        )
        assert "warning: 1 of the newest 2 records would be rejected" in text

    def test_a_table_whose_key_may_be_null(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        make_table(world.table, "id long, v string", format_version=3)
        text = of_topic(world, capsys, source="format: json", sink="mode: upsert, key: id")
        assert (
            f"warning: id may be null in {world.table}: records without it become one row whose key is null, "
            "and replace each other. Make it required in the table" in text
        )
        make_table(world.home / "u", "id long not null, v string", format_version=3)
        world.table = world.home / "u"
        text = of_topic(world, capsys, source="format: json", sink="mode: upsert, key: id")
        assert "may be null" not in text


class TestLayout:
    def test_another_partitioning_than_the_tables(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_table(world.home / "t", "id long, at timestamp", partition_by=["month(at)", "bucket(4, id)"])
        sink = "create: true, partition-by: day(at), sort-by: id, format-version: 3, properties: {owner: me}"
        text = of_files(world, capsys, schema="'id long, at timestamp'", sink=sink)
        assert (
            f"warning: partition-by is day(at), but {world.home}/t exists and is partitioned by month(at), "
            "bucket(4, id): partition-by changes nothing. Make it what the table has, or leave it out" in text
        )
        assert "warning: sort-by is id, but" in text
        assert "is sorted by nothing" in text
        assert "warning: format-version is 3, but" in text
        assert "these properties of the sink change nothing: owner=me" in text

    def test_the_same_as_the_tables(self, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        layout = {"partition_by": ["month(at)"], "sort_by": ["id desc"]}
        create_table(world.home / "t", "id long, at timestamp", **layout)
        sink = "create: true, partition-by: months(at), sort-by: id desc, format-version: 2"
        text = of_files(world, capsys, schema="'id long, at timestamp'", sink=sink)
        assert text.endswith("the pipeline can be started")


MISTAKES = [
    ("mode: append", "trigger: {processing-time: 10 secnds}", "'10 secnds': there is no unit 'secnds' (did you mean 'seconds'?). Write a number and a unit, as in '10 seconds'"),
    ("create: true, on-error: Reject", "", "on-error 'Reject' is not known; it can be fail, reject. Did you mean 'reject'?"),
    ("create: true, on_error: reject", "", "sink: unknown option 'on_error'; did you mean 'on-error'?"),
    ("create: true, schema_evolution: add", "", "sink: unknown option 'schema_evolution'; did you mean 'schema-evolution'?"),
    ("create: true, schema-evolution: Add", "", "schema-evolution is 'Add'; it can be none, add, full. Did you mean 'add'?"),
    ("create: true, rename-columns: {a: b}, schema-evolution: none", "", "and schema-evolution is 'none': set it to 'add' or 'full'"),
    ("Create: true", "", "sink: unknown option 'Create'; did you mean 'create'? (line 2)"),
    ("create: yes please", "", "sink.create must be true or false, not a text (line 2)"),
    ("partition-by: id", "", "partition-by, sort-by, format-version and properties describe a table that is created; pass create: true as well"),
    ("create: true, mode: Upsert", "", "mode 'Upsert' is not known; it can be append, overwrite, dynamic-overwrite, upsert, changelog. Did you mean 'upsert'?"),
    ("create: true, max-rejects: 5", "", "max-rejects is 5, but on-error: fail stops at the first record; set on-error: reject"),
    ("create: true, on-error: reject", "", "on-error: reject keeps records of a KafkaSource; a DataFrame has none"),
    ("create: true, delete-mode: Position, mode: upsert, key: id", "", "Did you mean 'position'?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "more", "answer"), MISTAKES, ids=[sink + more for sink, more, _ in MISTAKES]
)
def test_words(sink: str, more: str, answer: str, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.file.write_text(
        FILES.format(home=world.home, schema="id long", table=f"{world.home}/t", sink=sink) + more
    )
    text = printed(world.file, capsys)
    assert answer in text
    assert text.endswith("the pipeline cannot be started: 1 error")


def test_times_as_numbers(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """What is missing is the unit, and the size of the number says which it is."""
    world.values = [b'{"at": 1700000000000000}']
    text = of_topic(world, capsys, source="schema: at timestamp")
    assert "set json.timestamp-format, of this size most likely to epoch-micros" in text
    options = "schema: at timestamp\n    options: {{json.timestamp-format: {}}}"
    assert of_topic(world, capsys, source=options.format("epoch-micros")).endswith("can be started")
    text = of_topic(world, capsys, source=options.format("epoch_micros"))
    assert "json.timestamp-format is 'epoch_micros'; it can be iso, " in text
    assert "Did you mean 'epoch-micros'?" in text
    text = of_topic(
        world, capsys, source="schema: at timestamp\n    options: {timestamp-format: epoch-micros}"
    )
    assert "unknown option 'timestamp-format'; did you mean 'json.timestamp-format'?" in text
    world.values = [b'{"at": 1700000000000000001}']
    text = of_topic(world, capsys, source=options.format("epoch-nanos"))
    assert "make the column a timestamp_ns, or correct json.timestamp-format, which is epoch-nanos" in text


def test_notes_are_in_the_json(world: World) -> None:
    make_table(world.table, "id long not null, v string")
    world.write(sink="mode: append")
    points = check_pipeline(str(world.file), PipelineRun)
    assert [each.about for each in points.found if each.verdict is Verdict.NOTE] == ["columns"]
    assert points.is_right
    assert json.dumps([each.verdict.value for each in points.found]).count("note") == 1


def test_a_new_column_has_its_next_step(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    make_table(world.home / "t", "id long")
    text = of_files(world, capsys, schema="'id long, qty int'")
    assert "error: the stream does not fit" in text
    assert (
        "the table has no column qty. The table's columns are id long; schema-evolution: add gives the table new ones"
        in text
    )


def test_a_property_of_the_table_that_the_start_refuses(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = {"commit.max-pending-checkpoints": "3"}
    make_table(world.table, "id long not null", format_version=3, properties=properties)
    text = of_topic(world, capsys, sink="mode: upsert, key: id")
    assert "error: table property commit.max-pending-checkpoints is 3, but delete-mode 'position'" in text
