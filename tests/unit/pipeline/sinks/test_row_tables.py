"""Rows that name their tables: everything but Spark, a broker and a checkpoint directory."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from streamlake.catalog.open import open_table
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import Outcome
from streamlake.decode.cdc.source_tables import PROPERTY
from streamlake.errors import DecodeError, InvalidOptionError, SchemaMismatchError, SourceError, StorageError
from streamlake.pipeline.runs.source_notes import sources_of
from streamlake.pipeline.sinks.quarantine import quarantined
from streamlake.read.scan import TableScan
from streamlake.source.kafka_source import KafkaSource
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tasks import direct_reader, routed_append
from streamlake.tasks.direct_reader import row_decoder
from tests.helpers.invariants import check_table
from tests.helpers.local_rejects import rejected_rows_of
from tests.helpers.local_routing import RoutedStream
from tests.helpers.tables import make_table
from tests.unit.decode.raw_records import raw_batch

DDL = "id long not null, c string, v string"

Make = Any


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(ddl: str | None = DDL, **options: Any) -> RoutedStream:
        return RoutedStream(tmp_path, monkeypatch, ddl, **options)

    return make


def row(id: int, c: Any, **more: Any) -> dict[str, Any]:
    return {"id": id, "c": c, **more}


def test_tables_are_made_as_their_rows_come(made: Make) -> None:
    stream = made()
    assert stream.take(row(1, "A"), row(2, "b"), row(3, "a")).keys() == {"e_a", "e_b"}
    assert (stream.ids("e_a"), stream.ids("e_b"), stream.jobs) == ([1, 3], [2], 2)
    assert stream.take(row(4, "a")).keys() == {"e_a"}
    assert stream.jobs == 3, "no table is new"
    assert stream.take(row(5, "b"), row(6, "n"), row(7, "m")).keys() == {"e_b", "e_n", "e_m"}
    assert stream.jobs == 5, "all new names come at once"
    assert [stream.snapshots(name) for name in ("e_a", "e_b", "e_n", "e_m")] == [2, 2, 1, 1]
    for _ in range(12):
        stream.take(row(8, "a"))
    assert stream.snapshots("e_b") == 2, "tables without rows get no snapshot"


def test_how_the_job_writes_counts_for_all_tables(made: Make) -> None:
    """But for those that have their own."""
    own = {"e_b": {"write_options": {"write-format": "orc"}}}
    stream = made(write_options={"write-format": "avro"}, write_parallelism=1, tables=own)
    stream.take(row(1, "a"), row(2, "b"))
    stream.take(row(3, "a"), row(4, "b"))
    assert (stream.ids("e_a"), stream.ids("e_b")) == ([1, 3], [2, 4])
    for name, suffix in (("e_a", ".avro"), ("e_b", ".orc")):
        files = [path for path in (stream.home / name / "data").rglob("*") if path.suffix != ".crc"]
        assert {path.suffix for path in files} == {suffix}


def test_a_crash_between_commits_leaves_what_is_missing(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = made()
    stream.take(row(1, "a"), row(2, "b"))
    commit = Committer.commit
    dead: tuple[str, ...] = ("e_b", "e_y")

    def dies(self: Committer, *arguments: Any, **more: Any) -> Any:
        if self._table.location.endswith(dead):
            raise StorageError("gone")
        return commit(self, *arguments, **more)

    monkeypatch.setattr(Committer, "commit", dies)
    with pytest.raises(StorageError):
        stream.take(row(3, "a"), row(4, "b"), row(5, "x"), row(6, "y"))
    dead = ("never",)
    stream.restart()
    assert stream.again() == {
        "e_a": Outcome.SKIPPED,
        "e_b": Outcome.RECOVERED,
        "e_x": Outcome.SKIPPED,
        "e_y": Outcome.RECOVERED,
    }
    assert [stream.ids(name) for name in ("e_a", "e_b", "e_x", "e_y")] == [[1, 3], [2, 4], [5], [6]]
    assert [stream.snapshots(name) for name in ("e_a", "e_b", "e_x", "e_y")] == [2, 2, 1, 1]


def test_a_crash_before_new_tables_are_known(made: Make) -> None:
    stream = made()
    stream.take(row(1, "a"))

    def dies(write: Any) -> None:
        raise StorageError("gone")

    stream._rows._keep = dies  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        stream.take(row(2, "a"), row(3, "n"))
    assert stream.tables() == {"e_a"}
    stream.restart()
    assert stream.again().keys() == {"e_a", "e_n"}
    assert (stream.ids("e_a"), stream.ids("e_n"), stream.snapshots("e_a")) == ([1, 2], [3], 2)


def test_tables_that_are_met_at_every_reading_are_an_error(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of the last of them are nowhere: the checkpoint must not count as done."""
    stream = made()
    stream.take(row(1, "a"))
    fetch, readings = stream._fetch, iter(range(100))

    def changing(*arguments: Any) -> Any:
        stream.values[1] = row(2, f"n{next(readings)}")
        return fetch(*arguments)

    monkeypatch.setattr(direct_reader, "fetch_range", changing)
    with pytest.raises(SourceError, match=r"checkpoint 1 were read 5 times.*at last of .*e_n4\."):
        stream.take(row(2, "n"))
    assert stream.ids("e_a") == [1]


