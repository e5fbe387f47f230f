"""Avro values to columns, against fastavro: random schemas and values, resolution, damaged and uneven records."""

from __future__ import annotations

import json
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from io import BytesIO
from itertools import count

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.decode.avro import avro_decoder
from streamlake.decode.avro.avro_decoder import AvroDecoder
from streamlake.decode.avro.avro_schema import parse_avro_schema
from streamlake.decode.avro.avro_types import schema_from_avro
from streamlake.errors import DecodeError, FeatureUnsupportedError, InvalidOptionError, SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.ddl import parse_ddl


def failure(at, reason):
    return DecodeError(f"{at}: {reason}")


def record(*fields, **more):
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(name, type_, **more):
    return {"name": name, "type": type_, **more}


def parsed(schema):
    return parse_avro_schema(json.dumps(schema), "the schema of t")


def written(schema, *rows):
    known = fastavro.parse_schema(schema)
    values = []
    for row in rows:
        out = BytesIO()
        fastavro.schemaless_writer(out, known, row)
        values.append(out.getvalue())
    return pa.array(values, pa.binary())


def decoded(schema, values, columns=None, reader=None):
    """Rows as dicts."""
    writer = parsed(schema)
    into = schema_from_avro(writer, "t") if columns is None else parse_ddl(columns)
    decoder = AvroDecoder(into, writer, None if reader is None else parsed(reader))
    arrays = decoder.decode(values, failure)
    for array, part in zip(arrays, into.fields, strict=True):
        array.validate(full=True)
        assert array.type.equals(arrow_type(part.type))
    return [
        dict(zip(into.column_names, row, strict=True))
        for row in zip(*(a.to_pylist() for a in arrays), strict=True)
    ]


# --- random schemas -----------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))


def leaf_types(name):
    """(schema, values) of types without parts; `name` makes names."""

    def decimals(precision, scale):
        top = 10**precision - 1
        return st.integers(-top, top).map(lambda number: Decimal(number).scaleb(-scale))

    def decimal_type(schema, precision, scale):
        return {**schema, "logicalType": "decimal", "precision": precision, "scale": scale}, decimals(
            precision, scale
        )

    def logical(kind, logical_type, values):
        return st.just(({"type": kind, "logicalType": logical_type}, values))

    digits = st.tuples(st.integers(1, 28), st.integers(0, 5)).map(lambda pair: (max(pair), pair[1]))
    return st.one_of(
        st.just(("boolean", st.booleans())),
        st.just(("int", st.integers(-(2**31), 2**31 - 1))),
        st.just(("long", st.integers(-(2**63), 2**63 - 1))),
        st.just(("float", st.floats(width=32, allow_nan=False))),
        st.just(("double", st.floats(allow_nan=False))),
        st.just(("string", st.text(max_size=200))),
        st.just(("bytes", st.binary(max_size=20))),
        st.builds(
            lambda size: (
                {"type": "fixed", "name": name(), "size": size},
                st.binary(min_size=size, max_size=size),
            ),
            st.integers(1, 20),
        ),
        st.builds(
            lambda: ({"type": "enum", "name": name(), "symbols": ["A", "B", "C"]}, st.sampled_from("ABC"))
        ),
        digits.map(lambda pair: decimal_type({"type": "bytes"}, *pair)),
        digits.map(lambda pair: decimal_type({"type": "fixed", "name": name(), "size": 14}, *pair)),
        logical("string", "uuid", st.uuids()),
        logical("int", "date", st.dates()),
        logical("int", "time-millis", st.times()),
        logical("long", "time-micros", st.times()),
        logical("long", "timestamp-millis", MOMENTS.map(lambda at: at.replace(tzinfo=timezone.utc))),
        logical("long", "timestamp-micros", MOMENTS.map(lambda at: at.replace(tzinfo=timezone.utc))),
        logical("long", "local-timestamp-millis", MOMENTS),
        logical("long", "local-timestamp-micros", MOMENTS),
    )


