"""Batches of the format "streamlake": which rows, and how many tasks."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, TableNotFoundError
from streamlake.pipeline.iceberg.frames.iceberg_data_source import IcebergDataSource
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import create_table
from tests.unit.pipeline.iceberg.frames.spark_stand_in import Batch
from tests.unit.pipeline.iceberg.table_streams import add, overwrite, tag
from tests.unit.read.written_tables import append


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


def test_what_is_read(table):
    assert Batch(table).ids() == []
    snapshots = [add(table, number) for number in range(4)]
    tag(table, "second", snapshots[1])
    ManageRefs(table.table).create_branch("dev", snapshots[0]).commit()
    table.refresh()
    add(table, 10, branch="dev")
    assert Batch(table).ids() == [0, 1, 2, 3]
    assert Batch(table, tag="second").ids() == [0, 1]
    assert Batch(table, branch="dev").ids() == [0, 10]
    assert Batch(table, snapshot_id=snapshots[2]).ids() == [0, 1, 2]
    assert Batch(table, as_of_timestamp=table.current_snapshot.timestamp_ms).ids() == [0, 1, 2, 3]
    assert Batch(table, start_tag="second").ids() == [2, 3]
    assert Batch(table, start_tag="second", end_snapshot_id=snapshots[2]).ids() == [2]
    some = Batch(table, columns="category,id", filter="ID > 1", case_sensitive="false")
    assert some.schema.names == ["category", "id"]
    assert some.ids() == [2, 3]
    assert Batch(table, columns='["id", "_pos"]').collect().num_columns == 2


def test_a_limit_is_read_by_one_task(table):
    for number in range(4):
        add(table, number, number + 10)
    assert Batch(table, split_size=1, split_file_open_cost=1).collect().num_rows == 8
    some = Batch(table, limit=3, split_size=1, split_file_open_cost=1)
    assert (some.collect().num_rows, some.partitions) == (3, 1)
    assert Batch(table, limit=0).ids() == []
    assert Batch(table, limit=100).collect().num_rows == 8
    with pytest.raises(InvalidOptionError, match="limit is '-1'"):
        Batch(table, limit=-1)


def test_splits_are_partitions(table):
    for number in range(4):
        add(table, number)
    alone = Batch(table, split_size=1, split_file_open_cost=1)
    assert (alone.ids(), alone.partitions) == ([0, 1, 2, 3], 4)
    together = Batch(table)
    assert (together.ids(), together.partitions) == ([0, 1, 2, 3], 1)


def test_rows_and_schema_are_those_of_the_load(table):
    add(table, 1)
    whole, since = Batch(table), Batch(table, start_snapshot_timestamp=1)
    add(table, 2)
    UpdateSchema(table.table).rename("category", "kind").add_column("more", "string").commit()
    table.refresh()
    for each in (whole, since):
        assert each.ids() == [1]
        assert each.collect().column_names == ["id", "category"]
    assert Batch(table).collect().column_names == ["id", "kind", "more"]


def test_an_empty_table_stays_empty(table):
    before, since = Batch(table), Batch(table, start_snapshot_timestamp=1)
    add(table, 1)
    assert before.ids() == []
    assert since.ids() == []


def test_mistakes(table, tmp_path):
    ids = [add(table, number) for number in range(2)]
    for options, error, message in [
        ({"tag": "none"}, InvalidOptionError, "no branch or tag 'none'"),
        ({"branch": "none"}, InvalidOptionError, "no branch 'none'"),
        ({"colums": "id"}, InvalidOptionError, "unknown option 'colums'; did you mean 'columns'"),
        ({"filter": "idd > 1"}, InvalidOptionError, "idd"),
        ({"columns": "idd"}, InvalidOptionError, "did you mean 'id'"),
        ({"snapshot-id": "7"}, InvalidOptionError, "no snapshot 7"),
        ({"versionasof": "7"}, InvalidOptionError, "here it is called 'snapshot-id'"),
    ]:
        with pytest.raises(error, match=message):
            Batch(table, **options)
    for options, message in [
        ({"streaming": "true"}, "streaming=true, but this is a batch"),
        ({"starting-strategy": "incremental-from-latest-snapshot"}, "starting-strategy belongs to a stream"),
        ({"max-files-per-trigger": "1"}, "max-files-per-trigger belongs to a stream"),
        ({"start-snapshot-id": ids[1], "end-snapshot-id": ids[0]}, "ancestor"),
    ]:
        with pytest.raises(InvalidOptionError, match=message):
            Batch(table, **options).collect()
    with pytest.raises(TableNotFoundError):
        Batch(str(tmp_path / "none"))
    overwrite(table, "category = 'a'", 8)
    with pytest.raises(FeatureUnsupportedError, match="'overwrite'"):
        Batch(table, start_snapshot_id=ids[0]).collect()
    assert Batch(table, start_snapshot_id=ids[0], on_delete="skip").ids() == [1]


def test_a_schema_of_the_query(table):
    append(table, [{"id": 1, "category": "a"}])
    source = IcebergDataSource({"path": table.location, "columns": "id"})
    assert source.reader(StructType([StructField("id", LongType())])).partitions()
    with pytest.raises(InvalidOptionError, match=r"struct<id:bigint>; leave .schema\(...\) out"):
        source.reader(StructType([StructField("idd", LongType())]))