def test_rows_without_a_table(made: Make, tmp_path: Path) -> None:
    stream = made()
    with pytest.raises(
        DecodeError, match=r"events-3 offset 1: its field c, which names the table, is null.*default_table"
    ):
        stream.take(row(1, "a"), row(2, None))
    assert stream.tables() == set()


def test_what_hinders_reading_is_of_no_single_table(made: Make) -> None:
    """None of them could be set aside for it: a table that nobody knows yet may be among the records that follow."""
    stream = made()
    stream.take(row(1, "a"), row(2, "b"))
    stream.values += [row(3, "a"), b"{", row(4, "new")]
    stream._ends.append(len(stream.values))
    ended = stream._taken()
    assert ended.endings == {}
    assert list(ended.errors) == [stream.template]
    assert "events-3 offset 3" in str(ended.errors[stream.template])
    assert (stream.ids("e_a"), stream.tables()) == ([1], {"e_a", "e_b"})


def test_rows_without_a_table_go_to_the_default_table(made: Make) -> None:
    stream = made(default_table="other")
    stream.take(row(1, "a"), row(2, None), row(3, "//"), row(4, "other"))
    assert (stream.ids("e_a"), stream.ids("other"), stream.ids("e_other")) == ([1], [2, 3], [4])


@pytest.mark.parametrize("default_table", [None, "other"])
@pytest.mark.parametrize("format", ["json", "debezium-json"])
def test_a_field_that_a_record_leaves_out_names_no_table(
    made: Make, tmp_path: Path, format: str, default_table: str | None
) -> None:
    """It has the value that it had, which nobody knows: no null, for which there may be a table."""
    more = {"partial_update": True} if format == "json" else {}
    values: list[Any] = [row(1, "a", v="x"), {"id": 1, "v": "y"}, row(2, "b", v="x")]
    if format != "json":
        values[1]["c"] = "__debezium_unavailable_value"
        values = [event("u", None, each, at) for at, each in enumerate(values)]
    options = {"format": format, "mode": "upsert", "key": ["id"], "default_table": default_table, **more}
    stream = made(**options)
    with pytest.raises(
        DecodeError, match=r"events-3 offset 1: its field c, which names the table, is not there"
    ):
        stream.take(*values)
    assert stream.tables() == set()
    stream = made(on_error="reject", **options)
    stream.take(*values)
    assert (stream.rows("e_a"), stream.ids("e_b")) == ([row(1, "a", v="x")], [2])
    [found] = rejected_rows_of(tmp_path / (default_table or "e_unrouted"))
    assert (found["offset"], "is not there" in found["error_message"]) == (1, True)
    assert default_table is None or stream.ids(default_table) == []


def test_records_without_a_table_are_rejects(made: Make, tmp_path: Path) -> None:
    stream = made(on_error="reject", tables={"e_b": {"max_rejects": 1}})
    values = [row(1, "a"), row(2, None), b"{", row(3, "b"), {"id": 1 << 70, "c": "b", "v": None}]
    assert stream.take(*values).keys() == {"e_a", "e_b", "e_unrouted"}
    found = rejected_rows_of(tmp_path / "e_unrouted")
    assert [reject["offset"] for reject in found] == [1, 2, 4]
    assert "its field c, which names the table, is null" in found[0]["error_message"]
    assert (stream.ids("e_a"), stream.ids("e_b"), stream.ids("e_unrouted")) == ([1], [3], [])
    stream.restart()
    assert stream.again().keys() == {"e_a", "e_b", "e_unrouted"}
    assert len(rejected_rows_of(tmp_path / "e_unrouted")) == 3


