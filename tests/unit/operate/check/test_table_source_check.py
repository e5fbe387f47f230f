"""`streamlake check` of a pipeline from table to table: what would stop the stream is reported before it starts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streamlake.operate.check import pipeline_check
from streamlake.operate.check.check_points import Point, Verdict
from streamlake.operate.check.pipeline_check import check_pipeline
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import LoadedTable, create_table
from tests.helpers.table_pipelines import TablePipeline
from tests.unit.pipeline.iceberg.table_streams import add, compact, expire, overwrite, set_branch, tag

ORDER = [Verdict.UNKNOWN, Verdict.RIGHT, Verdict.NOTE, Verdict.WARNING, Verdict.ERROR]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedTable:
    monkeypatch.setattr(pipeline_check, "check_java", lambda: 'openjdk version "17.0.1"')
    return create_table(str(tmp_path / "bronze"), "id long, category string")


@pytest.fixture
def pipeline(tmp_path: Path, source: LoadedTable) -> TablePipeline:
    return TablePipeline(tmp_path, source)


def found(pipeline: TablePipeline, **given: Any) -> dict[str, Point]:
    """The points by what they are about; of several the worst."""
    points = check_pipeline(pipeline.write(**given), lambda pipeline: None)
    return {each.about: each for each in sorted(points.found, key=lambda each: ORDER.index(each.verdict))}


def wrong(pipeline: TablePipeline, verdict: Verdict = Verdict.ERROR, **given: Any) -> dict[str, str]:
    return {each.about: each.message for each in found(pipeline, **given).values() if each.verdict is verdict}


def test_a_pipeline_that_can_be_started(pipeline: TablePipeline, source: LoadedTable) -> None:
    last = add(source, 1, 2), add(source, 3)
    before = sorted(pipeline.table.parent.rglob("*"))
    points = found(pipeline)
    assert {each.verdict for each in points.values()} == {Verdict.RIGHT}
    assert sorted(points) == ["checkpoint", "file", "java", "offsets", "source", "table"]
    assert f"2 snapshots up to snapshot {last[1]}" in points["source"].message
    assert (
        points["offsets"].message
        == f"a new stream begins with all rows of snapshot {last[1]}; 1 snapshot (3 rows) before the end of the "
        "table"
    )
    assert "can be created: format version 2, id long, category string" in points["table"].message
    assert sorted(pipeline.table.parent.rglob("*")) == sorted([*before, pipeline.file])


def test_a_table_without_snapshots(pipeline: TablePipeline) -> None:
    points = found(pipeline)
    assert {each.verdict for each in points.values()} == {Verdict.RIGHT}
    assert "begins with the table's first snapshot; 0 snapshots" in points["offsets"].message
    assert "and is empty" in points["source"].message


def test_there_is_no_source(pipeline: TablePipeline) -> None:
    shutil.rmtree(pipeline.source.location)
    errors = wrong(pipeline)
    assert list(errors) == ["source"]
    assert "bronze" in errors["source"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_snapshot_id": 99}, "has no snapshot 99"),
        ({"start_tag": "eood"}, "no tag 'eood'; did you mean 'eod'"),
        ({"end_tag": "eood"}, "no tag 'eood'"),
        ({"start_snapshot_id": "SIDE"}, "is not of branch main"),
        ({"end_snapshot_id": "SIDE"}, "is not of branch main"),
        ({"start_snapshot_id": "LAST", "end_snapshot_id": "FIRST"}, "comes before the start"),
        ({"branch": "sied"}, "no branch 'sied'; did you mean 'side'"),
    ],
)
def test_bounds_that_the_table_does_not_have(
    pipeline: TablePipeline, source: LoadedTable, options: dict[str, Any], message: str
) -> None:
    ids = {"FIRST": add(source, 1)}
    tag(source, "eod")
    ManageRefs(source.table).create_branch("side", ids["FIRST"]).commit()
    source.refresh()
    ids["SIDE"] = add(source, 5, branch="side")
    ids["LAST"] = add(source, 2)
    errors = wrong(pipeline, **{name: ids.get(str(value), value) for name, value in options.items()})
    assert list(errors) == ["offsets"]
    assert message in errors["offsets"]


def test_a_filter_on_a_column_that_there_is_not(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    errors = wrong(pipeline, arguments="filter: amuont > 10")
    assert "amuont" in errors["schema"]


def test_a_watermark_column_that_orders_nothing(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    assert "watermark-column 'category'" in wrong(pipeline, watermark_column="category")["schema"]


def test_columns_that_there_are_not(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    errors = wrong(pipeline, arguments="columns: [id, categry]")
    assert "categry" in errors["schema"]
    assert "category" in errors["schema"]


def test_chosen_columns_are_those_of_a_new_table(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    points = found(pipeline, arguments="columns: id")
    assert points["table"].message.endswith("format version 2, id long")


def test_the_columns_fit_the_sinks(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    create_table(str(pipeline.table), "id int, category string, more string")
    points = found(pipeline)
    assert points["columns"].verdict is Verdict.WARNING
    assert "id is long in the stream and int in the table" in points["columns"].message
    create_table(str(pipeline.table.parent / "other"), "id long, category date")
    errors = wrong(pipeline, table=pipeline.table.parent / "other")
    assert "category is string in the stream and date in the table" in errors["columns"]


def test_a_table_that_reads_itself(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    errors = wrong(pipeline, table=source.location)
    assert "and writes it too: each of its commits would be read again" in errors["source"]
    assert "source" not in wrong(pipeline, table=source.location, sink="branch: side")


def test_deletes_that_are_due(pipeline: TablePipeline, source: LoadedTable) -> None:
    first = add(source, 1, 2)
    compact(source)
    bad = overwrite(source, "true", 3, 4)
    earliest = {"start_snapshot_id": first}
    errors = wrong(pipeline, **earliest)
    assert f"snapshot {bad} is an 'overwrite'" in errors["offsets"]
    assert "read-mode=changes" in errors["offsets"]
    assert "on-delete=skip" in errors["offsets"]
    warnings = wrong(pipeline, Verdict.WARNING, on_delete="skip", **earliest)
    assert "1 snapshot that delete or overwrite are passed over, with 2 rows" in warnings["offsets"]


def test_deletes_of_the_past(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1, 2)
    bad = overwrite(source, "true", 3, 4)
    add(source, 5)
    warnings = wrong(pipeline, Verdict.WARNING)
    assert f"has deletes (snapshot {bad} is the last that is 'overwrite')" in warnings["offsets"]
    assert not wrong(pipeline, Verdict.WARNING, on_delete="skip")


def test_a_first_scan_after_deletes_is_a_scan(pipeline: TablePipeline, source: LoadedTable) -> None:
    """The scanned snapshot itself may be one that deletes: all of its rows are read."""
    add(source, 1, 2)
    overwrite(source, "true", 3, 4)
    assert not wrong(pipeline)


def test_a_directory_that_goes_on(pipeline: TablePipeline, source: LoadedTable) -> None:
    first = add(source, 1)
    pipeline.step()
    add(source, 2)
    add(source, 3)
    points = found(pipeline)
    assert {each.verdict for each in points.values()} == {Verdict.RIGHT, Verdict.ERROR}
    assert points["lineage"].verdict is Verdict.ERROR  # the directory has a checkpoint, and there is no table
    assert (
        points["offsets"].message
        == f"the checkpoint directory goes on after snapshot {first}; 2 snapshots (2 rows) before the end of the "
        "table"
    )


def test_a_directory_in_the_middle_of_a_scan(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    last = add(source, 2)
    pipeline.step(max_files_per_trigger=1)
    assert f"goes on in the middle of snapshot {last}" in found(pipeline)["offsets"].message


def test_a_micro_batch_that_has_to_run_again(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    pipeline.step()
    second = add(source, 2)
    pipeline.step(done=False)
    add(source, 3)
    assert "offsets" not in wrong(pipeline)
    assert "planned with another filter" in wrong(pipeline, arguments="filter: id > 1")["offsets"]
    expire(source, second)
    assert f"snapshot {second}, of which the last micro-batch reads" in wrong(pipeline)["offsets"]


def test_what_came_next_has_expired(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    pipeline.step()
    second = add(source, 2)
    add(source, 3)
    expire(source, second)
    assert "has expired" in wrong(pipeline)["offsets"]
    warnings = wrong(pipeline, Verdict.WARNING, fail_on_data_loss=False)
    assert "1 snapshot or more have expired" in warnings["offsets"]


def test_a_table_that_was_replaced_or_rolled_back(pipeline: TablePipeline, source: LoadedTable) -> None:
    first = add(source, 1)
    add(source, 2)
    pipeline.step()
    set_branch(source, first)
    assert "was rolled back" in wrong(pipeline)["offsets"]
    shutil.rmtree(source.location)
    create_table(source.location, "id long, category string")
    assert "dropped and created anew" in wrong(pipeline)["offsets"]


def test_a_directory_of_another_source(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    pipeline.step()
    entry = pipeline.checkpoint / "streamlake" / "offsets" / "0"
    entry.write_text('v1\n{"offsets": {"orders": {"0": 3}}}\n')
    assert "belongs to another source" in wrong(pipeline)["checkpoint"]
    entry.write_text(entry.read_text().replace("offsets", "version").replace('{"orders": {"0": 3}}', "9"))
    assert "version 9" in wrong(pipeline)["checkpoint"]


def test_changes_need_a_mode_that_carries_them_out(pipeline: TablePipeline, source: LoadedTable) -> None:
    add(source, 1)
    keeps = found(pipeline, read_mode="changes")["mode"]
    assert keeps.verdict is Verdict.NOTE
    assert "as a row of its own" in keeps.message
    assert "sink.mode: upsert" in keeps.message
    overwrites = wrong(pipeline, read_mode="changes", sink="create: true, mode: overwrite")
    assert "mode 'overwrite' cannot carry out" in overwrites["mode"]
    keyed = found(pipeline, read_mode="changes", sink="create: true, mode: upsert, key: id")
    assert not [each for each in keyed.values() if each.verdict is Verdict.ERROR]
    assert "mode" not in keyed
    no_key = wrong(pipeline, read_mode="changes", sink="create: true, mode: upsert")
    assert "no identifier fields" in no_key["key"]


def test_deletes_are_no_trouble_for_changes(pipeline: TablePipeline, source: LoadedTable) -> None:
    first = add(source, 1, 2)
    overwrite(source, "true", 3, 4)
    given = {"read_mode": "changes", "sink": "create: true, mode: upsert, key: id"}
    found_points = found(pipeline, start_snapshot_id=first, **given)
    assert {each.verdict for each in found_points.values()} == {Verdict.RIGHT}
    assert "2 snapshots (6 rows)" in found_points["offsets"].message


def test_a_sink_that_is_there_with_its_commits(pipeline: TablePipeline, source: LoadedTable) -> None:
    sink = create_table(str(pipeline.table), "id long, category string")
    add(source, 1)
    pipeline.step()
    pipeline.commit(0, [{"id": 1, "category": "b"}], sink)
    points = found(pipeline)
    assert {each.verdict for each in points.values()} == {Verdict.RIGHT}
    assert "agree" in points["lineage"].message
