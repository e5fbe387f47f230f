"""The way out where a checkpoint directory is lost: a new one that begins where the table's last commit ends.

    offsets    those in the summary of the pipeline's last snapshot, for a Kafka source that is read directly
    rejects    what the lost job has staged for checkpoints that the table holds is committed
    directory  written as if one checkpoint had read everything up to there (`new_directory`)
    adopt      the table takes it as the pipeline's continuation, by the plan that `recovery` has for it

It runs without Spark. Invariants: nothing is changed where the table does not have the offsets of exactly its
last commit; a driver of the lost directory that still runs cannot commit once the table is bound to the new
one. An interrupted plan leaves a directory that no stream is started with: its start is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.checkpoint.new_directory import require_new, write_directory
from streamlake.checkpoint.store import CommittableStore
from streamlake.commit.committer import Committer
from streamlake.commit.history import History
from streamlake.commit.marker import (
    JOB_ID,
    MAX_COMMITTED_CHECKPOINT_ID,
    PIPELINE,
    Marker,
)
from streamlake.commit.offset_summary import committed_offsets
from streamlake.errors import InvalidOptionError
from streamlake.operate.recover.recovery import Recovery
from streamlake.operate.recover.recovery_plan import Plan, Step
from streamlake.source.offsets import PartitionOffsets, SourceOffsets
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.storage.file_io import FileIO
from streamlake.table.table import Table

_SHOWN = 8
_BY_HAND = (
    "Restore the directory from a copy; or start a new one with starting-offsets from where it ended, and "
    "let `streamlake recover --adopt` bind it to the table"
)


@dataclass(frozen=True)
class LastCommit:
    """The last commit of the pipeline whose directory is lost, and where its source goes on."""

    pipeline: str
    marker: Marker
    positions: PartitionOffsets

    @property
    def shown(self) -> str:
        """The offsets, as far as a line has room for them."""
        parts = [
            f"{topic}-{partition}: {offset}" for (topic, partition), offset in sorted(self.positions.items())
        ]
        more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
        return f"{', '.join(parts[:_SHOWN])}{more}"


def last_commit(table: Table, branch: str, pipeline: str | None) -> LastCommit:
    """The last commit of `pipeline` (None: the only stream that has written the branch).

    Raises InvalidOptionError where there is none, or the table does not have its offsets.
    """
    head = table.metadata.head(branch)
    ancestry = list(table.metadata.ancestors(None if head is None else head.snapshot_id))
    streams = {
        each.summary[PIPELINE]: each
        for each in reversed(ancestry)
        if MAX_COMMITTED_CHECKPOINT_ID in each.summary and committed_offsets(each.summary) is not None
    }
    if pipeline is None and len(streams) > 1:
        raise InvalidOptionError(
            f"several streams have written branch '{branch}' of {table.location}: "
            f"{', '.join(sorted(streams))}; name one with --pipeline"
        )
    name = pipeline if pipeline is not None else next(iter(streams), None)
    snapshot = None if name is None else streams.get(name)
    if name is None or snapshot is None:
        raise InvalidOptionError(
            f"no snapshot of branch '{branch}' of {table.location} says to which Kafka offsets "
            f"{'a stream' if name is None else f'pipeline {name!r}'} has written it: its source is another "
            f"one, or these snapshots have expired. {_BY_HAND}"
        )
    marker = _marker(table, branch, name, snapshot)
    positions = committed_offsets(snapshot.summary)
    assert positions is not None
    return LastCommit(name, marker, positions)


def _marker(table: Table, branch: str, pipeline: str, snapshot: Snapshot) -> Marker:
    """The marker of the pipeline's last commit, which is that of `snapshot`. Raises InvalidOptionError."""
    job_id = snapshot.summary[JOB_ID]
    history = History.of(table.metadata, branch, pipeline, job_id)
    finding = history.finding()
    if finding is not None:
        raise InvalidOptionError(f"{finding.found}. So its last commit is in doubt. {_BY_HAND}")
    marker = history.marker
    if marker is None or str(marker.checkpoint_id) != snapshot.summary[MAX_COMMITTED_CHECKPOINT_ID]:
        last = "none" if marker is None else str(marker.checkpoint_id)
        raise InvalidOptionError(
            f"{table.location}: the last checkpoint of pipeline '{pipeline}' is {last}, and the snapshot "
            f"that would tell its offsets has expired, or was too long for them. {_BY_HAND}"
        )
    return marker


def resuming(
    table: Table,
    branch: str,
    pipeline: str | None,
    location: str,
    io: FileIO,
    noted_table: str,
    rejects: Table | None = None,
) -> Plan:
    """The plan that makes a new directory at `location` and binds the table to it.

    `noted_table` is the table's name in the sink's note. Raises InvalidOptionError where there is a directory
    already, and what `last_commit` raises.
    """
    require_new(location, io)
    last = last_commit(table, branch, pipeline)
    unnamed = last.pipeline.endswith(f":{last.marker.job_id}") and pipeline is None
    name = None if unnamed else last.pipeline

    def write_and_adopt() -> None:
        require_same(table, branch, last)
        directory = write_directory(location, io, SourceOffsets(last.positions).to_text())
        Recovery(table, branch, name, directory, noted_table, rejects).adopt().carry_out()

    steps = []
    if rejects is not None:
        due = _staged_rejects(rejects, last.marker)
        if due:
            text = f"commit the rejects that are staged for checkpoint {last.marker.checkpoint_id}"
            steps.append(Step(text, lambda: _commit_rejects(rejects, last.marker)))
    ended = last.marker
    text = (
        f"write a new checkpoint directory at {location}, whose stream goes on at {last.shown}: where "
        f"checkpoint {ended.checkpoint_id} of job {ended.job_id} ends, the last one in the table; "
        f"and commit an empty snapshot to branch '{branch}' that makes it the continuation of "
        + ("that stream" if unnamed else f"pipeline '{last.pipeline}'")
    )
    warnings = [
        "topics that were deleted and created again since the last commit are not recognised: their records "
        "before these offsets are left out",
    ]
    if unnamed:
        warnings.append(
            "the stream has no name, so a driver of the lost directory that still runs is not stopped "
            "by this: make sure that there is none"
        )
    return Plan((*steps, Step(text, write_and_adopt)), tuple(warnings))


def require_same(table: Table, branch: str, last: LastCommit) -> None:
    """Raises InvalidOptionError where the stream has committed since `last`."""
    if last_commit(table.refresh(), branch, last.pipeline) != last:
        raise InvalidOptionError(
            f"{table.location} was written by pipeline '{last.pipeline}' since this plan was made: its "
            "driver runs. Stop it, and run the command again"
        )


def _staged_rejects(rejects: Table, marker: Marker) -> list[int]:
    store = CommittableStore(rejects.io, rejects.locations, marker.job_id)
    ids = [each.identity.checkpoint_id for each in store.pending()]
    return [each for each in ids if each <= marker.checkpoint_id]


def _commit_rejects(rejects: Table, marker: Marker) -> None:
    """Commit what is staged for checkpoints that the table holds: their records are not read again."""
    store = CommittableStore(rejects.io, rejects.locations, marker.job_id)
    committer = Committer(rejects, MAIN_BRANCH)
    for staged in store.pending():
        if staged.identity.checkpoint_id > marker.checkpoint_id:
            continue
        held = committer.marker(staged.identity)
        if held is None or held.checkpoint_id < staged.identity.checkpoint_id:
            committer.commit(staged)
        store.remove(staged.identity)