def test_there_are_not_more_tables_than_allowed(made: Make) -> None:
    stream = made(most=3)
    stream.take(row(1, "a"), row(2, "b"))
    with pytest.raises(InvalidOptionError, match=r"belong to 4 or more tables, and max_tables allows 3.*e_c"):
        stream.take(row(3, "c"), row(4, "d"), row(5, "a"))
    assert stream.tables() == {"e_a", "e_b"}
    assert stream.ids("e_a") == [1], "nothing of the checkpoint is written where its tables cannot be told"


def test_a_table_in_quarantine_gets_what_it_missed_and_the_others_nothing_twice(
    made: Make, tmp_path: Path
) -> None:
    stream = made()
    stream.take(row(1, "a"), row(2, "b"), row(3, "c"))
    # As IcebergTables does it: b is set aside from the second checkpoint on, c from the third.
    begin = {("events", 3): 3}
    stream.aside.keep({str(tmp_path / "e_b"): quarantined(1, begin, ["events"], ValueError("bad"), 0)})
    stream.take(row(4, "a"), row(5, "b"), row(6, "c"))
    later = quarantined(2, {("events", 3): 6}, ["events"], ValueError("bad"), 0)
    stream.aside.keep({**stream.aside.entries, str(tmp_path / "e_c"): later})
    stream.take(row(7, "a"), row(8, "b"), row(9, "c"))
    assert [stream.ids(name) for name in ("e_a", "e_b", "e_c")] == [[1, 4, 7], [2], [3, 6]]
    stream.restart()
    stream.take(row(10, "a"), row(11, "b"), row(12, "c"), row(13, "new"))
    assert [stream.ids(name) for name in ("e_a", "e_b", "e_c", "e_new")] == [
        [1, 4, 7, 10],
        [2, 5, 8, 11],
        [3, 6, 9, 12],
        [13],
    ]


def test_tables_follow_their_own_rows(made: Make, tmp_path: Path) -> None:
    stream = made(schema_evolution="add")
    stream.take(row(1, "a", v="x"), row(2, "b"))
    stream.take(row(3, "a"), row(4, "b", w="new"), row(5, "n"))
    columns = {name: open_table(str(tmp_path / name)).schema.column_names for name in ("e_a", "e_b", "e_n")}
    assert columns["e_a"] == ["id", "c", "v"], "no row of it has the new field"
    assert columns["e_b"] == ["id", "c", "v", "w"]
    assert stream.rows("e_b")[1] == {"id": 4, "c": "b", "v": None, "w": "new"}
    assert (stream.ids("e_a"), stream.ids("e_n")) == ([1, 3], [5])


def test_a_wider_type_and_a_null_change_the_tables_that_have_them(made: Make, tmp_path: Path) -> None:
    stream = made("id long not null, c string, n int not null", schema_evolution="full")
    stream.take(row(1, "a", n=1), row(2, "b", n=1), row(3, "x", n=1))
    stream.take(row(4, "a", n=1 << 40), row(5, "b", n=2), row(6, "x"))
    fields = {name: open_table(str(tmp_path / name)).schema.find("n") for name in ("e_a", "e_b", "e_x")}
    told = {name: (str(part.type), part.required) for name, part in fields.items() if part is not None}
    assert told == {"e_a": ("long", True), "e_b": ("int", True), "e_x": ("int", False)}
    assert [stream.rows(name)[1]["n"] for name in ("e_a", "e_b", "e_x")] == [1 << 40, 2, None]


def test_without_a_schema_the_tables_tell_it(made: Make, tmp_path: Path) -> None:
    stream = made("id long, c string, n int")
    stream.take(row(1, "a", n=1), row(2, "b", n=1))
    UpdateSchema(open_table(str(tmp_path / "e_b"))).widen("n", "long").add_column("w", "string").commit()
    again = made(None)
    again.values, again._ends, again.named = stream.values, stream._ends, stream.named
    again.restart()
    again.take(row(3, "a", n=2, w="lost"), row(4, "b", n=1 << 40, w="kept"), row(5, "c", n=1 << 41))
    assert again.rows("e_b")[1] == {"id": 4, "c": "b", "n": 1 << 40, "w": "kept"}
    assert again.rows("e_a")[1] == {"id": 3, "c": "a", "n": 2}
    assert again.rows("e_c") == [{"id": 5, "c": "c", "n": 1 << 41, "w": None}]
    with pytest.raises(SchemaMismatchError, match=r"e_a.*'n'"):
        again.take(row(6, "a", n=1 << 40), row(7, "b"))
    assert again.ids("e_b") == [2, 4, 7], "what one table meets does not keep the others"


