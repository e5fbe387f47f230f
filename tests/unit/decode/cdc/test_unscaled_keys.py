"""Keys of PostgreSQL's numeric without a precision: Debezium sends each with a scale of its own."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest

from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

ROW = {
    "type": "struct",
    "fields": [
        {
            "field": "id",
            "type": "struct",
            "name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
        },
        {"field": "n", "type": "int32", "optional": True},
    ],
}
SOURCE = {
    "type": "struct",
    "fields": [{"field": "lsn", "type": "int64"}, {"field": "connector", "type": "string"}],
}
ENVELOPE = {
    "type": "struct",
    "name": "s.t.Envelope",
    "fields": [
        {"field": "before", "optional": True, **ROW},
        {"field": "after", "optional": True, **ROW},
        {"field": "source", **SOURCE},
        {"field": "op", "type": "string"},
    ],
}


def image(text: str, n: int) -> dict[str, Any]:
    number = Decimal(text)
    scale = -number.as_tuple().exponent  # type: ignore[operator]
    data = int(number.scaleb(scale)).to_bytes(8, "big", signed=True)
    return {"id": {"scale": scale, "value": base64.b64encode(data).decode()}, "n": n}


def update(before: str, after: str, lsn: int) -> dict[str, Any]:
    source = {"lsn": lsn, "connector": "postgresql"}
    payload = {"before": image(before, 1), "after": image(after, 2), "source": source, "op": "u"}
    return {"schema": ENVELOPE, "payload": payload}


@pytest.mark.parametrize("extra", [[], ["no json"]], ids=["in bulk", "one by one"])
def test_an_update_with_its_row_before(extra: list[str]) -> None:
    """A key that is written with another scale is the same key."""
    decoder = open_decoder("debezium-json", parse_ddl("id decimal(20,4) not null, n int"), ("id",), {})
    updates = [update("1.50", "1.5", 1), update("2.25", "3.125", 2)]
    values = [{"value": json.dumps(each).encode()} for each in updates] + [{"value": b"{"} for _ in extra]
    found = decoder.decode(raw_batch(values), keep_rejects=True)
    rows = found.rows.to_pylist()
    kinds = [(RowKind(row[ROW_KIND]), row["id"]) for row in rows]
    assert kinds.count((RowKind.DELETE, Decimal("2.25"))) == 1
    assert (RowKind.UPDATE_AFTER, Decimal("1.5")) in kinds
    assert (RowKind.UPDATE_AFTER, Decimal("3.125")) in kinds
    assert len(kinds) == 3
