"""The state of a sink while one query runs: the open table, its committer, what is staged, the counters."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import DataFrame

from streamlake import clock, ids
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.checkpoint.identity import CheckpointIdentity, offsets_digest
from streamlake.checkpoint.store import CommittableStore
from streamlake.checkpoint.table_note import NO_CHECKPOINT, Calls, Noted
from streamlake.commit.committer import OVERWRITES, Committer
from streamlake.commit.findings import (
    markers_lost,
    staged_by_another,
    staged_gone,
    staged_lost,
    staged_unfit,
)
from streamlake.commit.lineage import Finding
from streamlake.commit.marker import Marker
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.commit.staged_fit import mismatch, missing_file, table_then
from streamlake.commit.traces import holds, is_gone
from streamlake.errors import StagedUnfitError, StorageError, StreamlakeError
from streamlake.failpoints import failpoint
from streamlake.pipeline.runs.column_check import check_columns
from streamlake.pipeline.runs.evolution import SchemaFollower
from streamlake.pipeline.runs.filtered_tables import FilteredTables, skipped_summary
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable, OwnNote
from streamlake.pipeline.runs.lineage.lineage_check import (
    KnownDirectory,
    LoggedOffsets,
    binding_note,
    directory_finding,
)
from streamlake.pipeline.runs.rejects import REJECTED_RECORDS, Rejects
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.source_notes import LastTruncate, keep_sources, no_truncate
from streamlake.pipeline.runs.stages import Aim, Written
from streamlake.pipeline.spark.arrow_batches import bound_by_rows
from streamlake.pipeline.spark.distribution import distribute
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.pipeline.spark.task_outcome import collected, lasting_error, outcome_task, task_ids
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.tables import table_schema
from streamlake.tasks.watermarks import watermark_summary
from streamlake.write.files.outcomes import OUTCOMES_DDL, results_of
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import Task, write_task
from streamlake.write.upsert.upsert_target import UpsertTarget

_LOG = logging.getLogger(__name__)
_NOTE_EVERY_S = 10.0
_AGAIN = Written()

Durable = TypeVar("Durable", bound=Committable)


class SinkRun:
    """One run of a query on one branch of one table; lives on the driver from its first micro-batch on.

    A restarted query gets another one, in the same process too: it starts from what is durable. With a
    `queue`, its thread commits checkpoints; once there is something in it, only that thread moves the table.
    `rejects` (None: records that cannot become rows are errors) is set before the first checkpoint.
    `filtered` knows which source tables were skipped. `job`: how files are written, where the table does not
    say.
    `written_before`: the last checkpoint in the log of a query of many tables (None: no log).
    """

    def __init__(self, table: Table, note: CheckpointTable, settings: RunSettings) -> None:
        self.table = table
        self.job = settings.job
        self._calls = settings.calls
        self.follower = SchemaFollower(table, settings.evolution, self._settle)
        self.queue = settings.queue
        self.run_id = settings.run_id
        self.branch = settings.branch
        self.mode = settings.mode
        self.committer = Committer(table, settings.branch, settings.command)
        self._job_id = settings.job_id
        self._locations = table.locations
        self._note = OwnNote(note, table.location)
        self._noted = Noted(table.uuid, committed=False, calls=settings.calls)
        self._noted_at = clock.monotonic()
        self._max_continuous_empty_commits = settings.max_continuous_empty_commits
        self.rejects: Rejects | None = None
        self.filtered = FilteredTables()
        self.summary: Mapping[str, str] = {}
        """Summary entries of the query as a whole, in each of its commits."""
        self.written_before: int | None = None
        self._empty = 0
        self._recovered = False
        self._staged: list[CheckpointIdentity] = []
        self._reported_done: dict[int, CheckpointIdentity] = {}
        self._staged_lock = threading.Lock()
        self._last_staged = NO_CHECKPOINT
        self.outage_retry = OutageRetry(lambda: table.properties)

    @property
    def store(self) -> CommittableStore:
        """The staged checkpoints, through the table's storage of this moment: credentials are renewed."""
        return CommittableStore(self.table.io, self._locations, self._job_id, self.branch)

    def remember(
        self, noted: Noted | None, identity: CheckpointIdentity, logged: LoggedOffsets | None = None
    ) -> None:
        """Compare the table with the checkpoint directory's note (`noted`) and offset log (`logged`), and
        write the note. Raises LineageError.
        """
        last = NO_CHECKPOINT if self.written_before is None else self.written_before
        self._note.goes_on_from(noted)
        noted = binding_note(noted, identity.checkpoint_id, self.table.uuid)
        others, calls = self._note.others, self._calls

        def staged() -> list[Committable]:
            return self.outage_retry.through(lambda: self.store.pending())

        directory = KnownDirectory(noted, identity.checkpoint_id, logged, others, calls, last, staged)
        if noted is not None and noted.table_uuid != self._noted.table_uuid:
            marker = None
        else:
            marker = self.outage_retry.through(lambda: self.committer.marker(identity))
        finding = directory_finding(self.table, self.branch, identity.job_id, marker, directory)
        if finding is not None:
            raise self.committer.error(finding, identity.pipeline)
        known = Noted(self.table.uuid, committed=False) if noted is None else noted
        known = _bound(known, identity, self._calls)
        passed = marker is not None and marker.checkpoint_id < identity.checkpoint_id
        self._noted = known.with_checkpoint(marker.checkpoint_id) if marker is not None and passed else known
        if noted != self._noted:
            self._write_note(self._noted)
            failpoint("checkpoint-noted")

    @property
    def last_written(self) -> int:
        """The last checkpoint that is in the table, or staged for it and about to be done."""
        committed = self.committer.last_checkpoint_id
        return max(self._last_staged, NO_CHECKPOINT if committed is None else committed)

    def require_predecessor(self, committable: Committable, marker: Marker | None) -> None:
        """Of several staged checkpoints none may be missing; and where the table has no commit marker of the
        job, it may not hold this one already. Raises LineageError.
        """
        identity = committable.identity
        if marker is None:
            finding = self.outage_retry.through(lambda: self._unmarked(committable))
            if finding is not None:
                raise self.committer.error(finding, identity.pipeline)
        follows = committable.extra.follows
        held = NO_CHECKPOINT if marker is None else marker.checkpoint_id
        if follows is not None and held < follows:
            finding = staged_lost(self.table.location, follows, marker)
            raise self.committer.error(finding, identity.pipeline)

    def require_fit(self, committable: Committable) -> None:
        """Raises StagedUnfitError where staged files are missing or do not fit the table any more."""

        def check() -> None:
            reason = mismatch(self.table.metadata, committable)
            path = None if reason else missing_file(self.table, committable)
            if reason is None and path is not None:
                reason = f"{path} is no longer there; an orphan removal may have deleted it"
            if reason is not None:
                raise StagedUnfitError(reason)

        self.outage_retry.through(check)

    def unfit(self, committable: Committable, error: StreamlakeError, current: CheckpointIdentity) -> None:
        """Forget a staged checkpoint that can no longer be committed, if it is the current one: Spark writes
        that again. Raises LineageError for an earlier one, because Spark went on before its commit.
        """
        identity = committable.identity
        if identity.checkpoint_id != current.checkpoint_id:
            marker = self.outage_retry.through(lambda: self.committer.marker(identity))
            finding = staged_unfit(self.table.location, identity.checkpoint_id, marker, str(error))
            raise self.committer.error(finding, identity.pipeline) from error
        _LOG.warning(
            "%s was staged and is written again, because it does not fit the table: %s", identity, error
        )
        self._forget(lambda staged: staged == identity)

    def _unmarked(self, committable: Committable) -> Finding | None:
        """The finding for a staged checkpoint whose job has no commit marker in the table, if any."""
        location = self.table.location
        if holds(self.table, self.branch, committable):
            return markers_lost(location)
        if is_gone(self.table, committable):
            return staged_gone(location, committable.identity.checkpoint_id)
        return None

    def note_staged(self, identity: CheckpointIdentity) -> None:
        """Note that Spark is about to count a checkpoint as done that is only staged."""
        digest = identity.offsets_digest
        self._write_note(
            replace(self._with_committed(), staged_id=identity.checkpoint_id, staged_digest=digest)
        )
        self._last_staged = identity.checkpoint_id

    def note_passed(self, identity: CheckpointIdentity) -> None:
        """Note that Spark is about to count a checkpoint as done that leaves no trace in the table."""
        if self._calls is not Calls.QUERY:
            digest = identity.offsets_digest
            noted = self._with_committed()
            self._write_note(replace(noted, passed_id=identity.checkpoint_id, passed_digest=digest))

    def _with_committed(self) -> Noted:
        """The note with what is committed: a note about what came after must not lag behind."""
        committed = self.committer.last_checkpoint_id
        return self._noted if committed is None else self._noted.with_checkpoint(committed)

    def named(self, identity: CheckpointIdentity) -> CheckpointIdentity:
        """The identity under the name that this checkpoint directory has for its pipeline."""
        other = self._noted.pipelines.get(identity.pipeline)
        return identity if other is None else replace(identity, pipeline=other)

    def note_commit(self, identity: CheckpointIdentity) -> None:
        """Note the last checkpoint that the table holds: only now and then, as it costs a file; at once where
        nothing else records which checkpoints were for the table.
        """
        last = self.committer.last_checkpoint_id
        checkpoint_id = None if last is None else min(last, identity.checkpoint_id)
        is_reported = self._calls is Calls.EVERY or self.written_before is not None
        due = not is_reported or clock.monotonic() - self._noted_at >= _NOTE_EVERY_S
        if checkpoint_id is not None and (due or not self._noted.committed):
            self._write_note(self._noted.with_checkpoint(checkpoint_id))
            failpoint("commit-noted")
        self._last_staged = NO_CHECKPOINT if checkpoint_id is None else checkpoint_id

    def _write_note(self, noted: Noted) -> None:
        """Write the note. If that fails, the run keeps the last note: another try may end differently."""
        self._note.write(noted)
        self._noted = noted
        self._noted_at = clock.monotonic()

    def pending(self) -> list[Committable]:
        """What a crashed predecessor staged, until that is recovered; what is staged later is our own."""
        if self._recovered:
            return []
        found = self.outage_retry.through(lambda: self.store.pending())
        failpoint("pending-read")
        self._staged = [committable.identity for committable in found]
        self._reported_done = {each.checkpoint_id: each for each in _staged_ahead(found)}
        return found

    def end_recovery(self, last: CheckpointIdentity | None) -> None:
        """Mark all that a predecessor staged as recovered; `last` was committed last. Not earlier: a caller
        that tries a failed micro-batch again would leave out the rest.
        """
        self._recovered = True
        if last is not None:
            self._last_staged = last.checkpoint_id

    def require_own(self, identity: CheckpointIdentity) -> None:
        """A checkpoint staged ahead of its commit under this id must be this one: its own stream may count it
        as done, and what is staged now would replace it. Raises LineageError.
        """
        staged = self._reported_done.get(identity.checkpoint_id)
        if staged is not None and not staged.covers_the_same(identity):
            raise self.committer.error(
                staged_by_another(self.table.location, identity, staged), identity.pipeline
            )

    @property
    def row_kind(self) -> str | None:
        """The stream's row kind column, which says what each change does; None where there is none."""
        return None

    def aim(self, identity: CheckpointIdentity, *, rebuild: bool = False) -> Aim:
        """What the writer tasks of a checkpoint get, for the table as it is; `rebuild`: with a new index."""
        return Aim(self._write_target(identity))

    def target(self, identity: CheckpointIdentity) -> WriteTarget | UpsertTarget:
        """The target of `aim`."""
        return self.aim(identity).target

    def write(self, frame: DataFrame, identity: CheckpointIdentity) -> Written:
        """Write the rows of `frame`; before that, the table's schema follows that of the frame as far as it
        may.
        """
        if self.follower.is_on:
            columns = frame.schema
            self.follower.follow(columns.json(), lambda: self.columns_for_table(table_schema(columns)))
        return self.follower.writing(lambda: self._written(frame, identity))

    def columns_for_table(self, schema: Schema) -> Schema:
        """The stream's columns that are for the table: all but a row kind that the table does not keep."""
        kind = None if self.row_kind in self.table.schema.column_names else self.row_kind
        return replace(schema, fields=tuple(part for part in schema.fields if part.name != kind))

    def keep_sources(self, found: Mapping[str, str]) -> None:
        """Record in the table which source tables the changes of topics belong to. Raises InvalidOptionError
        where that is impossible, see `source_notes`, and the errors of a commit.
        """
        self._settle()
        keep_sources(self.table, found, self.branch, self._last_truncate)

    @property
    def _last_truncate(self) -> LastTruncate:
        return no_truncate

    def _settle(self) -> None:
        """Wait until the queue is empty, so that the table can be changed here."""
        error = None if self.queue is None else self.queue.drain()
        if error is not None:
            raise error

    def _written(self, frame: DataFrame, identity: CheckpointIdentity) -> Written:
        metadata, job = self.table.metadata, self.job
        task = write_task(self._write_target(identity), task_ids)
        check_columns(frame.columns, self.table)
        bound_by_rows(frame.sparkSession)
        properties = {**metadata.properties, **job.overrides(metadata.properties)}
        frame = distribute(
            frame, metadata.schema, metadata.spec, metadata.sort_order, properties, job.parallelism
        )
        return Written.of(self._outcomes(frame, task))

    def _write_target(self, identity: CheckpointIdentity) -> WriteTarget:
        """The table as it is now, for files whose names nobody else uses."""
        return WriteTarget.for_table(
            self.table.metadata,
            io=self.table.io,
            job_id=identity.job_id,
            checkpoint_id=identity.checkpoint_id,
            operation_uuid=ids.new_uuid(),
            properties=self.job.overrides(self.table.properties),
        )

    def _outcomes(self, frame: DataFrame, task: Task) -> list[WriteResult]:
        """The results of a job of this task. Raises what a task has found, and removes then the files of the
        others.
        """
        outcomes = collected(frame.mapInArrow(outcome_task(task), OUTCOMES_DDL))
        results = results_of(outcomes)
        errors = [each.error for each in outcomes if each.error is not None]
        if errors:
            self.discard(path for result in results for path in result.paths)
            raise lasting_error(errors)
        return results

    def discard(self, paths: Iterable[str]) -> None:
        """Remove files that were never handed over, such as those of tasks beside one that failed."""
        for path in paths:
            with contextlib.suppress(StorageError):
                self.table.io.delete(path)

    def stage(self, identity: CheckpointIdentity, results: Iterable[WriteResult]) -> Committable | None:
        """Make the checkpoint durable: delta manifests first, then the Committable that names them. None for
        an empty checkpoint, but every n-th in a row is staged, so that the commit marker advances.
        """
        written = Written.of(results)
        files = [file for result in written for file in (*result.data_files, *result.delete_files)]
        if self._is_skipped(files, written):
            return None
        committable = Committable(
            identity=identity,
            table_uuid=self.table.uuid,
            branch=self.branch,
            mode=self.mode,
            manifests=self._manifests(files),
            rows=sum(file.record_count for file in files if file.is_data),
            data_files=sum(file.is_data for file in files),
            bytes=sum(file.file_size_in_bytes for file in files),
        )
        return self._recorded(committable, written)

    def commit(
        self,
        committable: Committable,
        results: Sequence[WriteResult] | None = None,
        outcome: Outcome = Outcome.COMMITTED,
    ) -> CommitReceipt:
        """Commit a staged checkpoint as one snapshot. `results` save reading its manifests (None: read)."""
        return self._commit_once(committable, outcome, None if results is None else data_files(results))

    def _commit_once(
        self, committable: Committable, outcome: Outcome, files: Sequence[DataFile] | None
    ) -> CommitReceipt:
        return self.outage_retry.commit(
            committable.identity, lambda: self.committer.commit(committable, outcome, files)
        )

    def interrupt(self) -> None:
        """Stop waiting, because the query is being stopped: what cannot be committed at once stays staged."""
        self.outage_retry.stop()
        if self.queue is not None:
            self.queue.interrupt()

    def _manifests(self, files: Iterable[DataFile]) -> tuple[ManifestFile, ...]:
        """Write the delta manifests of a checkpoint's files."""
        table = self.table
        kept = list(files)
        return self.outage_retry.through(
            lambda: write_delta_manifests(table.io, table.locations, table.metadata, kept, ids.new_uuid())
        )

    def _is_skipped(self, content: Sequence[object], written: Written) -> bool:
        """Whether a checkpoint with this content is empty and need not be committed."""
        is_empty = not content and not written.rejected
        self._empty = self._empty + 1 if is_empty else 0
        if is_empty and (self.mode in OVERWRITES or self._empty < self._max_continuous_empty_commits):
            return True
        self._empty = 0
        return False

    def _recorded(self, committable: Durable, written: Written = _AGAIN) -> Durable:
        """The Committable made durable, with what the table is like now. `written` is left out where it is
        recorded again: then it has what the first time said.
        """
        extra = replace(committable.extra, table=table_then(self.table.metadata, committable.manifests))
        if self.queue is not None:
            extra = replace(extra, follows=self.last_written)
            self._require_free(committable.identity)
        skipped = skipped_summary(written.passed_over, written.nulls)
        recorded = {**watermark_summary(written.newest), **skipped}
        summary = {**self.summary, **recorded, **committable.summary}
        if written.rejected and REJECTED_RECORDS not in summary:
            summary = {**summary, REJECTED_RECORDS: str(written.rejected)}
        staged = committable = replace(committable, extra=extra, summary=summary)
        self.outage_retry.through(lambda: self.store.record(staged))
        with self._staged_lock:
            if committable.identity not in self._staged:
                self._staged.append(committable.identity)
        return committable

    def _require_free(self, identity: CheckpointIdentity) -> None:
        """A driver in a copy of the directory may have staged this checkpoint with other offsets since this
        one started, and Spark counts it as done. Raises LineageError.
        """
        staged = self.outage_retry.through(lambda: self.store.staged(identity.checkpoint_id))
        is_ahead = staged is not None and staged.extra.follows is not None
        if staged is not None and is_ahead and not staged.identity.covers_the_same(identity):
            raise self.committer.error(
                staged_by_another(self.table.location, identity, staged.identity), identity.pipeline
            )

    def forget_before(self, identity: CheckpointIdentity) -> None:
        """Remove what was staged before this checkpoint: it has committed, so Spark replays none of them."""
        self._forget(lambda staged: staged.checkpoint_id < identity.checkpoint_id)

    def forget_superseded(self, identity: CheckpointIdentity) -> None:
        """Withdraw what was staged under this checkpoint's id, once it turns out to have nothing for the
        table: it has other offsets now, or others have committed meanwhile.
        """
        for staged in self._taken_off(lambda each: each.checkpoint_id == identity.checkpoint_id):
            self.store.withdraw(staged)

    def _forget(self, chosen: Callable[[CheckpointIdentity], bool]) -> None:
        for staged in self._taken_off(chosen):
            self.store.remove(staged)

    def _taken_off(self, chosen: Callable[[CheckpointIdentity], bool]) -> list[CheckpointIdentity]:
        with self._staged_lock:
            old = [staged for staged in self._staged if chosen(staged)]
            self._staged = [staged for staged in self._staged if staged not in old]
        return old


def _staged_ahead(found: Iterable[Committable]) -> Iterator[CheckpointIdentity]:
    return (committable.identity for committable in found if committable.extra.follows is not None)


def _bound(noted: Noted, identity: CheckpointIdentity, calls: Calls) -> Noted:
    """The note at a start with this checkpoint: those before it are agreed on, and Spark runs it again."""
    before = identity.checkpoint_id - 1
    if noted.staged_id is not None and noted.staged_id > before:
        noted = replace(noted, staged_id=None, staged_digest=None)
    if noted.passed_id is None or noted.passed_id != before:
        noted = replace(noted, passed_id=before, passed_digest=offsets_digest(identity.start_offsets))
    return replace(noted, calls=calls)


def data_files(results: Iterable[WriteResult]) -> list[DataFile]:
    """The data files of all results."""
    return [file for result in results for file in result.data_files]
