"""A table read directly into another one: every row once, whatever is restarted, limited, or ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamlake import IcebergSink, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.errors import InvalidOptionError, LineageError, SchemaMismatchError
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.table.updates.manage_refs import ManageRefs
from tests.helpers.invariants import check_table
from tests.helpers.table_copy import AVAILABLE_NOW, CONTINUOUSLY, RUN_SECONDS, TableCopy


@pytest.fixture
def copy(spark: SparkSession, tmp_path: Path) -> TableCopy:
    return TableCopy(tmp_path)


def test_the_copy_equals_the_source_and_goes_on_after_a_restart(copy: TableCopy) -> None:
    for first in range(0, 30, 10):
        copy.append(range(first, first + 10))
    copy.run()
    assert copy.is_equal()
    assert copy.ids() == list(range(30))
    copy.append(range(30, 40))
    copy.append(range(40, 50))
    sink = copy.run()
    assert copy.is_equal()
    assert [receipt.rows for receipt in sink.receipts] == [20]
    copy.run()
    assert copy.is_equal()
    check_table(open_table(copy.location), files_exist=True)


def test_the_created_copy_has_the_sources_columns(spark: SparkSession, tmp_path: Path) -> None:
    source = create_table(tmp_path / "source", "id long not null, name string, at timestamp")
    copy = TableCopy.__new__(TableCopy)
    copy.source_table, copy.checkpoint, copy.location = source, str(tmp_path / "c"), str(tmp_path / "copy")
    copy.append(range(3))
    copy.run()
    created = load_table(copy.location).schema
    assert [(part.name, part.type, part.required) for part in created.fields] == [
        (part.name, part.type, part.required) for part in source.schema.fields
    ]


def test_filter_and_columns(copy: TableCopy) -> None:
    copy.append(range(20))
    copy.append(range(20, 40))
    copy.run(filter="id >= 15 and id < 25", columns=["name", "id"])
    table = load_table(copy.location)
    assert table.schema.column_names == ["name", "id"]
    assert copy.ids() == list(range(15, 25))


def test_the_commit_names_the_offsets(copy: TableCopy) -> None:
    copy.append(range(5))
    head = copy.append(range(5, 10))
    copy.run()
    summary = load_table(copy.location).current_snapshot.summary
    [end] = json.loads(summary["streamlake.end-offsets"])
    offset = TableOffset.from_json(json.loads(end))
    assert (offset.table_uuid, offset.position.snapshot_id) == (copy.source_table.metadata.table_uuid, head)
    [logged] = Path(copy.checkpoint, "streamlake", "offsets", "0").read_text().splitlines()[1:]
    assert TableOffset.from_json(json.loads(logged)) == offset


@pytest.mark.parametrize(
    "limits", [{"max_files_per_trigger": 2}, {"max_rows_per_trigger": 15}, {"max_planning_snapshot_count": 1}]
)
def test_micro_batches_are_cut(copy: TableCopy, limits: dict[str, object]) -> None:
    for first in range(0, 50, 10):
        copy.append(range(first, first + 10))
    sink = copy.run(starting_strategy="incremental-from-earliest-snapshot", **limits)
    assert copy.is_equal()
    assert len(sink.receipts) >= 3


def test_a_first_scan_is_cut_and_goes_on_after_a_restart(copy: TableCopy) -> None:
    for first in range(0, 50, 10):
        copy.append(range(first, first + 10))
    query, sink = copy.start(CONTINUOUSLY, max_files_per_trigger=1)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert copy.is_equal()
    assert len(sink.receipts) == 5


def test_available_now_ends_at_the_head_of_its_start(copy: TableCopy) -> None:
    for first in range(0, 30, 10):
        copy.append(range(first, first + 10))
    later: list[int] = []

    def commit(_: object) -> None:
        if not later:
            later.append(copy.append(range(100, 110)))

    sink = IcebergSink(copy.location, create=True, on_commit=commit)
    copy.run(sink, max_files_per_trigger=1)
    assert copy.ids() == list(range(30))
    copy.run()
    assert copy.is_equal()


def test_an_empty_source_makes_an_empty_copy_and_is_streamed_later(copy: TableCopy) -> None:
    copy.run()
    assert load_table(copy.location).schema.column_names == ["id", "name", "at"]
    copy.append(range(3))
    copy.run()
    assert copy.is_equal()


def test_a_stream_with_an_end_finishes_there_under_any_trigger(copy: TableCopy) -> None:
    copy.append(range(5))
    end = copy.append(range(5, 10))
    ManageRefs(copy.source_table.table).create_tag("eod", end).commit()
    copy.append(range(10, 15))
    query, _ = copy.start(CONTINUOUSLY, starting_strategy="incremental-from-earliest-snapshot", end_tag="eod")
    try:
        assert query.awaitTermination(RUN_SECONDS)
    finally:
        query.stop()
    assert copy.ids() == list(range(10))


def test_a_running_stream_asks_the_table_once_per_monitor_interval(copy: TableCopy) -> None:
    copy.append(range(5))
    query, _ = copy.start(CONTINUOUSLY, monitor_interval="1 h")
    try:
        copy.wait_for_ids(range(5), query)
        for first in (5, 10):
            copy.append(range(first, first + 5))
            query.processAllAvailable()
            assert copy.ids() == list(range(first + 5))
    finally:
        query.stop()
    assert query.exception() is None


def test_a_running_stream_goes_on_with_each_snapshot(copy: TableCopy) -> None:
    query, _ = copy.start({"processingTime": "100 milliseconds"}, monitor_interval="50 ms")
    try:
        for first in range(0, 15, 5):
            copy.append(range(first, first + 5))
            copy.wait_for_ids(range(first + 5), query)
    finally:
        query.stop()
    assert copy.is_equal()


def test_the_same_table_is_not_copied_into_itself(copy: TableCopy) -> None:
    copy.append(range(5))
    sink = IcebergSink(copy.source_table.location)
    with pytest.raises(InvalidOptionError, match="and writes it too"):
        sink.start(copy.source(), checkpoint_location=copy.checkpoint, trigger=AVAILABLE_NOW)


def test_another_table_does_not_take_the_directory(copy: TableCopy, tmp_path: Path) -> None:
    copy.append(range(5))
    copy.run()
    copy.location = str(tmp_path / "other")
    with pytest.raises(LineageError):
        copy.run()


def test_an_unnamed_stream_from_the_beginning_is_refused_twice(copy: TableCopy, tmp_path: Path) -> None:
    copy.append(range(5))
    copy.run()
    copy.append(range(5, 8))
    copy.checkpoint = str(tmp_path / "another")
    with pytest.raises(LineageError, match="would write these rows again"):
        copy.run()
    assert copy.ids() == list(range(5))
    copy.checkpoint = str(tmp_path / "a third")
    copy.run(starting_strategy="incremental-from-latest-snapshot")
    assert copy.is_equal()


def test_a_column_that_the_target_lacks(copy: TableCopy) -> None:
    copy.append(range(5))
    create_table(copy.location, "id long, name string")
    with pytest.raises(SchemaMismatchError, match="'at'"):
        copy.run()
    copy.run(columns=["id", "name"])
    assert copy.ids() == list(range(5))
