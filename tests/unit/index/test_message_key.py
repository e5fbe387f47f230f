"""Message keys as producers write them, found out from samples and made of rows."""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from streamlake.errors import IndexDamagedError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.index.keys.key_columns import key_column
from streamlake.index.message_key import KeyPart, MessageKey
from streamlake.index.message_key_guess import guessed_message_key
from streamlake.spec.types.data_types import (
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

ID = (NestedField(1, "id", LongType()),)
SMALL = (NestedField(1, "id", IntegerType()),)
NAME = (NestedField(1, "name", StringType()),)
TAG = (NestedField(1, "tag", UUIDType()),)
PAIR = (NestedField(1, "tenant", StringType()), NestedField(2, "id", LongType()))
LONGS = [(number,) for number in (0, 1, -1, 63, 64, 255, 8_192, 1_000_000, 2**40, -(2**63), 2**63 - 1)]
INTS = [(number,) for number in (0, 1, -1, 255, 8_192, 1_000_000, -(2**31), 2**31 - 1)]
NAMES = [(text,) for text in ("", "a", "Zoë", 'say "no"', "a\\b", "tab\tnew\nline\x1f", "x" * 100, "\x7f/")]
TAGS = [(uuid.UUID(int=number),) for number in (0, 1, 2**127 + 99, 0xABCDEF0123456789 << 60)]
PAIRS = [(name, number) for (name,), (number,) in zip(NAMES, LONGS, strict=False)]
SCHEMA = b'{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"}],"payload":false},"payload":'


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("\\u001f", "\\u001F").encode()


def avro(types, row):
    fields = [{"name": f"c{at}", "type": type_} for at, type_ in enumerate(types)]
    out = io.BytesIO()
    schema = fastavro.parse_schema({"type": "record", "name": "key", "fields": fields})
    fastavro.schemaless_writer(out, schema, {f"c{at}": value for at, value in enumerate(row)})
    return b"\x00\x00\x00\x00\x07" + out.getvalue()


WAYS = {
    "text of a long": (ID, LONGS, lambda row: str(row[0]).encode()),
    "text of an int": (SMALL, INTS, lambda row: str(row[0]).encode()),
    "text": (NAME, [("a",), ("Zoë",), ("x" * 100,)], lambda row: row[0].encode()),
    "text of a uuid": (TAG, TAGS, lambda row: str(row[0]).encode()),
    "LongSerializer": (ID, LONGS, lambda row: struct.pack(">q", row[0])),
    "LongSerializer into int": (SMALL, INTS, lambda row: struct.pack(">q", row[0])),
    "IntegerSerializer": (SMALL, INTS, lambda row: struct.pack(">i", row[0])),
    "IntegerSerializer into long": (ID, INTS, lambda row: struct.pack(">i", row[0])),
    "Debezium": (ID, LONGS, lambda row: compact({"id": row[0]})),
    "Debezium, two columns": (PAIR, PAIRS, lambda row: compact({"tenant": row[0], "id": row[1]})),
    "Debezium, another order": (PAIR, PAIRS, lambda row: compact({"id": row[1], "tenant": row[0]})),
    "Debezium, uuid": (TAG, TAGS, lambda row: compact({"tag": str(row[0])})),
    "Debezium with schemas": (ID, LONGS, lambda row: SCHEMA + compact({"id": row[0]}) + b"}"),
    "Connect, one value with schema": (ID, LONGS, lambda row: SCHEMA + compact(row[0]) + b"}"),
    "Python's JSON": (
        PAIR,
        PAIRS[:3],
        lambda row: json.dumps({"tenant": row[0], "id": row[1]}, ensure_ascii=False).encode(),
    ),
    "Connect, one text": (NAME, NAMES, lambda row: compact(row[0])),
    "Confluent JSON": (ID, LONGS, lambda row: b"\x00\x00\x00\x00\x09" + compact({"id": row[0]})),
    "Confluent Avro": (ID, LONGS, lambda row: avro(["long"], row)),
    "Confluent Avro, text": (NAME, NAMES, lambda row: avro(["string"], row)),
    "Confluent Avro, uuid": (TAG, TAGS, lambda row: avro(["string"], (str(row[0]),))),
    "Confluent Avro, two columns": (PAIR, PAIRS, lambda row: avro(["string", "long"], row)),
    "Confluent Avro, optional": (PAIR, PAIRS, lambda row: avro([["null", "string"], ["null", "long"]], row)),
}


def columns(fields, rows):
    return [
        key_column(
            part.type,
            pa.array(
                [row[at].bytes if isinstance(row[at], uuid.UUID) else row[at] for row in rows],
                arrow_type(part.type),
            ),
        )
        for at, part in enumerate(fields)
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_a_way_is_found_and_gives_every_key(way, partitioner):
    fields, rows, written = WAYS[way]
    keys = [written(row) for row in rows]
    number = zlib.crc32 if partitioner == "crc32" else lambda key: reference(key) & 0x7FFFFFFF
    samples = [(key, number(key) % 12) for key in keys]
    found = guessed_message_key(samples[:6], fields, 12, framed="Avro" in way)
    assert found is not None
    assert found.partitioner == partitioner
    assert found.bytes(columns(fields, rows)).to_pylist() == keys
    assert found.numbers(columns(fields, rows)).tolist() == [number(key) for key in keys]
    assert MessageKey.from_text(found.to_text()) == found


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        (ID, b'{"id" :5}'),
        (ID, b'{ "id": 5}'),
        (ID, b'{"id":"5"}'),
        (ID, b'{"id":5,"at":1}'),
        (ID, b'{"key":5}'),
        (ID, b"005"),
        (ID, b"5.0"),
        (ID, b'{"id":5.0}'),
        (ID, b'{"id":true}'),
        (ID, b""),
        (ID, b"\xff\xfe\xfd"),
        (ID, b"99999999999999999999"),
        (SMALL, struct.pack(">q", 2**40)),
        (SMALL, b"4294967296"),
        (NAME, b"\xff"),
        (TAG, b"0-1-2"),
        (TAG, b"ABCDEF01-2345-6789-0000-000000000000"),
        (PAIR, b"a/5"),
        (PAIR, b'"a"'),
        (PAIR, b"\x00\x00\x00\x00\x07\x02a"),
        ((NestedField(1, "id", DoubleType()),), b"5"),
    ],
)
def test_other_keys_are_of_no_known_way(fields, key):
    assert guessed_message_key([(key, 0)], fields, 1, framed=True) is None


