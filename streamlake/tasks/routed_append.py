"""Appends the rows of routed topics: the task that reads them writes files of each table.

It runs on the executors. Rows wait until they exceed the memory budget; then the tables with most of them are
written. At the end all tables are written one after the other, so that few files are open at once. Invariant:
an error of one table is that table's outcome, and the others are written; where the records as a whole cannot
be read, nothing is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamlake.errors import StreamlakeError
from streamlake.source.offsets import OffsetRange
from streamlake.spec.metadata.data_file import DataFile
from streamlake.tasks.record_screen import no_rejects_table
from streamlake.tasks.routed_intake import Branch, Part, RoutedIntake, RowParting
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.write.files.partition_writer import PartitionWriter
from streamlake.write.files.result import WriteResult
from streamlake.write.files.writers import RowsWriter
from streamlake.write.rows.row_check import RowCheck
from streamlake.write.side_writer import SideWriter
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import rows_writer, task_errors

Ids = tuple[int, int, int]
"""(partition id, task id, attempt)."""

Told = tuple[int, WriteResult | None, StreamlakeError | None, bytes | None]
"""A table's number, or that of the routed topics as a whole, and its outcome: see OUTCOMES."""

MAX_OPEN = 32
_SMALLEST_BUDGET = 8 << 20
_SHORT_CHUNK_ROWS = 512


def append_routed(
    intake: RoutedIntake, pieces: Iterable[OffsetRange], targets: Mapping[int, WriteTarget], ids: Ids
) -> Iterator[Told]:
    """Write the rows of the ranges; gives the outcomes, none for a table without rows.

    `targets`: by table number.
    """
    parting = RowParting(intake)
    files = _Files(intake, targets, ids)
    try:
        for piece in pieces:
            for part in parting.parts(piece):
                if not files.take(part):
                    parting.give_up(part.branch)
        endings = files.finished()
    except FINAL_ERRORS as error:
        files.abort()
        yield intake.family, None, error, None
        return
    except BaseException:
        files.abort()
        raise
    yield from endings
    yield intake.family, None, parting.new_tables(), parting.times.taken()


class _Files:
    """All files that one task writes."""

    def __init__(self, intake: RoutedIntake, targets: Mapping[int, WriteTarget], ids: Ids) -> None:
        self._targets = targets
        self._ids = ids
        own = [targets[branch.table].options for branch in intake.branches.values()]
        self._budget = max((options.buffer_bytes for options in own), default=0)
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._bytes: dict[int, int] = {}
        self._all_bytes = 0
        self._tables: dict[int, _TableFiles] = {}  # the least recently written first
        self._rejects: dict[int, tuple[int, SideWriter]] = {}
        self._failed: dict[int, StreamlakeError] = {}

    def take(self, part: Part) -> bool:
        """Take a part of a batch; says whether its table is still written."""
        number = part.branch.table
        try:
            if part.error is not None:
                raise part.error
            if part.rejected is not None:
                self._rejecting(part.branch, part.rejected).write(part.rejected)
        except FINAL_ERRORS as error:
            self._fail(number, error)
        if number in self._failed:
            return False
        if part.rows.num_rows:
            self._waiting.setdefault(number, []).append(part.rows)
            size = part.rows.nbytes
            self._bytes[number] = self._bytes.get(number, 0) + size
            self._all_bytes += size
            if self._all_bytes > self._budget:
                self._make_room()
        return True

    def finished(self) -> list[Told]:
        told: list[Told] = []
        for number in [*self._tables, *(number for number in self._waiting if number not in self._tables)]:
            self._write(number, alone=True)
            try:
                result = self._tables[number].result() if number in self._tables else None
            except FINAL_ERRORS as error:
                self._fail(number, error)
            else:
                if result is not None:
                    told.append((number, result, None, None))
        for number, (rejects, writer) in self._rejects.items():
            if number in self._failed:
                writer.abort()
                continue
            result = writer.close()
            if result is not None:
                told.append((rejects, result, None, None))
        return [*told, *((number, None, error, None) for number, error in self._failed.items())]

    def abort(self) -> None:
        for table in self._tables.values():
            table.abort()
        for _, writer in self._rejects.values():
            writer.abort()

    def _make_room(self) -> None:
        for number, _ in sorted(self._bytes.items(), key=lambda item: -item[1]):
            if self._all_bytes <= self._budget / 2:
                break
            self._write(number, alone=False)
        # Without a copy, the waiting rows would keep the memory of all rows that they were read with.
        self._waiting = {number: [_copied(rows)] for number, rows in self._waiting.items()}

    def _write(self, number: int, *, alone: bool) -> None:
        """Write the waiting rows of a table, which becomes the most recently written one.

        `alone`: the table is finished right after.
        """
        waiting = self._taken(number)
        if not waiting:
            return
        table = self._tables.pop(number, None)
        if table is None:
            table = _TableFiles(self._targets[number], self._ids, alone=alone)
        self._tables[number] = table
        try:
            table.write(waiting)
            if not alone:
                table.flush()
            opened = [each for each in self._tables.values() if each.is_open]
            for each in opened[: max(0, len(opened) - MAX_OPEN)]:
                each.finish()
        except FINAL_ERRORS as error:
            self._fail(number, error)

    def _taken(self, number: int) -> list[pa.RecordBatch]:
        """The waiting rows of a table, which are removed from the queue."""
        self._all_bytes -= self._bytes.pop(number, 0)
        return self._waiting.pop(number, [])

    def _rejecting(self, branch: Branch, rows: pa.RecordBatch) -> SideWriter:
        known = self._rejects.get(branch.table)
        if known is None:
            target = None if branch.rejects_table is None else self._targets.get(branch.rejects_table)
            if target is None or branch.rejects_table is None:
                raise no_rejects_table(rows)
            known = self._rejects[branch.table] = (branch.rejects_table, SideWriter(target, *self._ids))
        return known[1]

    def _fail(self, number: int, error: StreamlakeError) -> None:
        self._failed.setdefault(number, error)
        self._taken(number)
        table = self._tables.pop(number, None)
        if table is not None:
            table.abort()


