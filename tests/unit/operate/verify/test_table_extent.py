"""Which rows of a source table are due in the table that a stream copies them into, by the sink's own commits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streamlake.errors import InvalidOptionError, LineageError
from streamlake.operate.verify.table_extent import TableExtent, table_extent
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.tables import LoadedTable, create_table
from tests.helpers.table_pipelines import TablePipeline
from tests.unit.pipeline.iceberg.table_streams import add, compact, expire, overwrite
from tests.unit.read.written_tables import append

EARLIEST = {"starting_strategy": "incremental-from-earliest-snapshot"}


@pytest.fixture
def source(tmp_path: Path) -> LoadedTable:
    return create_table(str(tmp_path / "bronze"), "id long, category string")


@pytest.fixture
def pipeline(tmp_path: Path, source: LoadedTable) -> TablePipeline:
    return TablePipeline(tmp_path, source)


@pytest.fixture
def sink(pipeline: TablePipeline) -> LoadedTable:
    return create_table(str(pipeline.table), "id long, category string")


def extent(
    pipeline: TablePipeline, sink: LoadedTable, until: str = "committed", columns: Any = None, **options: Any
) -> TableExtent:
    named = {key.replace("_", "-"): value for key, value in options.items()}
    filter_ = named.pop("filter", None)
    source = IcebergSource(pipeline.source.location, filter=filter_, columns=columns, options=named)
    return table_extent(source, sink.metadata, sink.table.current_snapshot, until)


def rows(found: TableExtent) -> int:
    return sum(task.data_file.record_count for task in found.tasks)


def step(pipeline: TablePipeline, sink: LoadedTable, **options: Any) -> None:
    pipeline.step(**options)
    pipeline.commit(len(pipeline.log) - 1, [{"id": 1}], sink)


def test_a_scan_and_what_came_after(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    add(source, 1, 2)
    add(source, 3)
    step(pipeline, sink)
    last = add(source, 4, 5)
    step(pipeline, sink)
    add(source, 6)
    found = extent(pipeline, sink)
    assert rows(found) == 5
    assert found.name == f"table {source.location} up to snapshot {last}"
    assert found.notes == ("1 snapshot is newer than what pipeline 'silver' has committed, and not compared",)
    assert found.columns == ("id", "category")
    latest = extent(pipeline, sink, "latest")
    assert (rows(latest), latest.notes) == (6, ())


def test_what_was_deleted_since_was_read(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    """The copy of appends keeps rows that the source has lost: they are due all the same."""
    add(source, 1, 2)
    step(pipeline, sink)
    add(source, 3)
    compact(source)
    overwrite(source, "true", 7, 8, 9)
    add(source, 4)
    step(pipeline, sink, on_delete="skip")
    assert rows(extent(pipeline, sink, on_delete="skip")) == 4


def test_where_the_stream_began_is_in_its_first_commit(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1, 2)
    latest = {"starting_strategy": "incremental-from-latest-snapshot-exclusive"}
    pipeline.step(**latest)  # it brings nothing, so it leaves no commit
    add(source, 3)
    step(pipeline, sink, **latest)
    assert rows(extent(pipeline, sink, **latest)) == 1
    assert rows(extent(pipeline, sink)) == 1, "whatever the options of the day"


def test_a_filter_and_columns(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    add(source, 1, 2)
    add(source, 30)
    step(pipeline, sink)
    found = extent(pipeline, sink, columns=["id"], filter="id > 20")
    assert rows(found) == 1
    assert found.columns == ("id",)


def test_in_the_middle_of_a_snapshot(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    add(source, 1)
    last = add(source, 2)
    step(pipeline, sink, max_files_per_trigger=1)
    with pytest.raises(InvalidOptionError, match=f"in the middle of snapshot {last}.*cannot be compared"):
        extent(pipeline, sink)


def test_other_writers_of_the_sink(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    add(source, 1)
    step(pipeline, sink)
    append(sink, [{"id": 7}])
    [note] = extent(pipeline, sink).notes
    assert "1 snapshot of the table is not of pipeline 'silver' but of a writer without a pipeline" in note


def test_snapshots_that_have_expired(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    first = add(source, 1)
    step(pipeline, sink)
    second = add(source, 2)
    step(pipeline, sink)
    add(source, 3)
    expire(source, first)
    found = extent(pipeline, sink)
    assert rows(found) == 2
    assert f"snapshot {first}, with which the stream began, has expired" in found.notes[-1]
    expire(source, second)
    with pytest.raises(
        InvalidOptionError, match=f"snapshot {second} .*has expired, so that there is nothing"
    ):
        extent(pipeline, sink)


def test_another_table_and_none(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    add(source, 1)
    assert "no snapshot records how far" in extent(pipeline, sink).notes[0]
    step(pipeline, sink)
    shutil.rmtree(source.location)
    create_table(source.location, "id long, category string")
    with pytest.raises(LineageError, match="dropped and created anew"):
        extent(pipeline, sink)


def test_an_empty_source(pipeline: TablePipeline, sink: LoadedTable) -> None:
    found = extent(pipeline, sink)
    assert (rows(found), found.name.endswith("which is empty")) == (0, True)


def test_changes_are_compared_with_the_table_as_it_was(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1, 2)
    overwrite(source, "true", 7, 8, 9)
    step(pipeline, sink)
    add(source, 4)
    assert rows(extent(pipeline, sink, read_mode="changes")) == 3


def test_changes_after_some_snapshot_are_no_whole(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1, 2)
    add(source, 3)
    step(pipeline, sink, starting_strategy="incremental-from-latest-snapshot")
    with pytest.raises(InvalidOptionError, match="cannot be compared as a whole"):
        extent(pipeline, sink, read_mode="changes")
