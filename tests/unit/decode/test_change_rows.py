"""Change streams as rows with row kinds: columns of the record, what is counted, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from streamlake.decode import envelopes
from streamlake.decode.change_rows import ChangeRows
from streamlake.errors import DecodeError
from streamlake.records import RAW_RECORDS, ROW_KIND, SEQUENCE, RowKind
from streamlake.source import kafka_source
from streamlake.source.kafka_source import KafkaSource

SOURCE = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t", "lsn": 7}


def raw(*values: dict[str, Any] | None, first: int = 40) -> pa.RecordBatch:
    rows = [
        {
            "key": b'{"id": 1}',
            "value": None if value is None else json.dumps({"source": SOURCE, **value}).encode(),
            "topic": "t",
            "partition": 3,
            "offset": first + at,
            "timestamp": None,
            "headers": [],
        }
        for at, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RAW_RECORDS)


def decoder(include: tuple[str, ...] = ()) -> ChangeRows:
    source = KafkaSource(
        "b:1", "t", format="debezium-json", schema="id long not null, v string not null", include=include
    )
    return ChangeRows(source.table_schema, source.metadata_columns, source.format, ["id"], {})


def test_rows_have_their_kind_and_the_columns_of_their_record() -> None:
    changed = {"op": "u", "before": {"id": 1, "v": "a"}, "after": {"id": 2, "v": "b"}}
    rows = decoder(("offset", SEQUENCE, "partition"))
    decoded = rows.decode(
        raw(
            {"op": "r", "before": None, "after": {"id": 1, "v": "a"}},
            None,
            changed,
            {"op": "d", "before": {"id": 2, "v": None}, "after": None},
        )
    )
    found = decoded.rows
    assert found.schema.equals(rows.schema)
    assert found.to_pylist() == [
        {"id": 1, "v": "a", "offset": 40, "sequence": 7, "partition": 3, ROW_KIND: RowKind.INSERT},
        {"id": 1, "v": "a", "offset": 42, "sequence": 7, "partition": 3, ROW_KIND: RowKind.DELETE},
        {"id": 2, "v": "b", "offset": 42, "sequence": 7, "partition": 3, ROW_KIND: RowKind.UPDATE_AFTER},
        {"id": 2, "v": None, "offset": 43, "sequence": 7, "partition": 3, ROW_KIND: RowKind.DELETE},
    ]
    assert decoded.tombstones == 1


def test_each_row_has_the_place_of_its_record() -> None:
    changed = {"op": "u", "before": {"id": 1, "v": "a"}, "after": {"id": 2, "v": "b"}}
    assert decoder().decode(raw(None, changed, changed)).records.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"op": "u", "before": None, "after": {"id": 1, "v": "__debezium_unavailable_value"}},
            "t-3 offset 41: column 'v' has no value here.*replica identity full",
        ),
        (
            {"op": "t", "before": None, "after": None},
            "t-3 offset 41: d.s.t was truncated.*skipped.operations=t",
        ),
        ({"op": "c", "before": None, "after": {"id": "x", "v": "a"}}, "t-3 offset 41: "),
    ],
)
def test_what_rows_cannot_say_is_an_error(value: dict[str, Any], message: str) -> None:
    good = {"op": "c", "before": None, "after": {"id": 1, "v": "a"}}
    with pytest.raises(DecodeError, match=message):
        decoder().decode(raw(good, value))


def test_sources_know_the_envelopes() -> None:
    assert kafka_source.ENVELOPES == envelopes.FORMATS
    assert kafka_source.SEQUENCE == SEQUENCE