def avro_types(name):
    def optional(pair, null_first):
        schema, values = pair
        return ["null", schema] if null_first else [schema, "null"], st.none() | values

    def with_parts(inner):
        item = st.one_of(inner, st.builds(optional, inner, st.booleans()))

        def structure(parts):
            fields = [field(f"part_{at}", schema) for at, (schema, _) in enumerate(parts)]
            made = {"type": "record", "name": name(), "fields": fields}
            return made, st.fixed_dictionaries({f"part_{at}": values for at, (_, values) in enumerate(parts)})

        return st.one_of(
            item.map(lambda pair: ({"type": "array", "items": pair[0]}, st.lists(pair[1], max_size=5))),
            item.map(
                lambda pair: (
                    {"type": "map", "values": pair[0]},
                    st.dictionaries(st.text(max_size=5), pair[1], max_size=4),
                )
            ),
            st.lists(item, min_size=1, max_size=4).map(structure),
        )

    tree = st.recursive(leaf_types(name), with_parts, max_leaves=6)
    return st.one_of(tree, st.builds(optional, tree, st.booleans()))


@st.composite
def written_records(draw):
    numbers = count()
    columns = draw(st.lists(avro_types(lambda: f"N{next(numbers)}"), min_size=1, max_size=5))
    schema = record(*(field(f"c{at}", type_) for at, (type_, _) in enumerate(columns)))
    row = st.fixed_dictionaries({f"c{at}": values for at, (_, values) in enumerate(columns)})
    return schema, draw(st.lists(row, max_size=12))


def plain(value):
    """A value of fastavro's as Arrow's `to_pylist` shows it."""
    if isinstance(value, dict) and value and all(key.startswith("part_") for key in value):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.bytes if isinstance(value, uuid.UUID) else value


@given(written_records())
@settings(max_examples=20, deadline=None)
def test_whatever_fastavro_writes_is_read_as_fastavro_reads_it(case):
    schema, rows = case
    values = written(schema, *rows)
    known = fastavro.parse_schema(schema)
    expected = [fastavro.schemaless_reader(BytesIO(value), known, None) for value in values.to_pylist()]
    found = decoded(schema, values)
    assert found == [{key: plain(item) for key, item in row.items()} for row in expected]


@given(written_records(), st.data())
@settings(max_examples=8, deadline=None)
def test_columns_that_the_table_lacks_are_skipped(case, data):
    schema, rows = case
    kept = data.draw(st.sets(st.sampled_from([part["name"] for part in schema["fields"]]), min_size=1))
    values = written(schema, *rows)
    writer = parsed(schema)
    whole = schema_from_avro(writer, "t")
    some = whole.select(kept)
    arrays = AvroDecoder(some, writer).decode(values, failure)
    everything = dict(
        zip(whole.column_names, AvroDecoder(whole, writer).decode(values, failure), strict=True)
    )
    for array, name in zip(arrays, some.column_names, strict=True):
        assert array.equals(everything[name])


@given(written_records(), st.data())
@settings(max_examples=20, deadline=None)
def test_damaged_bytes_are_an_error_of_their_record_or_another_value_and_never_more(case, data):
    schema, rows = case
    values = written(schema, *rows).to_pylist()
    if not values:
        return
    at = data.draw(st.integers(0, len(values) - 1))
    if not values[at]:
        return
    broken = bytearray(values[at])
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    values[at] = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    good = decoded(schema, written(schema, *rows))
    try:
        found = decoded(schema, pa.array(values, pa.binary()))
    except DecodeError as error:
        found, named = None, str(error)
    if found is None:
        assert named.startswith(f"{at}: ")
    else:
        assert found[:at] + found[at + 1 :] == good[:at] + good[at + 1 :]


@pytest.mark.parametrize("bits", [5, 7, 12, 14, 20, 40, 57, 63])
def test_numbers_of_every_length_are_read(bits):
    top = (1 << bits) - 1
    numbers = sorted(
        {sign * (top >> shift) - below for shift in range(bits) for sign in (1, -1) for below in (0, 1)}
    )
    numbers = [number for number in numbers if number >= -(1 << 63)]
    schema = record(field("x", "long"), field("y", {"type": "array", "items": "long"}))
    rows = [{"x": number, "y": numbers[at:]} for at, number in enumerate(numbers)]
    assert decoded(schema, written(schema, *rows)) == rows


# --- schemas ------------------------------------------------------------------------------------------------------


