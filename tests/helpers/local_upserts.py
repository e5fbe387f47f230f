"""The sink's upserts without Spark: tables of changes go into a table checkpoint by checkpoint, in this process.

Everything but the shuffle and the micro-batch is the product's: writer tasks, staging, commits, the key index. So a
property test can run many checkpoints in a second, and step in between staging and commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import OutdatedValuesError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.pipeline.key_index.key_lineage import require_same_key
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.upsert_options import UpsertOptions
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.records import ROW_ORDER, TRUNCATE_BELOW
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.write.files.result import WriteResult
from streamlake.write.upsert.upsert_target import UpsertTarget
from streamlake.write.upsert.upsert_task import write_changes

Truncate = tuple[int | str, int]
"""A place in the database's log, and the number of a task's batches that it is told after."""


class LocalUpserts:
    """One stream of changes into the table at `location`, which exists. `restart()` forgets all that is not durable.
    `opened` opens the table."""

    def __init__(
        self,
        location: str,
        *,
        key: Sequence[str],
        mode: str = "upsert",
        delete_mode: str = "position",
        sequence_by: Sequence[str] = (),
        tasks: int = 2,
        batch_rows: int = 1_000_000,
        branch: str = "main",
        job_id: str = "job",
        pipeline: str = "pipeline",
        opened: Callable[[str], Table] = open_table,
    ) -> None:
        self.location = location
        self._key = tuple(key)
        self._mode = mode
        self._delete_mode = delete_mode
        self._sequence_by = tuple(sequence_by)
        self._tasks = tasks
        self._batch_rows = batch_rows
        self._branch = branch
        self._job_id = job_id
        self._pipeline = pipeline
        self._opened = opened
        self.checkpoint_id = 0
        self._attempts = 0
        self.rewrites = 0
        self.restart()

    def restart(self) -> None:
        """A new driver on the same table and checkpoint."""
        table = self._opened(self.location)
        options = UpsertOptions.of(
            table,
            key=self._key,
            sequence_by=self._sequence_by,
            row_kind=None,
            delete_mode=self._delete_mode,
            parallelism=self._tasks,
        )
        self.options = options
        self.run = UpsertRun(
            table,
            cast(CheckpointTable, None),
            None,
            options,
            RunSettings(
                job_id=self._job_id,
                run_id="run",
                branch=self._branch,
                mode=self._mode,
                max_continuous_empty_commits=10,
            ),
        )
        require_same_key(table, self._branch, self._pipeline, options.key)

    @property
    def table(self) -> Any:
        return self.run.table

    def checkpoint(
        self,
        changes: pa.Table,
        between: Callable[[Committable], None] | None = None,
        truncates: Sequence[Truncate] = (),
    ) -> CommitReceipt | None:
        """Write and commit one checkpoint; `between` is called when it is staged and not yet committed. `truncates`: each task
        is told of them.

        `changes` has the table's columns and, where wanted, ROW_KIND (int8 codes). None: nothing to commit.
        """
        staged = self.stage(changes, truncates)
        if staged is None:
            return None
        committable, results = staged
        if between is not None:
            between(committable)
        try:
            receipt = self.run.commit(committable, results)
        except OutdatedValuesError:
            # The driver has the rows at hand and writes them again.
            self.rewrites += 1
            self.checkpoint_id -= 1
            return self.checkpoint(changes, None, truncates)
        self.run.forget_before(committable.identity)
        return receipt

    def replay(self, changes: pa.Table) -> CommitReceipt | None:
        """A checkpoint that the table may hold already, as Spark replays it."""
        receipt = self.run.committer.receipt_if_committed(self._identity)
        if receipt is None:
            return self.checkpoint(changes)
        self.checkpoint_id += 1
        return receipt

    @property
    def _identity(self) -> CheckpointIdentity:
        end = (str(self.checkpoint_id),)
        return CheckpointIdentity(self._pipeline, self._job_id, self.checkpoint_id, end_offsets=end)

    def stage(
        self, changes: pa.Table, truncates: Sequence[Truncate] = ()
    ) -> tuple[Committable, list[WriteResult]] | None:
        """All of a checkpoint up to its commit."""
        identity = self._identity
        self.checkpoint_id += 1
        self.run.table.refresh()
        self.run._follow_key(identity)
        results = self.run.resolve(identity, lambda target: self.write(target, changes, truncates))
        committable = self.run.stage(identity, results)
        return None if committable is None else (committable, results)

    def recover(self) -> list[CommitReceipt]:
        """Commit what a driver that is gone has staged and not committed."""
        receipts = []
        for committable in self.run.pending():
            marker = self.run.committer.marker(committable.identity)
            if marker is None or marker.checkpoint_id < committable.identity.checkpoint_id:
                receipts.append(self.run.commit(committable))
                self.run.forget_before(committable.identity)
        return receipts

    def write(
        self, target: UpsertTarget, changes: pa.Table, truncates: Sequence[Truncate] = ()
    ) -> list[WriteResult]:
        """The writer tasks."""
        self._attempts += target.buckets
        return bucketed_results(
            target,
            changes,
            self.table.schema,
            self.run._options,
            batch_rows=self._batch_rows,
            attempt=self._attempts,
            truncates=truncates,
        )


def bucketed_results(
    target: UpsertTarget,
    changes: pa.Table,
    schema: Schema,
    options: UpsertOptions,
    *,
    batch_rows: int = 1_000_000,
    attempt: int = 0,
    truncates: Sequence[Truncate] = (),
) -> list[WriteResult]:
    """The writer tasks of a checkpoint: one per bucket, with the changes of its keys in small batches, and all truncates."""
    changes = changes.append_column(ROW_ORDER, pa.array(range(changes.num_rows), pa.int64()))
    arrow_schema = schema_to_arrow(schema, field_ids=False)
    columns = [changes.column(name).cast(arrow_schema.field(name).type) for name in target.key.columns]
    keys = target.key.codec.encode([column.combine_chunks() for column in columns])
    buckets = pa.array(target.bucketing.of_keys(keys, target.key.codec))
    results = []
    for bucket in range(target.buckets):
        part = changes.filter(pc.equal(buckets, bucket))
        batches = part.combine_chunks().to_batches(max_chunksize=batch_rows)
        for mark, place in truncates:
            batches.insert(place, pa.record_batch({TRUNCATE_BELOW: [mark]}))
        results.append(write_changes(target, batches, bucket, attempt + bucket, 0))
    return results
