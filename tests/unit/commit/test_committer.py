"""The committer on real tables in a temporary directory: once, in order, or a refusal that names the ways out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit import marker as markers
from streamlake.commit.committer import Committer
from streamlake.commit.receipt import Outcome
from streamlake.errors import FencedError, LineageError
from streamlake.ids import new_uuid
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.snapshot import Snapshot, SnapshotRef
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create(str(tmp_path / "t"), parse_ddl("id long"))


def identity(checkpoint_id: int, job_id: str = "job", end: str | None = None) -> CheckpointIdentity:
    return CheckpointIdentity("p", job_id, checkpoint_id, (), (end or f"end-{checkpoint_id}",))


def data_file(name: str, table: Table) -> DataFile:
    return DataFile(FileContent.DATA, f"{table.location}/data/{name}.parquet", "parquet", 0, (), 5, 100)


def staged(
    table: Table, who: CheckpointIdentity, mode: str = "append", files: int = 1, branch: str = "main"
) -> Committable:
    added = [data_file(f"{who.job_id}-{who.checkpoint_id}-{number}", table) for number in range(files)]
    manifests = write_delta_manifests(table.io, table.locations, table.metadata, added, new_uuid())
    return Committable(who, table.uuid, branch, mode, manifests, 5 * files, files, 100 * files)


def change(table: Table, **fields: object) -> None:
    base = table.refresh().metadata
    table.operations.commit(base, replace(base, **fields))


def append_foreign(table: Table, name: str) -> Snapshot:
    """Another writer's commit."""
    append = AppendFiles(table)
    append.append_file(data_file(name, table))
    return append.commit()


def test_a_checkpoint_becomes_one_snapshot_with_its_marker(table: Table):
    receipt = Committer(table, "main").commit(staged(table, identity(0)))
    snapshot = table.current_snapshot
    assert receipt.outcome == Outcome.COMMITTED
    assert receipt.snapshot_id == snapshot.snapshot_id
    assert snapshot.summary["streamlake.job-id"] == "job"
    assert snapshot.summary["streamlake.max-committed-checkpoint-id"] == "0"
    assert snapshot.summary["streamlake.pipeline"] == "p"
    assert json.loads(snapshot.summary["streamlake.end-offsets"]) == ["end-0"]
    told = json.loads(table.properties["streamlake.pipeline.p"])
    assert told.pop("holder")
    assert told == {
        "job-id": "job",
        "checkpoint-id": 0,
        "sequence-number": 1,
        "offsets-digest": identity(0).offsets_digest,
        "epoch": 1,
    }
    assert snapshot.summary["added-records"] == "5"


def test_a_replay_is_skipped_even_by_a_new_committer(table: Table):
    first = Committer(table, "main").commit(staged(table, identity(0)))
    again = Committer(open_table(table.location), "main")
    assert again.receipt_if_committed(identity(0)).snapshot_id == first.snapshot_id
    assert again.commit(staged(table, identity(0))).outcome == Outcome.SKIPPED
    assert len(table.refresh().snapshots) == 1
    assert again.receipt_if_committed(identity(1)) is None


@pytest.mark.parametrize("mode", ["append", "overwrite", "dynamic-overwrite"])
def test_staged_manifests_are_taken_up_without_being_rewritten(table: Table, mode: str):
    committable = staged(table, identity(0), mode=mode)
    Committer(table, "main").commit(committable)
    [manifest] = table.manifests(table.current_snapshot)
    assert manifest.manifest_path == committable.manifests[0].manifest_path
    assert manifest.added_snapshot_id == table.current_snapshot.snapshot_id


def test_same_checkpoint_with_other_offsets_is_refused(table: Table):
    committer = Committer(table, "main")
    committer.commit(staged(table, identity(0)))
    with pytest.raises(LineageError, match="other source offsets"):
        committer.receipt_if_committed(identity(0, end="elsewhere"))
    with pytest.raises(LineageError, match="restore the"):
        committer.commit(staged(table, identity(0, end="elsewhere")))
    assert len(table.refresh().snapshots) == 1


