"""Copy-on-write: data files that lose rows are written again without these rows, by Spark tasks.

Place in the flow: the second step of a checkpoint in this mode, after the index has found the rows that are
deleted. Invariant: every live row of a rewritten file that was not deleted is in exactly one of the new
files, and in the index at its new position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from streamlake.failpoints import failpoint
from streamlake.formats.columns.lineage_columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID
from streamlake.index.bucketing import Bucketing
from streamlake.index.runs.entries import RunFile
from streamlake.index.runs.run_writer import RunRef
from streamlake.pipeline.key_index.indexed import Indexed
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.pipeline.spark.task_outcome import run_parts, task_ids
from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.types.data_types import NestedField
from streamlake.table.table import Table
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.task_writer import task_errors
from streamlake.write.upsert.upsert_key import UpsertKey
from streamlake.write.upsert.upsert_task import rows_writer

Array = Any  # numpy array

_POSITION = "_pos"


@dataclass(frozen=True)
class Rewritten:
    """New data files in place of `removed` ones, and index runs with the rows' new positions."""

    data_files: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    runs: tuple[RunRef, ...] = ()


@dataclass(frozen=True)
class _Part:
    """The data files that one task rewrites: each with the positions that are deleted, int64 as bytes."""

    number: int
    files: tuple[tuple[FileScanTask, bytes], ...]


@dataclass(frozen=True)
class _Rewriter:
    """The settings of a rewriting task; travels to executors."""

    target: WriteTarget
    rows: IndexedRows

    def rewrite(self, part: _Part) -> Rewritten:
        target = self.target
        lineage: tuple[NestedField, ...] = ()
        if target.format_version >= 3:
            # A row that only moves keeps its identity (spec: Row Lineage for Moved Rows).
            lineage = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER)
            target = replace(target, schema=replace(target.schema, fields=target.schema.fields + lineage))
        # Attempts of a task share no file: one attempt may remove files that the other has reported to the
        # driver.
        _, task_id, attempt = task_ids()
        output = OutputFiles(target, part.number, task_id, attempt)
        writer = rows_writer(target, output)
        reader = self.rows.reader(("*", _POSITION, *(column.name for column in lineage)))
        entries = self.rows.collector()
        try:
            with task_errors(self.target, task_id, attempt):
                for task, gone in part.files:
                    deleted = np.frombuffer(gone, dtype=np.int64)
                    for batch in reader.read(task):
                        kept = ~np.isin(batch.column(_POSITION).to_numpy(), deleted)
                        live = pa.Table.from_batches([batch.filter(pa.array(kept))]).drop_columns([_POSITION])
                        places = writer.write(live)
                        entries.add(live, places.files, places.positions)
                files = writer.close()
                runs = entries.runs([RunFile(path, own=False) for path in writer.paths])
        except BaseException:
            writer.abort()
            output.delete_all()
            raise
        failpoint("file-rewritten")
        return Rewritten(files, tuple(task.data_file for task, _ in part.files), tuple(runs))


def rewritten(
    session: SparkSession | None,
    table: Table,
    target: WriteTarget,
    key: UpsertKey,
    bucketing: Bucketing,
    deleted: Mapping[str, Array],
    indexed: Indexed,
) -> Rewritten:
    """Write the data files in `deleted` (path -> ascending positions to delete) again, without these rows and
    without those that other writers have deleted. The table is not planned for that.
    """
    if not deleted:
        return Rewritten()
    tasks = indexed.tasks(table.specs, deleted)
    workers = 1 if session is None else max(session.sparkContext.defaultParallelism, 1)
    paths = sorted(deleted, key=lambda path: -tasks[path].data_file.file_size_in_bytes)
    numbers = count(bucketing.count)
    parts = [
        _Part(number, tuple((tasks[path], deleted[path].tobytes()) for path in some))
        for number, some in zip(numbers, (paths[at::workers] for at in range(workers)), strict=False)
        if some
    ]
    rewriter = _Rewriter(target, IndexedRows.of(table, key, bucketing))
    found: Sequence[Rewritten] = run_parts(session, rewriter.rewrite, parts)
    failpoint("files-rewritten")
    return Rewritten(
        tuple(file for each in found for file in each.data_files),
        tuple(file for each in found for file in each.removed),
        tuple(run for each in found for run in each.runs),
    )
