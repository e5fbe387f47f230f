"""The writer of a task: rows of one table in, piece by piece, data files out.

It serves every task that adds rows: those that are given an iterator of them, those that find rows of several
tables, and rejects beside a table's own rows. Invariant: without rows no file is made; after `abort` none of
the attempt is left, as far as they can be removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from streamlake.errors import FeatureUnsupportedError, StorageError, StreamlakeError
from streamlake.formats.data_files import DataWriters
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.partitioning.transforms import UnknownTransform
from streamlake.write.files.clustered import ClusteredWriter
from streamlake.write.files.data_content import DataContent
from streamlake.write.files.fanout import FanoutWriter
from streamlake.write.files.partition_writer import PartitionWriter
from streamlake.write.files.result import WriteResult
from streamlake.write.files.writers import OpenFile, RowsWriter
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.rows.sort import RowSorter
from streamlake.write.target.options import MEMORY_BUDGET
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import CLUSTERED, WriteTarget


class TaskWriter:
    """Writes rows for `target` in one task attempt; the ids are those of the task."""

    def __init__(self, target: WriteTarget, partition_id: int, task_id: int, attempt: int) -> None:
        self._target = target
        self._ids = (task_id, attempt)
        self._check = RowCheck(target.schema, target.location)
        self._output = OutputFiles(target, partition_id, task_id, attempt)
        self._writer: RowsWriter | None = None
        self._files: list[DataFile] = []

    @property
    def is_open(self) -> bool:
        """Whether files may be open."""
        return self._writer is not None

    def open(self) -> RowsWriter:
        """Prepare for rows, which `write` does too. Raises FeatureUnsupportedError for a table that cannot be
        written.
        """
        if self._writer is None:
            self._writer = rows_writer(self._target, self._output)
        return self._writer

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Write rows of the table. Raises SchemaMismatchError for rows that do not fit, StorageError."""
        if not rows.num_rows:
            return
        writer = self.open()
        with task_errors(self._target, *self._ids):
            table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            writer.write(self._check.align(table))

    def flush(self) -> None:
        """Encode the rows that the writer holds, where it would wait for more."""
        if isinstance(self._writer, PartitionWriter):
            with task_errors(self._target, *self._ids):
                self._writer.flush()

    def finish(self) -> None:
        """Finish the open files; more rows go into others."""
        if self._writer is not None:
            with task_errors(self._target, *self._ids):
                self._files += self._writer.close()
            self._writer = None

    def close(self) -> WriteResult:
        """The result with the files of all rows."""
        self.finish()
        counters = {"files": len(self._files), "partitions": len({file.partition for file in self._files})}
        return WriteResult.of(self._target, *self._ids, self._files, counters=counters)

    def abort(self) -> None:
        """Remove the files that were written, after an error."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        self._output.delete_all()


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
