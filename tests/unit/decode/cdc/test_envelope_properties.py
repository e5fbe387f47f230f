"""Debezium in bulk against a reference that reads one record after the other in the most obvious way."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from unittest import mock
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake.decode.cdc.debezium.debezium_events import DebeziumEvents
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.cdc.envelope_decoder import EnvelopeDecoder
from streamlake.decode.json import template_columns
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.values.envelope import Records
from streamlake.records import ROW_KIND, RowKind
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

SCHEMA = parse_ddl(
    "id long not null, name string, amount decimal(20,2), born date, at timestamptz, seen timestamp_ntz, opens time, "
    "code uuid, raw binary, tags array<string>, ids array<long>, place struct<x:double,note:string>, flag boolean"
)
OPTIONS = DebeziumOptions(time_precision_mode="microseconds")
MARK = "__debezium_unavailable_value"
EPOCH = datetime(1970, 1, 1)


def encoded(number):
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def optional(strategy):
    return st.one_of(st.none(), strategy)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COLUMNS = {
    "id": st.integers(0, 3),
    "name": optional(st.one_of(TEXT, st.just(MARK))),
    "amount": optional(st.integers(-(10**20) - 5, 10**20 + 5).map(encoded)),
    "born": optional(st.integers(-700_000, 2_900_000)),
    "at": optional(
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda moment: moment.isoformat() + "Z")
    ),
    "seen": optional(st.integers(-(10**15), 10**15)),
    "opens": optional(st.integers(0, 86_399_999_999)),
    "code": optional(st.uuids().map(str)),
    "raw": optional(st.binary(max_size=5).map(lambda data: base64.b64encode(data).decode())),
    "tags": optional(st.one_of(st.lists(optional(TEXT), max_size=3), st.just([MARK]))),
    "ids": optional(st.one_of(st.lists(st.integers(-5, 2**62), max_size=3), st.just(list(MARK.encode())))),
    "place": optional(
        st.builds(
            lambda x, note: {"x": x, "note": note},
            optional(st.floats(allow_nan=False, allow_infinity=False)),
            TEXT,
        )
    ),
    "flag": optional(st.booleans()),
}
ROWS = st.fixed_dictionaries(COLUMNS)
FLAT = parse_ddl(
    "id long not null, name string, amount decimal(20,2), born date, at timestamptz, seen timestamp_ntz, opens time, "
    "code uuid, raw binary, place struct<x:double,note:string>, flag boolean"
)
"""Without arrays, so that records have templates."""
FLAT_ROWS = st.fixed_dictionaries({name: COLUMNS[name] for name in FLAT.column_names})


@st.composite
def events(draw, rows=ROWS, ops="crudtm"):
    op = draw(st.sampled_from(ops))
    before = draw(optional(rows)) if op == "u" else draw(rows) if op == "d" else None
    after = draw(rows) if op in "cru" else None
    source = {
        "connector": "postgresql",
        "db": "d",
        "schema": "s",
        "table": "t",
        "lsn": draw(st.integers(0, 99)),
    }
    return {"before": before, "after": after, "source": source, "op": op}


RECORDS = st.lists(st.one_of(events(), st.none(), st.just({"ts_ms": 1})), min_size=1, max_size=20)


def one_value(name, found):
    """The obvious conversion; ValueError when the column cannot hold it."""
    if found is None:
        return None
    if name == "amount":
        number = int.from_bytes(base64.b64decode(found), "big", signed=True)
        if abs(number) >= 10**20:
            raise ValueError
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -2))
    conversions = {
        "born": lambda days: date(1970, 1, 1) + timedelta(days=days),
        "at": lambda text: datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=ZoneInfo("UTC")),
        "seen": lambda micros: EPOCH + timedelta(microseconds=micros),
        "opens": lambda micros: (EPOCH + timedelta(microseconds=micros)).time(),
        "code": lambda text: UUID(text).bytes,
        "raw": base64.b64decode,
    }
    return conversions.get(name, lambda value: value)(found)


def one_row(image):
    missing = {name for name, found in image.items() if found in (MARK, [MARK], list(MARK.encode()))}
    names = [name for name in SCHEMA.column_names if name in image]
    return {name: None if name in missing else one_value(name, image[name]) for name in names}, missing


def reference(records):
    changes, truncates, rejects, ignored = [], [], [], 0
    for at, record in enumerate(records):
        if record is None:
            continue
        if "op" not in record or record["op"] == "m":
            ignored += 1
            continue
        op, before, after, lsn = record["op"], record["before"], record["after"], record["source"]["lsn"]
        if op == "t":
            truncates.append((at, lsn))
            continue
        try:
            found = []
            if op == "d" or (op == "u" and before is not None and before["id"] != after["id"]):
                found.append((at, RowKind.DELETE, lsn, *one_row(before)))
            if op != "d":
                kind = RowKind.UPDATE_AFTER if op == "u" else RowKind.INSERT
                found.append((at, kind, ~lsn if op == "r" else lsn, *one_row(after)))
            changes += found
        except ValueError:
            rejects.append(at)
    return changes, truncates, rejects, ignored


def shown(parts):
    """Text that tells -0.0 from 0.0 and true from 1, sets in order."""
    rows, *others = parts
    return repr(([(*row[:-1], sorted(row[-1])) for row in rows], *others))


def result(found):
    rows = []
    for at, row in enumerate(found.rows.to_pylist()):
        kind = RowKind(row.pop(ROW_KIND))
        missing = {name for name, mask in found.missing.items() if mask[at]}
        rows.append((int(found.records[at]), kind, found.sequence[at].as_py(), row, missing))
    truncates = [(one.record, one.sequence) for one in found.truncates]
    return rows, truncates, [one.record for one in found.rejects], sum(found.ignored.values())


@settings(max_examples=40, deadline=None)
@given(RECORDS)
def test_bulk_equals_the_obvious_reference(records):
    envelope = DebeziumEvents(SCHEMA, ["id"], OPTIONS)
    decoder = EnvelopeDecoder(SCHEMA, envelope)
    found = decoder.decode(raw_batch([{"value": record} for record in records]), keep_rejects=True)
    found.rows.validate(full=True)
    assert shown(result(found)) == shown(reference(records))
    assert found.tombstones == records.count(None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(events(FLAT_ROWS), st.none(), st.just({"ts_ms": 1})), min_size=1, max_size=20),
    st.sampled_from([None, (",", ":"), (" , ", ": ")]),
)
def test_records_of_templates_equal_the_obvious_reference(records, separators):
    decoder = EnvelopeDecoder(FLAT, DebeziumEvents(FLAT, ["id"], OPTIONS))
    values = [
        None if one is None else json.dumps(one, separators=separators, ensure_ascii=False) for one in records
    ]
    with mock.patch.object(template_columns, "LEAST", 1):
        found = decoder.decode(raw_batch([{"value": value} for value in values]), keep_rejects=True)
    found.rows.validate(full=True)
    assert shown(result(found)) == shown(reference(records))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(events(FLAT_ROWS, "cud"), min_size=9, max_size=20).filter(
        lambda records: not reference(records)[2]
    )
)
def test_changes_with_and_without_old_rows_need_no_parser(records):
    texts = dict.fromkeys(["at", "code", "raw", "amount", "place"])
    for record in records:
        for name in ("before", "after"):
            if record[name] is not None:
                record[name] = {column: record[name][column] for column in FLAT.column_names}
                record[name] |= {**texts, "name": "x"}
    envelope = DebeziumEvents(FLAT, ["id"], OPTIONS)
    raw = raw_batch([{"value": record} for record in records])
    with (
        mock.patch.object(template_columns, "LEAST", 1),
        mock.patch.object(JsonColumns, "_parsed", side_effect=AssertionError("the parser was asked")),
    ):
        whole = envelope.bulk(Records.of(raw))
    assert shown(result(whole)) == shown(reference(records))


@pytest.mark.parametrize("templates", [False, True])
def test_without_a_key_old_rows_need_no_column(templates):
    envelope = DebeziumEvents(FLAT, (), OPTIONS)
    row = dict.fromkeys(FLAT.column_names) | {"name": "x"} | ({} if templates else {"list": [1]})
    source = {"connector": "postgresql", "lsn": 1}
    events = [
        {
            "before": row | {"id": at},
            "after": None if at % 3 == 0 else row | {"id": at + 1},
            "source": source,
            "op": "u" if at % 3 else "d",
        }
        for at in range(200)
    ]
    whole = envelope.bulk(Records.of(raw_batch([{"value": event} for event in events])))
    expected = [at + (at % 3 > 0) for at in range(200)]
    assert whole.rows.column("id").to_pylist() == expected
    assert not whole.rejects


@settings(max_examples=25, deadline=None)
@given(RECORDS.filter(lambda records: any(records) and not reference(records)[2]))
def test_good_records_take_the_bulk_way(records):
    envelope = DebeziumEvents(SCHEMA, ["id"], OPTIONS)
    whole = envelope.bulk(Records.of(raw_batch([{"value": record} for record in records])))
    assert shown(result(whole)) == shown(reference(records))


@pytest.mark.parametrize("schemas", [False, True])
def test_one_damaged_record_among_many_is_named_and_the_rest_kept(schemas):
    rows = [{"id": at, "name": f"n{at}"} for at in range(500)]
    fields = [{"field": "id", "type": "int64", "optional": False}, {"field": "name", "type": "string"}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    values = []
    for row in rows:
        payload = {"after": row, "op": "c", "source": {"connector": "postgresql", "lsn": row["id"]}}
        values.append(json.dumps({"schema": schema, "payload": payload} if schemas else payload))
    values[123] = values[123].replace(":", ";", 3)
    values[377] = values[377].replace('"n377"', "377")
    table = parse_ddl("id long not null, name string")
    found = EnvelopeDecoder(table, DebeziumEvents(table, ["id"])).decode(
        raw_batch([{"value": value} for value in values]), keep_rejects=True
    )
    assert [one.record for one in found.rejects] == [123, 377]
    assert found.records.tolist() == [at for at in range(500) if at not in (123, 377)]
    assert found.rows.column("id").to_pylist() == found.records.tolist()