def test_a_function_names_the_tables(made: Make) -> None:
    def route(rows: Any) -> Any:
        return pc.if_else(pc.equal(pc.bit_wise_and(rows.column("id"), 1), 0), "even", rows.column("c"))

    stream = made(table="by/{route}", route=route, default_table="rest")
    (stream.home / "by").mkdir()
    stream.take(row(1, "Odd"), row(2, None), row(3, None), row(4, "x"))
    assert (stream.ids("by/even"), stream.ids("by/Odd"), stream.ids("rest")) == ([2, 4], [1], [3])


def event(op: str, before: Any, after: Any, lsn: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "schema": "public", "table": "t", "lsn": lsn}
    key = (after or before)["id"]
    return {"key": {"id": key}, "value": {"before": before, "after": after, "op": op, "source": source}}


def test_changes_go_to_the_table_of_their_row_and_rows_move_between_tables(made: Make) -> None:
    stream = made(format="debezium-json", mode="upsert", key=["id"])
    rows = {at: row(at, "a" if at < 3 else "b", v="0") for at in range(1, 6)}
    stream.take(*(event("c", None, each, at) for at, each in rows.items()))
    assert (stream.ids("e_a"), stream.ids("e_b")) == ([1, 2], [3, 4, 5])
    moved, kept = row(1, "b", v="1"), row(4, "b", v="1")
    stream.take(
        event("u", rows[1], moved, 10), event("u", rows[4], kept, 11), event("d", rows[2], None, 12),
        event("u", rows[5], row(5, "n", v="1"), 13),
    )  # fmt: skip
    assert (stream.ids("e_a"), stream.rows("e_b"), stream.ids("e_n")) == ([], [moved, rows[3], kept], [5])
    stream.restart()
    stream.again()
    assert (stream.ids("e_a"), stream.ids("e_b"), stream.ids("e_n")) == ([], [1, 3, 4], [5])


@pytest.mark.parametrize("copies", [1, 10])
def test_rows_move_from_and_to_the_default_table(made: Make, copies: int) -> None:
    """As few records, which are read one by one, and as many."""
    stream = made(format="debezium-json", mode="upsert", key=["id"], default_table="other")
    ids = range(3 * copies)
    old = [row(at, (None, "de", None)[at % 3], v="old") for at in ids]
    new = [row(at, ("de", None)[at % 3], v="new") for at in ids if at % 3 < 2]
    stream.take(*(event("c", None, each, each["id"]) for each in old))
    stream.take(
        *(event("u", old[each["id"]], each, 100 + each["id"]) for each in new),
        *(event("d", old[at], None, 200 + at) for at in ids if at % 3 == 2),
    )
    assert stream.rows("e_de") == [each for each in new if each["c"]]
    assert stream.rows("other") == [each for each in new if not each["c"]]


@pytest.mark.parametrize("copies", [1, 10])
def test_a_row_that_no_table_held_moves_into_one(made: Make, copies: int, tmp_path: Path) -> None:
    stream = made(format="debezium-json", mode="upsert", key=["id"], on_error="reject")
    old = [row(at, None, v="old") for at in range(copies)]
    stream.take(*(event("u", each, {**each, "c": "de"}, 1) for each in old))
    assert (stream.ids("e_de"), stream.tables()) == (list(range(copies)), {"e_de"})
    stream.take(*(event("u", {**each, "c": "de"}, each, 2) for each in old))
    assert (stream.ids("e_de"), len(rejected_rows_of(tmp_path / "e_unrouted"))) == ([], copies)


def test_a_part_of_the_record_may_name_the_table(made: Make) -> None:
    stream = made(
        table="{row.topic}_{row.c}", format="debezium-json", mode="upsert", key=["id"], include=["topic"]
    )
    stream.take(event("c", None, row(1, "a"), 1), event("c", None, row(2, "b"), 2))
    stream.take(event("u", row(1, "a"), row(1, "b"), 3))
    assert (stream.ids("events_a"), stream.ids("events_b")) == ([], [1, 2])


def test_a_truncate_is_for_all_tables(made: Make) -> None:
    stream = made(format="debezium-json", mode="upsert", key=["id"])
    stream.take(*(event("c", None, row(at, c), at) for at, c in enumerate("aabb", 1)))
    truncate = {
        "key": None,
        "value": {"op": "t", "source": event("c", None, row(1, "a"), 10)["value"]["source"]},
    }
    stream.take(truncate, event("c", None, row(9, "b"), 11))
    assert (stream.ids("e_a"), stream.ids("e_b")) == ([], [9])


