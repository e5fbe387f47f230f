"""What happens to the table under a stream: each case works, or is an error that names the ways out."""

from __future__ import annotations

import logging
import pickle
import shutil
from dataclasses import replace

import pytest

from streamlake.errors import (
    InvalidOptionError,
    LineageError,
    SourceError,
    StorageError,
    StreamlakeError,
)
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import create_table
from tests.unit.pipeline.iceberg.table_streams import (
    Stream,
    add,
    compact,
    enumerator_of,
    expire,
    overwrite,
    set_branch,
    tag,
)
from tests.unit.read.written_tables import append

EARLIEST = {"starting_strategy": "incremental-from-earliest-snapshot"}


@pytest.fixture
def table(tmp_path):
    return create_table(tmp_path / "t", "id long, category string", partition_by=["category"])


def refused(stream, *words):
    """The stream's next step is an error that says this; nothing is logged, and another try says the same."""
    log = list(stream.log)
    with pytest.raises(LineageError) as caught:
        stream.step()
    for word in (*words, "ways out"):
        assert str(word) in str(caught.value)
    assert stream.log == log
    stream.restart()
    with pytest.raises(LineageError):
        stream.step()


def test_compaction_is_passed_over(table):
    add(table, 0)
    stream = Stream(table)
    stream.run()
    add(table, 2)
    compact(table)
    add(table, 4)
    assert stream.run() == [2, 4]


def test_compaction_in_the_middle_of_a_scan(table):
    for number in range(4):
        add(table, number)
    stream = Stream(table, max_files_per_trigger=1)
    stream.step()
    compact(table)
    stream.restart()
    stream.run()
    assert stream.all() == [0, 1, 2, 3]


@pytest.mark.parametrize("kept", [[], [8]])
def test_a_snapshot_that_deletes_fails_after_what_comes_before_it(table, kept):
    add(table, 0)
    stream = Stream(table)
    stream.run()
    add(table, 2)
    undone = overwrite(table, "category = 'a'", *kept)
    add(table, 4)
    assert stream.step() == [2]
    refused(stream, undone, "on-delete=skip", "read-mode=changes", "deleted-records=2")
    stream.restart(on_delete="skip")
    assert stream.run() == [4]


def test_the_first_snapshot_deletes(table):
    add(table, 0)
    overwrite(table, "category = 'a'", 2)
    stream = Stream(table, starting_strategy="incremental-from-latest-snapshot")
    assert stream.step() == []
    add(table, 4)
    refused(stream, "'overwrite'")
    # The start is in the log: it does not move with the table.
    stream.restart(on_delete="skip")
    assert stream.run() == [4]


def test_what_is_skipped_is_logged(table, caplog):
    add(table, 0, 2)
    stream = Stream(table, on_delete="skip")
    stream.run()
    overwrite(table, "category = 'a'", 4)
    with caplog.at_level(logging.WARNING):
        assert stream.run() == []
    assert "added-records=1, deleted-records=2" in caplog.text


def test_a_replay_passes_over_what_was_skipped(table):
    add(table, 0)
    overwrite(table, "category = 'a'", 2)
    add(table, 4)
    stream = Stream(table, on_delete="skip", **EARLIEST)
    assert stream.step() == [0, 4]
    stream.restart(on_delete="fail")
    assert stream.read(0, stream.enumerator) == [0, 4]


def test_expiry_of_what_is_read_does_no_harm(table):
    first, second = add(table, 0), add(table, 2)
    stream = Stream(table)
    stream.run()
    add(table, 4)
    expire(table, first, second)
    assert stream.run() == [4]


