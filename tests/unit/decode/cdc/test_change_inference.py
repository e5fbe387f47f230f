"""A table for a change stream that nobody described: its columns and its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamlake.decode.cdc.change_inference import infer_changed_rows
from streamlake.errors import DecodeError


def inferred(format: str, *records: tuple[Any, Any]) -> tuple[str, tuple[str, ...]]:
    pairs = [
        (None if key is None else json.dumps(key).encode(), json.dumps(value).encode())
        for key, value in records
    ]
    found = infer_changed_rows(format, pairs, {})
    return str(found.schema.struct), found.key


def test_debezium_without_schemas_shows_types_by_values_and_text_stays_text() -> None:
    rows = [
        {"id": 1, "at": "2024-01-01", "x": 1, "big": "__debezium_unavailable_value", "n": None},
        {"id": 2, "at": "2024-01-02", "x": 1.5, "big": "text", "n": {"a": [True]}},
    ]
    records = [({"id": row["id"]}, {"op": "c", "before": None, "after": row}) for row in rows]
    struct, key = inferred(
        "debezium-json", *records, ({"id": 3}, {"op": "d", "before": {"id": 3}, "after": None})
    )
    assert struct == (
        "struct<1: id: required long, 2: at: optional string, 3: x: optional double, 4: big: optional string, "
        "5: n: optional struct<6: a: optional list<boolean>>>"
    )
    assert key == ("id",)


def test_debezium_with_schemas_shows_the_databases_types() -> None:
    fields = [
        {"field": "a", "type": "int32", "optional": False},
        {"field": "b", "type": "string", "optional": False, "name": "io.debezium.data.Uuid"},
        {"field": "c", "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "12"}},
    ]  # fmt: skip
    envelope = {
        "type": "struct",
        "fields": [{"field": "after", "type": "struct", "optional": True, "fields": fields}],
    }
    key = {"schema": {"type": "struct", "fields": fields[:2]}, "payload": {"b": "x", "a": 1}}
    event = {"schema": envelope, "payload": {"op": "d", "after": None}}
    assert inferred("debezium-json", (key, event)) == (
        "struct<1: a: required int, 2: b: required uuid, 3: c: optional decimal(12, 2)>",
        ("b", "a"),
    )


def test_unwrapped_rows_leave_out_what_the_transform_added() -> None:
    assert inferred("debezium-unwrapped-json", ({"id": 1}, {"id": 1, "v": "a", "__deleted": "false"})) == (
        "struct<1: id: required long, 2: v: optional string>",
        ("id",),
    )


def test_canal_shows_mysqls_types() -> None:
    message = {
        "data": [{"id": "1", "n": "2", "p": "1.50", "t": "2024-01-01 00:00:00", "b": "x", "v": "a"}],
        "mysqlType": {"id": "bigint(20) unsigned", "n": "int(11)", "p": "decimal(10,2)", "t": "datetime",
                      "b": "blob", "v": "varchar(10)"},
        "pkNames": ["id"],
        "type": "INSERT",
    }  # fmt: skip
    assert inferred("canal-json", (None, message)) == (
        "struct<1: id: required decimal(20, 0), 2: n: optional int, 3: p: optional decimal(10, 2), "
        "4: t: optional timestamp, 5: b: optional binary, 6: v: optional string>",
        ("id",),
    )


def test_maxwells_key_is_in_the_message_or_in_its_key() -> None:
    message = {"type": "insert", "data": {"id": 1, "v": "a"}}
    expected = ("struct<1: id: required long, 2: v: optional string>", ("id",))
    assert inferred("maxwell-json", ({"database": "d", "table": "t", "pk.id": 1}, message)) == expected
    assert inferred("maxwell-json", (None, {**message, "primary_key_columns": ["id"]})) == expected


def test_records_without_rows_make_no_table() -> None:
    with pytest.raises(DecodeError, match="2 records in the format 'debezium-json' show no row"):
        infer_changed_rows("debezium-json", [(None, b'{"op":"t"}'), (None, b"damaged")], {})
