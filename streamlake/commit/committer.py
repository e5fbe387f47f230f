"""The committer: takes Committables in checkpoint order and turns each into exactly one snapshot.

Called by the pipeline once per micro-batch. Invariant: whether a checkpoint is in the table is decided by the
table alone, against the metadata that the swap is based on, so neither a replay nor a second driver can
commit it twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamlake import clock
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity, offsets_digest
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.findings import checkpoint_older, diverged, table_older, table_replaced
from streamlake.commit.history import History, committed_snapshot
from streamlake.commit.lineage import Finding, RecoverCommand, lineage_error
from streamlake.commit.marker import (
    INDEX_STATE,
    Marker,
    key_summary,
    marker_property,
    marker_summary,
    next_fence,
)
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.commit.staged_fit import mismatch
from streamlake.errors import FencedError, LineageError, StagedUnfitError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.replace_partitions import ReplacePartitions
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table

ROW_DELTA_MODES = ("upsert", "changelog")
OVERWRITES = ("overwrite", "dynamic-overwrite")
ANOTHER_DRIVER = (
    "another driver runs the same checkpoint directory, or a copy of it, or has replaced this one. This one "
    "stops; make sure that only one is started"
)


class _AlreadyCommitted(Exception):
    """Raised inside a commit attempt when the refreshed table already holds the checkpoint."""


class Committer:
    """Commits the checkpoints of one pipeline to one branch of one table."""

    def __init__(self, table: Table, branch: str, command: RecoverCommand | None = None) -> None:
        """Take the pipeline's fence: once this driver has committed, drivers that started earlier stop.

        `command` says how messages name the table, the catalog and the checkpoint directory.
        """
        self._table = table
        self._branch = branch
        self._command = command or RecoverCommand(table.name, "", branch)
        self._uuid = table.uuid
        self._fence = next_fence(table.metadata)
        self._last: tuple[int, str] | None = None

    @property
    def last_checkpoint_id(self) -> int | None:
        """The table's last checkpoint of the job that this driver has seen or committed; None before that."""
        return None if self._last is None else self._last[0]

    def marker(self, identity: CheckpointIdentity) -> Marker | None:
        """The last checkpoint of this job that the refreshed table holds; None where it holds none.

        Raises LineageError on contradictions, FencedError when another driver has taken the pipeline over.
        """
        marker = self._held(self._table.refresh().metadata, identity)
        if self._last is not None and _checkpoint_of(marker)[0] < self._last[0]:
            finding = table_older(self._table.location, self._last[0], marker)
            raise self.error(finding, identity.pipeline)
        self._last = _checkpoint_of(marker)
        return marker

    def receipt_if_committed(self, identity: CheckpointIdentity) -> CommitReceipt | None:
        """A `skipped` receipt when the table already holds the checkpoint, else None.

        Raises LineageError when the table holds a checkpoint of this id with other offsets, or is ahead of it
        by more than a replay can explain. Raises FencedError when another driver has taken the pipeline over.
        """
        marker = self.marker(identity)
        if marker is None or marker.checkpoint_id < identity.checkpoint_id:
            self._require_predecessor(marker, identity)
            return None
        snapshot = committed_snapshot(self._table.metadata, self._branch, identity)
        digest = _digest_of(snapshot, marker, identity)
        if digest != identity.offsets_digest:
            location = self._table.location
            raise self.error(checkpoint_older(location, identity, marker, digest), identity.pipeline)
        return CommitReceipt(
            identity.job_id,
            identity.checkpoint_id,
            Outcome.SKIPPED,
            None if snapshot is None else snapshot.snapshot_id,
        )

    def error(self, finding: Finding, pipeline: str) -> LineageError:
        """The LineageError for a finding about this table, with the recovery commands that it offers."""
        return lineage_error(finding, replace(self._command, pipeline=pipeline))

    def commit(
        self,
        committable: Committable,
        outcome: Outcome = Outcome.COMMITTED,
        files: Sequence[DataFile] | None = None,
    ) -> CommitReceipt:
        """Commit one staged checkpoint as one snapshot, or find that the table already holds it.

        `files` are the Committable's files where the caller has them; without them its manifests are read.

        It raises:

        - HeadMovedError: the checkpoint has position deletes, and the branch is at another snapshot than
          theirs.
        - CommitConflictError: the retries are used up.
        - CommitStateUnknownError: the outcome could not be learned.
        - FencedError: another driver has gone further.
        - LineageError: table and checkpoint contradict each other.

        The staged Committable stays valid after each of them.
        """
        started = clock.monotonic()
        identity = committable.identity
        try:
            snapshot = self._snapshot(committable, files)
        except _AlreadyCommitted:
            self._last = (identity.checkpoint_id, identity.offsets_digest)
            found = committed_snapshot(self._table.metadata, self._branch, identity)
            return CommitReceipt(
                identity.job_id, identity.checkpoint_id, Outcome.SKIPPED, found.snapshot_id if found else None
            )
        self._last = (identity.checkpoint_id, identity.offsets_digest)
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
        self._require_fit(self._table.metadata, committable)
        operation = self._operation(committable, files)
        operation.set_summary(dict(committable.summary))
        operation.set_summary(marker_summary(identity))
        operation.set_summary(key_summary(committable.key_ids, committable.sequence_ids))
        if committable.index_state is not None:
            operation.set_summary({INDEX_STATE: committable.index_state})

        def check(metadata: TableMetadata) -> None:
            self._check(metadata, committable)
            operation.set_properties(
                marker_property(
                    identity.pipeline,
                    self._branch,
                    Marker.of(identity),
                    self._fence,
                    committable.key_ids,
                    metadata.last_sequence_number + 1,
                    committable.index_state,
                )
            )

        operation.add_check(check)
        return operation.commit()

    def _operation(
        self, committable: Committable, files: Sequence[DataFile] | None
    ) -> AppendFiles | OverwriteFiles | ReplacePartitions | RowDelta:
        if files is None:
            files = self.files(committable)
        operation: AppendFiles | OverwriteFiles | ReplacePartitions | RowDelta
        if committable.mode == "append" or (committable.mode in OVERWRITES and not committable.manifests):
            # Without rows there is nothing to overwrite with: a checkpoint of rejects alone only moves the
            # commit marker.
            operation = AppendFiles(self._table, branch=self._branch)
        elif committable.mode == "overwrite":
            operation = OverwriteFiles(self._table, branch=self._branch).overwrite_by_filter("true")
        elif committable.mode in ROW_DELTA_MODES:
            operation = self._row_delta(committable)
        else:
            operation = ReplacePartitions(self._table, branch=self._branch).validate_one_spec()
        for manifest in committable.manifests:
            operation.append_manifest(manifest, [file for file in files if _is_of(manifest, file)])
        return operation

    def _row_delta(self, committable: Committable) -> RowDelta:
        """The row delta of an upsert or changelog checkpoint.

        It asks for neither `validate_data_files_exist` nor `validate_deleted_files`. Position deletes for
        files in the table require the head that holds these files. Without a base snapshot there are only
        equality deletes, which hold for everything older, whatever was rewritten meanwhile, and position
        deletes for files that this commit adds itself, which nobody else can remove. Iceberg's sink for Flink
        leaves these validations out for the same reasons.
        """
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
        """The files in the manifests of a staged checkpoint, data files and delete files."""
        metadata = self._table.metadata
        return [
            entry.data_file
            for manifest in committable.manifests
            for entry in read_manifest(self._table.io, manifest, metadata.specs_by_id, metadata.schema)
        ]

    def _check(self, metadata: TableMetadata, committable: Committable) -> None:
        """Check the metadata that the swap is based on; runs in every attempt."""
        identity = committable.identity
        if metadata.table_uuid != committable.table_uuid:
            raise self.error(
                table_replaced(metadata.location, committable.table_uuid, metadata.table_uuid),
                identity.pipeline,
            )
        marker = self._held(metadata, identity)
        if marker is None or marker.checkpoint_id < identity.checkpoint_id:
            self._require_predecessor(marker, identity)
            if self._last is not None and _checkpoint_of(marker) != self._last:
                raise FencedError(
                    f"{metadata.location} was at checkpoint {self._last[0]} of job {identity.job_id} when "
                    "this driver looked last, and is at "
                    f"{'none' if marker is None else marker.checkpoint_id} now, before {identity} is "
                    f"committed: {ANOTHER_DRIVER}"
                )
            self._require_fit(metadata, committable)
            return
        if marker.checkpoint_id > identity.checkpoint_id:
            raise FencedError(
                f"{metadata.location} already holds checkpoint {marker.checkpoint_id} of job "
                f"{identity.job_id}, while this driver was committing {identity}: {ANOTHER_DRIVER}"
            )
        if marker.offsets_digest != identity.offsets_digest:
            raise self.error(
                checkpoint_older(metadata.location, identity, marker, marker.offsets_digest),
                identity.pipeline,
            )
        raise _AlreadyCommitted

    def _require_fit(self, metadata: TableMetadata, committable: Committable) -> None:
        reason = mismatch(metadata, committable)
        if reason is not None:
            raise StagedUnfitError(
                f"{committable.identity} is staged for {metadata.location} and no longer fits it: {reason}. "
                "Nothing of it was committed; start the stream again, which writes the checkpoint again"
            )

    def _held(self, metadata: TableMetadata, identity: CheckpointIdentity) -> Marker | None:
        """The job's last checkpoint in this metadata.

        Raises where that is in doubt, or this driver may not commit.
        """
        if metadata.table_uuid != self._uuid:
            raise self.error(
                table_replaced(metadata.location, self._uuid, metadata.table_uuid), identity.pipeline
            )
        history = History.of(metadata, self._branch, identity.pipeline, identity.job_id)
        held = history.named or history.recorded
        if held is not None and self._fence.is_behind(held.fence):
            raise FencedError(
                f"this driver started before another one took over pipeline '{identity.pipeline}' of "
                f"{metadata.location}, which is at checkpoint {held.marker.checkpoint_id} of job "
                f"{held.marker.job_id} now; nothing of {identity} was committed by this one: {ANOTHER_DRIVER}"
            )
        finding = history.finding()
        if finding is not None:
            raise self.error(finding, identity.pipeline)
        return history.marker

    def _require_predecessor(self, marker: Marker | None, identity: CheckpointIdentity) -> None:
        """Raise unless the checkpoint before this one, if the table holds it, ends where this one begins."""
        if marker is None or marker.checkpoint_id != identity.checkpoint_id - 1:
            return
        own = offsets_digest(identity.start_offsets)
        if marker.offsets_digest != own and (identity.start_offsets or identity.checkpoint_id == 0):
            finding = diverged(self._table.location, identity.checkpoint_id, marker, own)
            raise self.error(finding, identity.pipeline)


def _checkpoint_of(marker: Marker | None) -> tuple[int, str]:
    return (NO_CHECKPOINT, "") if marker is None else (marker.checkpoint_id, marker.offsets_digest)


def _is_of(manifest: ManifestFile, file: DataFile) -> bool:
    same_content = file.is_data == (manifest.content == ManifestContent.DATA)
    return same_content and file.spec_id == manifest.partition_spec_id


def _digest_of(snapshot: Snapshot | None, marker: Marker, identity: CheckpointIdentity) -> str | None:
    if snapshot is not None:
        summary: Mapping[str, str] = snapshot.summary
        return summary.get("streamlake.offsets-digest")
    return marker.offsets_digest if marker.checkpoint_id == identity.checkpoint_id else None
