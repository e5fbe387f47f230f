"""The writer task of an upsert: changes of one bucket in, data files, delete files and an index run out.

    changes -> last per key -> where are the old rows? (index) -> data files + deleted positions
            -> deletion vectors / position deletes / equality deletes, run of the bucket -> one WriteResult

Runs on an executor inside `mapInArrow`, like `task.write_task`. Invariant: an attempt that fails removes its
files as far as it can; one that succeeds yields exactly one result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from streamlake.index.runs.entries import Entries
from streamlake.index.runs.merge import merge_runs
from streamlake.index.runs.merge_plan import plan_merges
from streamlake.index.runs.run import Run, RunRef, open_run
from streamlake.index.runs.run_writer import RunWriter
from streamlake.records import ROW_ORDER, TRUNCATE_BELOW
from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.deletes.equality_deletes import EqualityDeleteWriter, equality_delete_writer
from streamlake.write.deletes.live_file import LiveFile
from streamlake.write.deletes.merged_deletes import merge_deletes
from streamlake.write.files.outcomes import ONLY_TABLE, TaskOutcome
from streamlake.write.files.placed_writer import PlacedWriter
from streamlake.write.files.result import IndexChange, WriteResult
from streamlake.write.rows.change_batches import gather_changes
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import Task, TaskContext
from streamlake.write.task_writer import data_file_opener, task_errors
from streamlake.write.upsert.changes import ChangeReader
from streamlake.write.upsert.part_rows import packed
from streamlake.write.upsert.upsert_target import COPY_ON_WRITE, UpsertTarget
from streamlake.write.upsert.upsert_writer import UpsertWriter

_CHUNK_SHARE = 4  # a table of changes is in memory several times while it is sorted and split
_CHUNK_ROWS = 4 << 20


def upsert_task(target: UpsertTarget, task_context: TaskContext) -> Task:
    """The function for `mapInArrow`: batches of changes of bucket i in partition i -> one TaskOutcome.

    Changes are rows of the table. They may also have the columns ROW_KIND, ROW_ORDER, MISSING_FIELDS and
    PLACE. Batches with the column TRUNCATE_BELOW are truncates. Raises a StreamlakeError for anything that
    goes wrong with rows, files or the index.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = write_changes(target, batches, *task_context())
        yield TaskOutcome(ONLY_TABLE, result.to_bytes()).to_batch()

    return task


