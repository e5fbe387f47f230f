from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.catalog.metadata_diff import requirements, updates
from streamlake.catalog.open import open_table
from streamlake.errors import (
    CommitStateUnknownError,
    InvalidOptionError,
    SchemaMismatchError,
    StreamlakeError,
)
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.type_text import columns_text
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import changed
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import LoadedTable
from tests.helpers.batch_write import append
from tests.helpers.tables import FaultyOperations, make_table

NESTED = "id int not null, at date, place struct<x: float, y: float>, tags array<struct<name: string>>, m map<string, int>"


def shape(table: Table) -> str:
    return columns_text(table.schema)


def rows(table: Table) -> list[dict[str, object]]:
    return LoadedTable(open_table(table.location)).scan().to_arrow().to_pylist()


def test_steps_become_one_schema(tmp_path: Path) -> None:
    table = make_table(tmp_path, NESTED)
    last = table.metadata.last_column_id
    update = (
        UpdateSchema(table)
        .add_column("note", "string", doc="free text")
        .add_column("z", "float", parent="place")
        .add_column("colour", "struct<r: int, g: int>", parent="tags")
        .widen("id", "long")
        .widen("place.x", "double")
        .widen("m.value", "long")
        .make_optional("id")
        .rename("place", "location")
        .describe("location.z", "metres")
        .move_first("note")
    )
    foreseen, steps = update.apply()
    assert "renamed place to location" in steps
    update.commit()
    assert table.schema.fields == foreseen.fields
    assert [part.name for part in table.schema.fields] == ["note", "id", "at", "location", "tags", "m"]
    assert (table.schema.schema_id, len(table.schemas)) == (1, 2)
    found = {name: table.schema.find(name) for name in ("note", "location.z", "tags.element.colour")}
    assert [part.field_id for part in found.values() if part] == [last + 1, last + 2, last + 3]
    colour = table.schema.find("tags.element.colour.g")
    assert colour is not None
    assert colour.field_id == last + 5 == table.metadata.last_column_id
    assert str(table.schema.find("id")) == "1: id: optional long"
    assert str(table.schema.find("location.x")).endswith("x: optional double")
    again = open_table(str(tmp_path))
    assert again.schema == table.schema
    assert again.metadata.current_snapshot_id is None


