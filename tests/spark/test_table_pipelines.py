"""Pipeline files whose source is a table: checked, run, looked at and compared, with the commands of a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamlake import create_table, load_table
from streamlake.cli import main as cli
from streamlake.cli.commands import verify as verify_command
from streamlake.errors import StreamlakeError
from streamlake.operate.check.pipeline_check import check_pipeline
from streamlake.operate.status.status import PipelineStatus, status_of
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.pipeline.definition.running import PipelineRun, run_pipeline
from streamlake.tables import LoadedTable
from tests.helpers.table_pipelines import TablePipeline
from tests.unit.pipeline.iceberg.table_streams import add, compact
from tests.unit.read.written_tables import append

NOW = {"trigger": "available-now"}


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> LoadedTable:
    return create_table(str(tmp_path / "bronze"), "id long, category string")


@pytest.fixture
def pipeline(tmp_path: Path, source: LoadedTable) -> TablePipeline:
    return TablePipeline(tmp_path, source)


def run(pipeline: TablePipeline, spark: SparkSession, **given: Any) -> int:
    """Run it to its end; returns how many rows it has committed."""
    loaded = load_pipeline(pipeline.write(**NOW, **given))
    return run_pipeline(loaded, spark).rows


def status(pipeline: TablePipeline) -> PipelineStatus:
    with status_of(load_pipeline(str(pipeline.file))) as reader:
        return reader.read()


def ids(pipeline: TablePipeline) -> list[int]:
    return sorted(load_table(str(pipeline.table)).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def test_a_pipeline_is_checked_run_and_looked_at(
    pipeline: TablePipeline, source: LoadedTable, spark: SparkSession
) -> None:
    add(source, 1, 2)
    head = add(source, 3)
    given = {"arguments": "filter: id > 1", "monitor_interval": "0 s"}
    assert check_pipeline(pipeline.write(**NOW, **given), PipelineRun).is_right
    assert run(pipeline, spark, **given) == 2
    assert ids(pipeline) == [2, 3]
    found = status(pipeline)
    assert found.source is not None
    assert (found.lag, found.source.snapshot_id, found.problems) == (0, head, ())
    add(source, 4, 5)
    assert (status(pipeline).lag, status(pipeline).source.rows) == (1, 2)  # type: ignore[union-attr]
    checked = check_pipeline(str(pipeline.file), PipelineRun)
    assert checked.is_right
    assert run(pipeline, spark, **given) == 2
    assert ids(pipeline) == [2, 3, 4, 5]
    compact(source)
    assert status(pipeline).lag == 1
    assert run(pipeline, spark, **given) == 0
    assert status(pipeline).lag == 0, "what left nothing to commit is read, too"


def test_a_stream_with_an_end_stops_there(
    pipeline: TablePipeline, source: LoadedTable, spark: SparkSession
) -> None:
    first = add(source, 1, 2)
    add(source, 3)
    loaded = load_pipeline(pipeline.write(end_snapshot_id=first))
    assert loaded.ends_by_itself
    assert run_pipeline(loaded, spark).rows == 2
    assert ids(pipeline) == [1, 2]


def test_what_check_refuses_the_start_refuses(
    pipeline: TablePipeline, source: LoadedTable, spark: SparkSession
) -> None:
    """Each error of the check stops a run, too: nothing that it reports is harmless."""
    add(source, 1)
    for given in (
        {"arguments": "filter: amount > 1"},
        {"arguments": "columns: amount"},
        {"start_snapshot_id": 7},
        {"end_tag": "eod"},
        {"watermark_column": "category"},
        {"table": source.location},
        {"sink": "create: true, mode: upsert"},
        {"sink": "create: true, mode: overwrite", "read_mode": "changes"},
    ):
        path = pipeline.write(**NOW, **given)
        points = check_pipeline(path, PipelineRun)
        assert not points.is_right, given
        with pytest.raises(StreamlakeError) as caught:
            run_pipeline(load_pipeline(path), spark)
        errors = [each.message for each in points.found if each.verdict.value == "error"]
        assert any(error[:60] in str(caught.value) for error in errors), (given, errors, str(caught.value))


def verified(pipeline: TablePipeline, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["verify", "--pipeline", str(pipeline.file), "--json"])
    return dict(json.loads(capsys.readouterr().out))


def test_the_copy_is_compared_with_what_was_read(
    pipeline: TablePipeline,
    source: LoadedTable,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(verify_command, "spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    given = {"arguments": "filter: id > 1\n    columns: [id]", "monitor_interval": "0 s"}
    add(source, 1, 2, 2)
    run(pipeline, spark, **given)
    add(source, 3, 4)
    run(pipeline, spark, **given)
    compact(source)
    add(source, 5)
    found = verified(pipeline, capsys)
    assert (found["is_equal"], found["source_rows"], found["table_rows"]) == (True, 4, 4)
    assert found["columns"] == ["id"]
    append(load_table(str(pipeline.table)), [{"id": 2}, {"id": 70}])
    found = verified(pipeline, capsys)
    assert (found["is_equal"], found["missing"], found["extra"], found["duplicates"]) == (False, 0, 1, 1)
    assert any("not of pipeline 'silver'" in note for note in found["notes"])
