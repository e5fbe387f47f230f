"""A job's checkpoints as a table records them: in a branch's ancestry and in the pipeline's property.

The property alone would lose rows after a rollback; the ancestry alone would write rows twice after snapshots
expire. Both are written by the same commit, so either they agree or the snapshots in the ancestry have
expired. Any other difference is a Finding, and the job stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.lineage import Finding, Kind, Way, WayOut
from streamlake.commit.marker import (
    JOB_ID,
    MAX_COMMITTED_CHECKPOINT_ID,
    OFFSETS_DIGEST,
    Marker,
    PipelineProperty,
    parsed_property,
    properties_of_job,
    property_name,
)
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata

ADOPT_ROWS = "keeps the table as it is and continues after the checkpoint that the directory is at"


@dataclass(frozen=True)
class History:
    """What one branch of a table records about one job.

    - `named` is the pipeline's property, of whatever job.
    - `recorded` is the job's newest property on the branch.
    - `seen` is the job's newest commit marker in the ancestry.
    - `rolled_back`: the ancestry certainly lacks the checkpoint that `recorded` records.
    - `is_recorded_elsewhere`: some property records the job, if only on another branch.
    """

    location: str
    pipeline: str
    branch: str
    job_id: str
    named: PipelineProperty | None
    recorded: PipelineProperty | None
    seen: Marker | None
    rolled_back: bool
    is_recorded_elsewhere: bool

    @staticmethod
    def of(metadata: TableMetadata, branch: str, pipeline: str, job_id: str) -> History:
        """The history in this metadata. Raises DataInvalidError for a damaged property."""
        named = parsed_property(metadata, property_name(pipeline, branch))
        of_job = properties_of_job(metadata, job_id)
        here = [recorded for recorded in of_job if recorded.branch == branch]
        recorded = max(here, key=lambda each: each.marker.checkpoint_id, default=None)
        if named is not None and named.marker.job_id == job_id and recorded is not None:
            recorded = named if named.marker.checkpoint_id == recorded.marker.checkpoint_id else recorded
        # A branch that was published and removed is created anew from main, so its rows are looked for on
        # main.
        gone = recorded is not None and metadata.head(branch) is None
        seen, oldest = _from_ancestry(metadata, MAIN_BRANCH if gone else branch, job_id)
        lacking = recorded is not None and (
            seen is None or seen.checkpoint_id < recorded.marker.checkpoint_id
        )
        return History(
            metadata.location,
            pipeline,
            branch,
            job_id,
            named,
            recorded,
            seen,
            lacking
            and (seen is not None or (recorded is not None and _is_missing(metadata, recorded, oldest))),
            bool(of_job),
        )

    @property
    def marker(self) -> Marker | None:
        """The last checkpoint of the job in the table. Only valid where `finding` gives None."""
        if self.recorded is None or (
            self.seen is not None and self.seen.checkpoint_id >= self.recorded.marker.checkpoint_id
        ):
            return self.seen
        return self.recorded.marker

    def finding(self) -> Finding | None:
        """The contradiction in this history; None where there is none."""
        if self.named is not None and self.named.marker.job_id != self.job_id:
            return self._other_job(self.named.marker)
        if self.recorded is None:
            return self._property_lost(self.seen) if self.seen and not self.is_recorded_elsewhere else None
        if self.rolled_back:
            return self._rolled_back(self.recorded)
        if self.seen is None or _same(self.seen, self.recorded.marker):
            return None
        return self._property_behind(self.recorded, self.seen)

    def _other_job(self, last: Marker) -> Finding:
        return Finding(
            Kind.OTHER_JOB,
            f"pipeline '{self.pipeline}' last wrote {self.location} as job {last.job_id} ({_shown(last)}), "
            f"but this checkpoint directory belongs to job {self.job_id}: it is new, or another one",
            "read the source from where this directory begins, and so write rows twice or leave some out",
            (
                WayOut(
                    Way.ADOPT,
                    "makes this directory the pipeline's continuation: what is in the table stays, and this "
                    "job's checkpoints count from here (right when the source begins where the old "
                    "directory ended)",
                ),
                WayOut(
                    Way.FORK,
                    "continues as a pipeline of its own beside the old one, which may continue as well: "
                    "rows that both read are in the table twice",
                ),
            ),
            "restore the old checkpoint directory (where it is lost and Kafka is read directly, `streamlake "
            "recover --resume-from-table` makes one that goes on where the table ends), or start under "
            "another pipeline name to write the stream again on purpose",
        )

    def _property_lost(self, seen: Marker) -> Finding:
        return Finding(
            Kind.PROPERTY_LOST,
            f"branch '{self.branch}' of {self.location} holds {_shown(seen)} of job {self.job_id}, but the "
            f"table property '{property_name(self.pipeline, self.branch)}', which the same commit set, is "
            "gone",
            "work until that snapshot expires, and then write rows twice, because nothing would record what "
            "is in the table",
            (
                WayOut(
                    Way.ADOPT,
                    f"sets the property again; the table {ADOPT_ROWS.removeprefix('keeps the table ')}",
                ),
                rewind(seen.checkpoint_id),
            ),
            "set the property to what an earlier metadata file of the table has",
        )

    def _rolled_back(self, recorded: PipelineProperty) -> Finding:
        at = "holds none" if self.seen is None else f"ends at checkpoint {self.seen.checkpoint_id}"
        ways = [
            WayOut(
                Way.ROLLBACK,
                "moves the branch to the snapshot of the checkpoint that the directory is at, where the "
                "table still has it, so that nothing is missing",
            ),
            WayOut(Way.ADOPT, f"{ADOPT_ROWS}: the rows that were rolled back stay out"),
        ]
        if self.seen is not None:
            ways.insert(0, rewind(self.seen.checkpoint_id))
        return Finding(
            Kind.ROLLED_BACK,
            f"{self.location} was rolled back: its property '{recorded.name}' says that checkpoint "
            f"{recorded.marker.checkpoint_id} of job {self.job_id} is committed, but the history of branch "
            f"'{self.branch}' {at}",
            "leave out the rows in between",
            tuple(ways),
        )

    def _property_behind(self, recorded: PipelineProperty, seen: Marker) -> Finding:
        return Finding(
            Kind.PROPERTY_BEHIND,
            f"branch '{self.branch}' of {self.location} holds {_shown(seen)} of job {self.job_id}, but the "
            f"table property '{recorded.name}', which the same commit set, says {_shown(recorded.marker)}: "
            "the property was set by hand, or the branch was moved to abandoned snapshots",
            "leave rows out or write them twice, depending on which of the two is right",
            (
                WayOut(
                    Way.ROLLBACK,
                    "moves the branch to the snapshot of the checkpoint that the directory is at; newer "
                    "ones are replayed",
                ),
                rewind(seen.checkpoint_id),
                WayOut(Way.ADOPT, ADOPT_ROWS),
            ),
        )


def committed_snapshot(metadata: TableMetadata, branch: str, identity: CheckpointIdentity) -> Snapshot | None:
    """The snapshot in the branch's ancestry that committed exactly this checkpoint, if it has not expired."""
    for snapshot in _ancestry(metadata, branch):
        found = marker_of(snapshot, identity.job_id)
        if found is not None:
            if found.checkpoint_id == identity.checkpoint_id:
                return snapshot
            if found.checkpoint_id < identity.checkpoint_id:
                return None
    return None


