"""Records in a registry's wire format, from raw batches to rows: several schema ids, damage, JSON, schemas of tables."""

from __future__ import annotations

import json
import pickle
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from streamlake.decode.json.json_schema import schema_from_json_schema
from streamlake.decode.row_decoder import RowDecoder
from streamlake.errors import (
    DecodeError,
    FeatureUnsupportedError,
    InvalidOptionError,
    SchemaMismatchError,
    SourceError,
)
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.kafka.sampled_schema import with_inferred_schema
from streamlake.records import RAW_RECORDS
from streamlake.source.kafka_source import KafkaSource
from tests.helpers.error_catalogue import documented
from tests.helpers.schema_registry import RegistryServer, framed


def record(*fields):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": type_, **more} for name, type_, more in fields],
    }


FIRST = record(("id", "int", {}), ("name", "string", {}))
SECOND = record(
    ("extra", {"type": "array", "items": "string"}, {}), ("id", "long", {}), ("title", ["null", "string"], {})
)
READER = record(
    ("id", "long", {}),
    ("name", ["null", "string"], {"aliases": ["title"], "default": None}),
    ("kind", "string", {"default": "none"}),
)


def avro(schema, row):
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def raw(*values):
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": None,
                "value": value,
                "topic": "orders",
                "partition": 3,
                "offset": 100 + at,
                "timestamp": 0,
                "headers": None,
            }
            for at, value in enumerate(values)
        ],
        schema=RAW_RECORDS,
    )


def source(server=None, **arguments):
    options = dict(arguments.pop("options", {}))
    if server is not None:
        options["schema-registry.url"] = server.url
    return KafkaSource(**{"bootstrap_servers": "h:1", "topics": "orders", "options": options, **arguments})


def decoder(of):
    return RowDecoder(of.table_schema, of.metadata_columns, of.format, dict(of.settings.decode))


@pytest.fixture
def server():
    with RegistryServer().running() as running:
        yield running


def test_raw_avro_becomes_rows():
    known = with_inferred_schema(source(format="avro", options={"avro.schema": FIRST}, include="offset"))
    assert (
        str(known.table_schema.struct)
        == "struct<1: id: required int, 2: name: required string, 3: offset: optional long>"
    )
    decode = decoder(pickle.loads(pickle.dumps(known)))
    decoded = decode.decode(
        raw(avro(FIRST, {"id": 1, "name": "a"}), None, avro(FIRST, {"id": 2, "name": "b"}))
    )
    assert decoded.rows.to_pylist() == [
        {"id": 1, "name": "a", "offset": 100},
        {"id": 2, "name": "b", "offset": 102},
    ]
    assert decoded.tombstones == 1
    assert decoded.records.tolist() == [0, 2]


def test_records_of_several_schemas_become_rows_in_their_order(server):
    one, two = server.register("orders-value", FIRST), server.register("orders-value", SECOND)
    decode = decoder(
        source(server, format="confluent-avro", schema="id long not null, name string, title string")
    )
    values = []
    for at in range(30):
        if at % 3:
            values.append(framed(one, avro(FIRST, {"id": at, "name": f"n{at}"})))
        else:
            values.append(framed(two, avro(SECOND, {"extra": ["x"] * at, "id": at, "title": f"t{at}"})))
    assert decode.decode(raw(*values)).rows.to_pylist() == [
        {"id": at, "name": f"n{at}" if at % 3 else None, "title": None if at % 3 else f"t{at}"}
        for at in range(30)
    ]
    decode.decode(raw(*values))
    assert decode.decode(raw(None)).rows.num_rows == 0
    assert server.asked == ["/schemas/ids/1", "/schemas/ids/2"]


