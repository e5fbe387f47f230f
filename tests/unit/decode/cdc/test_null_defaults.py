"""Columns in which Kafka Connect's JsonConverter may have put the default in place of null."""

from __future__ import annotations

import json
from typing import Any

from streamlake.decode.cdc.debezium.null_defaults import columns_with_defaults

COLUMNS = ("id", "n", "m", "v")
ROW = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int32", "optional": False, "default": 0},
        {"field": "n", "type": "int32", "optional": True, "default": 7},
        {"field": "m", "type": "int32", "optional": True},
        {"field": "v", "type": "string", "optional": True, "default": "x"},
    ],
}
ENVELOPE = {
    "type": "struct",
    "fields": [{**ROW, "field": "before"}, {**ROW, "field": "after"}, {"field": "op"}],
}


def event(before: Any = None, after: Any = None) -> bytes:
    return json.dumps({"schema": ENVELOPE, "payload": {"before": before, "after": after, "op": "u"}}).encode()


def row(n: int | None = 1, v: str | None = "a") -> dict[str, Any]:
    return {"id": 0, "n": n, "m": None, "v": v}


def test_a_default_that_is_shown_and_never_null() -> None:
    assert columns_with_defaults([event(after=row(n=7))], COLUMNS) == ("n",)
    assert columns_with_defaults([event(before=row(n=7, v="x"), after=row())], COLUMNS) == ("n", "v")
    flat = json.dumps({"schema": ROW, "payload": row(n=7)}).encode()
    assert columns_with_defaults([flat], COLUMNS) == ("n",), "an unwrapped record"


def test_what_shows_that_nulls_come_as_nulls() -> None:
    assert columns_with_defaults([event(after=row(n=7)), event(after=row(n=None))], COLUMNS) == ()
    assert columns_with_defaults([event(after=row(n=None)), event(after=row(n=7))], COLUMNS) == ()


def test_what_shows_nothing() -> None:
    values = [
        b"{",
        b"7",
        json.dumps(row(n=7)).encode(),
        event(),
        event(after=row()),
        b'{"schema": 1, "payload": 2}',
    ]
    assert columns_with_defaults(values, COLUMNS) == ()
    assert columns_with_defaults([event(after=row(n=7))], ("id", "m")) == ()
