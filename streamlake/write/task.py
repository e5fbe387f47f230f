"""The writer task: Arrow batches in, the files of one attempt out, described by one WriteResult.

Runs on an executor inside `mapInArrow` (the pipeline passes the task's ids in; nothing here knows Spark). The order
of work: gather small batches, check and align rows, split them by partition where the table is partitioned, encode.
Invariant: an attempt that fails removes its files as far as it can; one that succeeds yields exactly one result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError, StorageError, StreamlakeError
from streamlake.formats.data_files import DataWriters
from streamlake.spec.transforms import UnknownTransform
from streamlake.write.clustered import ClusteredWriter
from streamlake.write.data_content import DataContent
from streamlake.write.fanout import FanoutWriter
from streamlake.write.gather import gather
from streamlake.write.options import MEMORY_BUDGET
from streamlake.write.output_files import OutputFiles
from streamlake.write.partition_writer import PartitionWriter
from streamlake.write.partitioner import Partitioner
from streamlake.write.result import WriteResult
from streamlake.write.row_check import RowCheck
from streamlake.write.sort import RowSorter
from streamlake.write.target import CLUSTERED, WriteTarget
from streamlake.write.writers import OpenFile, RowsWriter

RESULT_SCHEMA = pa.schema([pa.field("result", pa.binary())])

TaskContext = Callable[[], tuple[int, int, int]]
"""Returns (partition id, task attempt id, attempt number) of the running task; called once, on the executor."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_task(target: WriteTarget, task_context: TaskContext) -> Task:
    """The function for `mapInArrow`: batches of rows -> one batch with one row, `result` (WriteResult.to_bytes).

    Raises a StreamlakeError for whatever goes wrong with rows or files; errors of the input pass through as they are.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = write_rows(target, batches, *task_context())
        yield pa.record_batch([pa.array([result.to_bytes()], pa.binary())], schema=RESULT_SCHEMA)

    return task


def write_rows(
    target: WriteTarget, batches: Iterable[pa.RecordBatch], partition_id: int, task_id: int, attempt: int
) -> WriteResult:
    """Write the rows of one task attempt and describe its files; no rows make no file."""
    output = OutputFiles(target, partition_id, task_id, attempt)
    writer = rows_writer(target, output)
    check = RowCheck(target.schema, target.location)
    try:
        for rows in gather(batches, target.options.gather_bytes):
            with task_errors(target, task_id, attempt):
                writer.write(check.align(rows))
        with task_errors(target, task_id, attempt):
            files = writer.close()
    except BaseException:
        writer.abort()
        output.delete_all()
        raise
    return WriteResult(
        job_id=target.job_id,
        checkpoint_id=target.checkpoint_id,
        task_id=task_id,
        attempt=attempt,
        data_files=files,
        rows=sum(file.record_count for file in files),
        bytes=sum(file.file_size_in_bytes for file in files),
        counters={"files": len(files), "partitions": len({file.partition for file in files})},
    )


def rows_writer(target: WriteTarget, output: OutputFiles) -> RowsWriter:
    """The writer for a target: straight into rolled files, by fanout, or clustered.

    Raises FeatureUnsupportedError when the table cannot be written (an unknown transform, a dropped source column).
    """
    options = target.options
    open_file, sorter = data_file_opener(target, output)

    def partition_writer(partition: tuple[Any, ...]) -> PartitionWriter:
        return PartitionWriter(
            partial(open_file, partition), options.target_file_size_bytes, sorter, options.buffer_bytes
        )

    if target.spec.is_unpartitioned:
        return partition_writer((None,) * len(target.spec.fields))
    partitioner = Partitioner(target.schema, target.spec)

    def open_partition(number: int) -> PartitionWriter:
        return partition_writer(partitioner.partition(number))

    def describe(number: int) -> str:
        return f"partition {target.spec.partition_path(partitioner.partition(number), target.schema)}"

    if target.input_order == CLUSTERED:
        return ClusteredWriter(partitioner, open_partition, describe)
    return FanoutWriter(partitioner, open_partition, options.buffer_bytes, options.max_open_files)


def data_file_opener(target: WriteTarget, output: OutputFiles) -> tuple[OpenFile, RowSorter | None]:
    """What opens the data files of a target, and what sorts rows for them (None: the table has no sort order).

    Raises FeatureUnsupportedError when the partition spec has a transform that nobody here can compute.
    """
    for part in target.spec.fields:
        if isinstance(part.transform, UnknownTransform):
            raise FeatureUnsupportedError(
                f"{target.location}: partition field '{part.name}' has the unknown transform '{part.transform}'; rows "
                "cannot be written until the table has a partition spec without it"
            )
    options = target.options
    writers = DataWriters(options.file_format, target.io, target.schema, options.format)
    sorter = None if target.sort_order.is_unsorted else RowSorter(target.schema, target.sort_order)

    def open_file(partition: tuple[Any, ...]) -> DataContent:
        return DataContent(target, writers, output.new_path(partition), partition, sorter)

    return open_file, sorter


@contextlib.contextmanager
def task_errors(target: WriteTarget, task_id: int, attempt: int) -> Iterator[None]:
    """Turns what libraries raise while rows are written into our errors, with table and task in the message."""
    where = f"{target.location}: checkpoint {target.checkpoint_id}, task {task_id}, attempt {attempt}"
    try:
        yield
    except StreamlakeError:
        raise
    except MemoryError as error:
        raise StreamlakeError(
            f"{where}: out of memory while writing ({error}). Lower {MEMORY_BUDGET} or "
            "write.parquet.row-group-size-bytes, or give executors more memory outside of the JVM."
        ) from error
    except OSError as error:
        raise StorageError(f"{where}: writing failed ({error}). The task may be run again.") from error
    except Exception as error:
        raise StreamlakeError(
            f"{where}: writing failed unexpectedly: {type(error).__name__}: {error}"
        ) from error