def test_damaged_records_are_told_apart_and_an_unknown_id_is_asked_for_once(server):
    one = server.register("orders-value", FIRST)
    decode = decoder(source(server, format="confluent-avro", schema="id long not null, name string"))
    good = [framed(one, avro(FIRST, {"id": at, "name": "n"})) for at in range(200)]
    damage = [
        lambda value: value[:-1],
        lambda value: framed(99, value[5:]),
        lambda value: b"\x01" + value[1:],
    ]
    values = [damage[at // 10 % 3](value) if at % 10 == 4 else value for at, value in enumerate(good)]
    decoded = decode.decode(raw(*values), keep_rejects=True)
    assert decoded.rows.column("id").to_pylist() == [at for at in range(200) if at % 10 != 4]
    assert [reject.record for reject in decoded.rejects] == list(range(4, 200, 10))
    assert "99" in decoded.rejects[1].reason
    assert server.asked == ["/schemas/ids/1", "/schemas/ids/99"]


def test_a_readers_schema_resolves_what_names_cannot(server):
    one, two = server.register("orders-value", FIRST), server.register("orders-value", SECOND)
    known = with_inferred_schema(
        source(server, format="confluent-avro", options={"avro.schema": json.dumps(READER)})
    )
    rows = (
        decoder(known)
        .decode(
            raw(
                framed(one, avro(FIRST, {"id": 1, "name": "a"})),
                framed(two, avro(SECOND, {"extra": [], "id": 2, "title": "b"})),
            )
        )
        .rows
    )
    assert rows.to_pylist() == [
        {"id": 1, "name": "a", "kind": "none"},
        {"id": 2, "name": "b", "kind": "none"},
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "it has 0 bytes, and not with the byte 0 and a schema id of 4 bytes"),
        (b"\x00\x00\x00", "it has 3 bytes"),
        (b'{"id": 1}', "it begins with the byte 123"),
        (framed(77, b"\x02"), "the schema 77 of the registry is not there"),
        (framed(2, b"\x02"), "is of the kind PROTOBUF"),
        (framed(3, b"\x02a"), "'id': the column is long, and string is written"),
        (framed(1, b"\x02"), "'name': it ends before its last field"),
        (framed(1, b"\x02\x02a\x00"), "1 bytes are left after its last field"),
    ],
)
def test_a_record_that_is_not_what_its_frame_says_is_named(server, value, reason):
    good = server.register("orders-value", FIRST)
    server.register("orders-value", 'syntax = "proto3";', "PROTOBUF")
    server.register("orders-value", record(("id", "string", {})))
    decode = decoder(source(server, format="confluent-avro", schema="id long, name string"))
    fine = framed(good, avro(FIRST, {"id": 1, "name": "a"}))
    with pytest.raises(DecodeError) as raised:
        decode.decode(raw(fine, fine, value, fine))
    assert str(raised.value).startswith("orders-3 offset 102: ")
    assert reason in str(raised.value)
    assert f"the record is {'0x' + value.hex() if value[:1] == bytes(1) else repr(value.decode())}" in str(
        raised.value
    )


def test_a_registry_that_is_away_is_no_fault_of_the_record():
    away = {"schema-registry.url": "http://127.0.0.1:1", "schema-registry.retries": "0"}
    decode = decoder(source(format="confluent-avro", schema="id long", options=away))
    with pytest.raises(SourceError, match="the schema 1 of the registry cannot be fetched after 1 attempts"):
        decode.decode(raw(framed(1, b"\x02")))


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "at": {"type": "string", "format": "date-time"},
        "small": {"type": "integer", "connect.type": "int16"},
        "price": {
            "type": "number",
            "title": "org.apache.kafka.connect.data.Decimal",
            "connect.type": "bytes",
            "connect.parameters": {"scale": "2"},
        },
        "tags": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object", "additionalProperties": {"type": "number"}},
        "in": {"$ref": "#/definitions/In"},
        "other": {"$ref": "other.json"},
    },
    "definitions": {
        "In": {
            "type": ["object", "null"],
            "properties": {"a": {"type": "boolean", "description": "why"}},
            "required": ["a"],
        }
    },
    "required": ["id", "name", "in"],
}


def test_json_behind_a_header_takes_the_registrys_schema(server):
    server.register("other", {"enum": ["x", "y"]}, "JSON")
    number = server.register(
        "v-orders", JSON_SCHEMA, "JSON", [{"name": "other.json", "subject": "other", "version": 1}]
    )
    known = with_inferred_schema(
        source(server, format="confluent-json", options={"schema-registry.subject": "v-{topic}"})
    )
    assert [
        f"{part.name} {part.type}{' not null' if part.required else ''}" for part in known.table_schema.fields
    ] == [
        "id long not null",
        "name string",
        "at timestamptz",
        "small int",
        "price decimal(38, 2)",
        "tags list<string>",
        "more map<string, double>",
        "in struct<13: a: required boolean>",
        "other string",
    ]
    value = {
        "id": 1,
        "at": "2024-05-01T12:00:00Z",
        "tags": ["a"],
        "more": {"k": 1.5},
        "in": {"a": True},
        "other": "x",
        "price": 1.25,
    }
    rows = decoder(known).decode(raw(framed(number, json.dumps(value).encode()))).rows.to_pylist()
    assert (rows[0]["id"], rows[0]["name"], rows[0]["more"], rows[0]["in"]) == (
        1,
        None,
        [("k", 1.5)],
        {"a": True},
    )
    assert decoder(known).decode(raw(None)).rows.num_rows == 0
    with pytest.raises(DecodeError, match="orders-3 offset 101: 'id' is long, but found text") as raised:
        decoder(known).decode(raw(framed(number, json.dumps(value).encode()), framed(number, b'{"id": "x"}')))
    documented("decode-error", raised.value)
    with pytest.raises(DecodeError, match="orders-3 offset 100: it begins with the byte 123"):
        decoder(known).decode(raw(json.dumps(value).encode()))


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        ("nonsense", InvalidOptionError, "t is not a JSON schema"),
        ({"type": "array", "items": {"type": "string"}}, FeatureUnsupportedError, "not an object"),
        ({"type": "object"}, FeatureUnsupportedError, "an object of which nothing is known"),
        (
            {"properties": {"a": {"type": ["string", "integer"]}}},
            FeatureUnsupportedError,
            "'a' is string or integer",
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}},
            FeatureUnsupportedError,
            "'a' can be one of several",
        ),
        ({"properties": {"a": {"$ref": "#/nope"}}}, InvalidOptionError, "'#/nope' leads to nothing"),
        ({"properties": {"a": {"$ref": "#"}}}, FeatureUnsupportedError, "holds itself"),
        ({"properties": {"a": {}}}, FeatureUnsupportedError, "'a' has no type of its own"),
    ],
)
def test_a_json_schema_that_is_no_table_is_refused(schema, error, message):
    with pytest.raises(error) as raised:
        schema_from_json_schema(schema if isinstance(schema, str) else json.dumps(schema), "t")
    assert message in str(raised.value)


