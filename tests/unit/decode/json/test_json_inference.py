"""Schemas from samples."""

from __future__ import annotations

import json
import logging

import pytest

from streamlake.decode.json.json_inference import infer_schema
from streamlake.errors import DecodeError


def types(*records):
    schema = infer_schema(json.dumps(record).encode() for record in records)
    return {part.name: str(part.type) for part in schema.fields}


def test_types_that_hold_the_whole_sample():
    found = types(
        {
            "b": True,
            "i": 1,
            "d": 1,
            "t": "x",
            "day": "2024-01-01",
            "at": "2024-01-01T00:00:00Z",
            "l": [1],
            "n": None,
        },
        {"i": -5, "d": 1.5, "t": "2024-01-01", "at": "2024-01-01T00:00:00.5+01:00", "l": [], "big": 2**70},
        {"local": "2024-01-01 10:00:00"},
    )
    assert found == {
        "b": "boolean",
        "i": "long",
        "d": "double",
        "t": "string",
        "day": "date",
        "at": "timestamptz",
        "l": "list<long>",
        "n": "string",
        "big": "double",
        "local": "timestamp",
    }


def test_nested_types_and_ids():
    schema = infer_schema([b'{"s":{"a":1,"l":[{"x":"u"},{"y":2}]}}', b'{"s":{"b":true}}'])
    assert sorted(schema.fields_by_id) == list(range(1, len(schema.fields_by_id) + 1))
    assert str(schema.find("s.l.element.x").type) == "string"
    assert str(schema.find("s.l.element.y").type) == "long"
    assert str(schema.find("s.b").type) == "boolean"
    assert all(part.optional for part in schema.fields_by_id.values())


def test_mixed_timestamps_stay_text():
    assert types({"a": "2024-01-01T00:00:00Z"}, {"a": "2024-01-01T00:00:00"}) == {"a": "string"}
    assert types({"a": "2024-01-01"}, {"a": "2024-01-01T00:00:00"}) == {"a": "string"}


def test_a_field_without_values_is_reported(caplog):
    with caplog.at_level(logging.WARNING):
        types({"a": None})
    assert "'a' is null in the whole sample" in caplog.text


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([b'{"a":1}', b'{"a":"x"}'], "field 'a' holds number and text"),
        ([b'{"s":{"a":1}}', b'{"s":{"a":[]}}'], "field 's.a' holds array and number"),
        ([b'{"a":{}}'], "object without fields"),
        ([b"x"], "cannot be read"),
        ([b"{}"], "without fields"),
        ([], "without fields"),
    ],
)
def test_samples_without_a_schema(records, problem):
    with pytest.raises(DecodeError, match=problem):
        infer_schema(records)
