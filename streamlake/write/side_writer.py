"""A writer for rows of another table that a task finds while it writes its own.

It does for rows that arrive piece by piece what `write.task` does for an iterator. Invariant: without rows
nothing is opened, and there is no result.
"""

from __future__ import annotations

import pyarrow as pa

from streamlake.write.files.result import WriteResult
from streamlake.write.files.writers import RowsWriter
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import rows_writer, task_errors


class SideWriter:
    """Writes rows for `target` in one task attempt; the ids are those of the task."""

    def __init__(self, target: WriteTarget, partition_id: int, task_id: int, attempt: int) -> None:
        self._target = target
        self._ids = (partition_id, task_id, attempt)
        self._check = RowCheck(target.schema, target.location)
        self._output: OutputFiles | None = None
        self._writer: RowsWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows of the table. Raises SchemaMismatchError for rows that do not fit, StorageError."""
        if not rows.num_rows:
            return
        if self._writer is None or self._output is None:
            self._output = OutputFiles(self._target, *self._ids)
            self._writer = rows_writer(self._target, self._output)
        with task_errors(self._target, *self._ids[1:]):
            self._writer.write(self._check.align(pa.Table.from_batches([rows])))

    def close(self) -> WriteResult | None:
        """The result with the files of all rows; None when there were no rows."""
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
        """Remove the files that were written, after an error."""
        if self._writer is not None and self._output is not None:
            self._writer.abort()
            self._output.delete_all()