def test_expiry_of_what_is_not_read(table, caplog):
    add(table, 0)
    stream = Stream(table)
    stream.run()
    lost = [add(table, 2), add(table, 4)]
    oldest = add(table, 6)
    expire(table, *lost)
    refused(stream, oldest, "2 snapshots", "table-scan-then-incremental", "fail-on-data-loss=false")
    stream.restart(fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        assert stream.run() == [6]
    assert "2 snapshots or more" in caplog.text
    assert stream.batches[1:] == [[], [6]]
    stream.restart(fail_on_data_loss=True)
    assert stream.read(1, stream.enumerator) == []
    add(table, 8)
    assert stream.run() == [8]


def test_expiry_before_the_first_snapshot_is_read(table):
    stream = Stream(table)
    stream.run()
    first = add(table, 0)
    add(table, 2)
    expire(table, first)
    refused(stream, "the stream began before the table's first snapshot")


def test_expiry_in_the_middle_of_a_scan(table):
    for number in range(3):
        add(table, number)
    stream = Stream(table, max_files_per_trigger=1)
    stream.step()
    scanned = table.current_snapshot.snapshot_id
    add(table, 9)
    expire(table, scanned)
    refused(stream, f"in the middle of snapshot {scanned}")
    with pytest.raises(LineageError, match="has to run again"):
        stream.read(0, enumerator_of(table))


def test_expiry_of_a_batch_that_is_replayed(table):
    first = add(table, 0)
    stream = Stream(table, **EARLIEST)
    add(table, 2)
    add(table, 4)
    assert stream.step() == [0, 2, 4]
    expire(table, first)
    with pytest.raises(LineageError, match=f"snapshot {first}.*has to run again"):
        stream.read(0, enumerator_of(table))


def test_rollback(table):
    first = add(table, 0)
    second = add(table, 2)
    stream = Stream(table)
    stream.run()
    set_branch(table, first)
    refused(stream, f"rolled back to snapshot {first}", f"set_branch('main', {second})")
    following = add(table, 4)
    refused(stream, f"rolled back to snapshot {first}", f"start-snapshot-id={following}")
    set_branch(table, second)
    stream.restart()
    add(table, 6)
    assert stream.run() == [6]


def test_rollback_of_what_was_not_read(table):
    first = add(table, 0)
    stream = Stream(table)
    stream.run()
    add(table, 2)
    set_branch(table, first)
    assert stream.run() == []
    add(table, 4)
    assert stream.run() == [4]


def test_rollback_in_the_middle_of_a_snapshot(table):
    first = add(table, 0, 1)
    stream = Stream(table, max_files_per_trigger=1)
    stream.run()
    add(table, 2, 3)
    stream.step()
    set_branch(table, first)
    refused(stream, "in the middle of snapshot")


def test_rollback_and_expiry_of_what_was_read(table):
    first = add(table, 0)
    second = add(table, 2)
    stream = Stream(table)
    stream.run()
    set_branch(table, first)
    expire(table, second)
    add(table, 4)
    refused(stream, "a history of its own")


def test_a_table_that_is_replaced_by_sql(table):
    """CREATE OR REPLACE keeps the uuid and the old snapshots; the new history has no parent."""
    add(table, 0)
    stream = Stream(table)
    stream.run()
    base = table.metadata
    refs = {name: ref for name, ref in base.refs.items() if name != "main"}
    table.table.operations.commit(base, replace(base, current_snapshot_id=None, refs=refs))
    table.refresh()
    refused(stream, "has no snapshot any more")
    add(table, 2)
    refused(stream, "CREATE OR REPLACE")


def test_a_table_that_is_made_anew(table):
    add(table, 0)
    stream = Stream(table)
    stream.run()
    shutil.rmtree(table.location)
    with pytest.raises(StreamlakeError):
        stream.step()
    made = create_table(table.location, "id long, category string")
    add(made, 2)
    stream.restart()
    refused(stream, table.metadata.table_uuid, made.metadata.table_uuid)


def test_a_branch_that_is_removed(table):
    add(table, 0)
    ManageRefs(table.table).create_branch("dev").commit()
    stream = Stream(table, branch="dev")
    assert stream.run() == [0]
    ManageRefs(table.table).remove("dev").commit()
    with pytest.raises(InvalidOptionError, match="has no branch 'dev'"):
        stream.step()


def test_the_tag_keeps_a_snapshot_on_the_way(table):
    """What tags keep is no way back to a position where the snapshots in between have expired."""
    first = add(table, 0)
    tag(table, "kept", first)
    stream = Stream(table)
    stream.run()
    second = add(table, 2)
    add(table, 4)
    expire(table, second)
    refused(stream, "has expired")


def rename(table, before, after):
    """Rename a column, as another engine does."""
    base, schema = table.metadata, table.schema
    fields = tuple(replace(each, name=after if each.name == before else each.name) for each in schema.fields)
    renamed = replace(schema, fields=fields, schema_id=schema.schema_id + 1)
    new = replace(base, schemas=(*base.schemas, renamed), current_schema_id=renamed.schema_id)
    table.table.operations.commit(base, new)
    table.refresh()


def test_schema_evolution(table):
    add(table, 0)
    stream = Stream(table)
    stream.run()
    UpdateSchema(table.table).add_column("amount", "int").commit()
    table.refresh()
    rename(table, "category", "kind")
    append(table, [{"id": 2, "kind": "a", "amount": 7}])
    assert stream.step() == [2]
    end, start = stream.offset(-1), stream.offset(-2)
    assert stream.enumerator.split_scan(end).arrow_schema.names == ["id", "kind", "amount"]
    # A stream that keeps its schema reads the same columns under the names that it knows.
    old = type(stream.enumerator)(table.table, stream.enumerator._source, schema_id=start.planning.schema_id)
    kept = old.next(start)
    scan = old.split_scan(kept)
    [rows] = [rows for split in old.splits(start, kept) for rows in scan.read(split)]
    assert rows.to_pylist() == [{"id": 2, "category": "a"}]
    stream.restart(filter="category = 'a'")
    append(table, [{"id": 4, "kind": "a", "amount": 7}])
    log = list(stream.log)
    with pytest.raises(InvalidOptionError, match="'category'"):
        stream.step()
    # A filter that does not fit is in no offset: with another one the stream goes on.
    assert stream.log == log
    stream.restart(filter="kind = 'a'")
    assert stream.run() == [4]


def test_partition_evolution(table):
    add(table, 0, 1)
    stream = Stream(table, filter="category = 'a'", max_files_per_trigger=1)
    stream.run()
    base = table.metadata
    spec = PartitionSpec(base.default_spec_id + 1, ())
    table.table.operations.commit(
        base, replace(base, specs=(*base.specs, spec), default_spec_id=spec.spec_id)
    )
    table.refresh()
    add(table, 2, 3)
    assert stream.run() == [2]
    assert sorted(Stream(table, filter="category = 'a'").run()) == [0, 2]


def test_a_data_file_that_is_gone(table):
    add(table, 0)
    [task] = table.scan().plan_files()
    path = table.table.io
    path.delete(task.data_file.file_path)
    with pytest.raises(StorageError):
        Stream(table).step()


def test_another_filter(table):
    add(table, 0, 2, 4)
    stream = Stream(table, filter="id > 0")
    assert stream.step() == [2, 4]
    stream.restart(filter="id > 2")
    with pytest.raises(LineageError, match="another filter"):
        stream.read(0, stream.enumerator)
    add(table, 1, 6)
    assert stream.run() == [6]


def test_an_offset_without_its_start(table):
    add(table, 0)
    stream = Stream(table)
    stream.step()
    with pytest.raises(SourceError, match="does not say where the stream begins"):
        stream.enumerator.splits(None, replace(stream.offset(0), start=None))


def test_splits_and_scans_pickle(table):
    add(table, 0, 2)
    overwrite(table, "category = 'b'")
    stream = Stream(table, filter="id > 0")
    stream.step()
    end = stream.offset(0)
    splits = pickle.loads(pickle.dumps(stream.enumerator.splits(None, end)))
    scan = pickle.loads(pickle.dumps(stream.enumerator.split_scan(end)))
    [rows] = [rows for split in splits for rows in scan.read(split)]
    assert rows.column("id").to_pylist() == [2]
