"""The writer task: Arrow batches in, data files out, described by one WriteResult per attempt.

Runs on an executor inside `mapInArrow`. The pipeline passes the task's ids in; nothing here depends on Spark.
The order of work: gather small batches, check and align rows, split them by partition where the table is
partitioned, encode. Invariant: an attempt that fails removes its files as far as it can; one that succeeds
yields exactly one result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from streamlake.write.files.outcomes import ONLY_TABLE, TaskOutcome
from streamlake.write.files.result import WriteResult
from streamlake.write.rows.gather import gather
from streamlake.write.target.target import WriteTarget
from streamlake.write.task_writer import TaskWriter

TaskContext = Callable[[], tuple[int, int, int]]
"""Gives (partition id, task attempt id, attempt number) of the running task. Called once, on the executor."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_task(target: WriteTarget, task_context: TaskContext) -> Task:
    """The function for `mapInArrow`: batches of rows -> one TaskOutcome.

    Raises a StreamlakeError for anything that goes wrong with rows or files. Errors of
    the input pass through unchanged.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = write_rows(target, batches, *task_context())
        yield TaskOutcome(ONLY_TABLE, result.to_bytes()).to_batch()

    return task


def write_rows(
    target: WriteTarget, batches: Iterable[pa.RecordBatch], partition_id: int, task_id: int, attempt: int
) -> WriteResult:
    """Write the rows of one task attempt and describe its files. No rows make no file."""
    writer = TaskWriter(target, partition_id, task_id, attempt)
    writer.open()
    try:
        for rows in gather(batches, target.options.gather_bytes):
            writer.write(rows)
        return writer.close()
    except BaseException:
        writer.abort()
        raise
