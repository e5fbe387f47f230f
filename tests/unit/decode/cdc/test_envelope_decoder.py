"""What the decoders of all envelopes share: errors, rejects, tombstones, the order of rows, the bulk way."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal

import pytest

from streamlake.decode.cdc.debezium.debezium_events import DebeziumEvents
from streamlake.decode.cdc.envelopes import FORMATS, open_decoder
from streamlake.decode.values.envelope import Records
from streamlake.errors import DecodeError, InvalidOptionError
from streamlake.records import ROW_KIND
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

SCHEMA = parse_ddl("id long not null, name string")


def change(op, before=None, after=None, connector="postgresql", **source):
    return {"before": before, "after": after, "op": op, "source": {"connector": connector, **source}}


def decode(*values, **arguments):
    decoder = open_decoder("debezium-json", SCHEMA, ["id"], {})
    return decoder.decode(raw_batch([{"value": value} for value in values]), **arguments)


def test_the_first_bad_record_is_named():
    good = change("c", after={"id": 1}, lsn=1)
    with pytest.raises(DecodeError) as failure:
        decode(good, good, change("x"), change("y"))
    assert str(failure.value).startswith(
        "shop.public.orders-3 offset 102: 'op' is 'x', which is not an operation of Debezium. Correct the schema or the producer; "
        'the record is \'{"before":null'
    )
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)


def test_every_record_is_accounted_for():
    values = [
        change("c", after={"id": 1}, lsn=1),
        None,
        {"ts_ms": 1},
        b"",
        change("t", lsn=2),
        change("q"),
    ] * 30
    found = decode(*values, keep_rejects=True)
    assert found.tombstones == 30
    assert found.ignored == {"heartbeat": 30}
    accounted = [
        *found.records.tolist(),
        *(one.record for one in found.rejects),
        *(one.record for one in found.truncates),
    ]
    assert len(accounted) == 120
    assert sorted(accounted) == [at for at, value in enumerate(values) if value not in (None, {"ts_ms": 1})]


def test_an_empty_batch_and_one_of_tombstones_only():
    for values in ([], [None] * 5):
        found = decode(*values)
        assert found.rows.num_rows == 0
        assert found.rows.schema.names == ["id", "name", ROW_KIND]
        assert (len(found.sequence), len(found.records), found.tombstones) == (0, 0, len(values))


def test_positions_that_cannot_be_compared_are_an_error():
    lsn = "00000027:00000758:0003"
    mixed = [
        change("c", after={"id": 1}, lsn=1),
        change("c", {}, {"id": 2}, "sqlserver", commit_lsn=lsn),
    ] * 10
    with pytest.raises(
        DecodeError,
        match=r"offset 101: 'source\.connector' is 'sqlserver', but records before came from 'postgresql'",
    ):
        decode(*mixed)


def test_schemas_that_change_within_a_batch():
    def record(at, *columns):
        fields = [{"field": name, "type": type_} for name, type_ in columns]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
        payload = change("c", after={"id": at, "name": None if len(columns) == 1 else f"n{at}"}, lsn=at)
        return {"schema": schema, "payload": payload}

    values = [
        record(at, ("id", "int32")) if at % 3 else record(at, ("id", "int64"), ("name", "string"))
        for at in range(60)
    ]
    values += [change("c", after={"id": at}, lsn=at) for at in range(60, 80)]
    found = decode(*values)
    assert found.rows.column("id").to_pylist() == list(range(80))
    assert found.rows.column("name").to_pylist() == [
        None if at % 3 or at >= 60 else f"n{at}" for at in range(80)
    ]


@pytest.mark.parametrize(
    "value", ['{"schema": {"type": "struct"}, "payload": 5}', '{"schema": 5, "payload": {}}']
)
def test_odd_schemas_are_rejects(value):
    assert len(decode(*[value] * 12, keep_rejects=True).rejects) == 12


def test_changes_of_a_key_without_before_image_need_the_records_key():
    value = change("d", lsn=5)
    decoder = open_decoder("debezium-json", SCHEMA, ["id"], {})
    keys = [{"id": 7}, {"schema": None, "payload": {"id": 8}}, None, {"other": 1}]
    found = decoder.decode(raw_batch([{"key": key, "value": value} for key in keys * 5]), keep_rejects=True)
    assert found.rows.column("id").to_pylist() == [7, 8] * 5
    assert [one.record for one in found.rejects] == [at for at in range(20) if at % 4 > 1]


def test_whitespace_and_other_orders_of_names_are_read():
    value = change("c", after={"id": 1, "name": "x"}, lsn=1)
    schema = {
        "type": "struct",
        "fields": [{"field": "after", "type": "struct", "fields": [{"field": "id", "type": "int64"}]}],
    }
    forms = [json.dumps(value, indent=1), json.dumps({"payload": value, "schema": None}), json.dumps(value)]
    assert decode(*forms * 5).rows.column("name").to_pylist() == ["x"] * 15
    forms = [json.dumps({"schema": schema, "payload": value}, indent=1)] * 12
    assert decode(*forms).rows.column("id").to_pylist() == [1] * 12


def test_the_placeholder_of_the_connector():
    options = {"debezium.unavailable-value-placeholder": "~"}
    decoder = open_decoder("debezium-json", SCHEMA, ["id"], options)
    names = ["~", "__debezium_unavailable_value"] * 10
    values = [change("u", after={"id": 1, "name": name}, lsn=1) for name in names]
    found = decoder.decode(raw_batch([{"value": value} for value in values]))
    assert found.missing["name"].tolist() == [True, False] * 10


def test_a_required_column_may_be_unset_but_not_null():
    schema = parse_ddl("id long not null, doc string not null")
    decoder = open_decoder("debezium-json", schema, ["id"], {})
    docs = ["x", "__debezium_unavailable_value", None] * 5
    values = [change("u", after={"id": 1, "doc": doc}, lsn=1) for doc in docs]
    found = decoder.decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)
    assert found.rows.num_rows == 10
    assert [one.record for one in found.rejects] == [2, 5, 8, 11, 14]


@pytest.mark.parametrize("count", [1, 40])
def test_rows_are_read_in_bulk(count):
    values = [change("c", after={"id": at}, lsn=at) for at in range(count)]
    whole = DebeziumEvents(SCHEMA, ["id"]).bulk(Records.of(raw_batch([{"value": value} for value in values])))
    assert whole.rows.num_rows == count


@pytest.mark.parametrize("format", FORMATS)
def test_formats_are_checked(format):
    own = {"schema-registry.url": "http://h:1"} if format.endswith("-avro") else {}
    assert open_decoder(format, SCHEMA, ["id"], own).decode(raw_batch([])).rows.num_rows == 0
    with pytest.raises(InvalidOptionError, match="the key has the column 'x'"):
        open_decoder(format, SCHEMA, ["x"], own)
    with pytest.raises(InvalidOptionError, match=r"x\.y"):
        open_decoder(format, SCHEMA, [], {**own, "x.y": "z"})
    with pytest.raises(InvalidOptionError, match="envelopes are debezium-json"):
        open_decoder("debezium", SCHEMA, [], {})


def test_a_column_that_is_rarely_there_is_read_in_bulk_once_it_was_seen():
    schema = parse_ddl("id long not null, at timestamp_ntz, n decimal(5,2)")
    options = {"debezium.time-precision-mode": "microseconds"}
    decoder = open_decoder("debezium-json", schema, ["id"], options)
    rows = [{"id": at, "at": None, "n": None} for at in range(100)]
    rows[50] = {"id": 50, "at": "2026-01-02T03:04:05", "n": {"scale": 1, "value": "BQ=="}}
    batch = raw_batch([{"value": change("c", after=row, lsn=1)} for row in rows])
    first = decoder.decode(batch)
    assert first.rows.column("n").to_pylist()[50] == Decimal("0.50")
    assert decoder._envelope.bulk(Records.of(batch)).rows.equals(first.rows)


PARTIAL = {
    "debezium-json": lambda row: change("u", after=row, lsn=1),
    "debezium-unwrapped-json": lambda row: {**row, "__op": "u"},
    "canal-json": lambda row: {"type": "UPDATE", "es": 1, "data": [row]},
    "maxwell-json": lambda row: {"type": "update", "ts": 1, "data": row},
}


@pytest.mark.parametrize("format", PARTIAL)
def test_with_partial_updates_what_is_absent_is_unset_and_null_is_null(format):
    one = "1" if format == "canal-json" else 1
    rows = [{"id": one, "name": "x"}, {"id": one}, {"id": one, "name": None}, {"name": "x"}] * 5
    batch = raw_batch([{"value": PARTIAL[format](row)} for row in rows])
    decoder = open_decoder(format, SCHEMA, ["id"], {}, partial_update=True)
    found = decoder.decode(batch, keep_rejects=True)
    assert found.rows.column("name").to_pylist() == ["x", None, None] * 5
    assert found.missing["name"].tolist() == [False, True, False] * 5
    assert [one.record for one in found.rejects] == [3, 7, 11, 15, 19]
    whole = open_decoder(format, SCHEMA, ["id"], {}).decode(batch, keep_rejects=True)
    assert not whole.missing
    assert whole.rows.equals(found.rows)
