"""Streams of the format "streamlake" before Spark 4.2, over restarts and replays."""

from __future__ import annotations

import json

import pytest

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, LineageError
from streamlake.pipeline.spark import admission_control
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.tables import create_table
from tests.unit.pipeline.iceberg.frames.spark_stand_in import Query
from tests.unit.pipeline.iceberg.table_streams import add, compact, overwrite, tag
from tests.unit.read.written_tables import append

pytestmark = pytest.mark.skipif(
    admission_control.HAS_ADMISSION_CONTROL, reason="what Spark does from 4.2 on is in test_admission.py"
)


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


def test_a_trigger_reads_all_that_is_there(table):
    query = Query(table)
    assert query.trigger() == []
    assert query.trigger() is None
    for number in range(3):
        add(table, number)
    compact(table)
    assert query.trigger() == [0, 1, 2]
    assert query.trigger() is None
    add(table, 3)
    query.restart()
    assert query.trigger() == [3]
    query.restart()
    assert query.trigger() is None


def test_a_new_checkpoint_on_a_full_table(table):
    for number in range(3):
        add(table, number)
    query = Query(table)
    add(table, 3)
    assert query.trigger() == [0, 1, 2, 3]
    assert query.trigger() is None
    [first] = query.log
    assert json.loads(first)["start"]["scan"] is True


def test_the_first_offset_says_where_it_began_after_many_snapshots(table):
    ids = [add(table, number) for number in range(5)]
    query = Query(table, start_snapshot_id=ids[1])
    query.log.append(json.dumps(query.latest()))
    add(table, 5)
    query.restart()
    assert query.run() == [1, 2, 3, 4]
    assert query.trigger() == [5]


def test_a_replay_with_a_newer_schema(table):
    add(table, 1)
    query = Query(table)
    query.log.append(json.dumps(query.latest()))
    UpdateSchema(table.table).rename("category", "kind").add_column("more", "string").commit()
    query.restart()
    assert query.collected().column_names == ["id", "category"]
    query.load(table)
    rows = query.collected()
    assert rows.to_pylist() == [{"id": 1, "kind": "b", "more": None}]
    query.done = 1
    assert query.trigger() is None
    add(table, 2)
    assert query.trigger() == [2]


def test_the_schema_of_a_frame_stays(table):
    add(table, 1)
    query = Query(table)
    assert query.trigger() == [1]
    UpdateSchema(table.table).rename("category", "kind").commit()
    table.refresh()
    append(table, [{"id": 2, "kind": "a"}])
    query.log.append(json.dumps(query.latest()))
    assert query.collected().to_pylist() == [{"id": 2, "category": "a"}]


def test_deleted_rows_are_an_error_before_anything_is_read(table):
    add(table, 0)
    query = Query(table)
    assert query.trigger() == [0]
    add(table, 1)
    overwrite(table, "category = 'a'", 8)
    with pytest.raises(LineageError, match="on-delete"):
        query.trigger()
    query.load(table, on_delete="skip")
    assert query.trigger() == [1]


def test_the_end(table):
    ids = [add(table, number) for number in range(4)]
    tag(table, "end", ids[2])
    query = Query(table, end_tag="end")
    assert query.trigger() == [0, 1, 2]
    add(table, 5)
    assert query.trigger() is None
    query.restart()
    assert query.trigger() is None


def test_a_filter_may_change_between_micro_batches(table):
    add(table, 1, 2)
    query = Query(table, filter="id > 1")
    assert query.trigger() == [2]
    add(table, 3, 4)
    query.load(table, filter="id > 3")
    assert query.trigger() == [4]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tag": "eod"}, InvalidOptionError, "tag belongs to a batch"),
        ({"snapshot_id": "1"}, InvalidOptionError, "snapshot-id belongs to a batch"),
        ({"streaming": "false"}, InvalidOptionError, "streaming=false, but this is a stream"),
        ({"limit": "5"}, InvalidOptionError, "limit belongs to a batch"),
        (
            {"max_files_per_trigger": "5"},
            FeatureUnsupportedError,
            r"max-files-per-trigger needs Spark 4\.2.*IcebergSink",
        ),
        ({"max_planning_snapshot_count": "5"}, FeatureUnsupportedError, r"max-planning-snapshot-count needs"),
        (
            {"fail_on_data_loss": "false"},
            FeatureUnsupportedError,
            r"fail-on-data-loss=false needs Spark 4\.2",
        ),
        ({"read_mode": "changes"}, FeatureUnsupportedError, r"read-mode=changes is not for DataFrames"),
        ({"starting_strategy": "earliest"}, InvalidOptionError, "it can be"),
    ],
)
def test_mistakes(table, options, error, message):
    snapshot = add(table, 1)
    tag(table, "eod", snapshot)
    if "snapshot_id" in options:
        options = {"snapshot_id": snapshot}
    with pytest.raises(error, match=message):
        Query(table, **options)
