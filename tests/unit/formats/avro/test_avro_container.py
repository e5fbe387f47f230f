"""Avro container files that other writers may produce, and bytes that nobody should."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.avro.avro_container import AvroFile, EncodedBlock, container_writer, parse_schema
from streamlake.formats.columns.format_options import AvroCompression

PAIR = {
    "type": "record",
    "name": "k1_v2",
    "fields": [
        {"name": "key", "type": "int", "field-id": 1},
        {"name": "value", "type": "long", "field-id": 2},
    ],
}
BOUND = {
    "type": "record",
    "name": "ns.k3_v4",
    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
}
COUNTS = {"type": "array", "logicalType": "map", "items": PAIR}
BOUNDS = {"type": "array", "logicalType": "map", "items": BOUND}


def record(*types: Any) -> dict[str, Any]:
    """A record with the fields f0, f1, ..."""
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"f{at}", "type": t} for at, t in enumerate(types)],
    }


def without(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**schema, "fields": [part for part in schema["fields"] if part["name"] not in names]}


def encoded(schema: dict[str, Any], values: list[Any]) -> bytes:
    stream = io.BytesIO()
    row = {part["name"]: value for part, value in zip(schema["fields"], values, strict=True)}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def long(value: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", value)
    return stream.getvalue()


def file_of(schema: dict[str, Any], *blocks: tuple[int, bytes], codec: str = "uncompressed") -> bytes:
    """A file of encoded blocks: record count and bytes."""
    sink = io.BytesIO()
    writer = container_writer(sink, schema, {"owner": "me"}, AvroCompression(codec))
    for count, payload in blocks:
        writer.write_block(EncodedBlock(count, io.BytesIO(payload)))
    return sink.getvalue()


def decoded(schema: dict[str, Any], data: bytes, reader: dict[str, Any] | None = None) -> list[list[Any]]:
    found = AvroFile(data, "some.avro").records(parse_schema(schema, reader))
    return [list(values.values()) for values in found]


def pairs(values: dict[int, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]


@given(
    st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)),
    st.dictionaries(st.integers(0, 300), st.binary(max_size=200)),
    st.text(),
    st.lists(st.integers(-(2**40), 2**40)),
    st.sampled_from(["gzip", "zstd", "snappy", "uncompressed"]),
)
def test_blocks_in_every_codec_and_every_truncation(
    counts: dict[int, int], bounds: dict[int, bytes], text: str, numbers: list[int], codec: str
) -> None:
    schema = record(
        ["null", COUNTS], BOUNDS, "string", {"type": "array", "items": "long"}, "boolean", ["string", "null"]
    )
    values = [pairs(counts), pairs(bounds), text, numbers, True, None]
    one = encoded(schema, values)
    data = file_of(schema, (3, one * 3), (1, one), codec=codec)
    assert decoded(schema, data) == [values] * 4
    header, first = (len(file_of(schema, *blocks, codec=codec)) for blocks in ((), ((3, one * 3),)))
    cuts = {*range(0, len(data), max(1, len(data) // 40)), header + 1, first + 1, len(data) - 1}
    for cut in cuts - {header, first}:
        with pytest.raises(DataInvalidError, match=r"some\.avro"):
            decoded(schema, data[:cut])


def test_a_file_that_ends_inside_a_blocks_count() -> None:
    data = file_of(record("int"), (100, b"\x02" * 100), (100, b"\x02" * 100))
    first = len(file_of(record("int"), (100, b"\x02" * 100)))
    with pytest.raises(DataInvalidError, match=f"the block at byte {first} does not decode"):
        decoded(record("int"), data[: first + 1])


@given(
    st.dictionaries(st.integers(0, 300), st.integers(0, 2**62)),
    st.dictionaries(st.integers(0, 9), st.binary()),
)
def test_what_is_not_wanted_is_passed_over(counts: dict[int, int], bounds: dict[int, bytes]) -> None:
    schema = record(
        ["null", COUNTS], ["null", BOUNDS], {"type": "array", "items": "k1_v2"}, ["null", "string"], "long"
    )
    one = encoded(schema, [pairs(counts), pairs(bounds), pairs(counts), None, 5])
    data = file_of(schema, (2, one + one))
    assert decoded(schema, data, without(schema, "f0", "f1", "f2", "f3")) == [[5], [5]]


def test_arrays_that_give_their_size() -> None:
    """A negative count is followed by the block's size in bytes, and a map may come in several blocks."""
    body = long(1) + long(1000)
    counts = long(-1) + long(len(body)) + body + long(1) + long(2) + long(7) + b"\0"
    schema = record(COUNTS, "int")
    data = file_of(schema, (1, counts + long(5)))
    assert decoded(schema, data) == [[pairs({1: 1000, 2: 7}), 5]]
    assert decoded(schema, data, without(schema, "f0")) == [[5]]
    bound = long(-1) + long(3) + long(1) + long(1) + b"x" + b"\0"
    assert decoded(record(BOUNDS), file_of(record(BOUNDS), (1, bound))) == [[pairs({1: b"x"})]]


