"""Rows of another table that turn up while a task is busy with its own: written as they come, described at the end.

What `write.task` does for an iterator, for a caller who has the rows piece by piece. Invariant: where no row came, nothing
was opened, and there is no result.
"""

from __future__ import annotations

import pyarrow as pa

from streamlake.write.output_files import OutputFiles
from streamlake.write.result import WriteResult
from streamlake.write.row_check import RowCheck
from streamlake.write.target import WriteTarget
from streamlake.write.task import rows_writer, task_errors
from streamlake.write.writers import RowsWriter


class SideWriter:
    """Writes rows for `target` in one task attempt; the ids are the task's."""

    def __init__(self, target: WriteTarget, partition_id: int, task_id: int, attempt: int) -> None:
        self._target = target
        self._ids = (partition_id, task_id, attempt)
        self._check = RowCheck(target.schema, target.location)
        self._output: OutputFiles | None = None
        self._writer: RowsWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Raises SchemaMismatchError for rows that do not fit, StorageError."""
        if not rows.num_rows:
            return
        if self._writer is None or self._output is None:
            self._output = OutputFiles(self._target, *self._ids)
            self._writer = rows_writer(self._target, self._output)
        with task_errors(self._target, *self._ids[1:]):
            self._writer.write(self._check.align(pa.Table.from_batches([rows])))

    def close(self) -> WriteResult | None:
        """The files with all rows; None when there were none."""
        if self._writer is None:
            return None
        with task_errors(self._target, *self._ids[1:]):
            files = self._writer.close()
        return WriteResult(
            job_id=self._target.job_id,
            checkpoint_id=self._target.checkpoint_id,
            task_id=self._ids[1],
            attempt=self._ids[2],
            data_files=files,
            rows=sum(file.record_count for file in files),
            bytes=sum(file.file_size_in_bytes for file in files),
        )

    def abort(self) -> None:
        """Remove what was written, after an error."""
        if self._writer is not None and self._output is not None:
            self._writer.abort()
            self._output.delete_all()
