"""The writer task: Arrow batches in, data files out, described by one WriteResult per attempt.

Runs on an executor inside `mapInArrow`. The pipeline passes the task's ids in; nothing here depends on Spark.
The order of work: gather small batches, check and align rows, split them by partition where the table is
partitioned, encode. Invariant: an attempt that fails removes its files as far as it can; one that succeeds
yields exactly one result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError, StorageError, StreamlakeError
from streamlake.formats.data_files import DataWriters
from streamlake.spec.partitioning.transforms import UnknownTransform
from streamlake.write.files.clustered import ClusteredWriter
from streamlake.write.files.data_content import DataContent
from streamlake.write.files.fanout import FanoutWriter
from streamlake.write.files.partition_writer import PartitionWriter
from streamlake.write.files.result import WriteResult
from streamlake.write.files.writers import OpenFile, RowsWriter
from streamlake.write.rows.gather import gather
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.rows.sort import RowSorter
from streamlake.write.target.options import MEMORY_BUDGET
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import CLUSTERED, WriteTarget

RESULT_SCHEMA = pa.schema([pa.field("result", pa.binary())])

TaskContext = Callable[[], tuple[int, int, int]]
"""Gives (partition id, task attempt id, attempt number) of the running task. Called once, on the executor."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_task(target: WriteTarget, task_context: TaskContext) -> Task:
    """The function for `mapInArrow`: batches of rows -> one row, `result` (WriteResult.to_bytes).

    Raises a StreamlakeError for anything that goes wrong with rows or files. Errors of
    the input pass through unchanged.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = write_rows(target, batches, *task_context())
        yield pa.record_batch([pa.array([result.to_bytes()], pa.binary())], schema=RESULT_SCHEMA)

    return task


def write_rows(
    target: WriteTarget, batches: Iterable[pa.RecordBatch], partition_id: int, task_id: int, attempt: int
) -> WriteResult:
    """Write the rows of one task attempt and describe its files. No rows make no file."""
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
    """The writer for a target: directly into rolled files, by fanout, or clustered.

    Raises FeatureUnsupportedError when the table cannot be written (an unknown
    transform, a dropped source column).
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
    """The function that opens the data files of a target, and the sorter of their rows (None: no sort order).

    Raises FeatureUnsupportedError when the partition spec has a transform that streamlake cannot compute.
    """
    for part in target.spec.fields:
        if isinstance(part.transform, UnknownTransform):
            raise FeatureUnsupportedError(
                f"{target.location}: partition field '{part.name}' has the unknown transform "
                f"'{part.transform}'; rows cannot be written until the table has a partition spec without it"
            )
    options = target.options
    writers = DataWriters(options.file_format, target.io, target.schema, options.format)
    sorter = None if target.sort_order.is_unsorted else RowSorter(target.schema, target.sort_order)

    def open_file(partition: tuple[Any, ...]) -> DataContent:
        return DataContent(target, writers, output.new_path(partition), partition, sorter)

    return open_file, sorter


@contextlib.contextmanager
def task_errors(target: WriteTarget, task_id: int, attempt: int) -> Iterator[None]:
    """Turns errors of libraries while rows are written into our own, with table and task in the message."""
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
