"""Truncates come to the tasks that write before the rows that were read with them."""

from __future__ import annotations

import json

import pytest

from streamlake.records import ROW_SEQUENCE, TRUNCATE_BELOW
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tasks import direct_reader
from streamlake.tasks.direct_reader import range_reader
from tests.unit.decode.raw_records import raw_batch


def event(op: str, lsn: int, after: dict[str, int] | None) -> dict[str, str]:
    source = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "lsn": lsn}
    return {"value": json.dumps({"op": op, "before": None, "after": after, "source": source})}


def test_truncates_are_read_ahead_of_the_rows_of_their_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [event("c", 400, {"id": 1}), event("t", 500, None), event("r", 600, {"id": 1})]
    monkeypatch.setattr(direct_reader, "fetch_range", lambda *_: iter([raw_batch(records)]))
    reader = range_reader(
        KafkaSource("b:1", "t", format="debezium-json", schema=parse_ddl("id long")), ["id"]
    )
    truncated, rows = reader.rows(OffsetRange("t", 0, 0, 3))
    assert truncated.to_pydict() == {TRUNCATE_BELOW: [500]}
    assert rows.column(ROW_SEQUENCE).to_pylist() == [400, ~600]
