"""Equality deletes of other writers, resolved to the rows of live data files that they leave.

The key index knows a row by its position. So where an equality delete applies to a file that is indexed
already, only reading the file's key columns shows which rows are left. Invariant: position deletes are not
applied here; the caller applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamlake.index.bucketing import Bucketing
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.data_file import FileContent
from streamlake.table.table import Table
from streamlake.write.upsert.upsert_key import UpsertKey

Array = Any  # numpy array

_POSITION = "_pos"


@dataclass(frozen=True)
class EqualityDeletedFiles:
    """The data files that equality deletes apply to, by path. Travels to executors."""

    rows: IndexedRows
    tasks: Mapping[str, FileScanTask]

    def live_positions(self, path: str) -> Array | None:
        """The ascending positions of a file's rows that equality deletes leave; None: none applies."""
        task = self.tasks.get(path)
        if task is None:
            return None
        parts = [
            batch.column(_POSITION).to_numpy(zero_copy_only=False)
            for batch in self.rows.reader((_POSITION,)).read(task)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def key_deletes(
    table: Table, key: UpsertKey, bucketing: Bucketing, tasks: Mapping[str, FileScanTask]
) -> EqualityDeletedFiles | None:
    """The files that a checkpoint's tasks need to know; None: no equality delete applies to any file."""
    return EqualityDeletedFiles(IndexedRows.of(table, key, bucketing), tasks) if tasks else None


def by_equality_alone(task: FileScanTask) -> FileScanTask:
    """The task without position deletes and deletion vectors, which newer ones replace meanwhile."""
    files = tuple(file for file in task.delete_files if file.content == FileContent.EQUALITY_DELETES)
    return replace(task, delete_files=files)
