"""The commits of `streamlake recover`: they set a table's commit markers, and add no rows.

Every change is one commit that sets the pipeline's property and takes its fence, so a driver that still runs
is stopped. Invariants: a change applies to exactly the history that its plan was made for; where the table
has changed since, nothing is done. The property keeps naming the key index of what the branch holds, so that
the index is found even after the snapshots that name it have expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.history import History
from streamlake.commit.marker import (
    INDEX_STATE,
    JOB_ID,
    KEY_IDS,
    MAX_COMMITTED_CHECKPOINT_ID,
    OFFSETS_DIGEST,
    PIPELINE,
    REPLAY_JOB_PREFIX,
    Fence,
    Marker,
    key_summary,
    marker_property,
    marker_summary,
    next_fence,
    properties_of_job,
    properties_on_branch,
    property_name,
)
from streamlake.errors import ConflictValidationError
from streamlake.spec.metadata.snapshot import Snapshot, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_properties, with_ref
from streamlake.table.updates.metadata_update import commit_metadata


def adopt(table: Table, identity: CheckpointIdentity, planned: History, key_ids: Sequence[int]) -> Snapshot:
    """Commit an empty snapshot that records `identity` as the pipeline's last checkpoint.

    It is recorded in the ancestry, so that a later rollback is noticed, and in the property. Raises
    ConflictValidationError when the table has changed since the plan.
    """
    _forget_other_names(table, planned)
    operation = AppendFiles(table, branch=planned.branch)
    operation.set_summary(marker_summary(identity))
    operation.set_summary(key_summary(key_ids, ()))
    fence = next_fence(table.metadata)

    def check(base: TableMetadata) -> None:
        _require(base, planned)
        head = base.head(planned.branch)
        index = _kept_index(base, None if head is None else head.snapshot_id, planned, key_ids)
        number = base.last_sequence_number + 1
        operation.set_properties(
            marker_property(
                identity.pipeline,
                planned.branch,
                Marker.of(identity),
                fence,
                key_ids,
                number,
                index.state,
                index.sequence_number,
            )
        )

    operation.add_check(check)
    return operation.commit()


def move_branch(
    table: Table, snapshot_id: int | None, marker: Marker, planned: History, key_ids: Sequence[int]
) -> TableMetadata:
    """Point the branch at a snapshot (None: leave it) and set the pipeline's property, in one commit.

    Raises ConflictValidationError when the table has changed since the plan.
    """
    fence = next_fence(table.metadata)
    return commit_metadata(
        table, lambda base: _with_branch_at(base, snapshot_id, marker, planned, fence, key_ids)
    )


def _with_branch_at(
    base: TableMetadata,
    snapshot_id: int | None,
    marker: Marker,
    planned: History,
    fence: Fence,
    key_ids: Sequence[int],
) -> TableMetadata:
    head = base.head(planned.branch)
    at = snapshot_id if snapshot_id is not None or head is None else head.snapshot_id
    index = _kept_index(base, at, planned, key_ids)
    wanted = marker_property(
        planned.pipeline,
        planned.branch,
        marker,
        fence,
        key_ids,
        _number_of(base, marker, planned),
        index.state,
        index.sequence_number,
    )
    if wanted.items() <= base.properties.items():
        return base
    _require(base, planned)
    own = property_name(planned.pipeline, planned.branch)
    others = [
        recorded.name
        for recorded in properties_of_job(base, planned.job_id)
        if recorded.branch == planned.branch and recorded.name != own
    ]
    if snapshot_id is not None:
        replays = _replays_at(base, planned.branch, snapshot_id)
        wanted.update({name: value for name, value in replays.items() if value is not None})
        others += [name for name, value in replays.items() if value is None]
        ref = base.refs.get(planned.branch, SnapshotRef(snapshot_id, "branch"))
        base = with_ref(base, planned.branch, replace(ref, snapshot_id=snapshot_id))
    return with_properties(base, wanted, others)


def _replays_at(base: TableMetadata, branch: str, snapshot_id: int) -> dict[str, str | None]:
    """The properties of replays whose last commit the branch leaves: as of the snapshot, None for none."""
    head = base.head(branch)
    kept = list(base.ancestors(snapshot_id))
    ids = {each.snapshot_id for each in kept}
    undone = {
        (each.summary.get(JOB_ID), each.summary.get(OFFSETS_DIGEST))
        for each in base.ancestors(None if head is None else head.snapshot_id)
        if each.snapshot_id not in ids
    }
    found: dict[str, str | None] = {}
    for each in properties_on_branch(base, branch):
        job_id = each.marker.job_id
        if not job_id.startswith(REPLAY_JOB_PREFIX) or (job_id, each.marker.offsets_digest) not in undone:
            continue
        found[each.name] = None
        last = next((snapshot for snapshot in kept if snapshot.summary.get(JOB_ID) == job_id), None)
        if last is not None:
            summary = last.summary
            marker = Marker(
                job_id, int(summary[MAX_COMMITTED_CHECKPOINT_ID]), summary[OFFSETS_DIGEST], last.snapshot_id
            )
            found.update(
                marker_property(
                    summary[PIPELINE], branch, marker, each.fence, each.key_ids, last.sequence_number
                )
            )
    return found


@dataclass(frozen=True)
class _Index:
    """A state of the key index and its snapshot's sequence number; both are None without an index."""

    state: str | None = None
    sequence_number: int | None = None


