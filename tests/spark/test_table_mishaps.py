"""What happens to a table while it is streamed into another: an error that says what to do, or nothing at all. The next start goes
on, and the copy lacks nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamlake.errors import LineageError, StorageError, TableNotFoundError
from tests.helpers.table_copy import TableCopy
from tests.unit.pipeline.iceberg.table_streams import add, compact, expire, overwrite, set_branch


@pytest.fixture
def copy(spark: SparkSession, tmp_path: Path) -> TableCopy:
    return TableCopy(tmp_path, "id long, category string", partition_by=["category"])


def test_compaction_is_passed_over_and_deletes_are_refused_or_skipped(copy: TableCopy) -> None:
    table = copy.source_table
    add(table, 0, 1)
    copy.run()
    add(table, 2)
    compact(table)
    add(table, 4)
    overwrite(table, "category = 'b'", 100)
    add(table, 6)
    with pytest.raises(LineageError, match=r"read-mode=changes.*on-delete=skip"):
        copy.run()
    assert copy.ids() == [0, 1, 2, 4]
    copy.run(on_delete="skip")
    assert copy.ids() == [0, 1, 2, 4, 6]


def test_rollback_and_expiry(copy: TableCopy) -> None:
    table = copy.source_table
    first = add(table, 0)
    second = add(table, 2)
    copy.run()
    set_branch(table, first)
    with pytest.raises(LineageError, match="rolled back to snapshot"):
        copy.run()
    set_branch(table, second)
    third = add(table, 4)
    add(table, 6)
    copy.run(max_planning_snapshot_count=1, end_snapshot_id=third)
    assert copy.ids() == [0, 2, 4]
    lost = add(table, 8)
    add(table, 10)
    expire(table, *(each.snapshot_id for each in table.snapshots[:-1] if each.snapshot_id != lost), lost)
    with pytest.raises(LineageError, match="has expired"):
        copy.run()
    copy.run(fail_on_data_loss="false")
    assert copy.ids() == [0, 2, 4, 10]


def test_a_file_or_the_whole_table_is_gone(copy: TableCopy, tmp_path: Path) -> None:
    table = copy.source_table
    add(table, 0)
    copy.run()
    old = {task.data_file.file_path for task in table.scan().plan_files()}
    add(table, 2)
    [task] = [each for each in table.scan().plan_files() if each.data_file.file_path not in old]
    path = Path(task.data_file.file_path.removeprefix("file://"))
    path.rename(tmp_path / "kept")
    with pytest.raises(StorageError, match=path.name):
        copy.run()
    assert copy.ids() == [0]
    (tmp_path / "kept").rename(path)
    copy.run()
    assert copy.ids() == [0, 2]
    shutil.move(table.location, tmp_path / "away")
    with pytest.raises(TableNotFoundError):
        copy.run()
    shutil.move(tmp_path / "away", table.location)
    add(table, 4)
    copy.run()
    assert copy.ids() == [0, 2, 4]
