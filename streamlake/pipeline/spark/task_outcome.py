"""The outcome that a writer task sends to the driver: its WriteResult, or an error that no retry can repair.

An error of a class that a second attempt would meet again (a row that does not fit, a record that cannot be
decoded, a wrong option) travels as a value: the task ends, Spark does not retry it in vain, and the driver
raises that error. Anything else fails the task, and Spark retries it.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from streamlake import errors
from streamlake.errors import DecodeError, NewSchemaError, StreamlakeError
from streamlake.failpoints import failpoint
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.tasks.worker_paths import keep_archive_directories
from streamlake.write.files.result import WriteResult

OUTCOME_SCHEMA = "result binary, error binary"
_ARROW_SCHEMA = pa.schema([("result", pa.binary()), ("error", pa.binary())])
_RAISED = re.compile(
    r"streamlake\.errors\.(\w+): (.*?)(?=\n\s*(?:at |Traceback|\n|Driver stacktrace)|$)", re.DOTALL
)
_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING[^\]]*\]\s*([^\n]*)")
_READ_FILE = re.compile(r"(?:reading|read) file:? ?(\S+?)\.?(?:\s|$)")

Batches = Iterator[pa.RecordBatch]


def outcome_task(write: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """A `mapInArrow` function that yields one outcome row per task from a `write.task` function."""

    def task(batches: Batches) -> Batches:
        keep_archive_directories()
        try:
            for batch in write(batches):
                failpoint("before-result")
                yield pa.record_batch(
                    [batch.column(0), pa.nulls(batch.num_rows, pa.binary())], schema=_ARROW_SCHEMA
                )
                failpoint("result-returned")
        except FINAL_ERRORS as error:
            yield pa.record_batch(
                [pa.nulls(1, pa.binary()), pa.array([pickle.dumps(error)])], schema=_ARROW_SCHEMA
            )

    return task


def value_task(work: Callable[[Any], Any]) -> Callable[[Batches], Batches]:
    """A `mapInArrow` function for a frame with one column of pickled arguments: `work` is called with each,
    and its pickled values are the outcomes.
    """

    def task(batches: Batches) -> Batches:
        for batch in batches:
            for argument in batch.column(0):
                value = pickle.dumps(work(pickle.loads(argument.as_py())))
                yield pa.record_batch([pa.array([value], pa.binary())], names=["result"])

    return outcome_task(task)


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The outcome rows of all tasks. Raises the streamlake error that made Spark's job fail, if it is one."""
    try:
        return [tuple(row) for row in frame.collect()]
    except Exception as error:
        ours = raised_on_executor(error)
        if ours is not None:
            raise ours from error
        raise


def collected_values(frame: DataFrame) -> list[Any]:
    """What the tasks of a `value_task` returned; raises the first error that one of them sent."""
    outcomes = collected(frame)
    for _, error in outcomes:
        if error is not None:
            raise pickle.loads(bytes(error))
    return [pickle.loads(bytes(value)) for value, _ in outcomes if value is not None]


def run_parts(session: SparkSession | None, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """The results of `work` on each of the parts, in any order; in Spark tasks, or here without a session."""
    if session is None or not parts:
        return [work(part) for part in parts]
    frame = session.createDataFrame([(pickle.dumps(part),) for part in parts], "part binary")
    if len(parts) > 1:
        frame = frame.repartition(len(parts))
    return collected_values(frame.mapInArrow(value_task(work), OUTCOME_SCHEMA))


def task_ids() -> tuple[int, int, int]:
    """(partition id, task attempt id, attempt number) of the running task; zeros outside of a task."""
    context = TaskContext.get()
    return (
        (0, 0, 0)
        if context is None
        else (context.partitionId(), context.taskAttemptId(), context.attemptNumber())
    )


def write_results(rows: Iterable[tuple[Any, ...]]) -> list[WriteResult]:
    """The results of all tasks. Raises the first error that one of them sent; an error that remains when the
    table's schema changes goes first.
    """
    collected = list(rows)
    errors = [pickle.loads(bytes(error)) for _, error in collected if error is not None]
    if errors:
        raise lasting_error(errors)
    return [WriteResult.from_bytes(bytes(result)) for result, _ in collected if result is not None]


def lasting_error(errors: Sequence[StreamlakeError]) -> StreamlakeError:
    """The error to raise of those that several tasks have sent: the first that another schema does not
    resolve, else the first.
    """
    return next((error for error in errors if not isinstance(error, NewSchemaError)), errors[0])


def raised_on_executor(error: Exception) -> StreamlakeError | None:
    """The streamlake error inside the message of a failed Spark job, or a DecodeError for a record that
    Spark's own readers refused; None for any other error.
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
    return (
        kind(found[2].strip())
        if found and isinstance(kind, type) and issubclass(kind, StreamlakeError)
        else None
    )
