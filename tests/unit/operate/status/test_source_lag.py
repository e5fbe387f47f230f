"""`streamlake status` of a pipeline from table to table: lag by what the sink has committed, and what is in the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamlake import clock
from streamlake.checkpoint.identity import offsets_digest
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_note import Noted
from streamlake.cli import main as cli
from streamlake.operate.status.status import PipelineStatus, status_of, status_of_table
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.tables import LoadedTable, create_table
from tests.helpers.table_pipelines import JOB, TablePipeline
from tests.unit.pipeline.iceberg.table_streams import add, compact, expire, overwrite, set_branch


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The time, which goes on by ten seconds whenever it is asked for."""
    time = {"ms": 1_700_000_000_000}

    def now_ms() -> int:
        time["ms"] += 10_000
        return time["ms"]

    monkeypatch.setattr(clock, "now_ms", now_ms)
    return time


@pytest.fixture
def source(tmp_path: Path) -> LoadedTable:
    return create_table(str(tmp_path / "bronze"), "id long, category string")


@pytest.fixture
def pipeline(tmp_path: Path, source: LoadedTable) -> TablePipeline:
    return TablePipeline(tmp_path, source)


@pytest.fixture
def sink(pipeline: TablePipeline) -> LoadedTable:
    return create_table(str(pipeline.table), "id long, category string")


def status(pipeline: TablePipeline, **given: Any) -> PipelineStatus:
    with status_of(load_pipeline(pipeline.write(**given))) as reader:
        return reader.read()


def test_lag_is_what_the_sink_does_not_have(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    first = add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    add(source, 2, 3)
    pipeline.step()  # Spark has finished it by its log, the sink does not have it
    last = add(source, 4)
    found = status(pipeline)
    snapshots = source.metadata.snapshots
    assert found.source is not None
    assert (found.source.snapshot_id, found.source.head_snapshot_id) == (first, last)
    assert (found.lag, found.source.files, found.source.rows) == (2, 2, 3)
    assert found.source.seconds == (snapshots[-1].timestamp_ms - snapshots[0].timestamp_ms) / 1000
    assert (found.notes, found.problems, found.name) == ((), (), "silver")
    assert (found.tables[0].checkpoint_id, found.tables[0].job_id) == (0, JOB)


def test_the_directory_is_not_needed(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    add(source, 2)
    shutil.rmtree(pipeline.checkpoint)
    found = status(pipeline)
    assert found.lag == 1
    assert "no query has been started from" in found.notes[0]


def test_nothing_is_committed_yet(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    last = add(source, 2)
    found = status(pipeline)
    assert found.source is not None
    assert (found.lag, found.source.rows, found.source.files, found.source.snapshot_id) == (1, 2, 2, None)
    assert found.source.seconds is None
    assert found.problems == ()
    assert f"the stream begins with all rows of snapshot {last}" in found.notes[-1]
    found = status(pipeline, starting_strategy="incremental-from-earliest-snapshot")
    assert (found.lag, found.source and found.source.rows) == (2, 2)


def test_a_checkpoint_that_left_nothing_to_commit_counts(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    last = compact(source)
    pipeline.step()
    assert status(pipeline).lag == 1
    directory = SparkDirectory(str(pipeline.checkpoint))
    digest = pipeline.identity(1).offsets_digest
    noted = Noted(sink.table.uuid, True, 0, passed_id=1, passed_digest=digest)
    directory.write_note(noted, str(pipeline.table), "main")
    found = status(pipeline)
    assert (found.lag, found.source and found.source.snapshot_id) == (0, last)
    # What is staged only is not in the table, and a note about another checkpoint 1 says nothing of this one.
    for other in (
        Noted(sink.table.uuid, True, 0, staged_id=1, passed_id=1, passed_digest=digest),
        Noted(sink.table.uuid, True, 0, passed_id=1, passed_digest=offsets_digest(("other",))),
    ):
        directory.write_note(other, str(pipeline.table), "main")
        assert status(pipeline).lag == 1


def test_in_the_middle_of_a_scan(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    add(source, 1)
    last = add(source, 2)
    pipeline.step(max_files_per_trigger=1)
    pipeline.commit(0, [{"id": 1}], sink)
    found = status(pipeline)
    assert found.source is not None
    assert (found.source.snapshot_id, found.source.is_within, found.lag) == (last, True, 1)


def test_a_source_that_is_gone_or_another(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    shutil.rmtree(source.location)
    found = status(pipeline)
    assert (found.lag, len(found.problems)) == (None, 1)
    assert source.location in found.problems[0]
    create_table(source.location, "id long, category string")
    found = status(pipeline)
    assert found.lag is None
    assert "dropped and created anew" in found.problems[0]


def test_what_keeps_the_stream_from_going_on(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    first = add(source, 1)
    second = add(source, 2)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}, {"id": 2}], sink)
    set_branch(source, first)
    assert "was rolled back" in status(pipeline).problems[0]
    set_branch(source, second)
    third = add(source, 3)
    add(source, 4)
    expire(source, third)
    assert "has expired" in status(pipeline).problems[0]
    found = status(pipeline, fail_on_data_loss=False)
    assert (found.lag, len(found.problems)) == (1, 1)
    assert "1 snapshot or more have expired" in found.problems[0]


def test_a_snapshot_that_deletes_is_a_problem(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    overwrite(source, "true", 2)
    found = status(pipeline)
    assert found.lag == 1
    assert "read-mode=append shows appended rows only" in found.problems[0]
    assert status(pipeline, on_delete="skip").problems == ()


def test_a_directory_of_another_source(
    pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable
) -> None:
    add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    entry = pipeline.checkpoint / "streamlake" / "offsets" / "0"
    entry.write_text('v1\n{"offsets": {"orders": {"0": 3}}}\n')
    found = status(pipeline)
    assert "offsets of another source" in found.problems[0]
    assert found.lag == 0


def test_a_table_without_its_file(pipeline: TablePipeline, source: LoadedTable, sink: LoadedTable) -> None:
    first = add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    with status_of_table(sink.location) as reader:
        found = reader.read()
    [note] = found.notes
    assert f"(uuid {source.table.uuid})" in note
    assert f"after snapshot {first}" in note


def test_it_is_shown(
    now: dict[str, int],
    pipeline: TablePipeline,
    source: LoadedTable,
    sink: LoadedTable,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1}], sink)
    last = add(source, 2, 3)
    file = pipeline.write()
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", file, "--json"])
    assert ended.value.code == 0
    content = json.loads(capsys.readouterr().out)
    assert content["lag"] == 1
    assert content["source"] == {
        "table": source.location,
        "branch": "main",
        "snapshot_id": first,
        "is_within": False,
        "head_snapshot_id": last,
        "snapshots": 1,
        "files": 1,
        "rows": 2,
        "seconds": content["source"]["seconds"],
    }
    assert content["source"]["seconds"] >= 10
    assert "source_offset" not in content["tables"][0]
    with pytest.raises(SystemExit):
        cli.main(["status", file])
    shown = " ".join(capsys.readouterr().out.split())
    assert "lag 1 snapshot, 1 file, 2 rows, " in shown
    assert f"up to snapshot {first}; its head is {last}" in shown
