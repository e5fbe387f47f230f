"""Incremental append scans: exactly the rows that were appended in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.metadata.snapshot import SnapshotLogEntry
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import create_table
from tests.unit.read.written_tables import append, data_files


@pytest.fixture
def table(tmp_path):
    table = create_table(tmp_path / "t", "id long, category string", partition_by=["category"])
    for start in range(0, 50, 10):
        append(table, [{"id": n, "category": "ab"[n % 2]} for n in range(start, start + 10)])
    return table


def ids(scan):
    return sorted(scan.to_arrow()["id"].to_pylist())


def snapshot_ids(table):
    return [snapshot.snapshot_id for snapshot in table.snapshots]


def overwrite(table, row_filter, rows):
    operation = OverwriteFiles(table.table).overwrite_by_filter(row_filter)
    for file in data_files(table, rows):
        operation.add_file(file)
    operation.commit()
    table.refresh()


def test_every_pair_of_snapshots(table):
    known = snapshot_ids(table)
    for start in range(5):
        for end in range(start, 5):
            found = ids(table.scan_incremental(known[start], known[end]))
            assert found == list(range((start + 1) * 10, (end + 1) * 10))
    assert ids(table.scan_incremental(None, known[1])) == list(range(20))
    assert ids(table.scan_incremental(known[3])) == list(range(40, 50))
    assert ids(table.scan_incremental()) == list(range(50))


def test_filter_columns_and_count(table):
    first = snapshot_ids(table)[0]
    scan = table.scan_incremental(first, filter="category = 'a' and id < 30", columns=["id"])
    assert ids(scan) == list(range(10, 30, 2))
    assert scan.count() == 10
    assert scan.arrow_schema.names == ["id"]
    assert table.scan_incremental(first).count() == 40


def test_order_is_the_order_of_commits(table):
    found = table.scan_incremental(columns=["id"]).to_arrow()["id"].to_pylist()
    assert [number // 10 for number in found] == sorted(number // 10 for number in found)


def test_merged_manifests_bring_nothing_twice(tmp_path):
    table = create_table(tmp_path / "t", "id long", properties={"commit.manifest.min-count-to-merge": "2"})
    for number in range(8):
        append(table, [{"id": number}])
    known = snapshot_ids(table)
    assert ids(table.scan_incremental(known[1], known[6])) == [2, 3, 4, 5, 6]
    assert ids(table.scan_incremental()) == list(range(8))


def test_overwrites_are_an_error_unless_skipped(table):
    overwrite(table, "category = 'a'", [{"id": 100, "category": "a"}])
    append(table, [{"id": 101, "category": "b"}])
    known = snapshot_ids(table)
    with pytest.raises(FeatureUnsupportedError, match=f"snapshot {known[5]} is an 'overwrite'"):
        table.scan_incremental(known[4])
    assert ids(table.scan_incremental(known[4], skip_overwrites=True)) == [101]
    assert ids(table.scan_incremental(known[5])) == [101]
    assert ids(table.scan_incremental(known[0], known[4])) == list(range(10, 50))


def test_deletes_are_an_error_too(table):
    overwrite(table, "category = 'a'", [])
    with pytest.raises(FeatureUnsupportedError, match="'delete'"):
        table.scan_incremental()


def test_lineage_is_checked(table):
    known = snapshot_ids(table)
    with pytest.raises(InvalidOptionError, match="ends before it begins"):
        table.scan_incremental(known[3], known[1])
    with pytest.raises(InvalidOptionError, match="is not an ancestor"):
        table.scan_incremental(12345, known[1])
    with pytest.raises(InvalidOptionError, match="snapshot 12345"):
        table.scan_incremental(known[0], 12345)
    ManageRefs(table.table).create_branch("dev", known[1]).commit()
    table.refresh()
    ManageRefs(table.table).set_branch("main", known[1]).commit()
    table.refresh()
    append(table, [{"id": 500, "category": "a"}])
    with pytest.raises(InvalidOptionError, match="is not an ancestor"):
        table.scan_incremental(known[3])
    assert ids(table.scan_incremental(known[1])) == [500]


def test_a_start_that_expired(table):
    known = snapshot_ids(table)
    base = table.metadata
    log = tuple(entry for entry in base.snapshot_log if entry.snapshot_id not in known[:2])
    table.table.operations.commit(base, replace(base, snapshots=base.snapshots[2:], snapshot_log=log))
    table.refresh()
    # The snapshot itself is gone, but the oldest one left still names it as its parent.
    assert ids(table.scan_incremental(known[1])) == list(range(20, 50))
    with pytest.raises(InvalidOptionError, match="is not an ancestor"):
        table.scan_incremental(known[0])
    with pytest.raises(InvalidOptionError, match="have expired"):
        table.scan_incremental()


def tag(table, name, snapshot_id):
    ManageRefs(table.table).create_tag(name, snapshot_id).commit()
    table.refresh()


def test_both_ends_by_id_tag_branch_and_time(table):
    known = snapshot_ids(table)
    tag(table, "first", known[0])
    tag(table, "third", known[2])
    ManageRefs(table.table).create_branch("dev", known[3]).commit()
    table.refresh()
    for start in (known[0], str(known[0]), "first"):
        for end in (known[2], str(known[2]), "third"):
            assert ids(table.scan_incremental(start, end)) == list(range(10, 30))
    assert ids(table.scan_incremental("first", "dev")) == list(range(10, 40))
    assert ids(table.scan_incremental("dev", "main")) == list(range(40, 50))
    assert ids(table.scan_incremental("dev")) == list(range(40, 50))


def at_seconds(table, start=1_700_000_000):
    """The table with snapshots one second apart; returns the time of the first as a datetime."""
    base = table.metadata
    snapshots = tuple(
        replace(each, timestamp_ms=(start + at) * 1000) for at, each in enumerate(base.snapshots)
    )
    log = tuple(SnapshotLogEntry(each.timestamp_ms, each.snapshot_id) for each in snapshots)
    table.table.operations.commit(base, replace(base, snapshots=snapshots, snapshot_log=log))
    table.refresh()
    return datetime.fromtimestamp(start, tz=timezone.utc)


def test_times_are_rows_after_one_up_to_another(table):
    first = at_seconds(table)

    def after(seconds):
        return first + timedelta(seconds=seconds)

    assert ids(table.scan_incremental(after(0), after(2))) == list(range(10, 30))
    assert ids(table.scan_incremental(after(0.5), after(2.5))) == list(range(10, 30))
    assert ids(table.scan_incremental(after(-1), after(1))) == list(range(20))
    assert ids(table.scan_incremental(after(3).isoformat())) == list(range(40, 50))
    assert ids(table.scan_incremental(after(9))) == []
    assert ids(table.scan_incremental(date(2023, 11, 14))) == list(range(50))
    with pytest.raises(InvalidOptionError, match="as of"):
        table.scan_incremental(None, after(-1))


def test_a_time_before_what_has_expired(table):
    first = at_seconds(table)
    base, known = table.metadata, snapshot_ids(table)
    log = tuple(entry for entry in base.snapshot_log if entry.snapshot_id not in known[:2])
    table.table.operations.commit(base, replace(base, snapshots=base.snapshots[2:], snapshot_log=log))
    table.refresh()
    with pytest.raises(InvalidOptionError, match="have expired"):
        table.scan_incremental(first)
    assert ids(table.scan_incremental(first + timedelta(seconds=2))) == list(range(30, 50))


def test_points_that_there_are_not(table):
    tag(table, "end-of-day", snapshot_ids(table)[1])
    with pytest.raises(InvalidOptionError, match="did you mean 'end-of-day'"):
        table.scan_incremental("end-of-dya")
    with pytest.raises(InvalidOptionError, match="no snapshot id, branch, tag or ISO time"):
        table.scan_incremental(None, "yesterday")
    with pytest.raises(InvalidOptionError, match="True is no snapshot"):
        table.scan_incremental(True)
