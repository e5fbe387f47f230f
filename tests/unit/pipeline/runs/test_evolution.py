from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import InvalidOptionError, NewSchemaError, SchemaMismatchError
from streamlake.pipeline.runs.evolution import (
    ADD,
    FULL,
    NONE,
    PROPERTY,
    EvolutionOptions,
    SchemaFollower,
    evolved,
    renamed,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.type_json import schema_to_json
from streamlake.spec.types.type_text import columns_text
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from tests.helpers.tables import make_table

TABLE = (
    "id long not null, n int, price decimal(10,2), s struct<a: int not null, b: float>, gone string not null"
)
STREAM = "id int, n long, price decimal(12,2), s struct<a: long, c: string not null>, more array<int>"


def options(level: str, **renames: str) -> EvolutionOptions:
    return EvolutionOptions(level, renames)


def after(table: Table, stream: str, level: str) -> list[str]:
    schema = evolved(table, parse_ddl(stream), options(level), is_whole=True)
    assert schema is table.schema
    return [str(schema.find(name)).split(": ", 1)[1] for name in schema.names_by_id.values()]


def test_none_leaves_the_table_as_it_is(tmp_path: Path) -> None:
    table = make_table(tmp_path, TABLE)
    before = table.schema
    assert evolved(table, parse_ddl(STREAM), options(NONE), is_whole=True) is before


def test_add_only_adds(tmp_path: Path) -> None:
    table = make_table(tmp_path, TABLE)
    fields = after(table, STREAM, ADD)
    assert "more: optional list<int>" in fields
    assert "c: optional string" in fields, "a required part that is new is optional: older rows have none"
    assert {"n: optional int", "price: optional decimal(10, 2)", "gone: required string"} < set(fields)


def test_full_also_widens_and_lets_go_of_what_the_stream_lacks(tmp_path: Path) -> None:
    table = make_table(tmp_path, TABLE)
    fields = after(table, STREAM, FULL)
    assert {"id: required long", "n: optional long", "price: optional decimal(12, 2)"} < set(fields)
    assert {"a: required long", "b: optional float", "c: optional string"} < set(fields)
    assert "gone: optional string" in fields, "it stays, and later rows have null there"
    version = open_table(table.location).metadata.last_updated_ms
    assert after(table, STREAM, FULL) == fields
    assert open_table(table.location).metadata.last_updated_ms == version, (
        "a second time nothing is committed"
    )


def test_values_that_fit_one_by_one_are_left_to_the_writers(tmp_path: Path) -> None:
    table = make_table(tmp_path, "u uuid, f fixed(4), d decimal(10,2), n int")
    before = table.schema
    assert (
        evolved(table, parse_ddl("u string, f binary, d int, n long"), options(ADD), is_whole=True) is before
    )


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("id string", "'id' is long and cannot become string"),
        ("id long, n double", "'n' is int and cannot become double"),
        ("id long, s int", "'s' is struct<.*> and cannot become int"),
        ("id long, N int", "upper and lower case"),
        ("id long, s struct<a: string>", "'s.a' is int and cannot become string"),
    ],
)
def test_what_cannot_be_stops_with_both_schemas(tmp_path: Path, stream: str, message: str) -> None:
    table = make_table(tmp_path, TABLE)
    wanted = parse_ddl(stream + ", brand_new int")
    for level in (ADD, FULL):
        with pytest.raises(SchemaMismatchError, match=message) as error:
            evolved(table, wanted, options(level), is_whole=True)
        assert columns_text(table.schema) in str(error.value)
        assert columns_text(wanted) in str(error.value)
        assert table.location in str(error.value)
    assert open_table(table.location).schema.find("brand_new") is None, "all of it or nothing"


def test_columns_that_the_format_lacks_are_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    with pytest.raises(InvalidOptionError, match="needs format version 3"):
        evolved(table, parse_ddl("id long, at timestamp_ns"), options(ADD), is_whole=True)
    assert evolved(
        make_table(tmp_path / "v3", format_version=3),
        parse_ddl("id long, at timestamp_ns"),
        options(ADD),
        is_whole=True,
    ).find("at")


