"""Upsert tasks that come to harm on the executors, once they have finished a file; installed on the driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from streamlake.pipeline.runs import upsert_run

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlake.write.task import Task
    from streamlake.write.upsert.upsert_target import UpsertTarget

Harm = Callable[[], None]

SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
HARMED_AT = 12
"""The batch before which a task comes to harm: it has written some tables of changes by then."""


@dataclass(frozen=True)
class HarmedTask:
    """An upsert task whose first attempt is harmed before its batch `HARMED_AT`, when it has a data file.

    The harm is noted in the folder `harmed` beside the table.
    """

    task: Task
    table: Path
    checkpoint_id: int
    harm: Harm

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.task(self._watched(batches))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        mine = f"data/**/{context.partitionId():05d}-{context.taskAttemptId()}-*.parquet"
        for number, batch in enumerate(batches):
            if number == HARMED_AT and context.attemptNumber() == 0:
                wait_for(lambda: bool(list(self.table.glob(mine))))
                self._note(context.partitionId())
                self.harm()
            yield batch

    def _note(self, task: int) -> None:
        folder = self.table.parent / "harmed"
        folder.mkdir(exist_ok=True)
        (folder / f"{self.checkpoint_id}-{task}").touch()


def kill_worker() -> None:
    """SIGKILL to the process that runs the task."""
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not condition():
        time.sleep(0.02)


def install(table: Path, harms: dict[int, Harm]) -> None:
    """From now on the upsert tasks of these checkpoints are harmed."""
    plain = upsert_run.upsert_task

    def harmed(target: UpsertTarget, task_context: Any) -> Task:
        task = plain(target, task_context)
        harm = harms.get(target.table.checkpoint_id)
        return task if harm is None else HarmedTask(task, table, target.table.checkpoint_id, harm)

    upsert_run.upsert_task = harmed
