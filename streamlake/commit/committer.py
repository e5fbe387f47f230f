"""The committer: takes Committables in checkpoint order and turns each into exactly one snapshot.

Called by the pipeline once per micro-batch. Invariant: whether a checkpoint is in the table is decided by the table
alone, against the metadata that the swap is based on, so neither a replay nor a second driver can commit it twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamlake import clock
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.marker import (
    Marker,
    committed_snapshot,
    key_summary,
    last_committed,
    marker_property,
    marker_summary,
)
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import FencedError, LineageError
from streamlake.formats.manifests import read_manifest
from streamlake.spec.data_file import DataFile
from streamlake.spec.manifest import ManifestContent, ManifestFile
from streamlake.spec.snapshot import Snapshot
from streamlake.spec.table_metadata import TableMetadata
from streamlake.table.append_files import AppendFiles
from streamlake.table.overwrite_files import OverwriteFiles
from streamlake.table.replace_partitions import ReplacePartitions
from streamlake.table.row_delta import RowDelta
from streamlake.table.table import Table

INDEX_STATE = "streamlake.index-state"
ROW_DELTA_MODES = ("upsert", "changelog")


class _AlreadyCommitted(Exception):
    """Raised inside a commit attempt when the refreshed table turns out to hold the checkpoint."""


class Committer:
    """Commits the checkpoints of one pipeline to one branch of one table."""

    def __init__(self, table: Table, branch: str) -> None:
        self._table = table
        self._branch = branch

    def marker(self, identity: CheckpointIdentity) -> Marker | None:
        """The last checkpoint of this job that the refreshed table holds. Raises LineageError on contradictions."""
        return last_committed(
            self._table.refresh().metadata, self._branch, identity.pipeline, identity.job_id
        )

    def receipt_if_committed(self, identity: CheckpointIdentity) -> CommitReceipt | None:
        """A `skipped` receipt when the table holds the checkpoint already, else None.

        Raises LineageError when it holds a checkpoint of this id with other offsets, or is ahead of it by more
        than a replay can explain.
        """
        marker = self.marker(identity)
        if marker is None or marker.checkpoint_id < identity.checkpoint_id:
            return None
        snapshot = committed_snapshot(self._table.metadata, self._branch, identity)
        digest = _digest_of(snapshot, marker, identity)
        if digest != identity.offsets_digest:
            raise LineageError(_other_offsets(self._table.location, identity, marker, digest))
        return CommitReceipt(
            identity.job_id,
            identity.checkpoint_id,
            Outcome.SKIPPED,
            None if snapshot is None else snapshot.snapshot_id,
        )

    def commit(
        self,
        committable: Committable,
        outcome: Outcome = Outcome.COMMITTED,
        files: Sequence[DataFile] | None = None,
    ) -> CommitReceipt:
        """Commit one staged checkpoint as one snapshot, or find that the table holds it already.

        `files` are the Committable's files where they are at hand; they spare reading its manifests.

        Raises HeadMovedError when it deletes by position and the branch is at another snapshot than these positions
        are of, CommitConflictError when the retries are used up, CommitStateUnknownError when the outcome could not
        be learned, FencedError when another driver has gone further, LineageError on contradictions. The staged
        Committable is valid after each of them.
        """
        started = clock.monotonic()
        identity = committable.identity
        try:
            snapshot = self._snapshot(committable, files)
        except _AlreadyCommitted:
            found = committed_snapshot(self._table.metadata, self._branch, identity)
            return CommitReceipt(
                identity.job_id, identity.checkpoint_id, Outcome.SKIPPED, found.snapshot_id if found else None
            )
        return CommitReceipt(
            job_id=identity.job_id,
            checkpoint_id=identity.checkpoint_id,
            outcome=outcome,
            snapshot_id=snapshot.snapshot_id,
            rows=committable.rows,
            data_files=committable.data_files,
            bytes=committable.bytes,
            delete_files=committable.delete_files,
            commit_ms=round((clock.monotonic() - started) * 1000),
        )

    def _snapshot(self, committable: Committable, files: Sequence[DataFile] | None) -> Snapshot:
        identity = committable.identity
        operation = self._operation(committable, files)
        operation.set_summary(marker_summary(identity))
        operation.set_summary(key_summary(committable.key_ids, committable.sequence_ids))
        if committable.index_state is not None:
            operation.set_summary({INDEX_STATE: committable.index_state})
        operation.set_properties(marker_property(identity, self._branch, committable.key_ids))
        operation.add_check(lambda metadata: self._check(metadata, committable))
        return operation.commit()

    def _operation(
        self, committable: Committable, files: Sequence[DataFile] | None
    ) -> AppendFiles | OverwriteFiles | ReplacePartitions | RowDelta:
        if files is None:
            files = self.files(committable)
        operation: AppendFiles | OverwriteFiles | ReplacePartitions | RowDelta
        if committable.mode == "append":
            operation = AppendFiles(self._table, branch=self._branch)
        elif committable.mode == "overwrite":
            operation = OverwriteFiles(self._table, branch=self._branch).overwrite_by_filter("true")
        elif committable.mode in ROW_DELTA_MODES:
            operation = self._row_delta(committable)
        else:
            operation = ReplacePartitions(self._table, branch=self._branch)
        for manifest in committable.manifests:
            operation.append_manifest(manifest, [file for file in files if _is_of(manifest, file)])
        return operation

    def _row_delta(self, committable: Committable) -> RowDelta:
        delta = RowDelta(self._table, branch=self._branch)
        if committable.needs_its_base:
            delta.require_head(committable.base_snapshot_id)
        for file in committable.removed:
            if file.is_data:
                delta.remove_rows(file)
            else:
                delta.remove_deletes(file)
        return delta

    def files(self, committable: Committable) -> list[DataFile]:
        """The files in the manifests of a staged checkpoint, data and deletes."""
        metadata = self._table.metadata
        return [
            entry.data_file
            for manifest in committable.manifests
            for entry in read_manifest(self._table.io, manifest, metadata.specs_by_id, metadata.schema)
        ]

    def _check(self, metadata: TableMetadata, committable: Committable) -> None:
        """Runs on the metadata that the swap is based on, in every attempt."""
        identity = committable.identity
        if metadata.table_uuid != committable.table_uuid:
            raise LineageError(
                f"{metadata.location} was dropped and created anew since {identity} was staged (table uuid "
                f"{committable.table_uuid} then, {metadata.table_uuid} now). Start the stream into the new table with "
                "a new checkpoint directory, or restore the old table"
            )
        marker = last_committed(metadata, self._branch, identity.pipeline, identity.job_id)
        if marker is None or marker.checkpoint_id < identity.checkpoint_id:
            return
        if marker.checkpoint_id > identity.checkpoint_id:
            raise FencedError(
                f"{metadata.location} already holds checkpoint {marker.checkpoint_id} of job {identity.job_id}, while "
                f"this driver was committing {identity}: another driver runs the same checkpoint directory. This one "
                "stops; make sure that only one is started"
            )
        if marker.offsets_digest != identity.offsets_digest:
            raise LineageError(_other_offsets(metadata.location, identity, marker, marker.offsets_digest))
        raise _AlreadyCommitted


def _is_of(manifest: ManifestFile, file: DataFile) -> bool:
    same_content = file.is_data == (manifest.content == ManifestContent.DATA)
    return same_content and file.spec_id == manifest.partition_spec_id


def _digest_of(snapshot: Snapshot | None, marker: Marker, identity: CheckpointIdentity) -> str | None:
    if snapshot is not None:
        summary: Mapping[str, str] = snapshot.summary
        return summary.get("streamlake.offsets-digest")
    return marker.offsets_digest if marker.checkpoint_id == identity.checkpoint_id else None


def _other_offsets(location: str, identity: CheckpointIdentity, marker: Marker, digest: str | None) -> str:
    held = (
        f"it holds checkpoint {identity.checkpoint_id} with other source offsets (digest {digest}, here "
        f"{identity.offsets_digest})"
        if digest is not None
        else f"it is at checkpoint {marker.checkpoint_id} and no longer knows what checkpoint {identity.checkpoint_id} held"
    )
    return (
        f"{identity} does not belong to the state of {location}: {held}. The checkpoint directory is older than the "
        "table. Going on would lose rows (their checkpoint ids are taken) or write them twice. Either restore the "
        "checkpoint directory that wrote the table last, or roll the table back to the snapshot of the checkpoint "
        "before this one"
    )
