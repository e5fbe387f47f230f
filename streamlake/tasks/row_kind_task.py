"""Converts the spellings of row kinds before an upsert task.

It is not in `change_frame`, because a worker loads the module of what it runs: this one loads no source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamlake.decode.cdc.row_kinds import row_kinds
from streamlake.records import ROW_KIND
from streamlake.write.task import Task


def reading_kinds(task: Task, where: str) -> Task:
    """The task for batches whose column ROW_KIND is the stream's, which `where` names in errors."""

    def read_and_write(batches: Any) -> Iterator[pa.RecordBatch]:
        return task(_kinds(batch, where) for batch in batches)

    return read_and_write


def _kinds(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    at = batch.schema.get_field_index(ROW_KIND)
    return batch.set_column(at, ROW_KIND, row_kinds(batch.column(at), where))
