"""Changes of tables that other writers wrote: each kind of delete, each version, and what may go wrong."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
import pytest

from streamlake.errors import InvalidOptionError, MissingFileError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.data_files import open_data_writer
from streamlake.formats.deletes.position_deletes import POSITION_DELETES
from streamlake.formats.parquet.row_groups import RowGroups
from streamlake.read.changes.change_columns import ChangeColumns
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import create_table
from tests.helpers.change_history import ReplaceFiles
from tests.helpers.invariants import live_data_files
from tests.helpers.row_deltas import row_delta
from tests.unit.read.written_tables import append, data_files


def changes(table, *between, **options):
    rows = table.refresh().scan_changes(*between, **options).to_arrow().to_pylist()
    return [(row["_row_kind"], *(value for name, value in row.items() if name[0] != "_")) for row in rows]


def head(table):
    return table.refresh().current_snapshot.snapshot_id


def number_table(path, version=2, **options):
    table = create_table(path / "t", "id long, v string", format_version=version, **options)
    append(table, [{"id": n, "v": "a"} for n in range(10)])
    return table


def delete_file(table, name, schema, rows, **more):
    path = f"{table.location}/data/{name}.parquet"
    writer = open_data_writer("parquet", table.table.io, path, schema)
    writer.write(pa.Table.from_pylist(rows, schema=schema_to_arrow(schema)))
    metrics = writer.close()
    return DataFile(
        file_path=path,
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=metrics.record_count,
        file_size_in_bytes=metrics.file_size_in_bytes,
        lower_bounds=metrics.lower_bounds,
        upper_bounds=metrics.upper_bounds,
        value_counts=metrics.value_counts,
        null_value_counts=metrics.null_value_counts,
        **more,
    )


def keys(table, name, ids, column="id"):
    schema = table.schema.select([column])
    field_id = schema.fields[0].field_id
    rows = [{column: each} for each in ids]
    return delete_file(
        table, name, schema, rows, content=FileContent.EQUALITY_DELETES, equality_ids=(field_id,)
    )


def positions(table, name, places):
    rows = [{"file_path": path, "pos": at} for path, at in places]
    return delete_file(table, name, POSITION_DELETES, rows, content=FileContent.POSITION_DELETES)


def commit(table, *files, removed=()):
    delta = RowDelta(table.table)
    for file in files:
        (delta.add_rows if file.is_data else delta.add_deletes)(file)
    for file in removed:
        (delta.remove_rows if file.is_data else delta.remove_deletes)(file)
    delta.commit()
    table.refresh()


@pytest.mark.parametrize("version", [2, 3])
def test_a_deleted_row_is_read_by_position_and_paired_with_the_new_one(tmp_path, version):
    table = number_table(tmp_path, version)
    first = head(table)
    new = pa.table({"id": [3, 11], "v": ["b", "c"]}, schema=schema_to_arrow(table.schema))
    row_delta(table.table, [3, 4], new).commit()
    assert changes(table, first, keys=["id"]) == [
        ("-D", 4, "a"),
        ("-U", 3, "a"),
        ("+U", 3, "b"),
        ("+I", 11, "c"),
    ]
    second = head(table)
    row_delta(table.table, [3, 5]).commit()
    assert sorted(changes(table, second, keys=["id"])) == [("-D", 3, "b"), ("-D", 5, "a")]
    assert sorted(changes(table, first, keys=["id"], net_changes=True)) == [
        ("+I", 11, "c"),
        ("-D", 3, "a"),
        ("-D", 4, "a"),
        ("-D", 5, "a"),
    ]


def test_every_change_says_which_snapshot_made_it(tmp_path):
    table = number_table(tmp_path, 3)
    first = table.current_snapshot
    row_delta(table.table, [3]).commit()
    [file] = data_files(table, [{"id": 99}])
    # Taken at its word: a snapshot that replaces files changes no rows.
    ReplaceFiles(table.table).add_file(file).commit()
    table.refresh()
    row_delta(table.table, [4]).commit()
    table.refresh()
    second, _, third = table.snapshots[1:]
    rows = table.scan_changes(first.snapshot_id).to_arrow().to_pylist()
    assert rows == [
        {
            "id": number,
            "v": "a",
            "_row_kind": "-D",
            "_snapshot_id": snapshot.snapshot_id,
            "_sequence_number": snapshot.sequence_number,
            "_ordinal": ordinal,
            "_row_id": number,
        }
        for number, snapshot, ordinal in ((3, second, 0), (4, third, 1))
    ]


def test_identifier_fields_are_the_keys_unless_others_are_given(tmp_path):
    schema = replace(parse_ddl("id long not null, v string"), identifier_field_ids=(1,))
    table = create_table(tmp_path / "t", schema)
    append(table, [{"id": 1, "v": "a"}])
    first = head(table)
    new = pa.table({"id": [1], "v": ["b"]}, schema=schema_to_arrow(table.schema))
    row_delta(table.table, [1], new).commit()
    assert changes(table, first) == [("-U", 1, "a"), ("+U", 1, "b")]
    assert changes(table, first, keys=["v"]) == [("-D", 1, "a"), ("+I", 1, "b")]
    assert changes(table, first, keys=[]) == [("-D", 1, "a"), ("+I", 1, "b")]


def test_equality_deletes_find_their_rows_in_older_files_only(tmp_path):
    table = number_table(tmp_path)
    first = head(table)
    [older] = live_data_files(table.table)
    commit(table, positions(table, "p", [(older.file_path, 5)]))
    second = head(table)
    # 5 is gone already, 12 is of the same commit, 77 is nowhere.
    commit(
        table,
        *data_files(table, [{"id": 12, "v": "n"}, {"id": 3, "v": "n"}]),
        keys(table, "e", [3, 5, 12, 77]),
    )
    assert changes(table, second, keys=["id"]) == [("-U", 3, "a"), ("+U", 3, "n"), ("+I", 12, "n")]
    third = head(table)
    commit(table, keys(table, "e2", [3, 5, 6]))
    assert sorted(changes(table, third)) == [("-D", 3, "n"), ("-D", 6, "a")]
    assert sorted(changes(table, first, net_changes=True)) == [
        ("+I", 12, "n"),
        ("-D", 3, "a"),
        ("-D", 5, "a"),
        ("-D", 6, "a"),
    ]


def test_a_row_that_is_added_and_deleted_in_one_snapshot_is_no_change(tmp_path):
    table = number_table(tmp_path)
    first = head(table)
    [new] = data_files(table, [{"id": 20, "v": "x"}, {"id": 21, "v": "x"}])
    commit(table, new, positions(table, "p", [(new.file_path, 0)]))
    assert changes(table, first) == [("+I", 21, "x")]


def test_a_position_delete_file_for_many_files_deletes_each_row_once(tmp_path):
    table = number_table(tmp_path)
    append(table, [{"id": n, "v": "b"} for n in range(10, 15)])
    before = head(table)
    one, two = sorted(live_data_files(table.table), key=lambda file: -file.record_count)
    places = sorted([(one.file_path, 1), (one.file_path, 2), (two.file_path, 0)])
    commit(table, positions(table, "p", places))
    middle = head(table)
    commit(
        table, positions(table, "q", sorted([(one.file_path, 2), (two.file_path, 4), (two.file_path, 99)]))
    )
    assert sorted(changes(table, before, middle)) == [("-D", 1, "a"), ("-D", 2, "a"), ("-D", 10, "b")]
    assert changes(table, middle) == [("-D", 14, "b")]


def test_a_delete_file_that_goes_brings_rows_back(tmp_path):
    table = number_table(tmp_path)
    gone = keys(table, "e", [3, 4])
    commit(table, gone)
    again = keys(table, "f", [4])
    commit(table, again)
    before = head(table)
    commit(table, removed=[gone])
    assert changes(table, before) == [("+I", 3, "a")]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_a_copy_on_write_carries_over_are_left_out(tmp_path, version):
    table = number_table(tmp_path, version)
    first = head(table)
    rows = [{"id": n, "v": "z" if n == 7 else "a"} for n in range(10) if n != 2]
    operation = OverwriteFiles(table.table).delete_file(*live_data_files(table.table))
    for file in data_files(table, rows):
        operation.add_file(file)
    operation.commit()
    assert changes(table, first, keys=["id"]) == [("-D", 2, "a"), ("-U", 7, "a"), ("+U", 7, "z")]
    assert changes(table, first) == [("-D", 2, "a"), ("-D", 7, "a"), ("+I", 7, "z")]
    # A changed value in a column that is not asked for is no change.
    assert changes(table, first, columns=["id"], keys=["id"]) == [("-D", 2)]


def test_equal_rows_cancel_out_one_by_one(tmp_path):
    table = create_table(tmp_path / "t", "id long, v string")
    append(table, [{"id": 1, "v": "a"}] * 3 + [{"id": 2, "v": None}] * 2)
    first = head(table)
    operation = OverwriteFiles(table.table).delete_file(*live_data_files(table.table))
    for file in data_files(
        table, [{"id": 1, "v": "a"}] * 2 + [{"id": 2, "v": None}] * 4 + [{"id": 1, "v": "b"}]
    ):
        operation.add_file(file)
    operation.commit()
    assert changes(table, first) == [("-D", 1, "a"), ("+I", 2, None), ("+I", 2, None), ("+I", 1, "b")]
    # Rows that share a key are paired in order once equal ones are out.
    assert changes(table, first, keys=["id"]) == [
        ("-U", 1, "a"),
        ("+U", 1, "b"),
        ("+I", 2, None),
        ("+I", 2, None),
    ]


def test_compactions_change_nothing(tmp_path):
    table = number_table(tmp_path)
    first = head(table)
    operation = ReplaceFiles(table.table).delete_file(*live_data_files(table.table))
    for file in data_files(table, [{"id": n, "v": "a"} for n in range(10)]):
        operation.add_file(file)
    operation.commit()
    row_delta(table.table, [4]).commit()
    assert changes(table, first) == [("-D", 4, "a")]


def test_a_row_that_moves_into_a_filter_is_inserted_and_one_that_moves_out_is_deleted(tmp_path):
    table = number_table(tmp_path)
    first = head(table)
    new = pa.table({"id": [1, 2, 3], "v": ["b", "c", "b"]}, schema=schema_to_arrow(table.schema))
    row_delta(table.table, [1, 2, 3], new).commit()
    second = head(table)
    new = pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=schema_to_arrow(table.schema))
    row_delta(table.table, [1, 2], new).commit()
    assert changes(table, first, second, filter="v = 'b'", keys=["id"]) == [("+I", 1, "b"), ("+I", 3, "b")]
    assert changes(table, second, filter="v = 'b'", keys=["id"]) == [("-D", 1, "b"), ("+I", 2, "b")]
    assert changes(table, second, filter="id = 2 and v > 'b'", keys=["id"]) == [("-D", 2, "c")]


def test_old_rows_are_read_in_the_schema_of_today_or_in_a_given_one(tmp_path):
    table = number_table(tmp_path, partition_by=["v"])
    first = head(table)
    old_schema = table.schema.schema_id
    update = UpdateSchema(table.table).rename("v", "w").add_column("n", "int")
    update.commit()
    table.refresh()
    row_delta(table.table, [3]).commit()
    assert changes(table, first) == [("-D", 3, "a", None)]
    assert table.scan_changes(first).arrow_schema.names[:3] == ["id", "w", "n"]
    assert changes(table, first, schema_id=old_schema) == [("-D", 3, "a")]
    with pytest.raises(InvalidOptionError, match="has no schema 77; there are the schemas 0, 1"):
        table.scan_changes(first, schema_id=77)


def test_only_the_pages_and_columns_of_deleted_rows_are_read(tmp_path, monkeypatch):
    table = create_table(
        tmp_path / "t",
        "id long, v string, w string",
        properties={"write.parquet.row-group-size-bytes": "10000"},
    )
    append(table, [{"id": n, "v": f"{n:010}", "w": "b"} for n in range(50_000)])
    first = head(table)
    row_delta(table.table, [25_000]).commit()
    read = []
    batches = RowGroups.batches

    def watched(self, group, schema, live=None):
        read.append((group.index, tuple(part.name for part in schema.fields)))
        return batches(self, group, schema, live)

    monkeypatch.setattr(RowGroups, "batches", watched)
    assert changes(table, first, columns=["v"]) == [("-D", "0000025000")]
    [(group, columns)] = read
    assert group > 0
    assert columns == ("v",)


def test_row_groups_without_a_deleted_key_are_not_read(tmp_path, monkeypatch):
    table = create_table(
        tmp_path / "t",
        "id long, v string",
        properties={"write.parquet.row-group-size-bytes": "50000"},
    )
    append(
        table,
        pa.table({"id": np.arange(100_000), "v": ["a"] * 100_000}, schema=schema_to_arrow(table.schema)),
    )
    append(table, [{"id": 200_000, "v": "b"}])
    before = head(table)
    commit(table, keys(table, "e", [70_000]))
    [changed] = table.scan_changes(before).plan_changes()
    assert [task.rows.data_file.record_count for task in changed.tasks] == [100_000]
    groups = []
    batches = RowGroups.batches
    monkeypatch.setattr(
        RowGroups,
        "batches",
        lambda self, group, *more: groups.append(group.index) or batches(self, group, *more),
    )
    assert changes(table, before) == [("-D", 70_000, "a")]
    [group] = set(groups)
    assert group > 0


def test_rows_of_an_upgraded_table_may_have_no_row_id(tmp_path):
    table = number_table(tmp_path, 3)
    first = head(table)
    row_delta(table.table, [1]).commit()
    [row] = table.refresh().scan_changes(first, columns=["_row_id", "v"]).to_arrow().to_pylist()
    assert row["_row_id"] == 1
    assert list(row) == ["v", "_row_kind", "_snapshot_id", "_sequence_number", "_ordinal", "_row_id"]


def test_the_plan_and_the_columns_pickle(tmp_path):
    table = number_table(tmp_path)
    commit(table, keys(table, "e", [1]))
    scan = table.scan_changes(keys=["id"])
    plan = list(scan.plan_changes())
    again = pickle.loads(pickle.dumps(plan))
    assert [[task.rows.data_file for task in each.tasks] for each in again] == [
        [task.rows.data_file for task in each.tasks] for each in plan
    ]
    columns = pickle.loads(pickle.dumps(scan.columns))
    assert isinstance(columns, ChangeColumns)
    assert columns.arrow_schema == scan.arrow_schema


def test_an_empty_range_has_no_changes(tmp_path):
    table = create_table(tmp_path / "t", "id long")
    assert table.scan_changes().count() == 0
    append(table, [{"id": 1}])
    assert table.scan_changes(head(table)).to_arrow().num_rows == 0
    assert table.scan_changes().count() == 1


def test_a_range_outside_of_the_lineage_is_refused(tmp_path):
    table = number_table(tmp_path)
    first = head(table)
    ManageRefs(table.table).create_branch("other", first).commit()
    append(table, [{"id": 20}])
    second = head(table)
    old = max(live_data_files(table.table), key=lambda file: file.record_count)
    OverwriteFiles(table.table, branch="other").delete_file(old).commit()
    other = table.refresh().refs["other"].snapshot_id
    with pytest.raises(
        InvalidOptionError, match=r"has no snapshot 5; `streamlake inspect .* snapshots` lists"
    ):
        table.scan_changes(5)
    with pytest.raises(InvalidOptionError, match="has no snapshot 6"):
        table.scan_changes(first, 6)
    with pytest.raises(InvalidOptionError, match=r"ends before it begins, .* exchange the two"):
        table.scan_changes(second, first)
    with pytest.raises(InvalidOptionError, match=r"is not an ancestor .* of another branch, was rolled back"):
        table.scan_changes(other, second)
    assert len(changes(table, first, other)) == 10


def test_changes_of_expired_snapshots_are_refused_and_the_way_out_is_named(tmp_path):
    table = number_table(tmp_path)
    first = head(table)
    row_delta(table.table, [1]).commit()
    second = head(table)
    row_delta(table.table, [2]).commit()
    base = table.refresh().metadata
    kept = tuple(each for each in base.snapshots if each.snapshot_id not in (first,))
    table.table.operations.commit(base, replace(base, snapshots=kept, snapshot_log=()))
    # What changed after an expired snapshot is still known.
    assert changes(table, first) == [("-D", 1, "a"), ("-D", 2, "a")]
    with pytest.raises(
        InvalidOptionError, match=f"have expired.* start at from_snapshot_id={first}, or scan"
    ):
        table.scan_changes()
    base = table.refresh().metadata
    kept = tuple(each for each in base.snapshots if each.snapshot_id != second)
    table.table.operations.commit(base, replace(base, snapshots=kept))
    with pytest.raises(InvalidOptionError, match=f"up to {second} have expired"):
        table.refresh().scan_changes(first)


def test_bad_options_are_refused(tmp_path):
    table = create_table(tmp_path / "t", "id long, tags list<string>, _ordinal int, s struct<x:int>")
    with pytest.raises(InvalidOptionError, match="'_ordinal', which the columns of a change have"):
        table.scan_changes()
    for wrong, match in (
        ("id", "list of names"),
        (["idd"], "id"),
        (["tags"], "tags"),
        (["tags.element"], "list or map"),
        (["s"], "struct"),
    ):
        with pytest.raises(InvalidOptionError, match=match):
            table.scan_changes(columns=["id"], keys=wrong)
    with pytest.raises(InvalidOptionError, match="names no column of the table"):
        table.scan_changes(columns=["_file"])
    assert table.scan_changes(columns=["_file"], keys=["id"]).count() == 0
    with pytest.raises(InvalidOptionError, match="nothere"):
        table.scan_changes(columns=["id"], filter="nothere = 1")
    with pytest.raises(InvalidOptionError, match="at least 1"):
        list(table.scan_changes(columns=["id"]).to_batches(0))


def test_a_data_file_that_is_gone_is_an_error(tmp_path):
    table = number_table(tmp_path)
    first = head(table)
    row_delta(table.table, [1]).commit()
    table.refresh()
    for file in live_data_files(table.table):
        table.table.io.delete(file.file_path)
    with pytest.raises(MissingFileError):
        table.scan_changes(first).to_arrow()


def test_a_range_by_branch_tag_and_time(tmp_path):
    table = create_table(tmp_path / "t", "id long")
    ids = [append(table, [{"id": number}]).snapshot_id for number in range(3)]
    ManageRefs(table.table).create_tag("first", ids[0]).commit()
    ManageRefs(table.table).create_branch("dev", ids[1]).commit()
    moments = [
        datetime.fromtimestamp(each.timestamp_ms / 1000, timezone.utc) for each in table.refresh().snapshots
    ]
    for start, end in (("first", "dev"), (ids[0], "dev"), ("first", ids[1]), (moments[0], moments[1])):
        assert changes(table, start, end) == [("+I", 1)]
    assert changes(table, "first") == changes(table, moments[0].isoformat()) == [("+I", 1), ("+I", 2)]
    assert changes(table, "dev", "main") == [("+I", 2)]
    with pytest.raises(InvalidOptionError, match="did you mean 'first'"):
        table.scan_changes("frist")
    with pytest.raises(InvalidOptionError, match="ends before it begins"):
        table.scan_changes("dev", "first")
    with pytest.raises(InvalidOptionError, match="ends before it begins"):
        table.scan_incremental("dev", "first")