def _kept_index(
    base: TableMetadata, snapshot_id: int | None, planned: History, key_ids: Sequence[int]
) -> _Index:
    """The newest index over the key that a snapshot or one of its ancestors names.

    Where these have expired, it is the one that a property of the branch names, unless that index is of a
    snapshot that the branch is known to have left.
    """
    key = tuple(key_ids)
    if snapshot_id is None or not key:
        return _Index()
    columns = key_summary(key, ())[KEY_IDS]
    for each in base.ancestors(snapshot_id):
        if INDEX_STATE in each.summary and each.summary.get(KEY_IDS) == columns:
            return _Index(each.summary[INDEX_STATE], each.sequence_number)
    newest = base.snapshots_by_id[snapshot_id].sequence_number
    left = {each.sequence_number for each in base.snapshots}
    recorded = [planned.named, planned.recorded, *properties_on_branch(base, planned.branch)]
    found = [
        _Index(each.index_state, each.index_number)
        for each in recorded
        if each is not None and each.index_state is not None and each.key_ids == key
        if each.index_number is not None and each.index_number <= newest and each.index_number not in left
    ]
    return max(found, key=lambda each: each.sequence_number or 0, default=_Index())


def _number_of(base: TableMetadata, marker: Marker, planned: History) -> int | None:
    """The sequence number of the snapshot that holds a checkpoint; None where it is not known."""
    for snapshot in base.snapshots:
        if snapshot.snapshot_id == marker.snapshot_id:
            return snapshot.sequence_number
    recorded = planned.recorded
    return recorded.sequence_number if recorded is not None and recorded.marker == marker else None


def _forget_other_names(table: Table, planned: History) -> None:
    """Remove the job's properties under former pipeline names, which may record a later checkpoint."""
    own = property_name(planned.pipeline, planned.branch)

    def change(base: TableMetadata) -> TableMetadata:
        names = [
            recorded.name
            for recorded in properties_of_job(base, planned.job_id)
            if recorded.branch == planned.branch
        ]
        return with_properties(base, {}, [name for name in names if name != own])

    commit_metadata(table, change)


def _require(base: TableMetadata, planned: History) -> None:
    now = History.of(base, planned.branch, planned.pipeline, planned.job_id)
    if (now.named, now.seen) != (planned.named, planned.seen):
        raise ConflictValidationError(
            f"{base.location} has changed since the plan was made (pipeline '{planned.pipeline}', branch "
            f"'{planned.branch}'): stop every driver of the pipeline, and run the command again"
        )