def write_changes(
    target: UpsertTarget, batches: Iterable[pa.RecordBatch], partition_id: int, task_id: int, attempt: int
) -> WriteResult:
    """Write the changes of one task attempt and describe the result. No changes make no file."""
    tables = gather_changes(batches, target.table.options.memory_budget_bytes // _CHUNK_SHARE, _CHUNK_ROWS)
    first = next(tables, None)
    if first is None:
        return WriteResult.of(target.table, task_id, attempt)
    attempt_files = _Attempt(target, partition_id, task_id, attempt)
    try:
        return attempt_files.run(first, tables)
    except BaseException:
        attempt_files.abort()
        raise


class _Attempt:
    """One attempt of one task: its open files, and how it ends."""

    def __init__(self, target: UpsertTarget, partition_id: int, task_id: int, attempt: int) -> None:
        table = target.table
        self._target = target
        self._bucket = partition_id
        self._ids = (task_id, attempt)
        self._output = OutputFiles(table, partition_id, task_id, attempt)
        self._rows = rows_writer(table, self._output)
        self._equality = None if target.uses_index else _equality_writer(target, self._output)

    def run(self, first: pa.Table, more: Iterator[pa.Table]) -> WriteResult:
        target = self._target
        with task_errors(target.table, *self._ids):
            refs, merged = self._merged(list(target.runs.get(self._bucket, ())))
            runs = [open_run(target.table.io, ref) for ref in refs]
            writer = UpsertWriter(target, self._rows, runs, target.time_ms, self._spilled, self._equality)
            reader = ChangeReader(target)
            _take(first, writer, reader)
        del first
        for changes in more:
            with task_errors(target.table, *self._ids):
                _take(changes, writer, reader)
        with task_errors(target.table, *self._ids):
            writer.finish()
            return self._finish(writer, merged)

    def abort(self) -> None:
        self._rows.abort()
        if self._equality is not None:
            self._equality.abort()
        self._output.delete_all()

    def _merged(self, refs: list[RunRef]) -> tuple[list[RunRef], IndexChange]:
        """Merge the newest runs when there are many, before anything is looked up in them."""
        target = self._target
        count = plan_merges(refs)
        if not count:
            return refs, IndexChange(self._bucket)
        runs = [open_run(target.table.io, ref) for ref in refs[:count]]
        sink = RunWriter(target.table.io, self._output.new_run(), self._bucket, target.buckets)
        merged = merge_runs(
            runs,
            target.live_files,
            sink,
            is_oldest=count == len(refs),
            drop_tombstones_before_ms=target.tombstones_since_ms,
            now_ms=target.time_ms,
        )
        away = tuple(ref.path for ref in refs[:count])
        return [merged, *refs[count:]], IndexChange(self._bucket, merged=merged, merged_away=away)

    def _finish(self, writer: UpsertWriter, index: IndexChange) -> WriteResult:
        target, table = self._target, self._target.table
        data_files = self._rows.close()
        here = merge_deletes(
            table,
            self._output,
            writer.deleted_here.by_file(),
            {file.file_path: LiveFile(file) for file in data_files},
            keep_files=True,
        )
        deleted = writer.deleted.by_file()
        own = {path: part for path, part in deleted.items() if self._merges(path, writer)}
        earlier = merge_deletes(table, self._output, own, target.live_files)
        delete_files = (*here.delete_files, *earlier.delete_files, *self._equality_files())
        if not target.uses_index:
            self._delete_spilled(writer.entries)
        elif writer.entries:
            index = IndexChange(self._bucket, self._run(writer.entries), index.merged, index.merged_away)
        elsewhere = {path: part.tobytes() for path, part in deleted.items() if path not in own}
        return WriteResult.of(
            table,
            *self._ids,
            data_files,
            delete_files,
            counters={**writer.counters, "deleted-rows": here.rows + earlier.rows},
            removed=earlier.removed,
            deleted_elsewhere=elsewhere,
            index=index,
            refused=tuple(writer.refused),
            truncated_below=writer.truncated_below,
            held_rows=packed(writer.held_rows),
            moved_rows=packed(writer.moved_rows),
        )

    def _merges(self, path: str, writer: UpsertWriter) -> bool:
        """Whether this task writes the deletes of a data file.

        With copy-on-write it does not: the file is rewritten later.
        """
        return path in writer.own_files and self._target.delete_mode != COPY_ON_WRITE

    def _equality_files(self) -> tuple[DataFile, ...]:
        return () if self._equality is None else self._equality.close()

    def _spilled(self, entries: Sequence[Run | Entries]) -> Run:
        return open_run(self._target.table.io, self._run(entries))

    def _run(self, entries: Sequence[Run | Entries]) -> RunRef:
        """The checkpoint's entries as one run.

        Runs that were spilled before are merged into it and deleted.
        """
        if len(entries) == 1 and isinstance(entries[0], Run):
            return entries[0].ref
        target = self._target
        sink = RunWriter(target.table.io, self._output.new_run(), self._bucket, target.buckets)
        if len(entries) == 1 and isinstance(entries[0], Entries):
            sink.append(entries[0])
            return sink.close(entries[0].paths)
        ref = merge_runs(entries, self._rows.paths, sink, is_oldest=False)
        self._delete_spilled(entries)
        return ref

    def _delete_spilled(self, entries: Sequence[Run | Entries]) -> None:
        for each in entries:
            if isinstance(each, Run):
                self._target.table.io.delete(each.ref.path)


def _take(changes: pa.Table, writer: UpsertWriter, reader: ChangeReader) -> None:
    if TRUNCATE_BELOW in changes.column_names:
        orders = changes.column(ROW_ORDER).to_pylist() if ROW_ORDER in changes.column_names else None
        writer.truncate(changes.column(TRUNCATE_BELOW).to_pylist(), orders)
    else:
        writer.write(reader.read(changes))


def rows_writer(table: WriteTarget, output: OutputFiles) -> PlacedWriter:
    """The writer of a table's rows. Raises FeatureUnsupportedError for an unknown partition transform."""
    options = table.options
    open_file, sorter = data_file_opener(table, output)
    return PlacedWriter(
        None if table.spec.is_unpartitioned else Partitioner(table.schema, table.spec),
        open_file,
        unpartitioned=(None,) * len(table.spec.fields),
        target_bytes=options.target_file_size_bytes,
        buffer_bytes=options.memory_budget_bytes // 2,
        max_open_files=options.max_open_files,
        sorter=sorter,
    )


def _equality_writer(target: UpsertTarget, output: OutputFiles) -> EqualityDeleteWriter:
    return equality_delete_writer(
        target.table,
        output,
        target.key.key_ids,
        spec=target.equality_spec,
        whole_row=target.whole_row,
        buffer_bytes=target.table.options.memory_budget_bytes // _CHUNK_SHARE,
    )
