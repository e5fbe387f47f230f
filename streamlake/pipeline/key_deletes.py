"""What equality deletes leave of live data files: other writers' deletes that name keys and not places.

The key index knows a row by its place, so where an equality delete applies to a file that is indexed already, only reading the
file's key columns tells which rows are left. Invariant: position deletes play no part here; whoever asks looks at them itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamlake.index.bucketing import Bucketing
from streamlake.pipeline.indexed_rows import IndexedRows
from streamlake.read.planning import FileScanTask
from streamlake.spec.data_file import FileContent
from streamlake.table.table import Table
from streamlake.write.upsert_key import UpsertKey

Array = Any  # numpy array

_POSITION = "_pos"


@dataclass(frozen=True)
class EqualityDeletedFiles:
    """The data files that equality deletes apply to, by path. Travels to executors."""

    rows: IndexedRows
    tasks: Mapping[str, FileScanTask]

    def live_positions(self, path: str) -> Array | None:
        """The positions of a data file's rows that no equality delete takes out, ascending; None: none applies to the file."""
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
    """What tasks of a checkpoint ask; None: no equality delete applies to any file."""
    return EqualityDeletedFiles(IndexedRows.of(table, key, bucketing), tasks) if tasks else None


def by_equality_alone(task: FileScanTask) -> FileScanTask:
    """The task without position deletes and deletion vectors, which newer ones replace while the stream goes on."""
    files = tuple(file for file in task.delete_files if file.content == FileContent.EQUALITY_DELETES)
    return replace(task, delete_files=files)
