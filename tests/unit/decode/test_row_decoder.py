"""Raw batches to rows: tombstones, columns of the record itself, errors that name the record."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.row_decoder import RowDecoder
from streamlake.errors import DecodeError
from streamlake.records import RAW_RECORDS
from streamlake.source.kafka_source import KafkaSource


def raw(*values, first=100):
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": b"k%d" % at,
                "value": value,
                "topic": "orders",
                "partition": 3,
                "offset": first + at,
                "timestamp": 1_000_000 * at,
                "headers": [{"key": "h", "value": None}] if at % 2 else [],
            }
            for at, value in enumerate(values)
        ],
        schema=RAW_RECORDS,
    )


def decoder(**arguments):
    source = KafkaSource(**{"bootstrap_servers": "h:1", "topics": "orders", "schema": "id long", **arguments})
    return RowDecoder(
        source.table_schema, source.metadata_columns, source.format, dict(source.settings.decode)
    )


def test_rows_have_the_schema_and_the_order_of_the_records():
    rows = (
        decoder(include=["key", "topic", "partition", "offset", "timestamp", "headers"])
        .decode(raw(b'{"id":1}', b'{"id":2}'))
        .rows
    )
    rows.validate(full=True)
    assert rows.schema.names == ["id", "key", "topic", "partition", "offset", "timestamp", "headers"]
    assert rows.column("id").to_pylist() == [1, 2]
    assert rows.column("key").to_pylist() == [b"k0", b"k1"]
    assert rows.column("offset").to_pylist() == [100, 101]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [0, 1_000_000]
    assert rows.column("headers").to_pylist() == [[], [{"key": "h", "value": None}]]


def test_tombstones_give_no_row_and_are_counted():
    decode = decoder(include="offset")
    decoded = decode.decode(raw(b'{"id":1}', None, b'{"id":3}', None))
    assert decoded.rows.to_pylist() == [{"id": 1, "offset": 100}, {"id": 3, "offset": 102}]
    assert (decoded.records.tolist(), decoded.tombstones) == ([0, 2], 2)
    none = decode.decode(raw(None))
    assert (none.rows.num_rows, none.tombstones) == (0, 1)


def test_records_that_cannot_be_decoded_are_told_apart():
    decoded = decoder().decode(raw(b'{"id":1}', b"{", None, b'{"id":"x"}', b'{"id":5}'), keep_rejects=True)
    assert decoded.rows.column("id").to_pylist() == [1, 5]
    assert decoded.records.tolist() == [0, 4]
    assert [reject.record for reject in decoded.rejects] == [1, 3]
    assert "a whole number is needed" in decoded.rejects[1].reason


def test_damaged_records_cost_passes_over_their_neighbours_only(monkeypatch):
    read = []
    bulk = JsonColumns.read
    monkeypatch.setattr(
        JsonColumns, "read", lambda self, values: read.append(len(values)) or bulk(self, values)
    )
    count, every = 10_000, 100
    damaged = [b"{", b"[1]", b"\xff", b'{"id":"x"}']
    values = [damaged[at // every % 4] if at % every == 7 else b'{"id":%d}' % at for at in range(count)]
    decoded = decoder().decode(raw(*values), keep_rejects=True)
    assert [reject.record for reject in decoded.rejects] == list(range(7, count, every))
    assert decoded.records.tolist() == [at for at in range(count) if at % every != 7]
    assert decoded.rows.column("id").to_pylist() == decoded.records.tolist()
    assert sum(read) < 12 * count


def test_a_batch_of_damaged_records_has_no_rows():
    decoded = decoder(include="offset").decode(raw(b"{", b"[", None), keep_rejects=True)
    assert (decoded.rows.num_rows, decoded.records.tolist(), decoded.tombstones) == (0, [], 1)
    assert decoded.rows.schema == decoder(include="offset").schema
    assert len(decoded.rejects) == 2


def test_raw_values_keep_their_tombstones():
    assert decoder(schema=None, format="raw").decode(raw(b"\xff", None)).rows.column("value").to_pylist() == [
        b"\xff",
        None,
    ]


def test_an_error_names_topic_partition_offset_and_field():
    with pytest.raises(DecodeError) as raised:
        decoder().decode(raw(b'{"id":1}', None, b'{"id":"x"}' + b" " * 500))
    text = str(raised.value)
    assert "orders-3 offset 102: 'id' is long, but found text \"x\": a whole number is needed" in text
    assert len(text) < 500
    assert str(pickle.loads(pickle.dumps(raised.value))) == text


def test_slices_of_a_batch_are_decoded_like_batches():
    whole = raw(*[b'{"id":%d}' % at for at in range(100)])
    decode = decoder()
    assert decode.decode(whole.slice(37, 20)).rows.column("id").to_pylist() == list(range(37, 57))
    assert decode.decode(whole.slice(5, 0)).rows.num_rows == 0
