"""Metadata tables as Arrow."""

from __future__ import annotations

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.read.metadata.metadata_table_rows import METADATA_TABLES, OF_ONE_SNAPSHOT
from streamlake.tables import create_table
from tests.unit.pipeline.iceberg.table_streams import add, overwrite, tag
from tests.unit.read.written_tables import append


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


@pytest.mark.parametrize("name", METADATA_TABLES)
def test_a_table_without_snapshots(table, name):
    rows = table.metadata_table(name).num_rows
    assert rows == (1 if name == "metadata_log_entries" else 0)


def test_what_a_snapshot_has(table):
    first = add(table, 1, 2)
    tag(table, "first", first)
    overwrite(table, "category = 'a'", 9)
    snapshots = table.metadata_table("snapshots").to_pylist()
    assert [row["operation"] for row in snapshots] == ["append", "overwrite"]
    assert dict(snapshots[0]["summary"])["added-records"] == "2"
    assert table.metadata_table("files", ref="first") == table.metadata_table("files", snapshot_id=first)
    assert table.files().num_rows == table.data_files().num_rows == 2
    assert table.delete_files().num_rows == 0
    [one] = [row for row in table.files().to_pylist() if row["readable_metrics"]["id"]["lower_bound"] == 9]
    assert one["partition"] == {"category": "b"}
    assert dict(one["value_counts"]) == {1: 1, 2: 1}
    assert sorted(row["status"] for row in table.entries().to_pylist()) == [0, 1, 2]
    assert table.metadata_table("all_data_files").num_rows == 4
    assert {row["reference_snapshot_id"] for row in table.metadata_table("all_manifests").to_pylist()} == {
        each.snapshot_id for each in table.snapshots
    }
    assert [row["record_count"] for row in table.partitions().to_pylist()] == [2]
    log = table.metadata_log_entries().to_pylist()
    assert log[-1]["file"].endswith("v4.metadata.json")
    assert [row["latest_sequence_number"] for row in log] == [None, 1, 1, 2]


def test_without_partitions_there_is_no_such_column(tmp_path):
    table = create_table(tmp_path / "u", "id long")

    append(table, [{"id": 1}])
    assert "partition" not in table.files().column_names
    assert table.partitions().column_names[0] == "record_count"


def test_mistakes(table):
    with pytest.raises(InvalidOptionError, match="unknown option 'file'; did you mean 'files'"):
        table.metadata_table("file")
    with pytest.raises(InvalidOptionError, match="snapshots is not of one snapshot"):
        table.metadata_table("snapshots", snapshot_id=1)
    for name in OF_ONE_SNAPSHOT:
        with pytest.raises(InvalidOptionError, match="no snapshot 7"):
            table.metadata_table(name, snapshot_id=7)
