"""Appends to a table without Spark: the writer task and AppendFiles, as the sink uses them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamlake import ids
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import write_task


def write_files(table: Table, rows: pa.Table, batch_rows: int = 10_000) -> WriteResult:
    """Data files for `rows`, written by one task and not committed."""
    target = WriteTarget.for_table(
        table.metadata, io=table.io, job_id="batch", checkpoint_id=0, operation_uuid=ids.new_uuid()
    )
    batches: Iterator[pa.RecordBatch] = iter(rows.to_batches(max_chunksize=batch_rows))
    results = [
        WriteResult.from_bytes(value.as_py())
        for answer in write_task(target, lambda: (0, 0, 0))(batches)
        for value in answer.column("result")
    ]
    assert len(results) == 1, "a task sends one result"
    return results[0]


def append(table: Table, rows: pa.Table, branch: str = "main") -> Snapshot:
    """Write `rows` and commit them as one snapshot."""
    operation = AppendFiles(table, branch=branch)
    for file in write_files(table, rows).data_files:
        operation.append_file(file)
    return operation.commit()
