"""Checkpoints with deletes: one row delta each, onto the snapshot that their positions are of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable, committable_from_bytes, committable_to_bytes
from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.committer import Committer
from streamlake.commit.marker import INDEX_STATE
from streamlake.commit.receipt import Outcome
from streamlake.errors import ConflictValidationError, HeadMovedError
from streamlake.ids import new_uuid
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.tables import data_file, delete_file, make_table


def identity(checkpoint_id: int) -> CheckpointIdentity:
    return CheckpointIdentity("p", "job", checkpoint_id, (), (f"end-{checkpoint_id}",))


def staged(
    table: Table, checkpoint_id: int, *files: DataFile, mode: str = "upsert", **fields: object
) -> Committable:
    """As a driver finds it again after a crash."""
    manifests = write_delta_manifests(table.io, table.locations, table.metadata, files, new_uuid())
    deletes = sum(1 for file in files if not file.is_data)
    committable = Committable(
        identity=identity(checkpoint_id),
        table_uuid=table.uuid,
        branch="main",
        mode=mode,
        manifests=manifests,
        rows=10,
        data_files=len(files) - deletes,
        bytes=1,
        delete_files=deletes,
        **fields,
    )
    return committable_from_bytes(committable_to_bytes(committable), "path")


def names(table: Table) -> list[str]:
    return sorted(Path(entry.data_file.file_path).stem for entry in live_entries(table.refresh()))


@pytest.mark.parametrize("mode", ["upsert", "changelog"])
@pytest.mark.parametrize("format_version", [2, 3])
def test_checkpoints_replace_each_others_deletes(tmp_path: Path, format_version: int, mode: str) -> None:
    table = make_table(tmp_path, partition_by=("category",), format_version=format_version)
    committer = Committer(table, "main")
    one, two = data_file(table, "a", name="one"), data_file(table, "b", name="two")
    first = committer.commit(staged(table, 0, one, index_state="/i/0", mode=mode))
    assert (first.delete_files, first.counters) == (0, {})
    d1, d2 = delete_file(table, one, "d1"), delete_file(table, one, "d2", records=5)
    second = committer.commit(
        staged(table, 1, two, d1, base_snapshot_id=first.snapshot_id, index_state="/i/1", mode=mode)
    )
    assert second.delete_files == 1
    summary = table.current_snapshot.summary
    assert summary["operation"] == "overwrite"
    assert (summary[INDEX_STATE], summary["streamlake.max-committed-checkpoint-id"]) == ("/i/1", "1")
    third = committer.commit(
        staged(
            table, 2, d2, base_snapshot_id=second.snapshot_id, index_state="/i/2", removed=(d1,), mode=mode
        )
    )
    assert names(table) == ["d2", "one", "two"]
    committer.commit(
        staged(table, 3, base_snapshot_id=third.snapshot_id, index_state="/i/3", removed=(one, d2), mode=mode)
    )
    assert names(table) == ["two"]
    check_table(open_table(str(tmp_path)))


def test_the_files_at_hand_are_split_by_content(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    one, two = data_file(table, name="one"), data_file(table, name="two")
    base = Committer(table, "main").commit(staged(table, 0, one), files=[one]).snapshot_id
    files = [two, delete_file(table, one)]
    Committer(table, "main").commit(staged(table, 1, *files, base_snapshot_id=base), files=files)
    assert names(table) == ["d", "one", "two"]
    check_table(table)


def test_another_writer_in_between_is_told_and_the_checkpoint_stays_valid(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    one = data_file(table, name="one")
    committer = Committer(table, "main")
    base = committer.commit(staged(table, 0, one, index_state="/i/0")).snapshot_id
    other = open_table(str(tmp_path))
    AppendFiles(other).append_file(data_file(other, name="foreign")).commit()
    late = staged(table, 1, delete_file(table, one), base_snapshot_id=base, index_state="/i/1")
    with pytest.raises(HeadMovedError) as caught:
        committer.commit(late)
    found = table.refresh().current_snapshot.snapshot_id
    assert (caught.value.expected, caught.value.found) == (base, found)
    committer.commit(replace(late, base_snapshot_id=found))
    assert names(table) == ["d", "foreign", "one"]
    assert committer.commit(replace(late, base_snapshot_id=found)).outcome == Outcome.SKIPPED
    assert committer.commit(late).outcome == Outcome.SKIPPED, "a replay is known before its base is looked at"
    check_table(table)


def test_equality_deletes_go_onto_any_head(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    committer = Committer(table, "main")
    committer.commit(staged(table, 0, data_file(table, name="one")))
    other = open_table(str(tmp_path))
    AppendFiles(other).append_file(data_file(other, name="foreign")).commit()
    new = data_file(table, name="new")
    equality = replace(data_file(table, name="e"), content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
    duplicates = delete_file(table, new)
    committer.commit(staged(table, 1, new, equality, duplicates))
    assert names(table) == ["d", "e", "foreign", "new", "one"]
    assert INDEX_STATE not in table.current_snapshot.summary
    check_table(table)


def test_a_replaced_file_that_is_gone_is_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    one = data_file(table, name="one")
    base = Committer(table, "main").commit(staged(table, 0, one)).snapshot_id
    gone = delete_file(table, one, "gone")
    late = staged(table, 1, delete_file(table, one), base_snapshot_id=base, removed=(gone,))
    with pytest.raises(ConflictValidationError, match="no longer in the table"):
        Committer(table, "main").commit(late)
    assert names(table) == ["one"]


def test_a_checkpoint_that_only_moves_the_index_is_committed(tmp_path: Path) -> None:
    table = make_table(tmp_path, format_version=3)
    receipt = Committer(table, "main").commit(staged(table, 0, index_state="/i/0"))
    assert receipt.outcome == Outcome.COMMITTED
    assert table.current_snapshot.summary[INDEX_STATE] == "/i/0"
    assert table.current_snapshot.operation == "append"
    check_table(table)
