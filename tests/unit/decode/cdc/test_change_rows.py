"""Change streams as rows with row kinds: columns of the record, what is counted, and what is refused."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from streamlake.decode.cdc import envelopes
from streamlake.decode.cdc.change_rows import ChangeRows
from streamlake.errors import DecodeError
from streamlake.records import (
    HEADERS_TYPE,
    KEY_CHANGE,
    MISSING_FIELDS,
    PLACE,
    RAW_RECORDS,
    ROW_KIND,
    ROW_SEQUENCE,
    SEQUENCE,
    TRUNCATE_BELOW,
    RowKind,
)
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
    assert found.column(ROW_SEQUENCE).to_pylist() == [~7, 7, 7, 7], "a snapshot's row is told apart"
    found = found.drop_columns([ROW_SEQUENCE])
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
            {"op": "t", "before": None, "after": None, "source": {**SOURCE, "lsn": None}},
            "t-3 offset 41: d.s.t was truncated.*its position in the database's log is missing",
        ),
        ({"op": "c", "before": None, "after": {"id": "x", "v": "a"}}, "t-3 offset 41: "),
    ],
)
def test_what_rows_cannot_say_is_an_error(value: dict[str, Any], message: str) -> None:
    good = {"op": "c", "before": None, "after": {"id": 1, "v": "a"}}
    with pytest.raises(DecodeError, match=message):
        decoder().decode(raw(good, value))


def test_truncates_are_a_batch_of_their_own() -> None:
    good = {"op": "c", "before": None, "after": {"id": 1, "v": "a"}}
    decoded = decoder().decode(raw(good, {"op": "t", "before": None, "after": None}, good))
    truncated = decoded.truncated()
    assert truncated is not None
    assert truncated.to_pydict() == {TRUNCATE_BELOW: [7]}
    assert decoded.rows.num_rows == 2
    assert decoder().decode(raw(good)).truncated() is None
    unplaced = {"op": "t", "before": None, "after": None, "source": {**SOURCE, "lsn": None}}
    assert [each.record for each in decoder().decode(raw(good, unplaced), keep_rejects=True).rejects] == [1]


def test_values_that_the_database_left_out_are_marked() -> None:
    out = "__debezium_unavailable_value"
    rows = (
        decoder()
        .decode(
            raw(
                {"op": "c", "before": None, "after": {"id": 1, "v": "a"}},
                {"op": "u", "before": None, "after": {"id": 1, "v": out}},
                {"op": "d", "before": {"id": 1, "v": out}, "after": None},
            )
        )
        .rows
    )
    assert [None if each is None else each["v"] for each in rows.column(MISSING_FIELDS).to_pylist()] == [
        None,
        True,
        None,
    ]
    assert rows.column("v").to_pylist() == ["a", None, None]
    assert rows.column(PLACE).to_pylist() == [None, {"topic": "t", "partition": 3, "offset": 41}, None]


def test_moved_rows_know_their_other_key() -> None:
    schema = "id long not null, day date not null, v string"
    source = KafkaSource("b:1", "t", format="debezium-json", schema=schema)
    rows = ChangeRows(source.table_schema, {}, source.format, ["id", "day"], {})
    gone = {"op": "d", "before": {"id": 1, "day": 5, "v": None}, "after": None}
    come = {"op": "c", "before": None, "after": {"id": 2, "day": 6, "v": "a"}}
    batch = raw(gone, come, come, come)
    headers = [
        ("__debezium.newkey", b'{"id": 2, "day": 6}'),
        ("__debezium.oldkey", b'{"schema": null, "payload": {"id": 1, "day": 5}}'),
        ("__debezium.oldkey", b"no json"),
        ("other", b'{"id": 1}'),
    ]
    made = pa.array([[{"key": key, "value": value}] for key, value in headers], HEADERS_TYPE)
    batch = batch.set_column(batch.schema.get_field_index("headers"), batch.schema.field("headers"), made)
    moved = rows.decode(batch).rows.column(KEY_CHANGE).to_pylist()
    assert moved == [
        {"id": 2, "day": date(1970, 1, 7)},
        {"id": 1, "day": date(1970, 1, 6)},
        None,
        None,
    ]
    assert KEY_CHANGE not in rows.decode(raw(come)).rows.schema.names


@pytest.mark.parametrize("text", [b"lone\r", b"tab\tnew\nline", b"\x00"])
def test_the_other_key_may_have_control_characters(text: bytes) -> None:
    """Connect's converter of headers writes them as they are, which JSON does not allow."""
    source = KafkaSource("b:1", "t", format="debezium-json", schema="k string not null, v string")
    rows = ChangeRows(source.table_schema, {}, source.format, ["k"], {})
    batch = raw({"op": "c", "before": None, "after": {"k": "new", "v": "a"}})
    header = [[{"key": "__debezium.oldkey", "value": b'{"k":"' + text + b'"}'}]]
    made = pa.array(header, HEADERS_TYPE)
    batch = batch.set_column(batch.schema.get_field_index("headers"), batch.schema.field("headers"), made)
    assert rows.decode(batch).rows.column(KEY_CHANGE).to_pylist() == [{"k": text.decode()}]


def test_absent_fields_are_left_out_of_partial_updates() -> None:
    source = KafkaSource("b:1", "t", format="debezium-json", schema="id long not null, v string, w string")
    columns = (source.table_schema, source.metadata_columns, source.format, ["id"], {})
    update = raw({"op": "u", "before": None, "after": {"id": 1, "v": None}})
    assert MISSING_FIELDS not in ChangeRows(*columns).decode(update).rows.schema.names
    rows = ChangeRows(*columns, partial_update=True).decode(update).rows
    assert rows.column(MISSING_FIELDS).to_pylist() == [{"w": True}]


def test_sources_know_the_envelopes() -> None:
    assert kafka_source.ENVELOPES == envelopes.FORMATS
    assert kafka_source.SEQUENCE == SEQUENCE
