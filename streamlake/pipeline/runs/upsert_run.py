"""The state of a sink while an upsert query runs: the key index, and checkpoints that delete and add.

    write   tasks by bucket of the key: files, deleted positions, index runs
    stage   what several tasks found in one data file is merged; delta manifests, index state, Committable
    commit  one row delta onto exactly the snapshot that the positions are of; when the head has moved, they
            are resolved again from the checkpoint's own index runs, and no data file is rewritten

Invariant: a Committable that deletes by position names its base snapshot, and is committed onto no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from streamlake import clock
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.staged_extra import Extra, StagedIndex
from streamlake.checkpoint.table_note import Noted
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import (
    CommitConflictError,
    FormatUpgradedError,
    HeadMovedError,
    IndexDamagedError,
    MisplacedKeyError,
)
from streamlake.failpoints import failpoint
from streamlake.formats.deletes.position_deletes import merged_positions
from streamlake.index.bucketing import Bucketing
from streamlake.index.runs.run_writer import RunRef
from streamlake.index.state import IndexState
from streamlake.pipeline.kafka.bucket_owner import BucketOwner
from streamlake.pipeline.key_index.changed import Changed
from streamlake.pipeline.key_index.indexed import Indexed
from streamlake.pipeline.key_index.key_deletes import key_deletes
from streamlake.pipeline.key_index.key_lineage import require_same_index, require_same_key
from streamlake.pipeline.key_index.resolution import Resolved, Resolver, outdated_key, outdated_values
from streamlake.pipeline.key_index.rewriting import rewritten
from streamlake.pipeline.key_index.table_index import TableIndex
from streamlake.pipeline.runs.change_frame import ChangeFrame
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.lineage.lineage_check import LoggedOffsets
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.source_notes import LastTruncate, no_truncate, truncate_known_by
from streamlake.pipeline.runs.stages import Aim, Staged, Written
from streamlake.pipeline.runs.task_sums import last_mark, summed, tell_refused
from streamlake.pipeline.runs.upgraded_deletes import outdated, own_deletes
from streamlake.pipeline.runs.upsert_options import UpsertOptions
from streamlake.pipeline.spark.task_outcome import task_ids
from streamlake.spec.metadata.data_file import DataFile
from streamlake.table.options import RetryOptions
from streamlake.table.table import Table
from streamlake.write.deletes.merged_deletes import MergedDeletes, merge_deletes
from streamlake.write.files.result import WriteResult
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.upsert.key_changes import write_completed_rows
from streamlake.write.upsert.truncation import later
from streamlake.write.upsert.upsert_key import UpsertKey
from streamlake.write.upsert.upsert_target import COPY_ON_WRITE, EQUALITY, UpsertTarget
from streamlake.write.upsert.upsert_task import upsert_task

Array = Any  # numpy array


class UpsertRun(SinkRun):
    """A SinkRun whose checkpoints are row deltas. `options` say how; the table's own properties say the rest.

    `session` runs large work on Spark: building the index, rewriting files (None: the driver does it).
    """

    def __init__(
        self,
        table: Table,
        note: CheckpointTable,
        session: SparkSession | None,
        options: UpsertOptions,
        settings: RunSettings,
    ) -> None:
        super().__init__(table, note, settings)
        self._session = session
        self._options = options
        self._index = TableIndex(table, settings.branch, options.key, Bucketing(options.buckets))
        self.owner = BucketOwner(
            options.shuffle, options.buckets, table.location, keeps=options.keeps_buckets
        )
        self._superseded: set[str] = set()
        """Files that a later commit, of this checkpoint or the next, leaves out; removed once it is done."""

    def remember(
        self, noted: Noted | None, identity: CheckpointIdentity, logged: LoggedOffsets | None = None
    ) -> None:
        """Also refuses a key other than that of the pipeline's last commit. Raises InvalidOptionError."""
        require_same_key(self.table, self.branch, identity.pipeline, self._options.key)
        super().remember(noted, identity, logged)

    @property
    def row_kind(self) -> str | None:
        """See SinkRun."""
        return self._options.row_kind

    def _written(self, frame: DataFrame, identity: CheckpointIdentity) -> Written:
        self._follow_key(identity)
        changes = ChangeFrame(frame, self.table, self._options)

        def tasks(target: UpsertTarget) -> list[WriteResult]:
            bucketed = changes.by_bucket(target.bucketing)
            return self._outcomes(bucketed, changes.reading(upsert_task(target, task_ids)))

        return self.resolve(identity, tasks)

    def _follow_key(self, identity: CheckpointIdentity) -> None:
        """Follow the key columns' types in the table. Rows are found by values of one type, so wider types
        need another index. Raises InvalidOptionError where these names are other columns by now.
        """
        known, table = self._options.key, self.table
        key = UpsertKey.of(table.schema, known.columns, known.sequence_by, table.location)
        if key == known:
            return
        require_same_key(table, self.branch, identity.pipeline, key)
        self._options = replace(self._options, key=key)
        if key.index_columns != known.index_columns:
            self._index = TableIndex(table, self.branch, key, Bucketing(self._options.buckets))

    @property
    def index_runs(self) -> tuple[RunRef, ...]:
        """The runs of the key index after the last commit."""
        indexed = self._index.indexed
        return () if indexed is None else indexed.state.runs

    @property
    def _last_truncate(self) -> LastTruncate:
        is_blind = self._options.delete_mode == EQUALITY
        return no_truncate if is_blind else lambda: truncate_known_by(self._refreshed())

    def resolve(
        self, identity: CheckpointIdentity, tasks: Callable[[UpsertTarget], list[WriteResult]]
    ) -> Written:
        """Run `tasks` with the index of the head; once more with a rebuilt one when they find it damaged."""

        def written(aim: Aim) -> Written:
            assert isinstance(aim.target, UpsertTarget)
            return Written(tuple(tasks(aim.target)), aim.base)

        try:
            return written(self.aim(identity))
        except IndexDamagedError as error:
            self._index.warn_built_anew(error)
            return written(self.aim(identity, rebuild=True))

    def aim(self, identity: CheckpointIdentity, *, rebuild: bool = False) -> Aim:
        """See SinkRun; with the key index of the head, where the delete mode uses one."""
        self._follow_key(identity)
        target = self._plain_target(identity)
        if not target.uses_index:
            return Aim(target)
        base = self._refreshed(rebuild=rebuild)
        wanted = self.owner.bucketing(base.state, self._options.key.codec.fields)
        if wanted != base.state.bucketing:
            base = self._refreshed(bucketing=wanted)
        return Aim(self._seeing(target, base), base)

    def owns(self, aim: Aim) -> bool:
        """Whether the tasks that read the partitions of a bucket write its changes of this micro-batch."""
        state = None if aim.base is None else aim.base.state
        return state is not None and self.owner.owns(state.bucketing, state.shuffled_until)

    def shuffle_instead(self, error: MisplacedKeyError, aim: Aim) -> None:
        """Let the micro-batch be shuffled by key. Raises MisplacedKeyError where it may not."""
        assert aim.base is not None
        state = aim.base.state
        until = self.owner.misplaced(error, state.shuffled_until)
        self._index.advance(replace(aim.base, state=replace(state, shuffled_until=until)))

    def _plain_target(self, identity: CheckpointIdentity) -> UpsertTarget:
        options = self._options
        return UpsertTarget(
            table=self._write_target(identity),
            mode=self.mode,
            delete_mode=options.delete_mode,
            key=options.key,
            buckets=options.buckets,
            equality_spec=options.equality_spec(self.table),
            whole_row=options.whole_row,
            unset_values=options.unset_values,
        )

    def _seeing(self, target: UpsertTarget, indexed: Indexed) -> UpsertTarget:
        """The target with what the index of the head says."""
        retention_ms = self._options.tombstone_retention_ms
        now_ms = indexed.state.at(clock.now_ms(), retention_ms).tombstone_ms
        return replace(
            target,
            buckets=indexed.state.buckets,
            message_key=indexed.state.bucketing.message_key,
            runs=indexed.state.runs_by_bucket(),
            live_files=indexed.live_files,
            tombstones_since_ms=now_ms - retention_ms,
            now_ms=now_ms,
            truncated_below=indexed.state.truncated_below,
            key_deletes=key_deletes(
                self.table, self._options.key, indexed.state.bucketing, indexed.equality_deleted
            ),
        )

    def stage(self, identity: CheckpointIdentity, results: Iterable[WriteResult]) -> Committable | None:
        """See SinkRun; None when nothing changed that is worth a commit."""
        written = Written.of(results)
        assert written.base is not None or self._options.delete_mode == EQUALITY
        changed = self._with_driver_part(written, identity)
        # With sequence values a key's delete is worth a commit even without a row: older changes may follow.
        tombstones = changed.own_runs if self._options.key.sequence_by else ()
        truncates = () if changed.truncated_below is None else (changed.truncated_below,)
        if self._is_skipped((*changed.files, *changed.removed, *tombstones, *truncates), written):
            # Tasks have merged runs, and noted deletes of keys that were not there.
            self.discard(path for result in written for path in result.paths)
            return None
        manifests = self._manifests(changed.files)
        return self._tied(
            Committable(
                identity=identity,
                table_uuid=self.table.uuid,
                branch=self.branch,
                mode=self.mode,
                manifests=manifests,
                rows=sum(file.record_count for file in changed.data_files),
                data_files=len(changed.data_files),
                bytes=sum(result.bytes for result in written),
                delete_files=len(changed.delete_files),
                key_ids=self._options.key.key_ids,
                sequence_ids=self._options.key.sequence_ids,
                extra=Extra(
                    counters={
                        **summed([*(result.counters for result in written), changed.counters]),
                        "rows-indexed": self._index.rows_indexed(),
                    }
                ),
            ),
            changed,
            written,
        )

    def commit(
        self,
        committable: Committable,
        results: Sequence[WriteResult] | None = None,
        outcome: Outcome = Outcome.COMMITTED,
    ) -> CommitReceipt:
        """Commit; resolve positions again while other writers are faster, within the table's time limit."""
        staged = committable if isinstance(committable, Staged) else Staged.of(committable, None, None)
        retry = RetryOptions.for_commit(self.table.properties)
        deadline = clock.monotonic() + retry.total_timeout_ms / 1000
        while True:
            try:
                staged = self._of_version(staged)
                files = None if staged.changed is None else staged.changed.files
                receipt = self._commit_once(staged, outcome, files)
                break
            except FormatUpgradedError:
                if clock.monotonic() > deadline:
                    raise
            except HeadMovedError as moved:
                if clock.monotonic() > deadline:
                    raise CommitConflictError(
                        f"{moved}. Other writers were faster for {retry.total_timeout_ms} ms; the checkpoint "
                        "is staged and is committed by the next start. Raise commit.retry.total-timeout-ms, "
                        "or let them commit less often"
                    ) from moved
                staged = self._resolved_again(staged)
        self._advance(receipt, staged)
        return replace(receipt, counters=dict(staged.extra.counters))

    def _advance(self, receipt: CommitReceipt, staged: Staged) -> None:
        superseded, self._superseded = self._superseded, set()
        committed = receipt.outcome in (Outcome.COMMITTED, Outcome.RECOVERED)
        if committed:
            self.discard(superseded)
        after = None
        if committed and staged.changed is not None and staged.base is not None:
            rewrites = self._options.delete_mode == COPY_ON_WRITE
            after = staged.base.after(self.table, receipt.snapshot_id, staged.changed, with_row_ids=rewrites)
        if after is None:
            self._index.forget()
            return
        self._index.advance(after)
        self._index.files.prune(after.state)

    def _with_driver_part(self, written: Written, identity: CheckpointIdentity) -> Changed:
        """The tasks' part and the driver's: rows in data files that no single task owns."""
        results, base = written.results, written.base
        changed = Changed(
            data_files=tuple(file for result in results for file in result.data_files),
            delete_files=tuple(file for result in results for file in result.delete_files),
            removed=tuple(file for result in results for file in result.removed),
            state=None,
            truncated_below=last_mark(result.truncated_below for result in results),
        )
        if base is None:
            return changed
        parts: dict[str, list[Array]] = {}
        for result in results:
            for path, data in result.deleted_elsewhere.items():
                parts.setdefault(path, []).append(np.frombuffer(data, dtype=np.int64))
        deleted = {path: merged_positions(found) for path, found in parts.items()}
        state = base.state
        moved = write_completed_rows(self._seeing(self._plain_target(identity), base), results)
        changed = replace(
            changed,
            data_files=(*changed.data_files, *moved.data_files),
            counters=moved.counters,
            took_moved=any(result.held_rows for result in results),
        )
        tell_refused([*(each for result in results for each in result.refused), *moved.refused])
        index = [result.index for result in results if result.index is not None]
        merged_away = {path for each in index for path in each.merged_away}
        kept = tuple(ref for ref in state.runs if ref.path not in merged_away)
        return self._deleting(
            changed,
            deleted,
            base,
            replace(state, runs=(*(each.merged for each in index if each.merged is not None), *kept)),
            (*moved.runs, *(each.run for each in index if each.run is not None)),
            self._write_target(identity),
        )

    def _deleting(
        self,
        changed: Changed,
        deleted: Mapping[str, Array],
        base: Indexed,
        older: IndexState,
        own_runs: tuple[RunRef, ...],
        target: WriteTarget,
    ) -> Changed:
        """The change with `deleted` positions taken out of the live files of `base`, and the index state
        after it; `older` is that of the runs that stay.
        """
        runs = own_runs
        if self._options.delete_mode == COPY_ON_WRITE:
            new = rewritten(
                self._session, self.table, target, self._options.key, older.bucketing, deleted, base
            )
            data_files, merged = new.data_files, MergedDeletes(removed=new.removed)
            runs = (*own_runs, *new.runs)
        else:
            output = OutputFiles(target, older.buckets, 0, 0)
            data_files, merged = (), merge_deletes(target, output, deleted, base.live_files)
        return replace(
            changed,
            data_files=(*changed.data_files, *data_files),
            delete_files=(*changed.delete_files, *merged.delete_files),
            removed=(*changed.removed, *merged.removed),
            state=replace(
                older.with_runs(runs).at(clock.now_ms(), self._options.tombstone_retention_ms),
                truncated_below=later(older.truncated_below, changed.truncated_below),
            ),
            own_runs=own_runs,
            rewritten=data_files,
        )

    def _tied(self, committable: Committable, changed: Changed, written: Written) -> Staged:
        """The Committable made durable, with what ties it to the snapshot that it was resolved against."""
        base = written.base
        if changed.state is not None and base is not None:
            committable = replace(
                committable,
                base_snapshot_id=base.snapshot_id,
                index_state=self._index.files.store(changed.state),
                runs=tuple(ref.path for ref in changed.own_runs),
                extra=replace(
                    committable.extra,
                    index=StagedIndex(
                        changed.own_runs,
                        tuple(file.file_path for file in changed.rewritten),
                        changed.truncated_below,
                        changed.state.message_key,
                        changed.took_moved,
                    ),
                ),
            )
        return self._recorded(
            Staged.of(replace(committable, removed=changed.removed), changed, base), written
        )

    def _resolved_again(self, committable: Committable) -> Staged:
        """The Committable for the present head: same data files, deletes where the rows are now."""
        failpoint("before-resolution")
        self.outage_retry.through(self.table.refresh)
        staged = committable.extra.index
        assert staged is not None
        own_runs = staged.runs
        files = self.outage_retry.through(lambda: self.committer.files(committable))
        known = self._options.key
        if UpsertKey.of(self.table.schema, known.columns, known.sequence_by, self.table.location) != known:
            self._leave(committable, files, own_runs)
            raise outdated_key(self.table.location, committable.identity, known.columns, known.sequence_by)
        require_same_index(self.table, self._index, known, committable)
        # A key's own entry and its older ones are in the same bucket only where the buckets are the same.
        bucketing = next((Bucketing.named(ref.buckets, staged.message_key) for ref in own_runs), None)
        indexed = self._refreshed(bucketing=bucketing)
        try:
            found = self._resolved(committable, own_runs, indexed)
        except IndexDamagedError as error:
            self._index.warn_built_anew(error)
            indexed = self._refreshed(rebuild=True, bucketing=bucketing)
            found = self._resolved(committable, own_runs, indexed)
        if found.outdated or staged.took_moved:
            self._leave(committable, files, own_runs)
            raise outdated_values(self.table.location, committable.identity)
        again = set(staged.rewritten)
        written = tuple(file for file in files if file.is_data and file.file_path not in again)
        paths = {file.file_path for file in written}
        of_files = [file for file in files if not file.is_data or file.file_path in paths]
        target = self._write_target(committable.identity)
        here = self.outage_retry.through(lambda: own_deletes(target, of_files, late=found.late))
        changed = self._deleting(
            Changed(written, here, (), None, truncated_below=staged.truncated_below),
            found.deleted,
            indexed,
            indexed.state,
            found.runs,
            self._write_target(committable.identity),
        )
        fresh = replace(
            committable,
            manifests=self._manifests(changed.files),
            data_files=len(changed.data_files),
            delete_files=len(changed.delete_files),
            extra=replace(committable.extra, counters=summed([committable.extra.counters, found.counters])),
        )
        recorded = self._tied(fresh, changed, Written(base=indexed))
        failpoint("after-resolution")
        if committable.index_state is not None:
            self._index.files.adopt(committable.index_state)
        kept = {*(file.file_path for file in changed.files), *(ref.path for ref in found.runs)}
        before = (*(file.file_path for file in files), *(ref.path for ref in own_runs))
        self._supersede(path for path in before if path not in kept)
        self._supersede(manifest.manifest_path for manifest in committable.manifests)
        return recorded

    def _of_version(self, committable: Staged) -> Staged:
        """The staged checkpoint, with deletes for the table's present format version."""
        if self.table.format_version < 3 or not committable.delete_files:
            return committable
        changed = committable.changed
        files = (
            changed.files if changed else self.outage_retry.through(lambda: self.committer.files(committable))
        )
        if not outdated(files, self.table.format_version):
            return committable
        if committable.index_state is not None:
            return self._resolved_again(committable)
        target = self._write_target(committable.identity)
        vectors = self.outage_retry.through(lambda: own_deletes(target, files))
        kept = [*(file for file in files if not outdated([file], target.format_version)), *vectors]
        fresh = replace(
            committable,
            manifests=self._manifests(kept),
            delete_files=sum(not file.is_data for file in kept),
            changed=None,
        )
        self.outage_retry.through(lambda: self.store.record(fresh))
        self._supersede(file.file_path for file in files if file not in kept)
        self._supersede(manifest.manifest_path for manifest in committable.manifests)
        return fresh

    def _refreshed(self, *, rebuild: bool = False, bucketing: Bucketing | None = None) -> Indexed:
        return self.outage_retry.through(
            lambda: self._index.refresh(self._session, rebuild=rebuild, bucketing=bucketing)
        )

    def _resolved(self, committable: Committable, own_runs: Sequence[RunRef], indexed: Indexed) -> Resolved:
        target = self._seeing(self._plain_target(committable.identity), indexed)
        resolver = Resolver.of(self.table, target, indexed, committable, committable.extra.truncated_below)
        return self.outage_retry.through(lambda: resolver.resolved(own_runs))

    def _leave(self, committable: Committable, files: Iterable[DataFile], own_runs: Iterable[RunRef]) -> None:
        """Remove all of a staged checkpoint once it is written again and committed."""
        self._supersede([*(file.file_path for file in files), *(ref.path for ref in own_runs)])
        self._supersede(manifest.manifest_path for manifest in committable.manifests)

    def _supersede(self, paths: Iterable[str]) -> None:
        """Remove files once the checkpoint is committed without them, not earlier: until then a driver that
        believes this one dead may be committing them.
        """
        self._superseded.update(paths)
