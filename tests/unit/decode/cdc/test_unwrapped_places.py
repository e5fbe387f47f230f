"""The place in the log of unwrapped events: where `add.fields` tells which rows a snapshot read, in bulk as one by one."""

from __future__ import annotations

from typing import Any

import pytest

from streamlake.decode.cdc.change_rows import ChangeRows
from streamlake.records import ROW_SEQUENCE
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import raw_batch

PLACES = {"__lsn": 7}


def sequences(values: list[dict[str, Any]]) -> list[int | None]:
    decoder = ChangeRows(parse_ddl("id long"), {}, "debezium-unwrapped-json", ["id"], {})
    records = [{"value": {"id": at, **value}} for at, value in enumerate(values)]
    alone = [decoder.decode(raw_batch([record])).rows.column(ROW_SEQUENCE)[0].as_py() for record in records]
    rows = decoder.decode(raw_batch(records)).rows
    assert rows.column("id").to_pylist() == list(range(len(values)))
    assert rows.column(ROW_SEQUENCE).to_pylist() == alone
    return alone


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({}, None),
        ({"__deleted": "false"}, None),
        ({"__deleted": "true"}, 7),
        ({"__op": "r"}, ~7),
        ({"__op": "c"}, 7),
        ({"__op": "u", "__source_snapshot": "incremental"}, 7),
        ({"__source_snapshot": "false"}, 7),
        ({"__source_snapshot": None}, None),
        ({"__snapshot": "first_in_data_collection"}, ~7),
        ({"__snapshot": True}, ~7),
        ({"__snapshot": False}, 7),
    ],
)
def test_a_place_counts_where_it_is_known_what_a_snapshot_read(
    told: dict[str, Any], place: int | None
) -> None:
    assert sequences([{**PLACES, **told}] * 40) == [place] * 40


def test_kinds_of_rows_may_alternate() -> None:
    told = [{"__op": "r"}, {"__op": "u"}, {}, {"__source_snapshot": "last"}, {"__deleted": "true"}]
    assert sequences([{**PLACES, **each} for each in told] * 8) == [~7, 7, None, ~7, 7] * 8


@pytest.mark.parametrize("first", [{}, {"__op": "c"}, {"__op": "c", "__ts_ms": 1}])
def test_the_first_record_does_not_tell_for_all(first: dict[str, Any]) -> None:
    others: list[dict[str, Any]] = [{"__op": "c", **PLACES}] * 60
    assert sequences([first, *others])[1:] == [7] * 60


@pytest.mark.parametrize("name", ["__lsn", "__source_lsn"])
def test_a_place_that_no_sample_has(name: str) -> None:
    values: list[dict[str, Any]] = [{"__op": "c"}] * 400
    values[3:5] = [{"__op": "c", name: 7}] * 2
    assert [at for at, each in enumerate(sequences(values)) if each is not None] == [3, 4]


def test_a_field_may_get_another_name() -> None:
    values = [{"__op": "c", "__lsn": 7}] * 40 + [{"__op": "c", "__source_lsn": 8}] * 40
    assert sequences(values) == [7] * 40 + [8] * 40


@pytest.mark.parametrize(
    ("early", "late"),
    [
        # The binlog rotated in between, and nothing says so.
        ({"__pos": 900}, {"__pos": 200}),
        ({"__source_pos": 900}, {"__source_pos": 200}),
        ({"__file": None, "__pos": 900}, {"__file": None, "__pos": 200}),
        ({"__file": ""}, {"__file": ""}),
        # The task moved to a worker whose clock is behind: these are times of processing.
        ({"__ts_ms": 1_700_000_002_000}, {"__ts_ms": 1_700_000_000_500}),
        ({"__ts_us": 1_700_000_002_000_000}, {"__ts_us": 1_700_000_000_500_000}),
        ({"__ts_ns": 1_700_000_002_000_000_000}, {"__ts_ns": 1_700_000_000_500_000_000}),
        ({"__ord": 5, "__ts_ms": 12_300}, {"__ord": 1, "__ts_ms": 12_400}),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_what_orders_nothing_is_no_place(early: dict[str, Any], late: dict[str, Any], count: int) -> None:
    told = [{"__op": "u", **early}] * count + [{"__op": "u", **late}] * count
    assert sequences(told) == [None] * (2 * count)


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ({"__file": "b.000001", "__pos": 900}, {"__file": "b.000002", "__pos": 200}),
        ({"__source_file": "b.000001", "__pos": 900}, {"__source_file": "b.000002", "__pos": 200}),
        ({"__source_ts_ms": 1_000, "__ts_ms": 9_000}, {"__source_ts_ms": 1_001, "__ts_ms": 8_000}),
        ({"__source_ts_us": 1_000}, {"__source_ts_us": 1_001}),
        ({"__source_ts_ns": 1_000}, {"__source_ts_ns": 1_001}),
        ({"__pos": 9, "__source_ts_ms": 1_000}, {"__pos": 8, "__source_ts_ms": 1_001}),
        ({"__ord": 5, "__source_ts_ms": 10_300}, {"__ord": 1, "__source_ts_ms": 11_400}),
    ],
)
def test_what_orders_is_a_place(early: dict[str, Any], late: dict[str, Any]) -> None:
    told = [{"__op": "u", **early}] * 20 + [{"__op": "u", **late}] * 20
    places = sequences(told)
    assert None not in places
    assert places == sorted(places, key=lambda place: place or 0)
    assert len(set(places)) == 2


def test_a_file_or_a_time_that_no_sample_has() -> None:
    values: list[dict[str, Any]] = [{"__op": "c", "__pos": 5}] * 400
    values[3:5] = [{"__op": "c", "__pos": 5, "__file": "b.000001"}] * 2
    assert [at for at, each in enumerate(sequences(values)) if each is not None] == [3, 4]
    values[3:5] = [{"__op": "c", "__pos": 5, "__source_ts_ms": 5}] * 2
    assert [at for at, each in enumerate(sequences(values)) if each is not None] == [3, 4]