def test_an_older_checkpoint_with_the_same_offsets_is_skipped_and_with_others_refused(table: Table):
    committer = Committer(table, "main")
    for checkpoint_id in range(3):
        committer.commit(staged(table, identity(checkpoint_id)))
    assert committer.receipt_if_committed(identity(1)).outcome == Outcome.SKIPPED
    with pytest.raises(LineageError, match="older than the"):
        committer.receipt_if_committed(identity(1, end="elsewhere"))


def test_a_zombie_behind_its_successor_is_fenced(table: Table):
    zombie = Committer(open_table(table.location), "main")
    late = staged(table, identity(0))
    successor = Committer(table, "main")
    successor.commit(staged(table, identity(0)))
    successor.commit(staged(table, identity(1)))
    with pytest.raises(FencedError, match="another driver"):
        zombie.commit(late)
    assert len(table.refresh().snapshots) == 2


def test_a_new_job_id_for_a_known_pipeline_is_refused(table: Table):
    committer = Committer(table, "main")
    committer.commit(staged(table, identity(3)))
    with pytest.raises(LineageError, match="restore the old checkpoint directory"):
        committer.receipt_if_committed(identity(0, job_id="other"))
    with pytest.raises(LineageError, match="another pipeline name"):
        committer.commit(staged(table, identity(4, job_id="other")))


def test_other_writers_do_not_hide_the_marker(table: Table):
    Committer(table, "main").commit(staged(table, identity(0)))
    for number in range(3):
        append = AppendFiles(table)
        append.append_file(data_file(f"foreign-{number}", table))
        append.commit()
    assert Committer(open_table(table.location), "main").receipt_if_committed(identity(0)) is not None


def test_the_property_outlives_the_snapshot(table: Table):
    Committer(table, "main").commit(staged(table, identity(0)))
    append = AppendFiles(table)
    append.append_file(data_file("foreign", table))
    append.commit()
    kept = table.current_snapshot
    change(table, snapshots=(kept,), snapshot_log=table.metadata.snapshot_log[-1:])
    receipt = Committer(open_table(table.location), "main").receipt_if_committed(identity(0))
    assert receipt.outcome == Outcome.SKIPPED
    assert receipt.snapshot_id is None


def test_a_rolled_back_table_is_noticed(table: Table):
    committer = Committer(table, "main")
    first = committer.commit(staged(table, identity(0)))
    committer.commit(staged(table, identity(1)))
    change(
        table,
        current_snapshot_id=first.snapshot_id,
        refs={"main": SnapshotRef(first.snapshot_id, "branch")},
    )
    with pytest.raises(LineageError, match="rolled back"):
        Committer(open_table(table.location), "main").receipt_if_committed(identity(2))


def test_a_rolled_back_table_is_noticed_after_its_beginning_has_expired(table: Table):
    committer = Committer(table, "main")
    kept = [append_foreign(table, f"foreign-{number}") for number in range(2)]
    committer.commit(staged(table, identity(0)))
    last = table.current_snapshot
    change(
        table,
        current_snapshot_id=kept[1].snapshot_id,
        refs={"main": SnapshotRef(kept[1].snapshot_id, "branch")},
        snapshots=(kept[1], last),
    )
    with pytest.raises(LineageError, match="rolled back"):
        Committer(open_table(table.location), "main").receipt_if_committed(identity(0))
    with pytest.raises(LineageError, match="rolled back"):
        Committer(open_table(table.location), "main").receipt_if_committed(identity(1))


def test_a_marker_that_expired_from_main_but_lives_on_elsewhere_is_no_rollback(table: Table):
    Committer(table, "main").commit(staged(table, identity(0)))
    last = table.current_snapshot
    later = [append_foreign(table, f"foreign-{number}") for number in range(2)]
    change(
        table,
        snapshots=(last, later[1]),
        refs={**table.metadata.refs, "kept": SnapshotRef(last.snapshot_id, "tag")},
    )
    receipt = Committer(open_table(table.location), "main").receipt_if_committed(identity(0))
    assert receipt.outcome == Outcome.SKIPPED


