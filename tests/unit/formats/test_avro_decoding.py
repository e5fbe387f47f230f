"""Avro bytes that other writers may produce, and bytes that nobody should."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.formats.avro_decoding import Layout, decode_records, decoder_of
from streamlake.formats.avro_encoding import encode_long

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


def record(*types: Any, **named: Any) -> dict[str, Any]:
    """A record with the fields f0, f1, ... of ids 0, 1, ..., then named ones without an id."""
    fields = [{"name": f"f{at}", "type": type_, "field-id": at} for at, type_ in enumerate(types)]
    fields += [{"name": name, "type": type_} for name, type_ in named.items()]
    return {"type": "record", "name": "r", "fields": fields}


def all_of(schema: dict[str, Any]) -> Layout:
    names = {part["name"]: at for at, part in enumerate(schema["fields"])}
    return Layout(len(names), {at: (at, None) for at in names.values()}, names)


def written(schema: dict[str, Any], values: list[Any]) -> bytes:
    stream = io.BytesIO()
    row = {part["name"]: value for part, value in zip(schema["fields"], values, strict=True)}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def pairs(values: dict[int, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]


@given(
    st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)),
    st.dictionaries(st.integers(0, 300), st.binary(max_size=200)),
    st.text(),
    st.lists(st.integers(-(2**40), 2**40)),
)
def test_what_fastavro_writes(
    counts: dict[int, int], bounds: dict[int, bytes], text: str, numbers: list[int]
) -> None:
    schema = record(
        ["null", COUNTS],
        BOUNDS,
        "string",
        {"type": "array", "items": "long"},
        "boolean",
        last=["string", "null"],
    )
    data = written(schema, [pairs(counts), pairs(bounds), text, numbers, True, None])
    decode = decoder_of(schema, all_of(schema))
    assert decode_records(decode, data * 3, 3) == [[counts, bounds, text, numbers, True, None]] * 3
    for cut in range(0, len(data), max(1, len(data) // 20)):
        with pytest.raises((ValueError, IndexError)):
            decode_records(decode, data[:cut], 1)


@given(
    st.dictionaries(st.integers(0, 300), st.integers(0, 2**62)),
    st.dictionaries(st.integers(0, 9), st.binary()),
)
def test_what_is_not_wanted_is_passed_over(counts: dict[int, int], bounds: dict[int, bytes]) -> None:
    schema = record(
        ["null", COUNTS], ["null", BOUNDS], {"type": "array", "items": "k1_v2"}, ["null", "string"], "long"
    )
    data = written(schema, [pairs(counts), pairs(bounds), pairs(counts), None, 5])
    decode = decoder_of(schema, Layout(2, {4: (1, None), 99: (0, None)}, {}))
    assert decode_records(decode, data + data, 2) == [[None, 5], [None, 5]]


def test_blocks_that_give_their_size() -> None:
    """A negative count is followed by the block's size in bytes, and a map may come in several blocks."""
    body = encode_long(1) + encode_long(1000)
    data = (
        encode_long(-1)
        + encode_long(len(body))
        + body
        + encode_long(1)
        + encode_long(2)
        + encode_long(7)
        + b"\0"
    )
    for layout, expected in ((Layout(1, {0: (0, None)}, {}), {1: 1000, 2: 7}), (Layout(1, {}, {}), None)):
        schema = record(COUNTS)
        assert decode_records(decoder_of(schema, layout), data, 1) == [[expected]]
    bound = encode_long(-1) + encode_long(3) + encode_long(1) + encode_long(1) + b"x" + b"\0"
    schema = record(BOUNDS)
    assert decode_records(decoder_of(schema, all_of(schema)), bound, 1) == [[{1: b"x"}]]


def test_named_types_enums_maps_and_fixed() -> None:
    fixed = {"type": "fixed", "name": "ns.id", "size": 16, "logicalType": "uuid"}
    schema = record(
        fixed,
        ["null", "ns.id"],
        {"type": "enum", "name": "e", "symbols": ["a", "b"]},
        {"type": "map", "values": "double"},
        "float",
        "null",
        {"type": "long"},
    )
    data = written(schema, [b"\1" * 16, b"\2" * 16, "b", {"k": 1.5}, 0.5, None, -9])
    (found,) = decode_records(decoder_of(schema, all_of(schema)), data, 1)
    assert found == [UUID(bytes=b"\1" * 16), UUID(bytes=b"\2" * 16), "b", {"k": 1.5}, 0.5, None, -9]


@pytest.mark.parametrize(
    "data",
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
def test_nonsense_ends_in_an_error(data: bytes, wanted: bool, values: dict[str, Any]) -> None:
    schema = record(["null", values])
    layout = all_of(schema) if wanted else Layout(1, {}, {})
    with pytest.raises((ValueError, IndexError)):
        decode_records(decoder_of(schema, layout), data, 1)


def test_a_negative_length_is_refused() -> None:
    schema = record("string")
    with pytest.raises(ValueError, match="past the end"):
        decode_records(decoder_of(schema, all_of(schema)), encode_long(-5) + b"abcdef", 1)


def test_more_records_than_bytes() -> None:
    schema = record("null")
    with pytest.raises(ValueError, match="cannot hold"):
        decode_records(decoder_of(schema, all_of(schema)), b"", 10**15)


def test_bytes_left_over() -> None:
    schema = record("int")
    with pytest.raises(ValueError, match="longer or shorter"):
        decode_records(decoder_of(schema, all_of(schema)), b"\x02\x02", 1)