def marker_of(snapshot: Snapshot, job_id: str) -> Marker | None:
    """The checkpoint of this job that a snapshot committed; None for any other snapshot."""
    summary = snapshot.summary
    if summary.get(JOB_ID) != job_id or MAX_COMMITTED_CHECKPOINT_ID not in summary:
        return None
    checkpoint_id = int(summary[MAX_COMMITTED_CHECKPOINT_ID])
    return Marker(job_id, checkpoint_id, summary.get(OFFSETS_DIGEST, ""), snapshot.snapshot_id)


def rewind(checkpoint_id: int) -> WayOut:
    """The way out that goes back to a checkpoint which table and directory have in common."""
    return WayOut(
        Way.REWIND,
        "puts the checkpoint directory, and the table where it is newer, back to checkpoint "
        f"{checkpoint_id}; the stream writes what came after it again",
        checkpoint_id,
    )


def _from_ancestry(
    metadata: TableMetadata, branch: str, job_id: str
) -> tuple[Marker | None, Snapshot | None]:
    """The job's newest commit marker, and the last snapshot that was looked at."""
    last: Snapshot | None = None
    for last in _ancestry(metadata, branch):
        found = marker_of(last, job_id)
        if found is not None:
            return found, last
    return None, last


def _is_missing(metadata: TableMetadata, recorded: PipelineProperty, oldest: Snapshot | None) -> bool:
    """Whether a checkpoint that the ancestry lacks is certainly missing, and has not just expired.

    It is missing when the ancestry is complete down to its beginning, or down to a snapshot older than the
    checkpoint's.
    """
    if oldest is None or oldest.parent_snapshot_id is None:
        return True
    if recorded.sequence_number is not None and oldest.sequence_number < recorded.sequence_number:
        return True
    newer = (each for each in metadata.snapshots if each.sequence_number > oldest.sequence_number)
    found = (marker_of(snapshot, recorded.marker.job_id) for snapshot in newer)
    return any(each is not None and each.checkpoint_id == recorded.marker.checkpoint_id for each in found)


def _same(one: Marker, other: Marker) -> bool:
    return (one.checkpoint_id, one.offsets_digest) == (other.checkpoint_id, other.offsets_digest)


def _shown(marker: Marker) -> str:
    return f"checkpoint {marker.checkpoint_id} (offsets digest {marker.offsets_digest[:8]})"


def _ancestry(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    head = metadata.head(branch)
    return metadata.ancestors(None if head is None else head.snapshot_id)