class _TableFiles:
    """The files of one table. They may be finished, and others begun, whenever too many are open.

    `alone`: no other files are open, so that these may have all of the memory.
    """

    def __init__(self, target: WriteTarget, ids: Ids, *, alone: bool) -> None:
        whole = target.options.memory_budget_bytes
        budget = whole if alone else min(whole, max(_SMALLEST_BUDGET, whole // MAX_OPEN))
        self._target = replace(target, options=replace(target.options, memory_budget_bytes=budget))
        self._ids = ids
        self._check = RowCheck(target.schema, target.location)
        self._output = OutputFiles(target, *ids)
        self._writer: RowsWriter | None = None
        self._files: list[DataFile] = []

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def write(self, batches: list[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(batches)
        if rows.num_rows < len(batches) * _SHORT_CHUNK_ROWS:
            rows = rows.combine_chunks()
        with task_errors(self._target, *self._ids[1:]):
            if self._writer is None:
                self._writer = rows_writer(self._target, self._output)
            self._writer.write(self._check.align(rows))

    def flush(self) -> None:
        """Encode the rows that the writer holds, where it would wait for more."""
        if isinstance(self._writer, PartitionWriter):
            with task_errors(self._target, *self._ids[1:]):
                self._writer.flush()

    def finish(self) -> None:
        if self._writer is not None:
            with task_errors(self._target, *self._ids[1:]):
                self._files += self._writer.close()
            self._writer = None

    def result(self) -> WriteResult | None:
        """What was written; None for nothing."""
        self.finish()
        if not self._files:
            return None
        return WriteResult(
            job_id=self._target.job_id,
            checkpoint_id=self._target.checkpoint_id,
            task_id=self._ids[1],
            attempt=self._ids[2],
            data_files=tuple(self._files),
            rows=sum(file.record_count for file in self._files),
            bytes=sum(file.file_size_in_bytes for file in self._files),
            counters={
                "files": len(self._files),
                "partitions": len({file.partition for file in self._files}),
            },
        )

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        self._output.delete_all()


def _copied(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of the batches in memory of their own."""
    rows = pa.Table.from_batches(batches)
    taken = rows.take(pa.array(np.arange(rows.num_rows))).combine_chunks()
    return taken.to_batches()[0]
