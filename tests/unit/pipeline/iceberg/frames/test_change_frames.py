"""Changes of a table as DataFrames: the columns of changes, batches, and streams over restarts and replays."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.datasource import EqualTo

from streamlake.pipeline.spark import admission_control
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import create_table
from tests.helpers.row_deltas import row_delta
from tests.unit.pipeline.iceberg.frames.spark_stand_in import Batch, Query
from tests.unit.pipeline.iceberg.table_streams import add, compact
from tests.unit.read.written_tables import rows_of

CHANGES = {"read_mode": "changes", "identifier_columns": "id"}
COLUMNS = ["id", "category", "_row_kind", "_snapshot_id", "_sequence_number", "_ordinal"]


@pytest.fixture(params=[2, 3])
def table(tmp_path, request):
    return create_table(tmp_path / "t", "id long, category string", format_version=request.param)


def upsert(table, gone, *rows):
    more = rows_of(table, [{"id": number, "category": text} for number, text in rows])
    row_delta(table.table, gone, more).commit()
    table.refresh()


def shown(rows):
    return [(row["_row_kind"], row["id"], row["category"]) for row in rows.to_pylist()]


def test_a_batch(table):
    add(table, 0, 1)
    first = table.current_snapshot.snapshot_id
    upsert(table, [0], (0, "x"))
    upsert(table, [1], (1, "y"), (2, "z"))
    batch = Batch(table, start_snapshot_id=first, **CHANGES)
    assert batch.schema.names == [*COLUMNS, *(["_row_id"] if table.format_version >= 3 else [])]
    expected = [("-U", 0, "a"), ("+U", 0, "x"), ("-U", 1, "b"), ("+U", 1, "y"), ("+I", 2, "z")]
    assert shown(batch.collect()) == expected
    # Pushed down it would make an insert of the update.
    filters = [EqualTo(("category",), "x")]
    assert shown(batch.collect(*filters)) == expected
    assert batch.left == filters
    assert Batch(table, columns="id", **CHANGES).schema.names[:2] == ["id", "_row_kind"]


@pytest.mark.skipif(admission_control.HAS_ADMISSION_CONTROL, reason="offsets are asked for with limits")
@pytest.mark.parametrize("net", [False, True])
def test_a_stream(table, net):
    add(table, 0, 1)
    query = Query(table, net_changes=net, **CHANGES)
    assert query.trigger() == [0, 1]
    upsert(table, [0], (0, "x"))
    upsert(table, [0], (0, "y"))
    compact(table)
    query.log.append(json.dumps(query.latest()))
    query.restart()
    found = shown(query.collected())
    if net:
        assert found == [("-U", 0, "a"), ("+U", 0, "y")]
    else:
        assert found == [("-U", 0, "a"), ("+U", 0, "x"), ("-U", 0, "x"), ("+U", 0, "y")]
    query.run()
    assert query.trigger() is None


def upgraded(table):
    UpdateProperties(table.table).upgrade_format_version(3).commit()
    table.refresh()


@pytest.mark.parametrize("net", [False, True])
def test_a_batch_of_a_table_that_gets_row_ids_after_load(tmp_path, net):
    table = create_table(tmp_path / "t", "id long, category string", format_version=2)
    add(table, 0, 1)
    first = table.current_snapshot.snapshot_id
    upsert(table, [0], (0, "x"))
    batch = Batch(table, start_snapshot_id=first, net_changes=net, **CHANGES)
    upgraded(table)
    assert batch.schema.names == COLUMNS
    assert shown(batch.collect()) == [("-U", 0, "a"), ("+U", 0, "x")]
    later = Batch(table, start_snapshot_id=first, net_changes=net, **CHANGES)
    assert later.schema.names == [*COLUMNS, "_row_id"]
    assert later.collect()["_row_id"].to_pylist() == [None, None]


@pytest.mark.skipif(admission_control.HAS_ADMISSION_CONTROL, reason="offsets are asked for with limits")
def test_a_stream_over_a_table_that_gets_row_ids(tmp_path):
    """The columns are those of `load()`, also where a micro-batch is run again."""
    table = create_table(tmp_path / "t", "id long, category string", format_version=2)
    add(table, 0, 1)
    query = Query(table, **CHANGES)
    assert query.trigger() == [0, 1]
    upsert(table, [0], (0, "x"))
    query.log.append(json.dumps(query.latest()))
    upgraded(table)
    updated = [("-U", 0, "a"), ("+U", 0, "x")]
    assert shown(query.collected()) == updated
    query.restart()
    assert shown(query.collected()) == updated
    assert query.collected().column_names == COLUMNS
    query.load(table, **CHANGES)
    assert query.collected().column_names == [*COLUMNS, "_row_id"]
    assert shown(query.collected()) == updated
    query.run()
    upsert(table, [1], (1, "y"))
    assert query.trigger() == [1, 1]