def test_dates_become_timestamps_by_hand_only(tmp_path: Path) -> None:
    table = make_table(tmp_path, "at date", format_version=3)
    with pytest.raises(SchemaMismatchError, match="dates by UpdateSchema"):
        evolved(table, parse_ddl("at timestamp_ntz"), options(FULL), is_whole=True)
    UpdateSchema(table).union_by_name(parse_ddl("at timestamp_ntz")).commit()
    assert columns_text(table.schema) == "at timestamp"


def test_two_drivers_evolve_one_table_once(tmp_path: Path) -> None:
    table = make_table(tmp_path, TABLE)
    other = open_table(table.location)
    mine = evolved(table, parse_ddl(STREAM), options(FULL), is_whole=True)
    theirs = evolved(other, parse_ddl(STREAM), options(FULL), is_whole=True)
    assert theirs == mine
    assert len(open_table(table.location).schemas) == 2
    assert other.metadata.last_column_id == mine.highest_field_id


def test_renames_are_done_once(tmp_path: Path) -> None:
    table = make_table(tmp_path, TABLE)
    mapping = EvolutionOptions(ADD, {"n": "number", "s.a": "alpha", "absent": "x"})
    renamed(table, mapping)
    assert (table.schema.find("number"), table.schema.find("s.alpha")) != (None, None)
    evolved(table, parse_ddl("id long, n string"), mapping, is_whole=True)
    before = table.schema
    renamed(table, mapping)
    assert table.schema is before, "a new column of the old name is not the one that was meant"


def asked(table: Table, change: UpdateSchema) -> NewSchemaError:
    return NewSchemaError("rows do not fit", json.dumps(schema_to_json(change.apply()[0])))


def test_what_a_task_asks_for_is_done_where_it_may(tmp_path: Path) -> None:
    table = make_table(tmp_path, TABLE)
    UpdateSchema(table).set_identifier_fields(["id"]).commit()
    settled: list[int] = []

    def follower(level: str) -> SchemaFollower:
        return SchemaFollower(table, options(level), lambda: settled.append(1))

    relaxed = asked(table, UpdateSchema(table).make_optional("gone").make_optional("s.a"))
    assert not follower(NONE).answer(relaxed)
    assert not follower(ADD).answer(relaxed), "then the error stands"
    assert settled == []
    assert follower(FULL).answer(relaxed)
    assert settled == [1]
    assert str(table.schema.find("gone")).endswith("optional string")
    assert not follower(FULL).answer(relaxed), "nothing is left to do: another attempt would end as the first"
    key = NewSchemaError("null in the key", asked(table, UpdateSchema(table).add_column("x", "int")).wanted)
    wanted = json.loads(key.wanted)
    wanted["fields"][0]["required"] = False
    with pytest.raises(SchemaMismatchError, match="identifier field"):
        follower(FULL).answer(NewSchemaError("null in the key", json.dumps(wanted)))


def test_a_stream_that_stays_as_it_is_costs_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path, TABLE)
    follower = SchemaFollower(table, options(ADD), lambda: None)
    asked_for = 0

    def columns() -> object:
        nonlocal asked_for
        asked_for += 1
        return parse_ddl(STREAM)

    for _ in range(3):
        follower.follow("one", columns)  # type: ignore[arg-type]
    assert asked_for == 1
    UpdateSchema(table).add_column("theirs", "int").commit()
    follower.follow("one", columns)  # type: ignore[arg-type]
    assert asked_for == 2
    follower.follow("two", columns)  # type: ignore[arg-type]
    assert asked_for == 3


def test_options_come_from_the_sink_or_the_table() -> None:
    assert EvolutionOptions.of(None, None, {}).level == NONE
    assert EvolutionOptions.of(None, None, {PROPERTY: FULL}).level == FULL
    assert EvolutionOptions.of(ADD, {"a": "b"}, {PROPERTY: FULL}) == options(ADD, a="b")
    with pytest.raises(InvalidOptionError, match="Did you mean 'full'"):
        EvolutionOptions.of("fulll", None, {})
    with pytest.raises(InvalidOptionError, match=PROPERTY):
        EvolutionOptions.of(None, None, {PROPERTY: "some"})
    with pytest.raises(InvalidOptionError, match="rename_columns"):
        EvolutionOptions.of(None, {"a": "b"}, {})
