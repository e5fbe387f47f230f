"""Task outcomes in Spark: tasks that send them, and the driver that collects them.

An error that is no outcome fails the task, and Spark retries it; what is left of it when Spark gives up is
found in the text of Spark's own error.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from streamlake import errors
from streamlake.errors import DecodeError, NewSchemaError, StreamlakeError
from streamlake.pipeline.spark.worker_python import unusable_workers
from streamlake.tasks.reported import reported
from streamlake.tasks.worker_paths import keep_archive_directories
from streamlake.write.files.outcomes import ONLY_TABLE, OUTCOMES_DDL, TaskOutcome

_RAISED = re.compile(
    r"streamlake\.errors\.(\w+): (.*?)(?=\n\s*(?:at |Traceback|\n|Driver stacktrace)|$)", re.DOTALL
)
_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING[^\]]*\]\s*([^\n]*)")
_READ_FILE = re.compile(r"(?:reading|read) file:? ?(\S+?)\.?(?:\s|$)")

Batches = Iterator[pa.RecordBatch]


def outcome_task(write: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """A `mapInArrow` function for a job of one table: its outcome, from a `write.task` function."""

    def task(batches: Batches) -> Batches:
        keep_archive_directories()
        yield from reported(ONLY_TABLE, write(batches))

    return task


def value_task(work: Callable[[Any], Any]) -> Callable[[Batches], Batches]:
    """A `mapInArrow` function for a frame with one column of pickled arguments: `work` is called with each,
    and its pickled values are the outcomes.
    """

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for argument in batch.column(0):
                value = pickle.dumps(work(pickle.loads(argument.as_py())))
                yield TaskOutcome(ONLY_TABLE, value).to_batch()

    return outcome_task(task)


def collected(frame: DataFrame) -> list[TaskOutcome]:
    """The outcomes of all tasks. Raises the streamlake error that made Spark's job fail, if it is one."""
    try:
        return [TaskOutcome.of(row) for row in frame.collect()]
    except Exception as error:
        ours = raised_on_executor(error)
        if ours is not None:
            raise ours from error
        raise


def collected_values(frame: DataFrame) -> list[Any]:
    """What the tasks of a `value_task` returned; raises the first error that one of them sent."""
    outcomes = collected(frame)
    for each in outcomes:
        if each.error is not None:
            raise each.error
    return [pickle.loads(each.result) for each in outcomes if each.result is not None]


def run_parts(session: SparkSession | None, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """The results of `work` on each of the parts, in any order; in Spark tasks, or here without a session."""
    if session is None or not parts:
        return [work(part) for part in parts]
    frame = session.createDataFrame([(pickle.dumps(part),) for part in parts], "part binary")
    if len(parts) > 1:
        frame = frame.repartition(len(parts))
    return collected_values(frame.mapInArrow(value_task(work), OUTCOMES_DDL))


def task_ids() -> tuple[int, int, int]:
    """(partition id, task attempt id, attempt number) of the running task; zeros outside of a task."""
    context = TaskContext.get()
    return (
        (0, 0, 0)
        if context is None
        else (context.partitionId(), context.taskAttemptId(), context.attemptNumber())
    )


def lasting_error(errors: Sequence[StreamlakeError]) -> StreamlakeError:
    """The error to raise of those that several tasks have sent: the first that another schema does not
    resolve, else the first.
    """
    return next((error for error in errors if not isinstance(error, NewSchemaError)), errors[0])


def raised_on_executor(error: Exception) -> StreamlakeError | None:
    """The streamlake error inside the message of a failed Spark job, or a DecodeError for a record that
    Spark's own readers refused, or an InvalidOptionError for the workers' Python; None for any other error.
    """
    text = str(error)
    malformed = _MALFORMED.search(text)
    if malformed is not None:
        file = _READ_FILE.search(text)
        return DecodeError(
            f"{file[1] if file else 'the input'} holds a record that cannot be read: {malformed[1][:300]} "
            "Correct the file, or read it with the option mode=PERMISSIVE or DROPMALFORMED; nothing of this "
            "checkpoint was written to the table"
        )
    found = _RAISED.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found and isinstance(kind, type) and issubclass(kind, StreamlakeError):
        return kind(found[2].strip())
    return unusable_workers(text)