def test_keys_of_several_ways_or_other_partitions_are_refused():
    good = [
        (str(number).encode(), (reference(str(number).encode()) & 0x7FFFFFFF) % 4) for number in range(20)
    ]
    assert guessed_message_key(good, ID, 4, framed=False) is not None
    assert guessed_message_key([*good, (b'{"id":1}', 0)], ID, 4, framed=False) is None
    assert (
        guessed_message_key([*good, (b"77", (reference(b"77") & 0x7FFFFFFF) + 1)], ID, 4, framed=False)
        is None
    )
    assert guessed_message_key([], ID, 4, framed=False) is None


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.none() | st.text(max_size=8), st.none() | st.integers(-(2**63), 2**63 - 1)))
)
def test_json_of_anything(rows):
    parts = (
        KeyPart(b'{"tenant":'),
        KeyPart(column=0, form="json"),
        KeyPart(b',"id":'),
        KeyPart(column=1, form="json"),
        KeyPart(b"}"),
    )
    made = MessageKey("murmur2", parts).bytes(columns(PAIR, rows)).to_pylist()
    assert [json.loads(key) for key in made] == [{"tenant": name, "id": number} for name, number in rows]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"partitioner":"x","parts":[]}', '{"partitioner":"murmur2","parts":[{}]}']
)
def test_texts_that_say_nothing(text):
    with pytest.raises(IndexDamagedError):
        MessageKey.from_text(text)
