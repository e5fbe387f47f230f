"""What becomes of the records of a batch: rows that fit the table, and rejects that hold the whole record."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from streamlake.decode.rejected_records import REJECTS, RejectStamp, raw_records
from streamlake.errors import NewSourceError, TooManyRejectsError
from streamlake.records import ROW_KIND
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tasks import direct_reader
from streamlake.tasks.direct_reader import RangeReader, row_decoder
from streamlake.tasks.record_screen import RecordScreen, RejectRules
from tests.unit.decode.raw_records import raw_batch

STAMP = RejectStamp("orders", 7, 1_700_000_000_000_000)


def screen(ddl, table=None, key=(), format="json", **rules):
    source = KafkaSource("h:1", "orders", schema=ddl, format=format)
    return RecordScreen(
        row_decoder(source, key),
        RejectRules("lake/orders", parse_ddl(table or ddl), STAMP, key=tuple(key), **rules),
    )


def test_rejects_hold_the_whole_record():
    batch = raw_batch(
        [
            {"value": {"id": 1}, "key": "a"},
            {"value": "{", "key": "b", "headers": {"h": "x"}},
            {"value": {"id": 3}},
            {"value": {"id": "x"}},
        ]
    )
    screened = screen("id long")
    decoded = screened.decode(batch)
    assert decoded.rows.column("id").to_pylist() == [1, 3]
    rejects = screened.rejects_of(decoded)
    assert rejects.schema.names == REJECTS.column_names
    first, second = rejects.to_pylist()
    assert (first["key"], first["value"], first["headers"]) == (b"b", b"{", [{"key": "h", "value": b"x"}])
    assert (first["topic"], first["partition"], first["offset"]) == ("shop.public.orders", 3, 101)
    assert first["timestamp"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert (first["error_class"], first["pipeline"], first["checkpoint_id"]) == ("DecodeError", "orders", 7)
    assert first["rejected_at"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    assert "a whole number is needed" in second["error_message"]
    assert screened.rejected == 2


def test_a_stored_record_is_the_record_that_came():
    batch = raw_batch([{"value": "{", "key": "k", "headers": {"h": None}}, {"value": "["}])
    screened = screen("id long")
    stored = pa.Table.from_batches([screened.rejects_of(screened.decode(batch))])
    assert raw_records(stored).equals(batch)


def test_without_rejects_there_is_nothing_to_write():
    screened = screen("id long")
    decoded = screened.decode(raw_batch([{"value": {"id": 1}}, {"value": None}]))
    assert screened.rejects_of(decoded) is None
    assert (decoded.rows.num_rows, decoded.tombstones, screened.rejected) == (1, 1, 0)


def test_rows_that_decode_but_do_not_fit_the_table_are_rejects():
    screened = screen("id long, v long", "id long not null, v int")
    decoded = screened.decode(
        raw_batch(
            [
                {"value": {"id": 1, "v": 1 << 40}},
                {"value": {"id": 2, "v": 2}},
                {"value": {"v": 3}},
                {"value": "x"},
            ]
        )
    )
    assert decoded.rows.column("id").to_pylist() == [2]
    assert decoded.records.tolist() == [1]
    assert [(reject.record, reject.error) for reject in decoded.rejects] == [
        (0, "SchemaMismatchError"),
        (2, "SchemaMismatchError"),
        (3, "DecodeError"),
    ]


def test_row_kinds_that_nobody_knows_are_rejects():
    screened = screen(
        "op string, id long, v string", "id long not null, v string not null", ["id"], row_kind="op"
    )
    values = [
        {"op": "c", "id": 1, "v": "a"},
        {"op": "zap", "id": 2, "v": "b"},
        {"op": "d", "id": 3},
        {"op": None, "id": 4, "v": "c"},
        {"op": "u", "id": 5},
    ]
    decoded = screened.decode(raw_batch([{"value": value} for value in values]))
    assert decoded.rows.column("id").to_pylist() == [1, 3]
    assert [reject.record for reject in decoded.rejects] == [1, 3, 4]
    assert "'zap' is not a row kind" in decoded.rejects[0].reason


def test_a_record_of_an_envelope_is_rejected_as_a_whole():
    def change(before, after):
        return {
            "op": "u",
            "before": before,
            "after": after,
            "source": {"connector": "postgresql", "lsn": 1, "schema": "s", "table": "t", "db": "d"},
        }

    screened = screen("id long, v long", "id long, v int", ["id"], "debezium-json", row_kind="_row_kind")
    moved = change({"id": 1, "v": 1}, {"id": 2, "v": 1 << 40})
    decoded = screened.decode(
        raw_batch([{"value": moved}, {"value": change({"id": 3, "v": 1}, {"id": 4, "v": 2})}])
    )
    assert set(decoded.records.tolist()) == {1}
    assert [reject.record for reject in decoded.rejects] == [0]


def test_more_rejects_than_are_allowed():
    screened = screen("id long", most=2)
    screened.decode(raw_batch([{"value": "{"}, {"value": "{"}]))
    with pytest.raises(TooManyRejectsError) as raised:
        screened.decode(raw_batch([{"value": {"id": 1}}, {"value": "{"}], first=50))
    text = str(raised.value)
    assert "lake/orders: 3 or more records" in text
    assert "max_rejects allows 2" in text
    assert "shop.public.orders-3 offset 51:" in text
    assert str(pickle.loads(pickle.dumps(raised.value))) == text


def test_rules_cross_to_executors():
    rules = RejectRules("t", parse_ddl("id long"), STAMP, most=5)
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert json.dumps(rules.stamp.pipeline) == '"orders"'


def change(id, table, op="c", v="a"):
    row = {"id": id, "v": v}
    source = {"connector": "postgresql", "db": "shop", "table": table, "lsn": 5}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"value": {**images, "op": op, "source": source}}


def asked(monkeypatch, *records):
    """The table that a task asks to keep for its topic; else how many rows and which rejects there are."""
    raw = raw_batch(records, topic="t")
    monkeypatch.setattr(direct_reader, "fetch_range", lambda *_: iter([raw]))
    source = KafkaSource("h:1", "t", schema="id long, v string", format="debezium-json")
    reader = RangeReader(source, ("id",), sources={})
    schema = parse_ddl("id long, v string not null")
    rules = RejectRules("lake/orders", schema, STAMP, key=("id",), row_kind=ROW_KIND)
    try:
        ((rows, rejected),) = reader.screened(OffsetRange("t", 3, 100, 100 + len(records)), rules)
    except NewSourceError as error:
        return error.table
    return rows.num_rows, [] if rejected is None else rejected.column("offset").to_pylist()


@pytest.mark.parametrize("count", [1, 20])
def test_records_that_do_not_fit_do_not_say_which_table_a_topic_is_of(count, monkeypatch):
    """Neither to the table nor to the records behind them."""
    misfits = [change(number, "products", v=None) for number in range(count)]
    assert asked(monkeypatch, *misfits) == (0, list(range(100, 100 + count)))
    assert asked(monkeypatch, *misfits, change(1, "orders")) == "shop.orders"
    assert asked(monkeypatch, change(1, "orders"), *misfits) == "shop.orders"
    gone = change(7, "orders", op="d")
    assert asked(monkeypatch, gone, *misfits, gone) == "shop.orders"
    # A key alone fits any table: rows count before deletes, and a delete without a key says nothing.
    assert asked(monkeypatch, change(7, "products", op="d"), change(1, "orders")) == "shop.orders"
    keyless = [change(None, "products", op="d") for _ in range(count)]
    assert asked(monkeypatch, *keyless, gone) == "shop.orders"
    assert asked(monkeypatch, *keyless) == (0, list(range(100, 100 + count)))