def of_source(change: dict[str, Any], table: str) -> dict[str, Any]:
    source = {**change["value"]["source"], "table": table}
    return {**change, "value": {**change["value"], "source": source}}


def kept_of(stream: RoutedStream, part: str) -> dict[str, str]:
    return sources_of(open_table(str(stream.home / part)))


def unbound(stream: RoutedStream, *parts: str) -> None:
    """Nothing is kept of the topic any more, as in a table of before."""
    for part in parts:
        UpdateProperties(open_table(str(stream.home / part))).remove(PROPERTY).commit()
    stream.restart()


def test_tables_that_are_made_later_are_bound_as_the_others_are(made: Make) -> None:
    stream = made(format="debezium-json", mode="upsert", key=["id"])
    stream.take(event("c", None, row(1, "a"), 1))
    stream.take(event("c", None, row(2, "b"), 2), event("c", None, row(3, "a"), 3))
    assert [kept_of(stream, name) for name in ("e_a", "e_b")] == [{"events": "public.t"}] * 2
    # Of another database, by another topic: its truncate is refused.
    source = KafkaSource("h:1", "others", schema=DDL, format="debezium-json")
    decoder = row_decoder(source, ["id"], topic="others", sources=kept_of(stream, "e_b"))
    truncate = {"op": "t", "source": event("c", None, row(1, "b"), 90)["value"]["source"]}
    mine = of_source(event("c", None, row(9, "b"), 80), "u")
    found = decoder.decode(raw_batch([mine, {"value": truncate}], "others"), keep_rejects=True)
    assert (found.truncates, len(found.rejects)) == ((), 1)
    # A stream that knows this table alone refuses another table's rows.
    unbound(stream, "e_a")
    with pytest.raises(DecodeError, match=r"change of the table 'public\.u', and those of this topic before"):
        stream.take(of_source(event("c", None, row(4, "b"), 4), "u"))
    assert kept_of(stream, "e_a") == {"events": "public.t"}, "bound anew by what the other one keeps"
    assert (stream.ids("e_a"), stream.ids("e_b")) == ([1, 3], [2])


def test_a_table_that_has_its_topic_of_another_table_is_not_written(made: Make) -> None:
    stream = made(format="debezium-json", mode="upsert", key=["id"])
    stream.take(event("c", None, row(1, "a"), 1), event("c", None, row(2, "b"), 2))
    table = open_table(str(stream.home / "e_b"))
    UpdateProperties(table).set(PROPERTY, json.dumps({"events": "public.u"})).commit()
    stream.restart()
    with pytest.raises(
        InvalidOptionError, match=r"e_b: .*of the table 'public\.u'.* of '.*' that it is of 'public\.t'"
    ):
        stream.take(event("c", None, row(3, "a"), 3), event("c", None, row(4, "b"), 4))
    assert (stream.ids("e_a"), stream.ids("e_b")) == ([1, 3], [2])


NARROW = "id long not null, c string, v int"
"""Of a table of whose stream `v` is a long."""


def narrow(made: Make, tmp_path: Path, *parts: str) -> RoutedStream:
    for part in parts:
        make_table(tmp_path / part, NARROW)
    ddl = NARROW.replace("int", "long")
    stream: RoutedStream = made(ddl, format="debezium-json", mode="upsert", key=["id"], on_error="reject")
    return stream


@pytest.mark.parametrize("count", [1, 20])
def test_records_that_their_tables_reject_do_not_bind_the_topic(
    made: Make, count: int, tmp_path: Path
) -> None:
    stream = narrow(made, tmp_path, "e_a")
    stream.take(event("c", None, row(1, "a", v=1), 1))
    unbound(stream, "e_a")
    misfits = [of_source(event("c", None, row(100 + at, "a", v=1 << 40), 2), "u") for at in range(count)]
    nowhere = [of_source(event("c", None, row(200 + at, None, v=1), 2), "u") for at in range(count)]
    stream.take(*misfits, *nowhere)
    assert kept_of(stream, "e_a") == {}
    assert [len(rejected_rows_of(tmp_path / name)) for name in ("e_a", "e_unrouted")] == [count, count]
    stream.take(*misfits, *nowhere, event("c", None, row(2, "a", v=2), 3))
    assert kept_of(stream, "e_a") == {"events": "public.t"}
    assert stream.ids("e_a") == [1, 2]
    # By then they are of another table, whatever else is wrong with them.
    assert [len(rejected_rows_of(tmp_path / name)) for name in ("e_a", "e_unrouted")] == [count, 3 * count]