def test_values_stay_what_is_stored() -> None:
    """No logical type is applied, so no number is out of the range of Python's dates."""
    schema = record(
        {"type": "fixed", "name": "ns.id", "size": 16, "logicalType": "uuid"},
        ["null", "ns.id"],
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "enum", "name": "e", "symbols": ["a", "b"]},
        {"type": "map", "values": "double"},
    )
    values = [b"\1" * 16, b"\2" * 16, -(2**31), 2**63 - 1, b"\1\2", "b", {"k": 1.5}]
    assert decoded(schema, file_of(schema, (1, encoded(schema, values)))) == [values]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x04",  # a branch that the union does not have
        b"\x02\x02",  # a map of one pair without the pair
        b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # more pairs than bytes
        b"\x02" + b"\xff" * 12,  # a number without end
        b"\x02\x01\x00",  # a negative count without its block
    ],
)
@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("values", [COUNTS, BOUNDS])
def test_nonsense_ends_in_an_error(payload: bytes, wanted: bool, values: dict[str, Any]) -> None:
    schema = record(["null", values], "int")
    data = file_of(schema, (1, payload))
    with pytest.raises(DataInvalidError, match=r"some\.avro"):
        decoded(schema, data, None if wanted else without(schema, "f0"))


@pytest.mark.parametrize(
    ("type_", "count", "payload"),
    [
        ("string", 1, long(-5) + b"abcdef"),
        ("string", 1, long(50) + b"abcdef"),
        ("int", 10**15, b"\x02"),
        ("int", -1, b"\x02"),
        ("int", 1, b"\x02\x02"),
        ("int", 2, b"\x02"),
        ("int", 0, b"\x02"),
        (["null", "int"], 1, b"\x02"),
    ],
)
def test_blocks_that_do_not_fit_their_records(type_: Any, count: int, payload: bytes) -> None:
    with pytest.raises(DataInvalidError, match=r"some\.avro is damaged: the block at byte"):
        decoded(record(type_), file_of(record(type_), (count, payload)))


def test_the_header() -> None:
    file = AvroFile(file_of(record("int")), "some.avro")
    assert file.metadata == {"owner": "me"}
    assert json.loads(file.schema_text) == record("int")
    assert list(file.records(parse_schema(record("int")))) == []
    for data in (
        b"",
        b"PAR1 and more",
        b"Obj\x01" + b"\xff" * 100,
        file_of(record("int")).replace(b'"int"', b'"tin"'),
    ):
        with pytest.raises(DataInvalidError, match=r"some\.avro"):
            AvroFile(data, "some.avro")
    with pytest.raises(FeatureUnsupportedError, match="lulz"):
        AvroFile(file_of(record("int")).replace(b"null", b"lulz"), "some.avro")


def test_levels_reach_the_codec() -> None:
    payload = bytes(range(200)) * 50
    schema = record("long")
    sizes = []
    for level in (0, 9):
        sink = io.BytesIO()
        writer = container_writer(sink, schema, {}, AvroCompression("gzip", level))
        writer.write_block(EncodedBlock(1, io.BytesIO(payload)))
        sizes.append(len(sink.getvalue()))
    assert sizes[0] > len(payload) > 10 * sizes[1]
