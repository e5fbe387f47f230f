"""Debezium's events in Avro with a schema registry: the same changes as the same events in JSON give."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from streamlake.decode.avro.avro_connect import connect_schema_of
from streamlake.decode.avro.avro_schema import parse_avro_schema
from streamlake.decode.cdc import envelope_decoder
from streamlake.decode.cdc.change_inference import infer_changed_rows
from streamlake.decode.cdc.change_rows import ChangeRows
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.decode.values.connect_schema import iceberg_schema_of
from streamlake.decode.values.envelope import Records
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.watched_records import watching_decoder
from streamlake.errors import DecodeError, InvalidOptionError, NewSchemaError, SourceError
from streamlake.records import KEY_CHANGE, ROW_KIND, RowKind
from streamlake.spec.types.data_types import IntegerType, NestedField
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema, fresh_schema
from tests.helpers.connect_avro import ConnectWriter
from tests.helpers.schema_registry import RegistryServer, framed
from tests.unit.decode.cdc.test_envelope_cases import CASES, Loader, expected, shown
from tests.unit.decode.cdc.test_envelope_properties import MARK, RECORDS, SCHEMA, reference, result
from tests.unit.decode.cdc.test_envelope_properties import shown as readable
from tests.unit.decode.raw_records import raw_batch

FORMAT = "debezium-avro"
WITH_SCHEMA = [
    path for path in CASES if path.stem in ("debezium_with_schema", "debezium_postgres_types_with_schema")
]


def part(name, type_, logical=None, optional=True, **more):
    return {
        "field": name,
        "type": type_,
        "optional": optional,
        **({"name": logical} if logical else {}),
        **more,
    }


SOURCE = part("source", "struct", "io.debezium.connector.postgresql.Source", False, fields=[
    part("connector", "string", optional=False),
    part("db", "string"),
    part("schema", "string"),
    part("table", "string"),
    part("lsn", "int64"),
])  # fmt: skip
KEY = {"type": "struct", "name": "s.t.Key", "fields": [part("id", "int64", optional=False)]}
HEARTBEAT = {
    "type": "struct",
    "name": "io.debezium.connector.common.Heartbeat",
    "fields": [part("ts_ms", "int64")],
}


def envelope_of(*columns, name="s.t"):
    row = {"type": "struct", "name": f"{name}.Value", "optional": True, "fields": list(columns)}
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        SOURCE,
        part("op", "string", optional=False),
    ]
    return {"type": "struct", "name": f"{name}.Envelope", "fields": fields}


PLAIN = envelope_of(part("id", "int64", optional=False), part("name", "string"))
PLAIN_TABLE = parse_ddl("id long not null, name string")


def event(op, before=None, after=None, schema=PLAIN, **source):
    named = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", **source}
    return {"schema": schema, "payload": {"before": before, "after": after, "op": op, "source": named}}


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with RegistryServer().running() as running:
        yield running


@pytest.fixture(scope="module")
def writer(server):
    return ConnectWriter(server)


def options(server, **more):
    return {"schema-registry.url": server.url, "schema-registry.retries": "0", **more}


def opened(server, schema=PLAIN_TABLE, key=("id",), format=FORMAT, **arguments):
    return open_decoder(format, schema, list(key), options(server), **arguments)


def batch_of(writer, *found):
    return raw_batch([{"value": writer.record(one)} for one in found])


@pytest.mark.parametrize("path", WITH_SCHEMA, ids=[path.stem for path in WITH_SCHEMA])
def test_cases_of_json_with_schemas_give_the_same_in_avro(path, server, writer, monkeypatch):
    case = yaml.load(path.read_text(), Loader)
    schema = parse_ddl(case["schema"])
    records = [{"value": writer.record(record["value"])} for record in case["records"]]
    decoder = opened(server, schema, case["key"])
    wanted = expected(case, schema.column_names)
    assert (
        shown(decoder.decode(raw_batch(records * 12), keep_rejects=True))["changes"][: len(records)]
        == wanted["changes"]
    )
    monkeypatch.setattr(envelope_decoder, "_ALONE", 1 << 30)
    assert shown(decoder.decode(raw_batch(records), keep_rejects=True)) == wanted


ANY = envelope_of(
    part("id", "int64", optional=False),
    part("name", "string"),
    part("amount", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
    part("born", "int32", "io.debezium.time.Date"),
    part("at", "string", "io.debezium.time.ZonedTimestamp"),
    part("seen", "int64", "io.debezium.time.MicroTimestamp"),
    part("opens", "int64", "io.debezium.time.MicroTime"),
    part("code", "string", "io.debezium.data.Uuid"),
    part("raw", "bytes"),
    part("tags", "array", items={"type": "string", "optional": True}),
    part("ids", "array", items={"type": "int64", "optional": False}),
    part("place", "struct", fields=[part("x", "double"), part("note", "string")]),
    part("flag", "boolean"),
    name="any",
)


def any_record(writer, found):
    if found is None:
        return None
    return writer.record({"schema": HEARTBEAT if "op" not in found else ANY, "payload": found})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RECORDS)
def test_bulk_equals_the_obvious_reference_of_json(server, writer, records):
    batch = raw_batch([{"value": any_record(writer, record)} for record in records])
    found = opened(server, SCHEMA).decode(batch, keep_rejects=True)
    found.rows.validate(full=True)
    assert readable(result(found)) == readable(reference(records))
    assert found.tombstones == records.count(None)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RECORDS.filter(lambda records: any(records) and not reference(records)[2]))
def test_good_records_take_the_bulk_way(server, writer, records):
    batch = raw_batch([{"value": any_record(writer, record)} for record in records])
    whole = opened(server, SCHEMA)._envelope.bulk(Records.of(batch))
    assert readable(result(whole)) == readable(reference(records))


CONVERSIONS = {
    ("string", None): {"decimal(5,2)": "1.5", "timestamptz": "2026-01-02T03:04:05Z", "timestamp_ntz": "2026-01-02T03:04:05Z",
        "date": "2026-01-02Z", "time": "03:04:05", "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "binary": "AAE=",
        "fixed(2)": "AAE=", "string": "x", "long": "1"},
    ("int32", None): {"int": 7, "long": 7, "decimal(5,2)": 7, "double": 7, "string": 7},
    ("int64", None): {"int": 7, "long": 7, "decimal(5,2)": 7, "boolean": 7},
    ("int64", "org.apache.kafka.connect.data.Timestamp"): {"long": 7, "timestamp_ntz": 7, "timestamptz": 7, "date": 7},
    ("double", None): {"double": 1.5, "decimal(5,2)": 1.5, "float": 1.5},
    ("float", None): {"double": 1.5, "float": 1.5},
    ("bytes", None): {"binary": "AAE=", "fixed(2)": "AAE=", "fixed(3)": "AAE=", "string": "AAE="},
    ("bytes", "org.apache.kafka.connect.data.Decimal"): {"decimal(9,1)": "AAE=", "decimal(9,3)": "AAE=", "string": "AAE=", "binary": "AAE="},
}  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "logical", "column", "value"),
    [
        (*written, column, value)
        for written, columns in CONVERSIONS.items()
        for column, value in columns.items()
    ],
)
def test_each_conversion_gives_what_json_gives(server, writer, type_, logical, column, value):
    parameters = {"parameters": {"scale": "2"}} if logical and logical.endswith("Decimal") else {}
    envelope = envelope_of(
        part("id", "int64", optional=False), part("v", type_, logical, **parameters), name="c"
    )
    table = parse_ddl(f"id long not null, v {column}")
    events = [event("c", after={"id": 1, "v": one}, schema=envelope, lsn=1) for one in (value, None)]
    for found in ([events[0]] * 20, [events[1]] * 20, events * 10):
        in_json = open_decoder("debezium-json", table, ["id"], {}).decode(
            raw_batch([{"value": one} for one in found]), keep_rejects=True
        )
        in_avro = opened(server, table).decode(batch_of(writer, *found), keep_rejects=True)
        assert in_avro.rows.equals(in_json.rows)
        assert shown(in_avro) == shown(in_json)


def test_schema_ids_of_one_batch_keep_the_order_of_the_records(server, writer):
    wide = envelope_of(
        part("id", "int32", optional=False), part("name", "string"), part("extra", "string"), name="s.t"
    )
    events = [
        event(
            "c", after={"id": at, "name": f"n{at}", "extra": "x"}, schema=(PLAIN, wide)[at % 3 == 1], lsn=at
        )
        for at in range(50)
    ]
    found = opened(server).decode(batch_of(writer, *events))
    assert found.rows.column("id").to_pylist() == list(range(50))
    assert found.sequence.to_pylist() == list(range(50))
    assert found.records.tolist() == list(range(50))


def test_moved_keys_truncates_and_deletes_by_their_key(server, writer):
    key = writer.record({"schema": KEY, "payload": {"id": 5}}, "key")
    records = [
        {"value": writer.record(event("u", {"id": 1, "name": "a"}, {"id": 2, "name": "b"}, lsn=1))},
        {"value": writer.record(event("u", {"id": 2, "name": "a"}, {"id": 2, "name": MARK}, lsn=2))},
        {"key": key, "value": writer.record(event("d", lsn=3))},
        {"value": writer.record(event("t", lsn=4))},
        {"key": key, "value": None},
    ]
    found = shown(opened(server).decode(raw_batch(records * 5)))
    assert found["changes"][:4] == [
        {"-D": {"id": 1, "name": "a"}, "record": 0, "sequence": 1},
        {"+U": {"id": 2, "name": "b"}, "record": 0, "sequence": 1},
        {"+U": {"id": 2, "name": None}, "record": 1, "sequence": 2, "unset": ["name"]},
        {"-D": {"id": 5, "name": None}, "record": 2, "sequence": 3},
    ]
    assert found["truncates"][0] == {"record": 3, "table": "d.s.t", "sequence": 4}
    assert found["tombstones"] == 5


def test_the_other_key_of_a_moved_row_is_read_from_avro_and_from_json(server, writer):
    key = {"schema": KEY, "payload": {"id": 8}}
    record = {"value": writer.record(event("c", after={"id": 9, "name": "x"}, lsn=1))}
    batch = raw_batch([
        {**record, "headers": {"__debezium.oldkey": writer.record(key, "key")}},
        {**record, "headers": {"__debezium.oldkey": key}},
        {**record, "headers": {"__debezium.oldkey": b"Struct{id=8}"}},
    ])  # fmt: skip
    schema = fresh_schema(Schema((*PLAIN_TABLE.fields, NestedField(99, ROW_KIND, IntegerType(), True))))
    rows = ChangeRows(schema, {}, FORMAT, ["id"], options(server)).decode(batch).rows
    assert rows.column(KEY_CHANGE).to_pylist() == [{"id": 8}, {"id": 8}, None]


@pytest.mark.parametrize("place", [0, 3, 40])
def test_damaged_records_are_rejects_and_the_rest_is_kept(server, writer, place):
    values = [writer.record(event("c", after={"id": at, "name": f"n{at}"}, lsn=at)) for at in range(60)]
    kinds = [
        b"",
        b"\0\0",
        b"\1" + values[0][1:],
        framed(9999, values[0][5:]),
        values[0][:-3],
        values[0] + b"x",
    ]
    for at, damaged in enumerate(kinds):
        values[place + 2 * at] = damaged
    bad = [place + 2 * at for at in range(len(kinds))]
    found = opened(server).decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)
    assert [one.record for one in found.rejects] == bad
    assert found.rows.column("id").to_pylist() == [at for at in range(60) if at not in bad]
    reasons = [one.reason for one in found.rejects]
    assert "0 bytes" in reasons[0]
    assert "2 bytes" in reasons[1]
    assert "begins with the byte 1" in reasons[2]
    assert "the schema 9999 of the registry is not there" in reasons[3]
    assert "ends before its last field" in reasons[4]
    assert "1 bytes are left" in reasons[5]
    with pytest.raises(DecodeError, match=rf"shop.public.orders-3 offset {100 + place}: it has 0 bytes"):
        opened(server).decode(raw_batch([{"value": value} for value in values]))


def test_a_schema_that_is_missing_is_asked_for_once_in_a_while(server, writer):
    server.asked.clear()
    values = [framed(7777, b"x")] * 30
    found = opened(server).decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)
    assert len(found.rejects) == 30
    assert server.asked == ["/schemas/ids/7777"]


@pytest.mark.parametrize("format", [FORMAT, "debezium-unwrapped-avro"])
def test_random_damage_gives_rejects_only_and_both_ways_agree(server, writer, monkeypatch, format):
    case = yaml.load(WITH_SCHEMA[1].read_text(), Loader)
    chance = random.Random(7)
    good = [writer.record(record["value"]) for record in case["records"]]
    values = []
    for _ in range(80):
        value = bytearray(chance.choice(good))
        for _ in range(chance.randint(0, 2)):
            value[chance.randrange(5, len(value))] = chance.randrange(256)
        values.append(bytes(value))
    batch = raw_batch([{"value": value} for value in values])
    schema = parse_ddl(case["schema"])
    found = opened(server, schema, case["key"], format).decode(batch, keep_rejects=True)
    found.rows.validate(full=True)
    monkeypatch.setattr(envelope_decoder, "_ALONE", 1 << 30)
    alone = opened(server, schema, case["key"], format).decode(batch, keep_rejects=True)
    assert shown(found) == shown(alone)
    assert found.rejects


def test_another_kind_of_schema_is_a_reject(server):
    text = server.register("x", "string")
    both = server.register(
        "x", {"type": "record", "name": "U", "fields": [{"name": "a", "type": ["int", "string"]}]}
    )
    json_schema = server.register("x", {"type": "object"}, "JSON")
    batch = raw_batch([{"value": framed(id_, b"\2x")} for id_ in (text, both, json_schema)])
    found = opened(server).decode(batch, keep_rejects=True)
    assert [one.record for one in found.rejects] == [0, 1, 2]
    assert "is string, and no record" in found.rejects[0].reason
    assert "union of int, string, which Kafka Connect does not have" in found.rejects[1].reason
    assert "is of the kind JSON" in found.rejects[2].reason


def test_a_registry_that_does_not_answer_is_no_reject(writer):
    value = writer.record(event("c", after={"id": 1, "name": "a"}, lsn=1))
    decoder = open_decoder(
        FORMAT,
        PLAIN_TABLE,
        ["id"],
        {"schema-registry.url": "http://127.0.0.1:9", "schema-registry.retries": "0"},
    )
    with pytest.raises(SourceError, match="the schema"):
        decoder.decode(raw_batch([{"value": value}]), keep_rejects=True)


@pytest.mark.parametrize("format", [FORMAT, "debezium-unwrapped-avro"])
def test_with_partial_updates_what_the_schema_lacks_is_unset_and_null_is_null(
    server, writer, format, monkeypatch
):
    row = {"id": 1, "name": None}
    found = event("u", after=row, lsn=1)
    if format != FORMAT:
        columns = [part("id", "int64", optional=False), part("name", "string")]
        found = {"schema": {"type": "struct", "name": "partial", "fields": columns}, "payload": row}
    table = parse_ddl("id long not null, name string, more string")
    decoder = opened(server, table, format=format, partial_update=True)
    batch = batch_of(writer, *[found] * 20)
    monkeypatch.setattr(type(decoder._envelope), "one", None)
    changes = decoder.decode(batch)
    assert changes.rows.column("name").null_count == 20
    assert set(changes.missing) == {"more"}
    assert changes.missing["more"].all()
    monkeypatch.undo()
    monkeypatch.setattr(envelope_decoder, "_ALONE", 1 << 30)
    alone = decoder.decode(batch)
    assert alone.rows.equals(changes.rows)
    assert set(alone.missing) == {"more"}


def test_options_are_those_of_both(server):
    with pytest.raises(InvalidOptionError, match=r"schema-registry\.url is missing"):
        open_decoder(FORMAT, PLAIN_TABLE, [], {})
    with pytest.raises(InvalidOptionError, match=r"schema-registry\.url"):
        open_decoder("debezium-json", PLAIN_TABLE, [], options(server))
    lossy = open_decoder(FORMAT, PLAIN_TABLE, [], options(server, **{"debezium.lossy-conversion": "allow"}))
    assert lossy.decode(raw_batch([])).rows.num_rows == 0


def test_documents_of_mongodb(server, writer):
    text = "io.debezium.data.Json"
    source = part("source", "struct", "io.debezium.connector.mongo.Source", False, fields=[
        part("connector", "string", optional=False), part("ts_ms", "int64"), part("ord", "int32"),
    ])  # fmt: skip
    schema = {"type": "struct", "name": "m.Envelope", "fields": [
        part("before", "string", text), part("after", "string", text), source, part("op", "string"),
    ]}  # fmt: skip
    at = {"connector": "mongodb", "ts_ms": 5000, "ord": 2}
    payload = {"before": None, "after": '{"_id": {"$numberLong": "5"}, "name": "x"}', "op": "c", "source": at}
    key = {"type": "struct", "name": "m.Key", "fields": [part("id", "string", optional=False)]}
    records = [
        {"value": writer.record({"schema": schema, "payload": payload})},
        {
            "key": writer.record({"schema": key, "payload": {"id": '{"$numberLong": "5"}'}}, "key"),
            "value": writer.record({"schema": schema, "payload": {**payload, "after": None, "op": "d"}}),
        },
    ]
    found = shown(
        opened(server, parse_ddl("_id long not null, name string"), ["_id"]).decode(raw_batch(records * 8))
    )
    assert found["changes"][:2] == [
        {"+I": {"_id": 5, "name": "x"}, "record": 0, "sequence": (5 << 32) + 2},
        {"-D": {"_id": 5, "name": None}, "record": 1, "sequence": (5 << 32) + 2},
    ]


def test_unwrapped_rows(server, writer):
    row = [part("id", "int64", optional=False), part("name", "string")]
    schema = {"type": "struct", "name": "s.t.Value", "fields": [
        *row, part("__deleted", "string"), part("__op", "string"), part("__lsn", "int64"),
    ]}  # fmt: skip
    key = writer.record({"schema": KEY, "payload": {"id": 5}}, "key")
    records = [
        {"value": writer.record({"schema": schema, "payload": {"id": 1, "name": "a", "__op": "c", "__deleted": "false", "__lsn": 3}})},
        {"value": writer.record({"schema": schema, "payload": {"id": 1, "name": MARK, "__op": "u", "__lsn": 4}})},
        {"value": writer.record({"schema": schema, "payload": {"id": 1, "name": None, "__deleted": "true", "__lsn": 5}})},
        {"key": key, "value": None},
    ]  # fmt: skip
    decoder = opened(server, format="debezium-unwrapped-avro")
    found = shown(decoder.decode(raw_batch(records * 5)))
    assert found["changes"][:4] == [
        {"+I": {"id": 1, "name": "a"}, "record": 0, "sequence": 3},
        {"+U": {"id": 1, "name": None}, "record": 1, "sequence": 4, "unset": ["name"]},
        {"-D": {"id": 1, "name": None}, "record": 2, "sequence": 5},
        {"-D": {"id": 5, "name": None}, "record": 3},
    ]
    inferred = infer_changed_rows("debezium-unwrapped-avro", [(key, records[0]["value"])], options(server))
    assert inferred.key == ("id",)
    assert [(one.name, str(one.type), one.required) for one in inferred.schema.fields] == [
        ("id", "long", True),
        ("name", "string", False),
    ]


def test_a_table_is_made_of_the_records_schemas(server, writer):
    key = writer.record({"schema": KEY, "payload": {"id": 5}}, "key")
    truncate = writer.record(event("t", schema=ANY, lsn=1))
    inferred = infer_changed_rows(
        FORMAT, [(key, writer.record(event("d", schema=ANY))), (None, truncate)], options(server)
    )
    types = {one.name: str(one.type) for one in inferred.schema.fields}
    assert inferred.key == ("id",)
    assert inferred.schema.fields[0].required
    assert types["amount"] == "decimal(38, 2)"
    assert types["born"] == "date"
    assert types["at"] == "timestamptz"
    assert types["seen"] == "timestamp"
    assert types["code"] == "uuid"
    assert types["tags"].startswith("list<string")


def test_logical_types_of_avro_itself_count_where_connect_says_nothing():
    avro = parse_avro_schema(
        """{"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "b", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "c", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "d", "type": {"type": "enum", "name": "E", "symbols": ["x"]}},
        {"name": "e", "type": {"type": "map", "values": "int"}},
        {"name": "f", "type": {"type": "int", "logicalType": "date"}}]}""",
        "x",
    )
    fields = iceberg_schema_of(connect_schema_of(avro)).fields
    assert [str(one.type) for one in fields[:4]] == ["timestamp", "decimal(9, 2)", "uuid", "string"]
    assert str(fields[4].type).startswith("map<string")
    assert str(fields[5].type) == "date"
    assert [one.required for one in fields] == [True, False, True, True, True, True]


def test_new_columns_are_asked_for_by_the_schema(server, writer):
    wide = envelope_of(
        part("id", "int64", optional=False), part("name", "string"), part("n", "int32"), name="s.t"
    )
    schema = fresh_schema(Schema((*PLAIN_TABLE.fields, NestedField(99, ROW_KIND, IntegerType(), True))))

    def rows(watch):
        return ChangeRows(schema, {}, FORMAT, ["id"], options(server), watch=watch)

    decoder = watching_decoder(rows, FORMAT, PLAIN_TABLE.fields, Watch(), options(server))
    known = batch_of(writer, event("c", after={"id": 1, "name": "a"}, lsn=1))
    assert decoder.decode(known).rows.column(ROW_KIND).to_pylist() == [RowKind.INSERT]
    news = batch_of(writer, *[event("c", after={"id": 1, "name": "a", "n": None}, schema=wide, lsn=1)] * 20)
    with pytest.raises(NewSchemaError, match="n int"):
        decoder.decode(news)


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("value", [0.1, -0.0, 16777217, 3.4028234663852886e38, 1e-45, 1.17549435e-38])
def test_numbers_of_32_bits_are_the_same_doubles_in_json_and_avro(server, writer, value, count):
    """The number that the database has, not the one that its shortest digits are for a double."""
    inner = {"type": "struct", "field": "s", "optional": True, "fields": [part("f", "float")]}
    items = {"type": "array", "field": "l", "optional": True, "items": {"type": "float", "optional": True}}
    envelope = envelope_of(
        part("id", "int64", optional=False), part("v", "float"), inner, items, name="single"
    )
    table = parse_ddl("id long not null, v double, s struct<f: double>, l array<double>")
    row = {"id": 1, "v": value, "s": {"f": value}, "l": [value, None]}
    events = [event("c", after=row, schema=envelope, lsn=1)] * count
    in_json = open_decoder("debezium-json", table, ["id"], {}).decode(
        raw_batch([{"value": one} for one in events])
    )
    in_avro = opened(server, table).decode(batch_of(writer, *events))
    single = float(np.float32(value))
    for found in (in_json, in_avro):
        assert repr(found.rows.column("v").to_pylist()) == repr([single] * count)
        assert repr(found.rows.column("s").to_pylist()) == repr([{"f": single}] * count)
        assert repr(found.rows.column("l").to_pylist()) == repr([[single, None]] * count)