def test_a_schema_becomes_columns():
    inner = {
        "type": "record",
        "name": "Inner",
        "namespace": "a.b",
        "fields": [field("x", "int"), field("again", ["null", "Colour"])],
    }
    schema = record(
        field("id", "long", doc="the key"),
        field("name", ["null", "string"], default=None),
        field("late", ["string", "null"]),
        field("colour", {"type": "enum", "name": "a.b.Colour", "symbols": ["RED"]}),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
        field("uid", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
        field("wait", {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}),
        field("at", {"type": "long", "logicalType": "timestamp-nanos"}),
        field("here", {"type": "long", "logicalType": "local-timestamp-nanos"}),
        field("iceberg", {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}),
        field("nested", ["null", inner]),
        field("list", {"type": "array", "items": ["null", "a.b.Inner"]}),
        field("map", {"type": "map", "values": "double"}),
        field("number", ["null", "int", "long"]),
        field("choice", ["null", "string", "long"]),
    )
    made = schema_from_avro(parsed(schema), "t")
    assert [f"{part.name} {part.type}{' not null' if part.required else ''}" for part in made.fields] == [
        "id long not null",
        "name string",
        "late string",
        "colour string not null",
        "price decimal(10, 2) not null",
        "uid uuid not null",
        "wait fixed[12] not null",
        "at timestamptz_ns not null",
        "here timestamp_ns not null",
        "iceberg timestamp not null",
        "nested struct<16: x: required int, 17: again: optional string>",
        "list list<struct<19: x: required int, 20: again: optional string>> not null",
        "map map<string, double> not null",
        "number long",
        "choice struct<23: member0: optional string, 24: member1: optional long>",
    ]
    assert made.find("id").doc == "the key"


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        (record(field("next", ["null", "R"])), FeatureUnsupportedError, "R holds itself"),
        (record(field("x", "Unknown")), InvalidOptionError, "'Unknown' is not defined"),
        (record(field("x", "int"), field("x", "int")), InvalidOptionError, "two fields of the same name"),
        ({"type": "record", "name": "R"}, InvalidOptionError, "lacks 'fields'"),
        (record(field("x", [["null"], "int"])), InvalidOptionError, "holds a union"),
        ("long", FeatureUnsupportedError, "the schema is long, not a record"),
        (record(field("x", "null")), FeatureUnsupportedError, "'x' is always null"),
        (
            record(field("x", {"type": "bytes", "logicalType": "decimal", "precision": 60})),
            FeatureUnsupportedError,
            "'x' is decimal(60, 0), but a table's decimals have 1 to 38 digits",
        ),
    ],
)
def test_what_no_table_can_hold_is_refused(schema, error, message):
    with pytest.raises(error) as raised:
        schema_from_avro(parsed(schema), "the schema of t")
    assert message in str(raised.value)
    assert "the schema of t" in str(raised.value)


# --- resolution ---------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_and_others_are_null():
    schema = record(
        field("skipped", {"type": "map", "values": {"type": "array", "items": ["null", "string", "long"]}}),
        field("id", "int"),
        field("name", "string"),
    )
    values = written(
        schema,
        {"skipped": {"a": [None, "x", 7]}, "id": 5, "name": "n"},
        {"skipped": {}, "id": 6, "name": "m"},
    )
    assert decoded(schema, values, "name string, missing array<int>, id long not null") == [
        {"name": "n", "missing": None, "id": 5},
        {"name": "m", "missing": None, "id": 6},
    ]


def test_a_readers_schema_gives_aliases_defaults_and_symbols():
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED", "PUCE"]}
    schema = record(
        field("old", "string"), field("colour", colour), field("in", record(field("a", "int"), name="In"))
    )
    known = {"type": "enum", "name": "Colour", "symbols": ["RED", "OTHER"], "default": "OTHER"}
    inner = record(field("b", "long", aliases=["a"]), field("c", "double", default=1.5), name="In")
    reader = record(
        field("new", "string", aliases=["older", "old"]),
        field("colour", known),
        field("in", inner),
        field("text", ["string", "null"], default="none"),
        field("raw", "bytes", default="\u00ff"),
        field(
            "price",
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            default="\u0001\u0000",
        ),
        field("list", {"type": "array", "items": "int"}, default=[1, 2]),
        field("map", {"type": "map", "values": "int"}, default={"k": 3}),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}, default=1000),
    )
    values = written(
        schema, {"old": "x", "colour": "PUCE", "in": {"a": 4}}, {"old": "y", "colour": "RED", "in": {"a": 5}}
    )
    columns = (
        "new string not null, colour string, in struct<b: long, c: double>, text string not null, raw binary, price decimal(4, 2), "
        "list array<int>, map map<string, int>, at timestamptz, other int"
    )
    rest = {
        "text": "none",
        "raw": b"\xff",
        "price": Decimal("2.56"),
        "list": [1, 2],
        "map": [("k", 3)],
        "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc),
        "other": None,
    }
    assert decoded(schema, values, columns, reader) == [
        {"new": "x", "colour": "OTHER", "in": {"b": 4, "c": 1.5}, **rest},
        {"new": "y", "colour": "RED", "in": {"b": 5, "c": 1.5}, **rest},
    ]


