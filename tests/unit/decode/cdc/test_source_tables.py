"""Changes of other tables in a topic: refused, or passed over where the option names the tables; and whose truncates count."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from streamlake.decode.cdc.change_inference import infer_changed_rows
from streamlake.decode.cdc.change_rows import ChangeRows
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.decode.cdc.source_tables import (
    OTHER_TABLE,
    PROPERTY,
    SourceTables,
    is_same_table,
    joined_name,
    joined_names,
    kept_sources,
    table_of_name,
)
from streamlake.decode.values.new_fields import Watch
from streamlake.errors import DataInvalidError, DecodeError, NewSchemaError, NewSourceError
from streamlake.pipeline.runs.source_notes import asked_sources
from streamlake.records import ROW_KIND
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tasks import direct_reader
from streamlake.tasks.direct_reader import range_reader
from tests.unit.decode.raw_records import as_bytes, raw_batch

COLUMNS = "id long not null, name string"


def debezium(table: str, id: int, op: str = "c", server: str | None = "a", **row: Any) -> dict[str, Any]:
    database, name = table.split(".")
    image = {"id": id, "name": "x", **row}
    before, after = (image, None) if op == "d" else (None, image)
    place = {"connector": "mysql", "file": "b.000001", "pos": 5, "db": database, "table": name}
    source = place if server is None else {**place, "name": server}
    return {"before": before, "after": after, "op": op, "source": source}


def unwrapped(table: str, id: int, op: str = "c", **row: Any) -> dict[str, Any]:
    database, name = table.split(".")
    return {"id": id, "name": "x", **row, "__op": op, "__db": database, "__source_table": name}


def canal(table: str, id: int, op: str = "c", **row: Any) -> dict[str, Any]:
    database, name = table.split(".")
    data = [{"id": str(id), "name": "x", **{key: str(value) for key, value in row.items()}}]
    kind = {"c": "INSERT", "d": "DELETE"}[op]
    return {
        "database": database,
        "table": name,
        "type": kind,
        "isDdl": False,
        "es": 1,
        "data": data,
        "old": None,
    }


def maxwell(table: str, id: int, op: str = "c", **row: Any) -> dict[str, Any]:
    database, name = table.split(".")
    kind = {"c": "insert", "d": "delete"}[op]
    return {
        "database": database,
        "table": name,
        "type": kind,
        "ts": 1,
        "data": {"id": id, "name": "x", **row},
    }


FORMATS = [
    ("debezium-json", debezium),
    ("debezium-unwrapped-json", unwrapped),
    ("canal-json", canal),
    ("maxwell-json", maxwell),
]
every_format = pytest.mark.parametrize(("format", "change"), FORMATS, ids=[name for name, _ in FORMATS])


def decoded(format: str, values: list[Any], tables: SourceTables | None = None) -> Any:
    decoder = open_decoder(format, parse_ddl(COLUMNS), ["id"], {}, tables=tables)
    return decoder.decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)


@every_format
@pytest.mark.parametrize("count", [1, 40])
def test_a_change_of_another_table_is_a_reject(format: str, change: Any, count: int) -> None:
    values = [change("shop.users", at) for at in range(count)]
    values += [change("shop.products", 0, "d"), change("other.users", 0, "d"), change("shop.users", 7)]
    found = decoded(format, values)
    assert found.rows.column("id").to_pylist() == [*range(count), 7]
    assert found.rows.column(ROW_KIND).to_pylist() == [0] * (count + 1)
    assert [each.record for each in found.rejects] == [count, count + 1]
    assert "shop.products'" in found.rejects[0].reason
    assert "source-tables" in found.rejects[0].reason
    assert found.table.endswith("shop.users")
    # What is known counts, not what this task reads first.
    found = decoded(format, [change("shop.products", 1)] * count, SourceTables(known="shop.users"))
    assert [each.record for each in found.rejects] == list(range(count))
    assert found.rows.num_rows == 0


@every_format
def test_those_that_the_option_names_are_taken_and_others_passed_over(format: str, change: Any) -> None:
    values = []
    for at in range(30):
        # What is passed over may look like anything.
        values += [
            change("shop.users", at),
            change("shop.products", at, "d", name={"de": [at]}),
            change("shop.log", at, name=at),
        ]
    values[4] = "{broken"
    for wanted in (("shop.users",), ("shop.us*", "no.such")):
        found = decoded(format, values, SourceTables(wanted))
        assert found.rows.column("id").to_pylist() == list(range(30))
        assert found.ignored == {OTHER_TABLE: 59}
        assert {table_of_name(name): count for name, count in found.named.items()} == {
            "shop.users": 30,
            "shop.products": 29,
            "shop.log": 30,
        }
        assert [each.record for each in found.rejects] == [4]
    both = decoded(
        format, [change("shop.users", 1), change("shop.old_users", 2)], SourceTables(("shop.*users",))
    )
    assert both.rows.column("id").to_pylist() == [1, 2]
    assert both.rejects == ()


def test_servers_are_told_apart_where_they_are_named() -> None:
    values = [
        debezium("shop.users", 1),
        debezium("shop.users", 2, server="b"),
        debezium("shop.users", 3, server=None),
    ]
    found = decoded("debezium-json", values)
    assert found.rows.column("id").to_pylist() == [1, 3]
    assert [each.record for each in found.rejects] == [1]
    assert found.table == "a/shop.users"
    # One name in the option does not say which server, several do not say that it matters.
    assert len(decoded("debezium-json", values, SourceTables(("shop.users",))).rejects) == 1
    assert decoded("debezium-json", values, SourceTables(("shop.users*",))).rejects == ()


def test_a_wanted_name_may_have_its_server() -> None:
    values = [debezium("shop.users", 1), debezium("shop.users", 2, server="b")]
    for wanted in (("b/shop.users",), ("b/*",), ("b/shop.users", "c/shop.users")):
        found = decoded("debezium-json", values, SourceTables(wanted))
        assert (found.rows.column("id").to_pylist(), found.ignored) == ([2], {OTHER_TABLE: 1})
    assert decoded("debezium-json", values, SourceTables(("b*",))).rows.num_rows == 0


def named(database: str, table: str, server: str | None, id: int) -> dict[str, Any]:
    event = debezium("x.y", id, server=server)
    return {**event, "source": {**event["source"], "db": database, "table": table}}


@pytest.mark.parametrize("count", [1, 20])
def test_names_with_marks_in_them(count: int) -> None:
    """As the database has them: nothing is unquoted, folded or cut."""
    for database, table in (("my.db", "t"), ("db", "a/b"), ("Db", "T"), ("d", 'q"'), ("d", "x y")):
        name = f"{database}.{table}"
        for server in ("a", None):
            values = [named(database, table, server, at) for at in range(count)]
            values += [named("db", "b", server, 90), named("a", "b", server, 91), named("d", "t", server, 92)]
            found = decoded("debezium-json", values, SourceTables((name.replace('"', "?"),)))
            assert found.rows.column("id").to_pylist() == list(range(count)), name
            assert found.ignored == {OTHER_TABLE: 3}
            # A record that names no server may be of any.
            values = [*values[:count], named(database, table, None, 50), named(database, table, "a", 51)]
            values.append(named(database, table, "b", 52))
            found = decoded("debezium-json", values)
            assert [each.record for each in found.rejects] == [count + 2], name
        assert is_same_table(joined_name(None, [database, table]), joined_name("s", [database, table]))
    assert not is_same_table(joined_name(None, ["db", "a/b"]), joined_name("db.a", ["b"]))


def test_canals_truncate_of_another_table() -> None:
    truncate = {
        "database": "shop",
        "table": "products",
        "type": "TRUNCATE",
        "isDdl": True,
        "es": 2,
        "data": None,
    }
    found = decoded("canal-json", [canal("shop.users", 1), truncate])
    assert (found.truncates, [each.record for each in found.rejects]) == ((), [1])
    found = decoded("canal-json", [canal("shop.users", 1), truncate], SourceTables(("shop.users",)))
    assert (found.truncates, found.rejects, found.ignored) == ((), (), {OTHER_TABLE: 1})
    (own,) = decoded("canal-json", [truncate]).truncates
    assert own.table == "shop.products"


def test_records_that_name_no_table_are_of_the_topics_table() -> None:
    nameless = {"before": None, "after": {"id": 2, "name": "x"}, "op": "c", "source": {"connector": "mysql"}}
    found = decoded("debezium-json", [nameless, debezium("shop.users", 1), nameless])
    assert found.rows.num_rows == 3
    assert found.table == "a/shop.users"
    assert decoded("debezium-json", [nameless]).table == ""
    assert decoded("debezium-json", [{"ts_ms": 1}]).table is None


TRUNCATE = {
    "before": None,
    "after": None,
    "op": "t",
    "source": {"connector": "postgresql", "lsn": 9, "db": "d", "table": "t"},
}


@pytest.mark.parametrize(
    ("wanted", "sources", "carried_out"),
    [
        ((), None, True),
        ((), {"x": "d.t"}, True),
        (("d.t",), {"x": "d.t"}, True),
        ((), {"x": "d.t", "y": "d.t"}, True),
        ((), {"x": "d.t", "y": "e.t"}, False),
        ((), {"x": "a/d.t", "y": "b/d.t"}, False),
        ((), {"x": "d.t", "y": ""}, False),
        (("d.t*",), {"x": "d.t"}, False),
        (("d.t", "d.u"), {"x": "d.t"}, False),
    ],
)
def test_a_truncate_counts_where_rows_have_one_source(
    wanted: tuple[str, ...], sources: dict[str, str] | None, carried_out: bool
) -> None:
    tables = SourceTables(wanted).of_topic("x", sources)
    decoder = ChangeRows(parse_ddl("id long"), {}, "debezium-json", ["id"], {}, tables=tables)
    raw = raw_batch([{"value": TRUNCATE}])
    found = decoder.decode(raw, keep_rejects=True)
    assert [each.sequence for each in found.truncates] == ([9] if carried_out else [])
    if not carried_out:
        (reject,) = found.rejects
        assert "rows of other tables or topics are in the same table" in reject.reason
        with pytest.raises(DecodeError, match=r"d\.t was truncated"):
            decoder.decode(raw)


def test_columns_of_another_table_are_none_of_this_one() -> None:
    records = [
        (None, as_bytes(each)) for each in (maxwell("shop.users", 1), maxwell("shop.products", 2, price=1.5))
    ]
    assert infer_changed_rows("maxwell-json", records, {}).schema.column_names == ["id", "name"]
    wanted = SourceTables(("shop.products",))
    assert infer_changed_rows("maxwell-json", records, {}, wanted).schema.column_names == [
        "id",
        "name",
        "price",
    ]


def converter(
    monkeypatch: pytest.MonkeyPatch, values: list[Any], sources: dict[str, str], watch: Watch | None = None
) -> Any:
    raw = raw_batch([{"value": value} for value in values], topic="t")
    monkeypatch.setattr(direct_reader, "fetch_range", lambda *_: iter([raw]))
    reader = range_reader(KafkaSource("b:1", "t", format="maxwell-json", schema=COLUMNS), ["id"])
    reader = direct_reader.replace(reader, sources=sources, watch=watch)
    return list(reader.decoded(OffsetRange("t", 0, 0, len(values)), keep_rejects=True))


def test_a_table_that_follows_its_stream_does_not_follow_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [maxwell("shop.users", 1), maxwell("shop.products", 2, price=1.5, name="y" * 5)]
    (found,) = converter(monkeypatch, values, {"t": "shop.users"}, Watch(widen=True))
    assert found.rows.column("id").to_pylist() == [1]
    assert [each.record for each in found.rejects] == [1]
    with pytest.raises(NewSchemaError):
        converter(monkeypatch, values, {"t": "shop.products"}, Watch(widen=True))


def test_the_driver_is_asked_to_keep_what_a_topic_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [maxwell("shop.users", 1), maxwell("shop.products", 2)]
    for sources in ({}, {"t": ""}, {"u": "shop.users"}):
        with pytest.raises(NewSourceError) as asked:
            converter(monkeypatch, values, sources)
        assert (asked.value.topic, asked.value.table) == ("t", "shop.users")
    (found,) = converter(monkeypatch, values, {"t": "shop.users"})
    assert len(found.rejects) == 1
    assert converter(monkeypatch, [{"type": "table-create", "database": "shop"}], {})[0].table is None


@every_format
@pytest.mark.parametrize("count", [5, 40])
def test_a_record_that_is_a_reject_says_nothing_of_the_topic(format: str, change: Any, count: int) -> None:
    keyless = change("shop.products", 0)
    row = keyless.get("after") or keyless.get("data") or keyless
    del (row[0] if isinstance(row, list) else row)["id"]
    found = decoded(format, [keyless, *(change("shop.users", at) for at in range(count))])
    assert found.rows.column("id").to_pylist() == list(range(count))
    assert [each.record for each in found.rejects] == [0]
    assert found.table.endswith("shop.users")


@every_format
@pytest.mark.parametrize("count", [1, 40])
def test_a_delete_says_which_table_the_topic_is_of_where_no_row_does(
    format: str, change: Any, count: int
) -> None:
    deletes = [change("shop.products", at, "d") for at in range(count)]
    found = decoded(format, [*deletes, change("shop.users", 1, "d")])
    assert found.table.endswith("shop.products")
    nameless = [dict(change("shop.products", at, "d"), source={"connector": "mysql"}) for at in range(count)]
    for part in ("database", "table", "__db", "__source_table"):
        for each in nameless:
            each.pop(part, None)
    assert decoded(format, nameless).table is None
    assert decoded(format, [*nameless, *deletes]).table.endswith("shop.products")
    assert decoded(format, deletes, SourceTables(("shop.*",))).table is None
    found = decoded(format, [*deletes, *(change("shop.users", at) for at in range(count))])
    assert found.table.endswith("shop.users")
    assert found.rows.column(ROW_KIND).to_pylist().count(0) == count


@pytest.mark.parametrize("columns", [COLUMNS, f"{COLUMNS}, __table string, __name int"])
def test_tables_that_few_records_name_after_unwrapping(columns: str) -> None:
    def decoded_of(values: list[Any], *wanted: str) -> Any:
        tables = SourceTables(wanted)
        decoder = open_decoder("debezium-unwrapped-json", parse_ddl(columns), ["id"], {}, tables=tables)
        return decoder.decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)

    nameless = [{"id": at, "__op": "c"} for at in range(200)]
    assert decoded_of(nameless).rows.num_rows == 200
    few = [*nameless]
    few[57], few[101] = ({**few[at], "__table": name} for at, name in ((57, "users"), (101, "products")))
    other = [{**each, "__table": "users"} for each in nameless]
    other[101] = {**nameless[101], "__source_table": "products"}
    for values in (few, other):
        found = decoded_of(values)
        assert (found.rows.num_rows, [each.record for each in found.rejects]) == (199, [101])
        assert found.table == "users"
    found = decoded_of(other, "users")
    assert (found.rows.num_rows, found.rejects, found.ignored) == (199, (), {OTHER_TABLE: 1})


@every_format
@pytest.mark.parametrize("count", [1, 40])
def test_a_change_without_a_table_is_refused_where_tables_are_named(
    format: str, change: Any, count: int
) -> None:
    values = [change("shop.users", at) for at in range(count + 1)]
    for part in ("database", "table", "__db", "__source_table"):
        values[count].pop(part, None)
    if "source" in values[count]:
        values[count]["source"] = {"connector": "mysql", "file": "b.000001", "pos": 5}
    for wanted in (("shop.users",), ("shop.*",)):
        found = decoded(format, values, SourceTables(wanted))
        assert (found.rows.num_rows, [each.record for each in found.rejects]) == (count, [count])
        assert "does not say which table" in found.rejects[0].reason
    assert decoded(format, values).rejects == ()


def truncates(format: str, tables: SourceTables, values: list[Any]) -> Any:
    found = decoded(format, values, tables)
    return [each.record for each in found.truncates], [each.record for each in found.rejects], found.table


@pytest.mark.parametrize("count", [1, 40])
def test_a_truncate_waits_for_a_row_that_says_the_table(count: int) -> None:
    def emptied(table: str) -> dict[str, Any]:
        return {**canal(table, 0), "type": "TRUNCATE", "isDdl": True, "data": None}

    def removed(table: str) -> dict[str, Any]:
        return {**debezium(table, 0), "op": "t", "after": None}

    for format, change, truncate in (("canal-json", canal, emptied), ("debezium-json", debezium, removed)):
        rows = [change("shop.users", at) for at in range(count)]
        unknown = SourceTables().of_topic("t", {})
        other, own = truncate("shop.products"), truncate("shop.users")
        for sources in ({}, {"t": ""}):
            nothing = SourceTables().of_topic("t", sources)
            assert truncates(format, nothing, [other] * count) == ([], list(range(count)), None)
        (reject, *_) = decoded(format, [other], unknown).rejects
        assert "shop.products'" in reject.reason
        assert "no row of this topic has said yet" in reject.reason
        carried_out, rejects, table = truncates(format, unknown, [other, *rows, own, other])
        assert (carried_out, rejects) == ([count + 1], [0, count + 2])
        assert table.endswith("shop.users")
        known = SourceTables().of_topic("t", {"t": "shop.users"})
        assert truncates(format, known, [own, other])[:2] == ([0], [1])


def test_a_truncate_without_a_name_counts_for_rows_without_one() -> None:
    row: dict[str, Any] = {"after": {"id": 1}, "op": "c", "source": {"connector": "mysql"}}
    truncate = {"op": "t", "source": {"connector": "mysql"}}
    unknown = SourceTables().of_topic("t", {})
    assert truncates("debezium-json", unknown, [truncate, row, truncate]) == ([2], [0], "")
    assert truncates("debezium-json", SourceTables().of_topic("t", {"t": ""}), [truncate])[0] == [0]


def test_a_truncate_before_the_first_row_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate = {**canal("shop.users", 0), "type": "TRUNCATE", "isDdl": True, "data": None}
    values = [truncate, canal("shop.users", 1)]
    raw = raw_batch([{"value": value} for value in values], topic="t")
    monkeypatch.setattr(direct_reader, "fetch_range", lambda *_: iter([raw]))
    reader = range_reader(KafkaSource("b:1", "t", format="canal-json", schema=COLUMNS), ["id"])
    piece = OffsetRange("t", 0, 0, 2)
    with pytest.raises(NewSourceError) as asked:
        list(direct_reader.replace(reader, sources={}).decoded(piece))
    assert asked.value.table == "shop.users"
    (found,) = direct_reader.replace(reader, sources={"t": "shop.users"}).decoded(piece)
    assert [each.record for each in found.truncates] == [0]
    monkeypatch.setattr(direct_reader, "fetch_range", lambda *_: iter([raw.slice(0, 1)]))
    with pytest.raises(DecodeError, match="no row of this topic has said yet"):
        list(direct_reader.replace(reader, sources={}).decoded(piece))


def test_what_is_asked_is_answered_whatever_else_ended_tasks() -> None:
    asked = [
        NewSourceError("", "t", ""),
        DecodeError("x"),
        NewSourceError("", "t", "a.b"),
        NewSourceError("", "u", "c.d"),
    ]
    assert asked_sources(asked) == {"t": "a.b", "u": "c.d"}
    assert asked_sources([DecodeError("x"), NewSchemaError("y")]) == {}


def test_names_in_bulk_are_those_of_single_records() -> None:
    texts = [None, "", "a", "b.c", "d/e"]
    rows = [(server, database, table) for server in texts for database in texts for table in texts]
    columns = [pa.array([row[at] for row in rows], pa.string()) for at in range(3)]
    assert joined_names(columns[0], columns[1:]).to_pylist() == [joined_name(row[0], row[1:]) for row in rows]
    assert joined_names(None, [pa.array([], pa.string())]).to_pylist() == []


def test_a_property_that_is_damaged() -> None:
    assert kept_sources({}, "t") == {}
    assert kept_sources({PROPERTY: json.dumps({"x": "d.t"})}, "t") == {"x": "d.t"}
    for text in ("[]", "{", "1"):
        with pytest.raises(DataInvalidError, match=PROPERTY):
            kept_sources({PROPERTY: text}, "t")
