"""Batches of a source, and how far a stream is behind."""

from __future__ import annotations

import pytest

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.pipeline.iceberg.batch_plan import batch_plan
from streamlake.pipeline.iceberg.stream_lag import StreamLag
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import create_table
from tests.helpers.row_deltas import row_delta
from tests.unit.pipeline.iceberg.table_streams import Stream, add, compact, expire, overwrite, tag
from tests.unit.read.written_tables import rows_of


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


def read(table, filter=None, columns=None, **options):
    named = {key.replace("_", "-"): value for key, value in options.items()}
    plan = batch_plan(table.table, IcebergSource(table.location, None, filter, columns, named))
    return sorted(
        row["id"] for split in plan.splits for rows in plan.scan.read(split) for row in rows.to_pylist()
    )


def test_one_snapshot(table):
    assert read(table) == []
    ids = [add(table, number) for number in range(3)]
    tag(table, "second", ids[1])
    ManageRefs(table.table).create_branch("dev", ids[0]).commit()
    table.refresh()
    add(table, 10, branch="dev")
    assert read(table) == [0, 1, 2]
    assert read(table, filter="id > 0", columns=["id"]) == [1, 2]
    assert read(table, snapshot_id=ids[0]) == [0]
    assert read(table, tag="second") == [0, 1]
    assert read(table, branch="dev") == [0, 10]
    assert read(table, as_of_timestamp=table.current_snapshot.timestamp_ms) == [0, 1, 2]
    with pytest.raises(InvalidOptionError, match=r"no branch 'dve'.*did you mean 'dev'"):
        read(table, branch="dve")
    with pytest.raises(InvalidOptionError, match="no branch or tag 'none'"):
        read(table, tag="none")


def test_what_was_appended_between_two_snapshots(table):
    ids = [add(table, number) for number in range(4)]
    tag(table, "second", ids[1])
    assert read(table, start_snapshot_id=ids[0]) == [1, 2, 3]
    assert read(table, start_tag="second") == [2, 3]
    assert read(table, start_snapshot_id=ids[0], end_snapshot_id=ids[2]) == [1, 2]
    assert read(table, end_tag="second") == [0, 1]
    assert read(table, start_snapshot_timestamp=1) == [0, 1, 2, 3]
    compact(table)
    assert read(table, start_tag="second") == [2, 3]
    overwrite(table, "category = 'a'", 8)
    with pytest.raises(FeatureUnsupportedError, match="'overwrite'"):
        read(table, start_tag="second")
    assert read(table, start_tag="second", on_delete="skip") == [2, 3]
    expire(table, ids[0])
    assert read(table, start_snapshot_id=ids[0], end_snapshot_id=ids[2]) == [1, 2]


def test_options_of_streams(table):
    with pytest.raises(InvalidOptionError, match="belongs to a stream"):
        read(table, max_files_per_trigger=1)
    with pytest.raises(InvalidOptionError, match="tag reads one snapshot, and read-mode=changes"):
        read(table, read_mode="changes", tag="eod")


@pytest.mark.parametrize("net", [False, True])
def test_changes_between_two_snapshots(table, net):
    changes = {
        "read_mode": "changes",
        "identifier_columns": "ID",
        "case_sensitive": False,
        "net_changes": net,
    }
    assert read(table, **changes) == []
    first = add(table, 0, 2)
    row_delta(table.table, [0], rows_of(table, [{"id": 0, "category": "c"}])).commit()
    row_delta(table.table, [0], rows_of(table, [{"id": 0, "category": "d"}, {"id": 3}])).commit()
    table.refresh()
    options = {"start-snapshot-id": str(first)}
    for more, between in ((options, (first,)), ({}, ())):
        named = {key.replace("_", "-"): value for key, value in changes.items()}
        plan = batch_plan(table.table, IcebergSource(table.location, options={**named, **more}))
        rows = [row for split in plan.splits for batch in plan.scan.read(split) for row in batch.to_pylist()]
        assert rows == table.scan_changes(*between, keys=["id"], net_changes=net).to_arrow().to_pylist()


def test_splits_of_a_batch(table):
    for number in range(6):
        add(table, number)
    named = {"split-size": "1k", "split-file-open-cost": "512"}
    few = batch_plan(table.table, IcebergSource(table.location, options=named))
    many = batch_plan(table.table, IcebergSource(table.location, options={"split-size": "1"}))
    one = batch_plan(table.table, IcebergSource(table.location))
    assert len(one.splits) == 1
    assert len(many.splits) >= 6
    assert len(one.splits) < len(few.splits) <= len(many.splits)


def test_lag(table):
    add(table, 0)
    stream = Stream(table, max_files_per_trigger=1)
    stream.run()
    assert stream.enumerator.lag(stream.offset(-1)) == StreamLag()
    add(table, 2)
    compact(table)
    add(table, 4, 5)
    lag = stream.enumerator.lag(stream.offset(-1))
    assert (lag.snapshots, lag.files, lag.rows) == (3, 3, 3)
    assert lag.seconds == (table.current_snapshot.timestamp_ms - table.snapshots[0].timestamp_ms) / 1000
    stream.step()
    stream.step()
    half = stream.enumerator.lag(stream.offset(-1))
    assert (half.snapshots, half.rows) == (1, 2)
    assert stream.run() == [5]
    assert stream.enumerator.lag(stream.offset(-1)).is_none
    scan = Stream(table, max_files_per_trigger=1)
    scan.step()
    assert scan.enumerator.lag(scan.offset(-1)).rows == 4