UTC = timezone.utc


@pytest.mark.parametrize(
    ("type_", "value", "column", "expected"),
    [
        ("int", 7, "long", 7),
        ("long", 7, "int", 7),
        ("int", 7, "double", 7.0),
        ("long", 7, "decimal(10, 2)", Decimal("7.00")),
        ("float", 0.5, "double", 0.5),
        ("string", "é", "binary", "é".encode()),
        ("bytes", "é".encode(), "string", "é"),
        ("bytes", b"1234", "fixed[4]", b"1234"),
        (
            "string",
            "f79c3e09-677c-4bbd-a479-3f349cb785e7",
            "uuid",
            uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes,
        ),
        ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=5), "string", str(uuid.UUID(int=5))),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", "binary", b"abc"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            Decimal("1.20"),
            "decimal(9, 1)",
            Decimal("1.2"),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2},
            Decimal("-1.20"),
            "decimal(38, 2)",
            Decimal("-1.20"),
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2024, 1, 1, tzinfo=UTC),
            "timestamp_ntz",
            datetime(2024, 1, 1),
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "long",
            1000,
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            1_000,
            "timestamptz",
            datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ),
        ({"type": "int", "logicalType": "date"}, date(2024, 1, 1), "date", date(2024, 1, 1)),
        ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3, 4), "time", time(1, 2, 3, 4)),
        (["null", "int", "long"], 7, "long", 7),
        (["null", "float", "double"], 7.5, "double", 7.5),
    ],
)
def test_values_become_those_of_the_column_without_loss(type_, value, column, expected):
    schema = record(field("x", type_))
    assert decoded(schema, written(schema, {"x": value}), f"x {column}") == [{"x": expected}]


@pytest.mark.parametrize(
    ("type_", "value", "column", "problem"),
    [
        ("long", 1 << 40, "int", "it does not fit int"),
        ("long", (1 << 53) + 1, "double", "it does not fit double exactly"),
        ("bytes", b"\xff", "string", "it is not UTF-8 text"),
        ("bytes", b"123", "fixed[4]", "it is not 4 bytes long"),
        ("string", "nope", "uuid", "a uuid looks like"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            Decimal("1.23"),
            "decimal(9, 1)",
            "does not fit decimal(9, 1) exactly",
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            1_001,
            "timestamptz",
            "finer than the column's unit",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2500, 1, 1, tzinfo=UTC),
            "timestamptz_ns",
            "outside of what the column can hold",
        ),
        (["null", "int"], None, "int not null", "it is required, but null"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_of_its_record(type_, value, column, problem):
    schema = record(field("ok", "long"), field("x", type_))
    with pytest.raises(DecodeError) as raised:
        decoded(schema, written(schema, {"ok": 1, "x": value}), f"x {column}")
    assert str(raised.value).startswith("0: 'x': ")
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("string", "int"),
        ("double", "float"),
        ("long", "timestamptz"),
        ("int", "date"),
        (record(field("a", "int"), name="In"), "string"),
        ({"type": "array", "items": "string"}, "array<int>"),
        ({"type": "map", "values": "int"}, "map<int, int>"),
        (["null", "string", "long"], "string"),
    ],
)
def test_a_column_of_another_kind_is_refused_before_any_record(type_, column):
    with pytest.raises(SchemaMismatchError, match="the Avro schema: 'x"):
        AvroDecoder(parse_ddl(f"x {column}"), parsed(record(field("x", type_))))