def test_nothing_to_do_is_no_version(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    before = sorted(Path(tmp_path, "metadata").iterdir())
    UpdateSchema(table).widen("id", "long").make_optional("id").rename("id", "id").commit()
    assert sorted(Path(tmp_path, "metadata").iterdir()) == before


def test_ids_are_never_given_again(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    UpdateSchema(table).add_column("a", "string").commit()
    append(table, pa.table({"id": [1], "category": ["c"], "a": ["old"]}))
    UpdateSchema(table).delete("a").commit()
    UpdateSchema(table).add_column("a", "long").commit()
    assert [part.field_id for part in table.schema.fields] == [1, 2, 4]
    assert rows(table) == [{"id": 1, "category": "c", "a": None}]
    metadata = changed(table.metadata, last_column_id=2_147_483_447)
    with pytest.raises(SchemaMismatchError, match="ids are used up"):
        UpdateSchema(table).add_column("b", "int")._edited(metadata)


def test_a_schema_that_was_there_before_comes_back_under_its_id(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    UpdateSchema(table).rename("category", "kind").commit()
    UpdateSchema(table).rename("kind", "category").commit()
    assert (table.schema.schema_id, len(table.schemas)) == (0, 2)


def test_defaults_are_for_older_rows_and_for_rows_that_lack_the_column(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    append(table, pa.table({"id": [1], "category": ["c"]}))
    UpdateSchema(table).add_column("state", "string", required=True, default="new").add_column(
        "since", "date", default=10
    ).commit()
    UpdateSchema(table).set_default("state", "later").commit()
    append(table, pa.table({"id": [2], "category": ["c"]}))
    UpdateSchema(table).widen("since", "timestamp_ntz").commit()
    found = {row["id"]: (row["state"], str(row["since"])) for row in rows(table)}
    assert found == {1: ("new", "1970-01-11 00:00:00"), 2: ("later", "1970-01-11 00:00:00")}
    for step in (
        UpdateSchema(table).set_default("state", None),
        UpdateSchema(table).add_column("x", "int", default="text"),
        UpdateSchema(table).add_column("x", "struct<a: int>", default={}),
        UpdateSchema(make_table(tmp_path / "v2")).add_column("x", "int", default=1),
    ):
        with pytest.raises(StreamlakeError, match="default"):
            step.commit()


@pytest.mark.parametrize(
    ("version", "column", "type_", "message"),
    [
        (2, "id", "int", "long and cannot become int"),
        (2, "category", "long", "string and cannot become long"),
        (2, "price", "decimal(12, 3)", r"decimal\(10, 2\) and cannot become decimal\(12, 3\)"),
        (2, "price", "decimal(9, 2)", "cannot become"),
        (2, "at", "timestamp_ntz", "takes format version 3"),
        (3, "at", "timestamp", "cannot become timestamptz"),
        (2, "s", "int", r"struct<.*> and cannot become int"),
        (2, "m.key", "string", "key of a map"),
    ],
)
def test_types_only_widen(tmp_path: Path, version: int, column: str, type_: str, message: str) -> None:
    ddl = "id long, category string, price decimal(10,2), at date, s struct<a: int>, m map<int, int>"
    table = make_table(tmp_path, ddl, format_version=version)
    with pytest.raises(SchemaMismatchError, match=message) as error:
        UpdateSchema(table).widen(column, type_).commit()
    assert table.location in str(error.value)


def test_dates_widen_where_partitions_stay_what_they_are(tmp_path: Path) -> None:
    plain = make_table(tmp_path / "day", "at date, n int", ("day(at)", "n"), format_version=3)
    append(plain, pa.table({"at": pa.array([10], pa.date32()), "n": pa.array([1], pa.int32())}))
    UpdateSchema(plain).widen("at", "timestamp_ntz").widen("n", "long").commit()
    append(plain, pa.table({"at": pa.array([10**15], pa.timestamp("us")), "n": [2**40]}))
    scan = LoadedTable(open_table(plain.location)).scan
    assert sorted(scan().to_arrow().column("n").to_pylist()) == [1, 2**40]
    early = scan(filter="at < timestamp '1970-01-12 00:00:00'").to_arrow().to_pylist()
    assert [(str(row["at"]), row["n"]) for row in early] == [("1970-01-11 00:00:00", 1)]
    assert scan(filter="n = 1").count() == 1
    for by in ("at", "bucket(4, at)"):
        table = make_table(tmp_path / by, "at date", (by,), format_version=3)
        with pytest.raises(SchemaMismatchError, match="date to timestamp: the partition field 'at"):
            UpdateSchema(table).widen("at", "timestamp_ntz").commit()


def test_what_the_table_rests_on_stays(tmp_path: Path) -> None:
    table = make_table(tmp_path, "id long not null, region string, s struct<k: int, l: int>", ("region",))
    UpdateSchema(table).set_identifier_fields(["id"]).commit()
    order = parse_sort_by(["s.k"], table.schema, 1)
    metadata = changed(table.metadata, sort_orders=(order,), default_sort_order_id=1)
    for step, message in (
        (UpdateSchema(table).delete("region"), "partition field 'region' of spec 0"),
        (UpdateSchema(table).delete("id"), "identifier"),
        (UpdateSchema(table).delete("s"), "sort order rests on 's.k'"),
        (UpdateSchema(table).make_optional("id"), "identifier field"),
        (UpdateSchema(table).delete("s.l").delete("s.k"), "what it is a part of"),
        (UpdateSchema(table).set_identifier_fields(["region"]), "can be null"),
        (UpdateSchema(table).set_identifier_fields(["s.k"]), "can be null"),
        (UpdateSchema(table).move_before("s.k", "id"), "among the other fields"),
        (UpdateSchema(table).add_column("n", "int", required=True), "without a default"),
        (UpdateSchema(table).add_column("n", "int", parent="region"), "no struct"),
    ):
        with pytest.raises(SchemaMismatchError, match=message):
            step._edited(metadata)
    for step, message in (
        (UpdateSchema(table).add_column("region", "int"), "there already"),
        (UpdateSchema(table).rename("id", "region"), "there already"),
        (UpdateSchema(table).widen("regoin", "int"), "Did you mean 'region'"),
    ):
        with pytest.raises(InvalidOptionError, match=message):
            step.commit()
    UpdateSchema(table).set_identifier_fields([]).make_optional("id").commit()
    assert shape(table).startswith("id long, region")


def test_a_union_takes_both_kinds_of_rows(tmp_path: Path) -> None:
    table = make_table(tmp_path, NESTED)
    stream = parse_ddl(
        "place struct<y: double, z: int not null>, id int, extra array<int>, m map<string, long>,"
        " tags array<struct<name: string, n: int>>"
    )
    UpdateSchema(table).union_by_name(stream).commit()
    assert [part.name for part in table.schema.fields] == ["id", "at", "place", "tags", "m", "extra"]
    texts = {
        name: str(table.schema.find(name)).split(": ", 2)[2] for name in table.schema.names_by_id.values()
    }
    assert texts["id"] == "optional int", "optional in the stream"
    assert (texts["place.x"], texts["place.y"]) == ("optional float", "optional double")
    assert (texts["place.z"], texts["m.value"]) == ("optional int", "optional long")
    assert texts["tags.element.n"] == "optional int"
    before = table.schema
    UpdateSchema(table).union_by_name(stream).commit()
    assert table.schema is before, "a second time there is nothing to do"


def test_a_union_that_is_impossible_tells_all_reasons_and_both_schemas(tmp_path: Path) -> None:
    table = make_table(tmp_path, "id long not null, n string, s struct<a: int>")
    UpdateSchema(table).set_identifier_fields(["id"]).commit()
    before = table.schema
    stream = parse_ddl("id long, n int, s array<int>, more int")
    with pytest.raises(SchemaMismatchError) as error:
        UpdateSchema(table).union_by_name(stream).commit()
    text = str(error.value)
    assert "'n' is string and cannot become int" in text
    assert "identifier field" in text
    assert "'s' is struct<" in text
    assert "id long not null, n string" in text
    assert "id long, n int, s list<int>, more int" in text
    assert table.schema is before


def test_properties_follow_their_columns(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    (
        UpdateProperties(table)
        .set("write.metadata.metrics.column.category", "full")
        .set("write.parquet.bloom-filter-enabled.column.id", "true")
        .set(NAME_MAPPING_PROPERTY, NameMapping.of_schema(table.schema).to_json())
        .commit()
    )
    UpdateSchema(table).rename("category", "kind").delete("id").add_column("n", "int").commit()
    assert table.properties["write.metadata.metrics.column.kind"] == "full"
    assert not [key for key in table.properties if "bloom" in key or key.endswith("category")]
    mapping = NameMapping.from_json(table.properties[NAME_MAPPING_PROPERTY])
    found = {name: mapping.find(name) for name in ("category", "kind", "n")}
    assert {name: each and each.field_id for name, each in found.items()} == {
        "category": 2,
        "kind": 2,
        "n": 3,
    }


def test_an_update_goes_onto_what_others_have_made_of_the_table(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    stale = open_table(str(tmp_path))
    UpdateSchema(table).add_column("theirs", "int").commit()

    def first_another() -> None:
        operations.before_swap = None
        UpdateSchema(table).add_column("theirs too", "int").commit()

    operations = FaultyOperations(stale.operations, before_swap=first_another)
    UpdateSchema(Table(stale.name, operations)).add_column("mine", "int").commit()
    assert operations.attempts == 2
    fields = open_table(str(tmp_path)).schema.fields
    assert [(part.field_id, part.name) for part in fields[2:]] == [
        (3, "theirs"),
        (4, "theirs too"),
        (5, "mine"),
    ]


def test_a_lost_answer_is_found(tmp_path: Path) -> None:
    table = make_table(tmp_path)

    def lost() -> None:
        UpdateSchema(table).rename("category", "kind").commit()
        raise CommitStateUnknownError("the answer was lost")

    operations = FaultyOperations(open_table(str(tmp_path)).operations, after_swap=lost)
    UpdateSchema(Table("t", operations)).add_column("mine", "int").commit()
    assert (operations.attempts, open_table(str(tmp_path)).schema.column_names) == (1, ["id", "kind", "mine"])


def test_a_catalog_service_is_told_of_the_new_schema(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    base = table.metadata
    UpdateSchema(table).add_column("n", "int").commit()
    actions = [
        (each["action"], each.get("schema-id"), each.get("last-column-id"))
        for each in updates(base, table.metadata)
    ]
    assert actions == [("add-schema", None, 3), ("set-current-schema", 1, None)]
    pinned = {each["type"]: each for each in requirements(base, table.metadata)}
    assert pinned["assert-last-assigned-field-id"]["last-assigned-field-id"] == 2
    assert pinned["assert-current-schema-id"]["current-schema-id"] == 0
