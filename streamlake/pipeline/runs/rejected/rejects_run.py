"""The rejects of one table while a query runs: their table, what is staged for it, the limit per checkpoint.

Two tables cannot be committed at once, so this is the order:

    stage the rejects, stage the table's own part, commit that, commit the rejects

Staged rejects count from the moment when the table's own part is staged or committed. A driver that finds
them commits them after that part, or drops them when the table has nothing of that checkpoint, whose records
come again. Invariant: a record of a committed checkpoint is in the table, or in the rejects, or gave no row;
never in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from streamlake import clock
from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import NO_CHECKPOINT
from streamlake.commit.history import committed_snapshot
from streamlake.decode.rejected_records import RejectStamp
from streamlake.errors import StagedUnfitError
from streamlake.formats.readers import read_data_file
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.rejected.rejects_table import open_rejects, own_identity, require_rejects
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.records import place_text
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.tasks.record_screen import SHOWN, too_many_rejects
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.upsert.upsert_target import UpsertTarget

_NEVER = 1 << 62
_MILLISECOND = 1_000


class RejectsRun:
    """The rejects of `table` in one run of a query, with the job id `job_id`; `most` is the limit per
    checkpoint (None: no limit).
    """

    def __init__(
        self,
        table: str,
        catalog: CatalogOption,
        most: int | None,
        *,
        job_id: str,
        run_id: str,
        outage_retry: OutageRetry,
    ) -> None:
        self.most = most
        self._table = table
        self._catalog = catalog
        self._job_id = job_id
        self._run_id = run_id
        self._outage_retry = outage_retry
        self._looked = self._recovered = False
        self._run: SinkRun | None = None
        self._stamp: RejectStamp | None = None
        self._written: dict[int, tuple[WriteResult, ...]] = {}
        self._staged: dict[int, Committable] = {}

    def target(self, identity: CheckpointIdentity) -> WriteTarget | None:
        """What tasks write rejects for; None while there is no rejects table."""
        run = self._opened()
        if run is None:
            return None
        target = run.target(identity)
        assert not isinstance(target, UpsertTarget)
        return target

    def create(self) -> None:
        """Create the rejects table, because a task has found a record for it."""
        table = self._outage_retry.through(lambda: require_rejects(self._table, self._catalog))
        self._looked = True
        self._run = SinkRun(
            table,
            cast(CheckpointTable, None),  # the directory's notes are about the table itself
            RunSettings(
                job_id=self._job_id,
                run_id=self._run_id,
                branch=MAIN_BRANCH,
                mode="append",
                max_continuous_empty_commits=_NEVER,
            ),
        )

    def stamp(self, identity: CheckpointIdentity) -> RejectStamp:
        """The columns that all rejects of a checkpoint have in common, the same in all of its tasks."""
        if self._stamp is None or self._stamp.checkpoint_id != identity.checkpoint_id:
            self._stamp = RejectStamp(
                identity.pipeline, identity.checkpoint_id, clock.now_ms() * _MILLISECOND
            )
        return self._stamp

    def take(self, identity: CheckpointIdentity, results: Sequence[WriteResult]) -> None:
        """Take over the files of rejects that the tasks of a checkpoint have written. Raises
        TooManyRejectsError when there are more rejects than a checkpoint may have.
        """
        count = sum(result.rows for result in results)
        if self.most is not None and count > self.most:
            raise too_many_rejects(self._table, count, self.most, self._first(results))
        self._written = {identity.checkpoint_id: tuple(results)}

    def discard(self, results: Sequence[WriteResult]) -> None:
        """Remove files of rejects that were never handed over."""
        run = self._opened() if results else None
        if run is not None:
            run.discard(path for result in results for path in result.paths)

    def stage(self, identity: CheckpointIdentity) -> int:
        """Make the rejects of a checkpoint durable, before the table's own part is; returns their number."""
        results = self._written.pop(identity.checkpoint_id, ())
        count = sum(result.rows for result in results)
        if not count:
            if self._staged.pop(identity.checkpoint_id, None) is not None and self._run is not None:
                # The checkpoint is written again, and this time its records have become rows.
                self._run.forget_superseded(own_identity(identity))
            return 0
        run = self._opened()
        assert run is not None, "rejects were written to a table that is not there"
        committable = run.stage(own_identity(identity), results)
        assert committable is not None
        self._staged[identity.checkpoint_id] = committable
        return count

    def commit(self, identity: CheckpointIdentity) -> None:
        """Commit what is staged for a checkpoint whose own part the table has."""
        committable = self._staged.pop(identity.checkpoint_id, None)
        if committable is not None:
            self._commit(committable)

    def recover(self, held: int | None) -> None:
        """Once per run: commit what a driver before this one has staged for checkpoints up to `held`, the
        table's last, and drop the rest. Raises StagedUnfitError.
        """
        if self._recovered:
            return
        run = self._opened()
        if run is not None:
            for committable in run.pending():
                if committable.identity.checkpoint_id <= (NO_CHECKPOINT if held is None else held):
                    self._require_fit(run, committable)
                    self._commit(committable)
                else:
                    run.store.withdraw(committable.identity)
        self._recovered = True

    def _require_fit(self, run: SinkRun, committable: Committable) -> None:
        """Raises StagedUnfitError where staged rejects cannot be committed: the table has the checkpoint
        already, so their records do not come again.
        """
        checkpoint_id = committable.identity.checkpoint_id
        try:
            run.require_fit(committable)
        except StagedUnfitError as error:
            raise StagedUnfitError(
                f"{self._table}: the rejects of checkpoint {checkpoint_id} ({committable.rows} records) are "
                f"staged and cannot be committed: {error}. Restore the file; or, to go on without these "
                f"rejects, delete {run.store.path(checkpoint_id)}, and find the records in their topic by "
                "the offsets of that checkpoint"
            ) from error

    def _commit(self, committable: Committable) -> None:
        run = self._opened()
        assert run is not None
        identity = committable.identity
        marker = run.outage_retry.through(lambda: run.committer.marker(identity))
        passed = marker is not None and marker.checkpoint_id >= identity.checkpoint_id
        if not passed or committed_snapshot(run.table.metadata, MAIN_BRANCH, identity) is None:
            run.commit(committable)
        run.store.remove(identity)

    def _opened(self) -> SinkRun | None:
        if not self._looked:
            if self._outage_retry.through(lambda: open_rejects(self._table, self._catalog)) is not None:
                self.create()
            self._looked = True
        return self._run

    def _first(self, results: Sequence[WriteResult]) -> list[tuple[str, str]]:
        """The first rejects in the files that tasks have just written."""
        run = self._opened()
        files = [file for result in results for file in result.data_files]
        if run is None or not files:
            return []
        table = run.table
        batches = read_data_file(table.io, files[0].file_format, files[0].file_path, table.schema)
        return [
            (place_text(row["topic"], row["partition"], row["offset"]), row["error_message"])
            for batch in batches
            for row in batch.slice(0, SHOWN).to_pylist()
        ]
