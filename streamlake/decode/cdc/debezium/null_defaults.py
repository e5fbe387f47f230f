"""Check for columns in which the connector may send the default in place of null, by a sample of records.

Used by `streamlake check`. Kafka Connect's JsonConverter replaces the null of an optional field by the
field's default, unless `replace.null.with.default` is false. A record does not show which of the two it was.
Invariant: a null in such a column shows that the setting is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any


def columns_with_defaults(values: Iterable[bytes], columns: Iterable[str]) -> tuple[str, ...]:
    """Those of `columns` that are optional, have a default, and show it and never null.

    `values` are records in JSON with their schemas; records of other forms show nothing.
    """
    suspects: dict[str, bool] = {}
    for value in values:
        found: Any = None
        with suppress(ValueError):  # the decoder reports records that cannot be read
            found = json.loads(value)
        if not isinstance(found, dict) or found.keys() != {"schema", "payload"}:
            continue
        for schema, row in _rows(found["schema"], found["payload"]):
            for name, default in _defaults(schema).items():
                if row.get(name) is None:
                    suspects[name] = False
                elif row[name] == default:
                    suspects.setdefault(name, True)
    return tuple(name for name in columns if suspects.get(name))


def _rows(schema: Any, payload: Any) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The row itself, or the images of an envelope, each with its schema."""
    if not isinstance(schema, dict) or not isinstance(payload, dict):
        return
    parts = {part.get("field"): part for part in schema.get("fields") or () if isinstance(part, dict)}
    images = [name for name in ("before", "after") if isinstance(parts.get(name), dict) and "op" in parts]
    for name in images:
        if isinstance(payload.get(name), dict):
            yield parts[name], payload[name]
    if not images:
        yield schema, payload


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        part["field"]: part["default"]
        for part in schema.get("fields") or ()
        if isinstance(part, dict) and part.get("optional") is True and part.get("default") is not None
    }