def test_the_tables_schema_comes_from_the_registry(server):
    server.register("orders-value", FIRST)
    server.register("orders-value", SECOND)
    known = with_inferred_schema(source(server, format="confluent-avro", include="key"))
    assert [part.name for part in known.table_schema.fields] == ["extra", "id", "title", "key"]
    server.register("same-value", SECOND)
    assert (
        with_inferred_schema(source(server, format="confluent-avro", topics="orders,same")).schema
        == known.schema
    )
    server.register("another-value", FIRST)
    with pytest.raises(SchemaMismatchError, match="the topics orders and another have different schemas"):
        with_inferred_schema(source(server, format="confluent-avro", topics="orders,another"))
    with pytest.raises(InvalidOptionError, match=r"subject none-value .* set schema-registry\.subject"):
        with_inferred_schema(source(server, format="confluent-avro", topics="none"))


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("avro", {}, "needs the option avro.schema"),
        ("avro", {"avro.schema": "{"}, "the option avro.schema is not an Avro schema"),
        ("avro", {"avro.scheme": "{}"}, "did you mean 'avro.schema'"),
        ("confluent-avro", {}, "schema-registry.url is missing"),
        (
            "confluent-avro",
            {"schema-registry.url": "http://h", "json.unknown-fields": "fail"},
            "unknown option 'json.unknown-fields'",
        ),
        ("json", {"avro.schema": "{}"}, "unknown option 'avro.schema'"),
        ("raw", {"avro.schema": "{}"}, "unknown option 'avro.schema'"),
    ],
)
def test_options_belong_to_their_format(format, options, message):
    given = source(format=format, options=options, schema=None if format == "raw" else "id long")
    with pytest.raises(InvalidOptionError) as raised:
        decoder(given)
    assert message in str(raised.value)


def test_credentials_of_the_registry_are_not_shown():
    options = {
        "schema-registry.url": "http://me:word@h",
        "schema-registry.basic-auth": "me:word",
        "schema-registry.bearer-token": "word",
    }
    shown = repr(source(format="confluent-avro", options=options))
    assert "http://***@h" in shown
    assert "word" not in shown


PIPELINE = """
source: {{kafka: {{bootstrap-servers: h:1, topics: orders, format: avro, options: {{avro.schema-file: {path}{more}}}}}}}
sink: {{table: /t}}
checkpoint: /c
"""


def test_a_pipeline_file_reads_the_schema_from_a_file(tmp_path):
    path = tmp_path / "orders.avsc"
    path.write_text(json.dumps(FIRST))
    pipeline = parse_pipeline(PIPELINE.format(path=path, more=""), "p.yaml")
    assert pipeline.source.format == "avro"
    assert pipeline.source.options == {"avro.schema": json.dumps(FIRST)}
    with pytest.raises(
        InvalidOptionError,
        match=r"p\.yaml: source\.kafka\.options\.avro\.schema-file .* cannot be read: No such file",
    ):
        parse_pipeline(PIPELINE.format(path=tmp_path / "none", more=""), "p.yaml")
    with pytest.raises(InvalidOptionError, match="both given"):
        parse_pipeline(PIPELINE.format(path=path, more=", avro.schema: x"), "p.yaml")
