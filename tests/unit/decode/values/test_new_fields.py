"""What records have and their table lacks is noticed, in bulk and one by one, whatever the format; nothing else is."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

from streamlake.decode.values.new_fields import Watch, lacking
from streamlake.errors import DecodeError, NewSchemaError
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.type_json import schema_from_json
from streamlake.tasks.direct_reader import row_decoder
from tests.helpers.schema_registry import RegistryServer, framed
from tests.unit.decode.raw_records import raw_batch
from tests.unit.decode.registry.test_confluent_formats import avro, record

TABLE = "id long not null, name string, s struct<a: long>, tags array<struct<t: string>>"
COUNTS = pytest.mark.parametrize("count", [1, 30, 200])
"""Records: few are read one by one, many in bulk, and more by their template."""


def source(format="json", schema=TABLE, **more):
    return KafkaSource("localhost:1", "t", schema=schema, format=format, **more)


def wanted(decoder, batch, keep_rejects=False):
    """The columns that a batch asks for."""
    with pytest.raises(NewSchemaError) as error:
        decoder.decode(batch, keep_rejects=keep_rejects)
    schema = schema_from_json(json.loads(error.value.wanted))
    return ", ".join(f"{part.name} {part.type}" for part in schema.fields)


def without_ids(types):
    return re.sub(r"\d+: ", "", types)


def values(*records):
    return raw_batch([{"value": each} for each in records])


def many(count, **fields):
    return [{"id": at, "name": f"n{at}", **fields} for at in range(count)]


@pytest.mark.parametrize("count", [1, 5, 30, 200])
def test_new_fields_inside_a_change(count):
    decoder = row_decoder(source("debezium-json"), watch=Watch())
    origin = {"connector": "postgresql", "lsn": 1}
    events = [{"after": {"id": at, "s": {"a": 1}}, "op": "c", "source": origin} for at in range(count)]
    assert decoder.decode(values(*events)).rows.num_rows == count
    events[-1]["after"]["s"] = {"a": 1, "b": "x"}
    assert without_ids(wanted(decoder, values(*events))) == "s struct<b: optional string>"


@COUNTS
def test_new_fields_of_json(count):
    decoder = row_decoder(source(), watch=Watch())
    assert decoder.decode(values(*many(count))).rows.num_rows == count
    extra = [*many(count), {"id": 9, "extra": 2**40, "when": "2024-01-01"}]
    assert wanted(decoder, values(*extra)) == "extra long, when string"
    assert wanted(decoder, values(*extra), keep_rejects=True) == "extra long, when string"
    everywhere = many(count, extra=None, flag=True, f=1.5)
    everywhere[-1]["extra"] = [{"x": 1}]
    found = wanted(decoder, values(*everywhere))
    assert "extra list<struct<" in found
    assert "flag boolean, f double" in found


@COUNTS
def test_new_fields_inside_of_columns(count):
    decoder = row_decoder(source(), watch=Watch())
    assert decoder.decode(values(*many(count, s={"a": 1}, tags=[{"t": "x"}]))).rows.num_rows == count
    found = wanted(decoder, values(*many(count, s={"a": 1, "b": "x"}, tags=[])))
    assert found.startswith("s struct<")
    assert "b: optional string" in found
    assert "a:" not in found
    assert "n: optional long" in wanted(decoder, values(*many(count, tags=[{"t": None, "n": 1}])))


DEEP = "id long, name string, m map<string, array<struct<e: int, d: decimal(4,2)>>>"


@COUNTS
@pytest.mark.parametrize("as_entries", [False, True])
def test_new_fields_and_large_numbers_inside_of_maps(count, as_entries):
    decoder = row_decoder(source(schema=DEEP), watch=Watch(widen=True))

    def rows(**leaf):
        found = {"k": [{"e": 1, "d": 1}, leaf], "none": None}
        return many(count, m=[{"key": k, "value": v} for k, v in found.items()] if as_entries else found)

    assert decoder.decode(values(*rows(e=2, d=99))).rows.num_rows == count
    assert "map<string, list<struct<f: optional string>>>" in without_ids(
        wanted(decoder, values(*rows(f="x")))
    )
    assert "<e: required int" not in wanted(decoder, values(*rows(f="x")))
    batch = values(*rows(e=2**40, d=123456))
    found = without_ids(wanted(decoder, batch))
    assert "e: required long" in found
    assert "d: required decimal(18, 2)" in found
    assert wanted(decoder, batch, keep_rejects=True) == wanted(decoder, batch)
    changes = row_decoder(source("debezium-json", DEEP), ["id"], Watch(widen=True))
    sent = [{"value": {"before": None, "after": row, "op": "c"}} for row in rows(e=2**40)]
    assert "e: required long" in without_ids(
        wanted(changes, raw_batch([{"key": {"id": 1}, **row} for row in sent]))
    )


@COUNTS
def test_what_has_no_value_has_no_type(count):
    decoder = row_decoder(source(), watch=Watch())
    rows = many(count, extra=None, empty=[], none={"a": None}, s={"b": None})
    found = decoder.decode(values(*rows)).rows
    assert found.column("id").to_pylist() == list(range(count))
    assert found.column("name").to_pylist() == [f"n{at}" for at in range(count)]


def test_nobody_looks_without_a_watch_and_some_fields_are_known():
    plain = row_decoder(source())
    assert plain.decode(values(*many(100, extra=1))).rows.num_rows == 100
    strict = row_decoder(source(options={"json.unknown-fields": "fail"}), watch=Watch())
    with pytest.raises(Exception, match="unknown-fields is"):
        strict.decode(values(*many(100, extra=1)))
    included = row_decoder(source(include=["offset"]), watch=Watch())
    assert included.decode(values(*many(100, offset=7))).rows.column("offset")[0].as_py() == 100


@pytest.mark.parametrize("count", [1, 30])
def test_columns_with_maps(count):
    decoder = row_decoder(source(schema="id long, m map<string, struct<a: long>>"), watch=Watch())
    rows = [{"id": at, "m": {"k": {"a": 1}}} for at in range(count)]
    assert decoder.decode(values(*rows)).rows.num_rows == count
    assert wanted(decoder, values(*rows, {"id": 1, "extra": 1})) == "extra long"


SOURCE = {
    "connector": "postgresql",
    "lsn": 1,
    "db": "d",
    "schema": "s",
    "table": "t",
    "name": "x",
    "ts_ns": 1,
}


def debezium(after, **more):
    return {"before": None, "after": after, "source": SOURCE, "op": "c", "ts_ms": 1, **more}


def connect(*fields):
    row = {"type": "struct", "optional": True, "field": "after", "fields": list(fields)}
    of_source = {"type": "struct", "field": "source", "fields": []}
    return {"type": "struct", "fields": [row, of_source]}


ID = {"type": "int64", "field": "id", "optional": False}
CHANGES = "id long not null, name string"


@COUNTS
def test_new_columns_of_debezium(count):
    decoder = row_decoder(source("debezium-json", CHANGES), ["id"], Watch())
    rows = [debezium({"id": at, "name": f"n{at}"}) for at in range(count)]
    assert decoder.decode(values(*rows)).rows.num_rows == count, (
        "the envelope's own fields are none of the row"
    )
    assert (
        decoder.decode(values(*rows, debezium({"id": 1, "name": "x", "added": None}))).rows.num_rows
        == count + 1
    )
    placeholder = debezium({"id": 1, "name": "x", "added": "__debezium_unavailable_value"})
    assert decoder.decode(values(*rows, placeholder)).rows.num_rows == count + 1
    more = [*rows, debezium({"id": 9, "name": "x", "version": 5, "db": "text"})]
    assert wanted(decoder, values(*more)) == "version long, db string", (
        "though the source has fields of these names"
    )


@COUNTS
def test_schemas_of_debezium_tell_exactly(count):
    def rows(*fields, **more):
        schema = connect(ID, *fields)
        return values(
            *({"schema": schema, "payload": debezium({"id": at, "name": "n", **more})} for at in range(count))
        )

    narrow = [{"type": "string", "field": "name", "optional": True}]
    decimal = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "field": "price",
        "optional": True,
    }
    wide = row_decoder(source("debezium-json", "id int not null, name string"), ["id"], Watch(widen=True))
    assert wanted(wide, rows(*narrow)) == "id long"
    adding = row_decoder(source("debezium-json", CHANGES), ["id"], Watch())
    assert adding.decode(rows(*narrow)).rows.num_rows == count
    assert wanted(adding, rows(*narrow, decimal, price=None)) == "price decimal(10, 2)"
    batches = [rows(*narrow), rows(*narrow, decimal, price="AQ=="), rows(*narrow)]
    mixed = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    assert wanted(adding, mixed) == "price decimal(10, 2)", "though the last schema does not have it"


@COUNTS
def test_new_columns_of_the_other_envelopes(count):
    unwrapped = row_decoder(source("debezium-unwrapped-json", CHANGES), ["id"], Watch())
    rows = [{"id": at, "name": "n", "__op": "c", "__deleted": "false", "__lsn": 1} for at in range(count)]
    assert unwrapped.decode(values(*rows)).rows.num_rows == count
    assert wanted(unwrapped, values(*rows, {**rows[0], "added": 1.5})) == "added double"

    canal = row_decoder(source("canal-json", CHANGES), ["id"], Watch())
    types = {"id": "bigint", "name": "varchar(9)"}
    one = {"type": "INSERT", "isDdl": False, "es": 1, "old": None, "sql": "", "mysqlType": types}
    rows = [{**one, "data": [{"id": str(at), "name": "n"}]} for at in range(count)]
    assert canal.decode(values(*rows)).rows.num_rows == count
    added = {
        **one,
        "data": [{"id": "1", "name": "n", "p": "1.5"}],
        "mysqlType": {**types, "p": "decimal(9,2)"},
    }
    assert wanted(canal, values(*rows, added)) == "p decimal(9, 2)"

    maxwell = row_decoder(source("maxwell-json", CHANGES), ["id"], Watch())
    rows = [{"type": "insert", "ts": 1, "xid": 5, "data": {"id": at, "name": "n"}} for at in range(count)]
    assert maxwell.decode(values(*rows)).rows.num_rows == count
    added = {"type": "insert", "ts": 1, "data": {"id": 1, "name": "n", "flag": 1}}
    assert wanted(maxwell, values(*rows, added)) == "flag long"


@COUNTS
def test_values_that_outgrow_their_columns(count):
    narrow = "id int not null, f float, d decimal(5,2), name string"
    rows = [{"id": at, "f": 0.5, "d": 1.25, "name": "n"} for at in range(count)]
    large = {"id": 2**40, "f": 1e300, "d": 12345.25, "name": "n"}
    decoder = row_decoder(source(schema=narrow), watch=Watch(widen=True))
    assert decoder.decode(values(*rows)).rows.num_rows == count
    assert wanted(decoder, values(*rows, large)) == "id long, f double, d decimal(18, 2)"
    assert wanted(decoder, values(*rows, {**large, "f": 1}), keep_rejects=True) == "id long, d decimal(18, 2)"
    changes = row_decoder(source("debezium-json", "id int not null, f float"), ["id"], Watch(widen=True))
    few = [debezium({"id": at, "f": 0.5}) for at in range(count)]
    assert wanted(changes, values(*few, debezium({"id": 2**40, "f": None}))) == "id long"
    with pytest.raises(DecodeError, match="int"):
        row_decoder(source(schema=narrow), watch=Watch()).decode(values(*rows, large))
    with pytest.raises(DecodeError, match="'name'"):
        decoder.decode(values(*rows, {"id": 1, "name": 5}))
    beyond = values(*rows, {"id": 2**70, "name": "n"})
    assert [reject.record for reject in decoder.decode(beyond, keep_rejects=True).rejects] == [count]


@pytest.fixture
def registry():
    with RegistryServer().running() as running:
        yield running


def test_schemas_of_a_registry_tell_exactly(registry):
    first = record(("id", "int", {}))
    second = record(
        ("id", "long", {}), ("day", {"type": "int", "logicalType": "date"}, {}), ("offset", "long", {})
    )
    ids = [registry.register("t-value", schema) for schema in (first, second)]
    batch = raw_batch(
        [
            {"value": framed(ids[0], avro(first, {"id": 1}))},
            {"value": framed(ids[1], avro(second, {"id": 2**40, "day": 5, "offset": 1}))},
        ]
    )
    options = {"schema-registry.url": registry.url}
    given = source("confluent-avro", "id int", options=options, include=["offset"])
    assert wanted(row_decoder(given, watch=Watch()), batch) == "day date"
    assert wanted(row_decoder(given, watch=Watch(widen=True)), batch) == "id long, day date"
    enough = source("confluent-avro", "id long, day date", options=options, include=["offset"])
    assert row_decoder(enough, watch=Watch(widen=True)).decode(batch).rows.num_rows == 2


def test_what_is_lacking_is_told_with_what_it_is_in():
    known = parse_ddl("a int, s struct<x: int, y: string> not null, m map<string, struct<v: int>>").fields
    stream = parse_ddl(
        "a long, s struct<x: int not null, z: date>, m map<string, struct<v: long, w: int>>, b int not null"
    ).fields
    found = lacking(known, stream, Watch(widen=True))
    assert [(part.name, part.required) for part in found] == [
        ("a", True),
        ("s", True),
        ("m", True),
        ("b", False),
    ]
    assert [part.name for part in found[1].type.fields] == ["z"]
    assert [part.name for part in found[2].type.value_type.fields] == ["v", "w"]
    assert [part.name for part in lacking(known, stream, Watch(taken=frozenset({"b"})))] == ["s", "m"]


def envelope(*fields):
    """Debezium's Avro schema for a table with these columns."""
    row = {"type": "record", "name": "Value", "namespace": "s", "fields": list(fields)}
    of_source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "connector", "type": "string"}, {"name": "lsn", "type": "long"}],
    }
    return record(
        ("before", ["null", row], {"default": None}),
        ("after", ["null", "s.Value"], {"default": None}),
        ("source", of_source, {}),
        ("op", "string", {}),
        ("ts_ms", "long", {}),
    )


@pytest.mark.parametrize("count", [1, 100])
def test_schemas_of_debezium_in_avro(registry, count):
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    columns = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    schemas = [envelope(*columns), envelope(*columns, {"name": "price", "type": ["null", decimal]})]
    ids = [registry.register("t-value", schema) for schema in schemas]

    def event(at, **row):
        event = {"before": None, "after": row, "source": {"connector": "postgresql", "lsn": 1}, "op": "c"}
        return {"value": framed(ids[at], avro(schemas[at], {**event, "ts_ms": 1}))}

    options = {"schema-registry.url": registry.url}
    decoder = row_decoder(source("debezium-avro", CHANGES, options=options), ["id"], Watch())
    rows = [event(0, id=at, name="n") for at in range(count)]
    assert decoder.decode(raw_batch(rows)).rows.num_rows == count
    assert (
        wanted(decoder, raw_batch([*rows, event(1, id=1, name=None, price=None)])) == "price decimal(10, 2)"
    )