def test_a_required_column_that_is_not_written_is_an_error_of_each_record():
    schema = record(field("x", "int"))
    with pytest.raises(DecodeError, match="'id' is required, but the writer's schema does not have it"):
        decoded(schema, written(schema, {"x": 1}), "x int, id int not null")
    assert decoded(schema, written(schema), "x int, id int not null") == []


def test_unions_of_several_types_are_structs_of_members():
    inner = record(field("a", "int"), name="In")
    schema = record(field("x", ["string", "null", "long", inner]))
    rows = [{"x": "s"}, {"x": None}, {"x": 5}, {"x": {"a": 1}}, {"x": 6}]
    assert [row["x"] for row in decoded(schema, written(schema, *rows))] == [
        {"member0": "s", "member1": None, "member2": None},
        None,
        {"member0": None, "member1": 5, "member2": None},
        {"member0": None, "member1": None, "member2": {"a": 1}},
        {"member0": None, "member1": 6, "member2": None},
    ]


# --- damage and size ----------------------------------------------------------------------------------------------


def test_bytes_that_are_left_and_bytes_that_lack_are_told():
    schema = record(field("id", "long"), field("name", "string"))
    values = written(schema, *({"id": at, "name": f"n{at}"} for at in range(100))).to_pylist()
    longer, shorter = list(values), list(values)
    longer[70] += b"\x00\x00"
    shorter[99] = shorter[99][:-1]
    with pytest.raises(
        DecodeError, match="70: 2 bytes are left after its last field, so it was written with another schema"
    ):
        decoded(schema, pa.array(longer))
    with pytest.raises(DecodeError, match=r"99: .*it ends before its last field"):
        decoded(schema, pa.array(shorter))


@pytest.mark.parametrize(
    "items",
    ["string", "long", "double", record(field("a", "int"), field("b", ["null", "string"]), name="In")],
)
def test_a_record_with_very_many_items_among_others(items):
    schema = record(field("id", "long"), field("x", {"type": "array", "items": items}))

    def item(at):
        return (
            {"a": at, "b": "b" * (at % 3) or None}
            if isinstance(items, dict)
            else str(at)
            if items == "string"
            else at
        )

    rows = [
        {"id": at, "x": [item(part) for part in range(5_000 if at == 37 else at % 4)]} for at in range(60)
    ]
    assert decoded(schema, written(schema, *rows)) == rows


def test_blocks_with_their_size_are_read():
    # Three blocks: 2 items, then -1 with its size, then the end.
    value = b"\x04\x02\x04" + b"\x01\x02\x06" + b"\x00"
    assert decoded(record(field("x", {"type": "array", "items": "long"})), pa.array([value])) == [
        {"x": [1, 2, 3]}
    ]


def test_an_absurd_number_of_items_makes_nothing_large():
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    for items in ("long", "null"):
        with pytest.raises(DecodeError, match="items, more than the rest of the record can hold"):
            decoded(
                record(
                    field(
                        "x",
                        {"type": "array", "items": ["null", items]}
                        if items == "long"
                        else {"type": "array", "items": record(name="E")},
                    )
                ),
                pa.array([huge]),
            )


def test_slices_and_many_blocks_are_decoded_like_one(monkeypatch):
    schema = record(field("id", "long"), field("name", ["null", "string"]))
    rows = [{"id": at, "name": None if at % 3 else f"n{at}"} for at in range(1_000)]
    values = written(schema, *rows)
    monkeypatch.setattr(avro_decoder, "_BLOCK_BYTES", 700)
    monkeypatch.setattr(avro_decoder, "_BLOCK_ROWS", 90)
    assert decoded(schema, values.slice(100, 800)) == rows[100:900]
    assert decoded(schema, values.slice(0, 0)) == []


def test_times_are_within_a_day():
    schema = record(field("x", {"type": "int", "logicalType": "time-millis"}))
    good = int(timedelta(hours=23, minutes=59, seconds=59, milliseconds=999) / timedelta(milliseconds=1))
    plain_schema = record(field("x", "int"))
    assert decoded(schema, written(plain_schema, {"x": good})) == [{"x": time(23, 59, 59, 999_000)}]
    with pytest.raises(DecodeError, match="no time of a day"):
        decoded(schema, written(plain_schema, {"x": good + 1}))