def test_a_renamed_pipeline_finds_the_marker_that_its_job_left_under_the_old_name(table: Table):
    """So for a table that is named by another spelling of its path, where the name is the table and the job id."""
    for checkpoint_id in range(2):
        Committer(table, "main").commit(staged(table, identity(checkpoint_id)))
    append_foreign(table, "foreign")
    change(table, snapshots=(table.current_snapshot,))
    renamed = [replace(identity(checkpoint_id), pipeline="other name") for checkpoint_id in range(3)]
    committer = Committer(open_table(table.location), "main")
    assert committer.receipt_if_committed(renamed[1]).outcome == Outcome.SKIPPED
    assert committer.receipt_if_committed(renamed[2]) is None
    committer.commit(staged(table, renamed[2]))
    append_foreign(table, "foreign-2")
    change(table, snapshots=(table.current_snapshot,))
    back = Committer(open_table(table.location), "main")
    assert back.receipt_if_committed(identity(2)).outcome == Outcome.SKIPPED


def test_the_same_job_on_another_branch_is_not_taken_for_this_one(table: Table):
    who = identity(4)
    append_foreign(table, "foreign-0")
    audit = replace(staged(table, who, branch="audit"))
    Committer(table, "audit").commit(audit)
    assert Committer(table, "main").receipt_if_committed(who) is None
    assert Committer(table, "main").receipt_if_committed(replace(who, pipeline="other")) is None
    value = json.loads(table.properties[markers.property_name("p", "audit")])
    assert (value["checkpoint-id"], value["branch"]) == (4, "audit")


def test_a_branch_that_was_published_and_removed_goes_on_from_main(table: Table):
    append_foreign(table, "foreign")
    Committer(table, "audit").commit(staged(table, identity(0), branch="audit"))
    head = table.refs["audit"].snapshot_id
    change(table, current_snapshot_id=head, refs={"main": SnapshotRef(head, "branch")})
    committer = Committer(open_table(table.location), "audit")
    assert committer.receipt_if_committed(identity(0)).outcome == Outcome.SKIPPED
    assert committer.receipt_if_committed(identity(1)) is None
    committer.commit(staged(table, identity(1), branch="audit"))
    assert len(list(table.refresh().metadata.ancestors(table.refs["audit"].snapshot_id))) == 3


def test_a_branch_that_was_removed_with_its_rows_is_noticed(table: Table):
    append_foreign(table, "foreign")
    Committer(table, "audit").commit(staged(table, identity(0), branch="audit"))
    change(table, refs={"main": table.refs["main"]})
    with pytest.raises(LineageError, match="rolled back"):
        Committer(open_table(table.location), "audit").receipt_if_committed(identity(1))


def test_a_table_created_anew_is_noticed(table: Table):
    stale = replace(staged(table, identity(0)), table_uuid="another")
    with pytest.raises(LineageError, match="created again"):
        Committer(table, "main").commit(stale)


def test_branches_have_markers_of_their_own(table: Table):
    Committer(table, "main").commit(staged(table, identity(0)))
    audit_table = open_table(table.location)
    other = CheckpointIdentity("q", "job-q", 0, (), ("e",))
    Committer(audit_table, "audit").commit(replace(staged(table, other), branch="audit"))
    assert markers.property_name("q", "audit") in table.refresh().properties
    assert len(list(table.metadata.ancestors(table.refs["audit"].snapshot_id))) == 2
    assert Committer(table, "main").receipt_if_committed(other) is None


def test_overwrite_replaces_everything(table: Table):
    committer = Committer(table, "main")
    committer.commit(staged(table, identity(0), files=2))
    committer.commit(staged(table, identity(1), mode="overwrite"))
    summary = table.current_snapshot.summary
    assert summary["operation"] == "overwrite"
    assert summary["deleted-data-files"] == "2"
    assert summary["total-data-files"] == "1"


def test_an_empty_checkpoint_moves_the_marker(table: Table):
    committer = Committer(table, "main")
    committer.commit(staged(table, identity(0)))
    committer.commit(staged(table, identity(1), files=0))
    assert committer.marker(identity(1)).checkpoint_id == 1
    assert table.current_snapshot.summary["total-records"] == "5"


def test_long_offsets_are_left_to_their_digest():
    long = CheckpointIdentity("p", "job", 1, (), ("x" * 10_000,))
    summary = markers.marker_summary(long)
    assert "streamlake.end-offsets" not in summary
    assert summary["streamlake.offsets-digest"] == long.offsets_digest
