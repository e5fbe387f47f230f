"""The way out where a checkpoint directory is lost: a new one that begins where the table's last commit ends.

    offsets    those in the summary of the pipeline's last snapshot, for a Kafka source or a table that is
               read directly
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
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.store import CommittableStore
from streamlake.commit.committer import Committer
from streamlake.commit.history import History
from streamlake.commit.marker import (
    JOB_ID,
    MAX_COMMITTED_CHECKPOINT_ID,
    PIPELINE,
    Marker,
)
from streamlake.commit.offset_summary import committed_offsets, committed_table_offset
from streamlake.errors import InvalidOptionError
from streamlake.operate.read_position import place_in_words
from streamlake.operate.recover.recovery import Recovery
from streamlake.operate.recover.recovery_plan import Plan, Step
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.source.offsets import PartitionOffsets, SourceOffsets
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.storage.file_io import FileIO
from streamlake.table.table import Table

_SHOWN = 8
_BY_HAND = (
    "Restore the directory from a copy; or start a new one with starting-offsets (of a table: "
    "start-snapshot-id) from where it ended, and let `streamlake recover --adopt` bind it to the table"
)


@dataclass(frozen=True)
class LastCommit:
    """The last commit of the pipeline whose directory is lost, and where its source goes on."""

    pipeline: str
    marker: Marker
    end: SourceOffsets | TableOffset

    @property
    def shown(self) -> str:
        """Where the source goes on, as far as a line has room for it."""
        if isinstance(self.end, TableOffset):
            place = place_in_words(self.end.position)
            return f"{place} of the table with uuid {self.end.table_uuid}"
        return shown_offsets(self.end.positions)


def shown_offsets(positions: PartitionOffsets) -> str:
    """Where a Kafka source goes on, as far as a line has room for it."""
    parts = [f"{topic}-{partition}: {offset}" for (topic, partition), offset in sorted(positions.items())]
    more = f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return f"at {', '.join(parts[:_SHOWN])}{more}"


def last_commit(table: Table, branch: str, pipeline: str | None) -> LastCommit:
    """The last commit of `pipeline` (None: the only stream that has written the branch).

    Raises InvalidOptionError where there is none, or the table does not have its offsets.
    """
    head = table.metadata.head(branch)
    ancestry = list(table.metadata.ancestors(None if head is None else head.snapshot_id))
    streams = {
        each.summary[PIPELINE]: each
        for each in reversed(ancestry)
        if MAX_COMMITTED_CHECKPOINT_ID in each.summary and _end(each) is not None
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
            f"no snapshot of branch '{branch}' of {table.location} says to which offsets of "
            f"Kafka or a table {'a stream' if name is None else f'pipeline {name!r}'} has written it: its "
            f"source is another one, or these snapshots have expired. {_BY_HAND}"
        )
    marker = _marker(table, branch, name, snapshot)
    end = _end(snapshot)
    assert end is not None
    return LastCommit(name, marker, end)


def _end(snapshot: Snapshot) -> SourceOffsets | TableOffset | None:
    positions = committed_offsets(snapshot.summary)
    return committed_table_offset(snapshot.summary) if positions is None else SourceOffsets(positions)


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


@dataclass(frozen=True)
class ResumedTable:
    """A table of a lost directory's stream, which goes on in a new directory.

    `name` is the stream's name (None: it has none), `noted` the table's name in the sink's note.
    """

    table: Table
    branch: str
    name: str | None
    noted: str
    rejects: Table | None
    last: LastCommit

    @staticmethod
    def of(
        table: Table, branch: str, pipeline: str | None, noted: str, rejects: Table | None
    ) -> ResumedTable:
        """The table as it is now. Raises what `last_commit` raises."""
        last = last_commit(table, branch, pipeline)
        unnamed = last.pipeline.endswith(f":{last.marker.job_id}") and pipeline is None
        return ResumedTable(table, branch, None if unnamed else last.pipeline, noted, rejects, last)

    def settling(self) -> list[Step]:
        """The steps before all others: rejects of checkpoints that the table holds are committed."""
        rejects, marker = self.rejects, self.last.marker
        if rejects is None or not _staged_rejects(rejects, marker):
            return []
        text = f"commit the rejects that are staged for checkpoint {marker.checkpoint_id} of {self.noted}"
        return [Step(text, lambda: _commit_rejects(rejects, marker))]

    def require_same(self) -> None:
        """Raises InvalidOptionError where the stream has committed since."""
        if last_commit(self.table.refresh(), self.branch, self.last.pipeline) != self.last:
            raise InvalidOptionError(
                f"{self.table.location} was written by pipeline '{self.last.pipeline}' since this plan was "
                "made: its driver runs. Stop it, and run the command again"
            )

    def adopt(self, directory: SparkDirectory) -> None:
        """Bind the table to the new directory."""
        table = self.table.refresh()
        Recovery(table, self.branch, self.name, directory, self.noted, self.rejects).adopt().carry_out()


TOPICS_CREATED_AGAIN = (
    "topics that were deleted and created again since the last commit are not recognised: their records "
    "before these offsets are left out"
)
WITHOUT_NAME = (
    "the stream has no name, so a driver of the lost directory that still runs is not stopped by this: make "
    "sure that there is none"
)


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
    resumed = ResumedTable.of(table, branch, pipeline, noted_table, rejects)
    last = resumed.last

    def write_and_adopt() -> None:
        resumed.require_same()
        resumed.adopt(write_directory(location, io, last.end.to_text()))

    ended = last.marker
    text = (
        f"write a new checkpoint directory at {location}, whose stream goes on {last.shown}: where "
        f"checkpoint {ended.checkpoint_id} of job {ended.job_id} ends, the last one in the table; "
        f"and commit an empty snapshot to branch '{branch}' that makes it the continuation of "
        + ("that stream" if resumed.name is None else f"pipeline '{last.pipeline}'")
    )
    warnings = [TOPICS_CREATED_AGAIN] if isinstance(last.end, SourceOffsets) else []
    warnings += [WITHOUT_NAME] if resumed.name is None else []
    return Plan((*resumed.settling(), Step(text, write_and_adopt)), tuple(warnings))


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
