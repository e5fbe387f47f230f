"""Streams with read-mode=changes: what a micro-batch holds, where it ends, and what happens to the table meanwhile."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from streamlake.errors import InvalidOptionError, LineageError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.read.changes import change_planning
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import create_table
from tests.helpers.row_deltas import row_delta
from tests.unit.pipeline.iceberg.table_streams import (
    ChangeStream,
    add,
    compact,
    enumerator_of,
    expire,
    overwrite,
    set_branch,
)
from tests.unit.read.written_tables import append, data_files, rows_of

EARLIEST = {"starting_strategy": "incremental-from-earliest-snapshot"}
KEYED = {"identifier_columns": "id"}


@pytest.fixture(params=[2, 3])
def table(tmp_path, request):
    return create_table(tmp_path / "t", "id long, category string", format_version=request.param)


def upsert(table, gone, *rows):
    """Delete rows by position, and add others, in one snapshot; returns it."""
    more = rows_of(table, [{"id": number, "category": text} for number, text in rows]) if rows else None
    row_delta(table.table, gone, more).commit()
    table.refresh()
    return table.current_snapshot


def shown(rows):
    return [(row["_row_kind"], row["id"], row["category"]) for row in rows]


def test_the_first_scan_and_then_every_change(table):
    first = append(table, [{"id": number, "category": "a"} for number in range(4)])
    stream = ChangeStream(table, **KEYED)
    assert shown(stream.step()) == [("+I", number, "a") for number in range(4)]
    second = upsert(table, [1, 2], (1, "b"), (7, "c"))
    assert shown(stream.step()) == [("-D", 2, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("+I", 7, "c")]
    third = append(table, [{"id": 8, "category": "d"}])
    overwrite(table, "id >= 0")
    assert sorted(shown(stream.step())) == [
        ("+I", 8, "d"),
        ("-D", 0, "a"),
        ("-D", 1, "b"),
        ("-D", 3, "a"),
        ("-D", 7, "c"),
        ("-D", 8, "d"),
    ]
    assert stream.step() is None
    snapshots = [first, second, third, table.current_snapshot]
    found = [row for batch in stream.batches for row in batch]
    assert {(row["_snapshot_id"], row["_sequence_number"], row["_ordinal"]) for row in found} == {
        (each.snapshot_id, each.sequence_number, at) for at, each in enumerate(snapshots)
    }


def test_row_ids_are_there_where_tables_have_them(table):
    append(table, [{"id": number, "category": "a"} for number in range(3)])
    stream = ChangeStream(table)
    rows = stream.step()
    if table.format_version < 3:
        assert "_row_id" not in rows[0]
        return
    assert [row["_row_id"] for row in rows] == [0, 1, 2]
    upsert(table, [1])
    [row] = stream.step()
    assert (row["_row_kind"], row["_row_id"]) == ("-D", 1)


def test_the_columns_are_known_without_reading(table):
    enumerator = enumerator_of(table, read_mode="changes", columns=["category"])
    scan = enumerator.split_scan(enumerator.first())
    more = ["_row_id"] if table.format_version >= 3 else []
    names = ["category", "_row_kind", "_snapshot_id", "_sequence_number", "_ordinal", *more]
    assert scan.arrow_schema.names == names
    assert scan.arrow_schema.field("_row_kind").type == pa.string()


def test_splits_and_scans_pickle(table):
    add(table, 0, 2)
    stream = ChangeStream(table, **KEYED)
    stream.step()
    upsert(table, [0], (0, "c"))
    stream.step()
    for at, end in enumerate(map(stream.offset, range(2))):
        start = None if at == 0 else stream.offset(at - 1)
        splits, scan = pickle.loads(
            pickle.dumps((stream.enumerator.splits(start, end), stream.enumerator.split_scan(end)))
        )
        rows = [row for split in splits for batch in scan.read(split) for row in batch.to_pylist()]
        assert rows == stream.batches[at]
        assert splits == stream.enumerator.splits(start, end)


def test_a_scan_and_an_append_are_cut_and_other_snapshots_are_not(table):
    for number in range(3):
        add(table, number)
    stream = ChangeStream(table, max_files_per_trigger=1, **KEYED)
    while stream.step() is not None:
        stream.restart()
    assert stream.kinds() == [[("+I", 2)], [("+I", 1)], [("+I", 0)]]
    assert {row["_snapshot_id"] for row in stream.batches[0]} == {table.current_snapshot.snapshot_id}
    upsert(table, [0, 1], (0, "z"), (9, "z"))
    upsert(table, [2])
    operation = AppendFiles(table.table)
    for number in (20, 21):
        for file in data_files(table, [{"id": number, "category": "a"}]):
            operation.append_file(file)
    operation.commit()
    table.refresh()
    compact(table)
    while stream.step() is not None:
        stream.restart()
    kept = [("-D", 1), ("-U", 0), ("+U", 0), ("+I", 9)]
    assert stream.kinds()[3:] == [kept, [("-D", 2)], [("+I", 20)], [("+I", 21)]]
    assert [row["_ordinal"] for batch in stream.batches for row in batch] == [0, 0, 0, 1, 1, 1, 1, 2, 3, 3]


def test_limits_hold_between_snapshots(table):
    add(table, *range(10))
    stream = ChangeStream(table, max_rows_per_trigger=4, **KEYED)
    stream.step()
    upsert(table, [0, 1], (0, "z"))
    upsert(table, [2], (3, "z"))
    upsert(table, [4, 5, 6, 7, 8], (4, "z"))
    upsert(table, [9])
    stream.run()
    # As many as fit, and at least one.
    assert [len(batch) for batch in stream.batches] == [10, 3, 2, 6, 1]
    assert [{row["_ordinal"] for row in batch} for batch in stream.batches] == [{0}, {1}, {2}, {3}, {4}]
    other = ChangeStream(table, max_planning_snapshot_count=2, **EARLIEST, **KEYED)
    other.run()
    assert [{row["_ordinal"] for row in batch} for batch in other.batches] == [{0, 1}, {2, 3}, {4}]


def test_an_update_that_moves_a_row_out_of_the_filter_removes_it(table):
    append(table, [{"id": number, "category": "a"} for number in range(4)])
    stream = ChangeStream(table, filter="category = 'a'", **KEYED)
    assert len(stream.step()) == 4
    upsert(table, [0, 1], (0, "b"), (1, "a"))
    upsert(table, [2], (2, "c"))
    assert shown(stream.step()) == [("-D", 0, "a"), ("-D", 2, "a")]
    upsert(table, [0], (0, "a"))
    assert shown(stream.step()) == [("+I", 0, "a")]


def test_without_update_images(table):
    append(table, [{"id": 1, "category": "a"}])
    stream = ChangeStream(table, compute_updates=False, **KEYED)
    stream.step()
    upsert(table, [1], (1, "b"))
    assert shown(stream.step()) == [("-D", 1, "a"), ("+I", 1, "b")]


def test_the_identifier_fields_are_the_keys(tmp_path):
    schema = replace(parse_ddl("id long not null, category string"), identifier_field_ids=(1,))
    table = create_table(tmp_path / "t", schema, format_version=2)
    append(table, [{"id": 1, "category": "a"}])
    stream = ChangeStream(table)
    stream.step()
    upsert(table, [1], (1, "b"))
    assert shown(stream.step()) == [("-U", 1, "a"), ("+U", 1, "b")]
    upsert(table, [1], (1, "c"))
    stream.restart(identifier_columns="category")
    assert shown(stream.step()) == [("-D", 1, "b"), ("+I", 1, "c")]
    # What was planned with other keys is read with them again.
    assert stream.read(1, stream.enumerator) == stream.batches[1]


def test_net_changes_are_those_of_a_micro_batch(table):
    append(table, [{"id": number, "category": "a"} for number in range(3)])
    stream = ChangeStream(table, net_changes=True, **KEYED)
    stream.step()
    upsert(table, [0, 1], (0, "b"), (7, "b"))
    compact(table)
    upsert(table, [0, 7], (0, "c"), (8, "c"))
    add(table, 9)
    assert shown(stream.step()) == [
        ("-D", 1, "a"),
        ("-U", 0, "a"),
        ("+U", 0, "c"),
        ("+I", 8, "c"),
        ("+I", 9, "b"),
    ]
    assert [row["_ordinal"] for row in stream.batches[-1]] == [1, 2, 2, 2, 3]
    # By a driver that was just started, and has other options.
    stream.restart(net_changes=False)
    assert stream.read(1, stream.enumerator) == stream.batches[1]


def test_what_is_netted_are_whole_snapshots(table):
    for number in range(3):
        add(table, number)
    stream = ChangeStream(table, max_files_per_trigger=2, net_changes=True, **KEYED)
    assert len(stream.step()) == 2
    upsert(table, [0], (0, "z"))
    assert [row["_row_kind"] for row in stream.step()] == ["+I"]
    assert [row["_row_kind"] for row in stream.step()] == ["-U", "+U"]


def test_compaction_is_passed_over(table):
    add(table, 0)
    stream = ChangeStream(table)
    stream.run()
    add(table, 2)
    compact(table)
    assert [row["id"] for row in stream.run()] == [2]
    compact(table)
    assert stream.step() == []


def test_a_rolled_back_branch_and_an_expired_snapshot_are_errors(table):
    first = add(table, 0)
    stream = ChangeStream(table, **KEYED)
    stream.run()
    second = upsert(table, [0], (0, "z")).snapshot_id
    third = add(table, 5)
    stream.step()
    set_branch(table, first)
    with pytest.raises(LineageError, match="rolled back") as caught:
        stream.step()
    assert "ways out" in str(caught.value)
    set_branch(table, third)
    stream.restart()
    assert stream.step() is None
    late = ChangeStream(
        table, starting_strategy="incremental-from-snapshot-id", start_snapshot_id=first, **KEYED
    )
    late.log = stream.log[:1]
    late.restart()
    expire(table, second)
    with pytest.raises(LineageError, match="has expired") as caught:
        late.step()
    assert "ways out" in str(caught.value)
    late.restart(fail_on_data_loss=False)
    late.step()
    assert late.offset(-1).lost == 1
    assert [row["id"] for row in late.run()] == [5]


def test_a_branch(table):
    add(table, 0)
    ManageRefs(table.table).create_branch("audit").commit()
    table.refresh()
    stream = ChangeStream(table, branch="audit", **KEYED)
    stream.run()
    add(table, 1)
    add(table, 2, branch="audit")
    assert [row["id"] for row in stream.run()] == [2]


def test_the_schema_may_change(table):
    append(table, [{"id": number, "category": "a"} for number in range(3)])
    stream = ChangeStream(table, **KEYED)
    stream.run()
    upsert(table, [0], (0, "b"))
    UpdateSchema(table.table).add_column("more", "int").rename("category", "kind").commit()
    table.refresh()
    rows = pa.table({"id": [1], "kind": ["c"], "more": [5]}).cast(schema_to_arrow(table.schema))
    row_delta(table.table, [1], rows).commit()
    found = [(row["_row_kind"], row["id"], row["kind"], row["more"]) for row in stream.step()]
    assert found == [
        ("-U", 0, "a", None),
        ("+U", 0, "b", None),
        ("-U", 1, "a", None),
        ("+U", 1, "c", 5),
    ]
    stream.restart()
    assert stream.read(1, stream.enumerator) == stream.batches[1]


def test_row_ids_come_with_the_next_start(tmp_path):
    """The columns of one run stay the same; the table may get row ids in the middle of it."""
    table = create_table(tmp_path / "t", "id long, category string", format_version=2)
    add(table, 0)
    stream = ChangeStream(table)
    stream.step()
    UpdateProperties(table.table).upgrade_format_version(3).commit()
    table.refresh()
    add(table, 1)
    assert "_row_id" not in stream.step()[0]
    stream.restart()
    add(table, 2)
    assert stream.step()[0]["_row_id"] is not None


def test_another_read_mode(table):
    add(table, 0)
    stream = ChangeStream(table)
    stream.step()
    stream.restart(read_mode="append")
    with pytest.raises(LineageError, match="read-mode=changes"):
        stream.read(0, stream.enumerator)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"identifier_columns": "nr"}, "identifier-columns: there is no column 'nr'"),
        ({"columns": ["nr"]}, "columns 'nr'"),
        ({"filter": "nr = 1"}, "nr"),
    ],
)
def test_unknown_columns(table, options, words):
    with pytest.raises(InvalidOptionError, match=words):
        ChangeStream(table, **options).step()


def test_names_that_differ_in_case_only(tmp_path):
    """The one that is written as it was named, and never any of them."""
    table = create_table(tmp_path / "t", "id long, `ID` long, at timestamp, `At` timestamp", format_version=2)
    append(table, [{"id": 1, "ID": 8}, {"id": 2, "ID": 8}])
    stream = ChangeStream(table, case_sensitive=False, identifier_columns="id", watermark_column="at")
    planning = stream.cursor.latest().planning
    assert (planning.pairing.key_ids, planning.order_by) == ((1,), 3)
    for options in (
        {"identifier_columns": "Id"},
        {"columns": ["Id"]},
        {"filter": "Id = 8"},
        {"watermark_column": "AT"},
    ):
        with pytest.raises(InvalidOptionError, match="may be any of the columns"):
            ChangeStream(table, case_sensitive=False, **options).step()


@pytest.mark.parametrize("readers", [1, 3])
def test_so_many_manifests_are_read_at_a_time(table, monkeypatch, readers):
    for number in range(6):
        add(table, number)
    stream = ChangeStream(table, plan_parallelism=readers, **KEYED)
    stream.step()
    upsert(table, [0, 2, 4], (0, "z"))
    lock, reading, most = threading.Lock(), 0, 0
    original = change_planning.read_manifest

    def read(*given, **named):
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
        together.wait(0.2)
        found = original(*given, **named)
        with lock:
            reading -= 1
        return found

    together = threading.Event()
    monkeypatch.setattr(change_planning, "read_manifest", read)
    assert shown(stream.step())[-2:] == [("-U", 0, "a"), ("+U", 0, "z")]
    assert most == readers
