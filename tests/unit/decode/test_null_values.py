"""Records without a value: left out and counted, deletes by the message key, or rejects, as the source says."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamlake.decode.null_values import NoKey, key_object
from streamlake.errors import DecodeError, InvalidOptionError
from streamlake.pipeline.runs.filtered_tables import skipped_counters, skipped_summary
from streamlake.pipeline.sinks.prepared_source import prepared_source, require_changes
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.sinks.sink_settings import ChangeSettings
from streamlake.records import ROW_KIND, RowKind
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tasks.direct_reader import row_decoder
from streamlake.tasks.watermarks import Watermarks, merged, together
from tests.unit.decode.raw_records import raw_batch

DDL = "id long not null, v string not null, s string"
GOOD = {"key": b"1", "value": b'{"id": 1, "v": "a", "s": "x"}'}


def source(null_value: str | None = None, **given: Any) -> KafkaSource:
    options = {**given.pop("options", {}), **({} if null_value is None else {"null-value": null_value})}
    return KafkaSource("h:1", "t", **{"schema": DDL, "options": options, **given})


def decoded(
    null_value: str | None, *records: Any, key: Any = ("id",), keep: bool = True, **given: Any
) -> Any:
    return row_decoder(source(null_value, **given), key).decode(raw_batch(list(records)), keep_rejects=keep)


def test_by_default_they_are_left_out_and_counted() -> None:
    for keep in (False, True):
        found = decoded(None, GOOD, {"key": b"1", "value": None}, GOOD, keep=keep)
        assert (found.rows.num_rows, found.nulls, found.records.tolist()) == (2, 1, [0, 2])
        assert not found.rejects
    assert decoded("ignore", {"key": b"1", "value": None}).nulls == 1
    # A tombstone that follows a delete of Debezium's says nothing new.
    assert decoded(None, {"key": None, "value": None}, format="debezium-json").nulls == 0


def test_deletes() -> None:
    found = decoded(
        "delete", GOOD, {"key": b"7", "value": None}, GOOD, {"key": b"8", "value": None}, include=["offset"]
    )
    found.rows.validate(full=True)
    assert found.rows.schema.names == ["id", "v", "s", "offset", ROW_KIND]
    kinds = [RowKind.UPDATE_AFTER, RowKind.DELETE, RowKind.UPDATE_AFTER, RowKind.DELETE]
    assert found.rows.column(ROW_KIND).to_pylist() == kinds
    assert found.rows.column("id").to_pylist() == [1, 7, 1, 8]
    assert found.rows.column("v").to_pylist() == ["a", None, "a", None]
    assert found.rows.column("offset").to_pylist() == [100, 101, 102, 103]
    assert (found.records.tolist(), found.nulls, found.rejects) == ([0, 1, 2, 3], 0, ())
    assert decoded("delete", GOOD).rows.column(ROW_KIND).to_pylist() == [RowKind.UPDATE_AFTER]
    assert decoded("delete", {"key": b"7", "value": None}).rows.column("id").to_pylist() == [7]


def test_a_delete_whose_key_says_no_row_is_a_reject() -> None:
    records = [{"key": None, "value": None}, GOOD, {"key": b"x", "value": None}, {"key": b"5", "value": None}]
    found = decoded("delete", *records)
    assert [each.record for each in found.rejects] == [0, 2]
    assert "it has neither a value nor a key" in found.rejects[0].reason
    assert "its key 'x' is no long for the key column 'id'" in found.rejects[1].reason
    assert found.rows.column("id").to_pylist() == [1, 5]
    with pytest.raises(DecodeError, match=r"-3 offset 100: it has neither a value nor a key"):
        decoded("delete", *records, keep=False)


def test_rejects() -> None:
    found = decoded("reject", GOOD, {"key": b"7", "value": None}, {"key": b"1", "value": b"{"})
    assert [each.record for each in found.rejects] == [1, 2]
    assert "null-value is 'reject'" in found.rejects[0].reason
    assert (found.rows.num_rows, found.nulls) == (1, 0)
    with pytest.raises(DecodeError, match="offset 101: it has no value"):
        decoded("reject", GOOD, {"key": b"7", "value": None}, keep=False)


@pytest.mark.parametrize(
    ("ddl", "key", "columns"),
    [
        ("id long", b"17", {"id": 17}),
        ("id long", b"-17", {"id": -17}),
        ("id long", (17).to_bytes(8, "big"), {"id": 17}),
        ("id int", (-2).to_bytes(4, "big", signed=True), {"id": -2}),
        ("id long", b'{"id": 17}', {"id": 17}),
        ("id long", b'{"schema": {}, "payload": {"id": 17}}', {"id": 17}),
        ("id long", b'{"schema": {}, "payload": 17}', {"id": 17}),
        ("id string", b"a-17", {"id": "a-17"}),
        ("id string", b"17", {"id": "17"}),
        ("id string", b'"a-17"', {"id": "a-17"}),
        ("id string", b'{"schema": {"type": "string"}, "payload": "a-17"}', {"id": "a-17"}),
        ("id string, n int", b'{"id": "a", "n": 3, "more": 1}', {"id": "a", "n": 3}),
    ],
)
def test_keys_of_messages(ddl: str, key: bytes, columns: dict[str, Any]) -> None:
    found = key_object(key, parse_ddl(ddl).fields)
    assert isinstance(found, bytes)
    assert {name: json.loads(found)[name] for name in columns} == columns


def test_decimals_of_a_wrapped_key_keep_their_digits() -> None:
    number = "1234567890123456789012345.67"
    for key in ('{"schema":{},"payload":{"d":%s}}', '{"d":%s}', '{"schema":{},"payload":%s}'):
        record = {"key": (key % number).encode(), "value": None}
        found = decoded("delete", record, key=("d",), schema="d decimal(30,2), v string")
        assert found.rows.column("d").to_pylist() == [Decimal(number)]


@pytest.mark.parametrize(
    ("ddl", "key", "reason"),
    [
        ("id long", None, "neither a value nor a key"),
        ("id long", b"abc", "its key 'abc' is no long"),
        ("id long", b"\x00\x01\x02", "its key 0x000102 is no long"),
        ("id long, n int", b"1", "is no JSON object with the key columns id, n"),
        ("id long, n int", b'{"id": 1}', "lacks the key column 'n'"),
        ("id long", b'{"id": null}', "lacks the key column 'id'"),
        ("id string", b'{"schema": {}, "payload": null}', "is null"),
    ],
)
def test_keys_that_are_no_rows(ddl: str, key: bytes | None, reason: str) -> None:
    found = key_object(key, parse_ddl(ddl).fields)
    assert isinstance(found, NoKey)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"null_value": "drop"}, "null-value is 'drop'; it can be ignore, delete, reject"),
        ({"null_value": "delete", "format": "debezium-json"}, "say themselves what they do; leave it out"),
        ({"null_value": "reject", "format": "raw", "schema": None}, "keep such values as they are"),
        ({"null_value": "delete", "options": {"partial-update": "true"}}, "cannot be combined"),
    ],
)
def test_options_that_contradict(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        source(**given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (ChangeSettings("append"), "which mode 'append' cannot carry out; use mode 'upsert'"),
        (ChangeSettings("upsert", ("id",), row_kind="op"), "row_kind is 'op', but with null-value=delete"),
    ],
)  # fmt: skip
def test_sinks_that_cannot_delete(changes: ChangeSettings, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        require_changes(source("delete"), changes)


def test_deletes_need_a_key_and_arrive_in_order(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    with pytest.raises(InvalidOptionError, match="name its columns in key"):
        prepared_source(IcebergSink(location, mode="upsert").settings, source("delete"))
    settings, _ = prepared_source(IcebergSink(location, mode="upsert", key=["id"]).settings, source("delete"))
    found = settings.changes
    assert (found.key, found.row_kind, found.sequence_by) == (("id",), ROW_KIND, ())


def test_they_are_counted_over_tasks_snapshots_and_receipts() -> None:
    seen = Watermarks()
    piece = OffsetRange("t", 3, 100, 102)
    seen.see(piece, decoded(None, GOOD, {"key": b"1", "value": None}))
    one = seen.taken()
    seen.see(piece, decoded(None, {"key": b"1", "value": None}, {"key": b"1", "value": None}))
    assert merged([together([one, seen.taken()]), None]).nulls == 3
    assert skipped_summary(0, 3) == {"streamlake.tombstones": "3"}
    assert skipped_counters(skipped_summary(0, 3)) == {"tombstones": 3}
    assert skipped_counters({}) == {}