@pytest.mark.parametrize("count", [1, 20])
def test_rows_of_a_table_that_the_stream_has_not_met_bind_once_they_are_written(
    made: Make, count: int, tmp_path: Path
) -> None:
    stream = narrow(made, tmp_path, "e_a", "e_n")
    stream.take(event("c", None, row(1, "a", v=1), 1))
    unbound(stream, "e_a")
    misfits = [of_source(event("c", None, row(100 + at, "n", v=1 << 40), 2), "u") for at in range(count)]
    stream.take(*misfits)
    assert (kept_of(stream, "e_a"), kept_of(stream, "e_n")) == ({}, {})
    assert len(rejected_rows_of(tmp_path / "e_n")) == count
    stream.take(*misfits, event("c", None, row(2, "m", v=2), 3))
    assert (kept_of(stream, "e_m"), stream.ids("e_m")) == ({"events": "public.t"}, [2])
    stream.take(event("c", None, row(3, "a", v=3), 4))
    assert [kept_of(stream, name) for name in ("e_a", "e_n")] == [{"events": "public.t"}] * 2
    assert stream.ids("e_a") == [1, 3]


def test_a_delete_as_the_first_record_binds_its_topic(made: Make) -> None:
    for table in ("t", "u"):
        stream = made(format="debezium-json", mode="upsert", key=["id"], table=f"{table}_{{row.c}}")
        stream.take(of_source(event("d", row(1, "a"), None, 1), table))
        assert kept_of(stream, f"{table}_a") == {"events": f"public.{table}"}
        if table == "t":
            stream.take(event("c", None, row(1, "a"), 2))
            continue
        with pytest.raises(
            DecodeError, match=r"'public\.t', and those of this topic before were of 'public\.u'"
        ):
            stream.take(event("c", None, row(1, "a"), 2))
    assert (stream.home / "t_a").is_dir()
    assert TableScan(open_table(str(stream.home / "t_a"))).count() == 1
    assert TableScan(open_table(str(stream.home / "u_a"))).count() == 0


def test_many_tables_in_little_memory(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routed_append, "MAX_OPEN", 3)
    stream = made(properties={"streamlake.write.memory-budget-bytes": 1 << 20})
    stream.take(*(row(at, f"t{at % 20}", v="x" * 2_000) for at in range(1_000)))
    for at in range(20):
        assert stream.ids(f"e_t{at}") == list(range(at, 1_000, 20))
    tables = [open_table(str(stream.home / f"e_t{at}")) for at in range(20)]
    assert max(len(list(TableScan(table).plan_files())) for table in tables) > 1, (
        "files had to be finished early"
    )
    check_table(tables[7], files_exist=True)


def test_a_table_that_lacks_what_the_stream_needs_is_an_error(made: Make) -> None:
    """Its rows are nowhere: the checkpoint must not count as done."""
    for mode in ({"mode": "upsert", "key": ["id"]}, {}):
        stream = made(table=f"{len(mode)}_{{row.c}}", **mode)
        names = [f"{len(mode)}_{part}" for part in "ab"]
        stream.take(row(1, "a"), row(2, "b"))
        UpdateSchema(open_table(str(stream.home / names[1]))).delete("v").commit()
        stream.restart()
        with pytest.raises(SchemaMismatchError, match="v"):
            stream.take(row(3, "a"), row(4, "b"))
        assert [stream.ids(name) for name in names] == [[1, 3], [2]]


def test_source_tables_that_are_passed_over_are_told_of(made: Make, caplog: pytest.LogCaptureFixture) -> None:
    stream = made(format="debezium-json", mode="upsert", key=["id"])
    others = [of_source(event("c", None, row(10 + at, "a"), 1), "u") for at in range(3)]
    for wanted, ids, warnings in (("public.t", [1], 0), ("public.T", None, 1)):
        own = {"source-tables": wanted}
        options = {"source": KafkaSource("h:1", "events", schema=DDL, format="debezium-json", options=own)}
        stream.restart(**options)
        with caplog.at_level(logging.INFO):
            caplog.clear()
            stream.take(*others, event("c", None, row(1, "a"), 1))
            stream.take(*others)
        assert stream.ids("e_a") == (ids or [1])
        told = [
            each.getMessage() for each in caplog.records if "no record is of the table" in each.getMessage()
        ]
        assert len(told) == warnings
        assert any("3 records of other source tables were passed over" in each for each in caplog.messages)
