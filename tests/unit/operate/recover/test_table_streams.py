"""Ways out for a stream from table to table: the offsets in its directory and its commits are those of a table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.cli.main import main
from streamlake.commit.offset_summary import table_offset
from streamlake.operate.recover.recovery import Recovery
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.tables import LoadedTable, create_table, load_table
from tests.helpers.table_pipelines import TablePipeline
from tests.unit.pipeline.iceberg.table_streams import add, enumerator_of


@pytest.fixture
def source(tmp_path: Path) -> LoadedTable:
    return create_table(str(tmp_path / "bronze"), "id long, category string")


@pytest.fixture
def pipeline(tmp_path: Path, source: LoadedTable) -> TablePipeline:
    return TablePipeline(tmp_path, source)


@pytest.fixture
def sink(pipeline: TablePipeline) -> LoadedTable:
    return create_table(str(pipeline.table), "id long, category string")


def recover(pipeline: TablePipeline, *arguments: str, directory: Path | None = None) -> int:
    location = pipeline.checkpoint if directory is None else directory
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "recover", str(pipeline.table), "--checkpoint-location", str(location),
                "--pipeline", "silver", *arguments,
            ]
        )  # fmt: skip
    assert isinstance(ended.value.code, int)
    return ended.value.code


def step(pipeline: TablePipeline, sink: LoadedTable, number: int, **options: object) -> TableOffset:
    end = pipeline.step(**options)
    pipeline.commit(len(pipeline.log) - 1, [{"id": number}], sink)
    return end


def test_a_lost_directory_is_resumed_from_the_table(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    add(source, 1)
    step(pipeline, sink, 1)
    last = add(source, 2)
    end = step(pipeline, sink, 2)
    later = add(source, 3)
    shutil.rmtree(pipeline.checkpoint)
    before = load_table(sink.location).current_snapshot
    assert recover(pipeline, "--resume-from-table") == 0
    text = capsys.readouterr().out
    assert f"goes on after snapshot {last} of the table with uuid {source.table.uuid}" in text
    assert "topics" not in text
    assert not pipeline.checkpoint.exists()
    assert load_table(sink.location).current_snapshot == before
    assert recover(pipeline, "--resume-from-table", "--yes") == 0
    directory = SparkDirectory(str(pipeline.checkpoint))
    assert table_offset(directory.end_offsets(0) or ()) == end
    recovery = Recovery(load_table(sink.location).table, "main", "silver", directory, str(pipeline.table))
    assert recovery.findings == ()
    # The stream goes on with what came after, and with nothing else.
    enumerator = enumerator_of(source)
    found = enumerator.next(end)
    assert (found.position.snapshot_id, found.step) == (later, end.step + 1)


def test_in_the_middle_of_a_scan(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    add(source, 1)
    last = add(source, 2)
    end = step(pipeline, sink, 1, max_files_per_trigger=1)
    shutil.rmtree(pipeline.checkpoint)
    assert recover(pipeline, "--resume-from-table", "--yes") == 0
    assert f"goes on in the middle of snapshot {last}" in capsys.readouterr().out
    assert table_offset(SparkDirectory(str(pipeline.checkpoint)).end_offsets(0) or ()) == end


def test_a_directory_older_than_the_table_is_rewound_with_it(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    add(source, 1)
    step(pipeline, sink, 1)
    copy = pipeline.checkpoint.with_name("copy")
    shutil.copytree(pipeline.checkpoint, copy)
    add(source, 2)
    step(pipeline, sink, 2)
    assert recover(pipeline, directory=copy) == 1
    assert "--rollback-table" in capsys.readouterr().out
    assert recover(pipeline, "--rollback-table", "--yes", directory=copy) == 0
    assert load_table(sink.location).scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1]
    assert recover(pipeline, directory=copy) == 0


def test_another_directory_of_the_same_stream_is_adopted(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    add(source, 1)
    step(pipeline, sink, 1)
    metadata = pipeline.checkpoint / "metadata"
    metadata.write_text(json.dumps({"id": "job-2"}))
    assert recover(pipeline) == 1
    assert "--adopt" in capsys.readouterr().out
    assert recover(pipeline, "--adopt", "--yes") == 0
    assert recover(pipeline) == 0


def test_checkpoints_are_read_again_after_a_rewind(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1)
    first = step(pipeline, sink, 1)
    add(source, 2)
    step(pipeline, sink, 2)
    assert recover(pipeline, "--rewind-to", "0", "--yes") == 0
    assert load_table(sink.location).scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1]
    directory = SparkDirectory(str(pipeline.checkpoint))
    assert (directory.last_planned, table_offset(directory.end_offsets(0) or ())) == (0, first)
    assert directory.end_offsets(1) is None
