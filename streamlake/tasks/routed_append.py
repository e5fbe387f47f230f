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
from streamlake.tasks.record_screen import no_rejects_table
from streamlake.tasks.routed_intake import Branch, Part, RoutedIntake, RowParting
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.write.files.outcomes import TaskOutcome
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.task_writer import TaskWriter

Ids = tuple[int, int, int]
"""(partition id, task id, attempt)."""

MAX_OPEN = 32
_SMALLEST_BUDGET = 8 << 20
_SHORT_CHUNK_ROWS = 512


def append_routed(
    intake: RoutedIntake, pieces: Iterable[OffsetRange], targets: Mapping[int, WriteTarget], ids: Ids
) -> Iterator[TaskOutcome]:
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
        yield TaskOutcome(intake.family, error=error)
        return
    except BaseException:
        files.abort()
        raise
    yield from endings
    yield TaskOutcome(intake.family, None, parting.new_tables(), parting.times.taken())


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
        self._tables: dict[int, TaskWriter] = {}  # the least recently written first
        self._rejects: dict[int, tuple[int, TaskWriter]] = {}
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

    def finished(self) -> list[TaskOutcome]:
        found: list[tuple[int, WriteResult]] = []
        for number in [*self._tables, *(number for number in self._waiting if number not in self._tables)]:
            self._write(number, alone=True)
            try:
                if number in self._tables:
                    found.append((number, self._tables[number].close()))
            except FINAL_ERRORS as error:
                self._fail(number, error)
        for number, (rejects, writer) in self._rejects.items():
            if number in self._failed:
                writer.abort()
                continue
            found.append((rejects, writer.close()))
        return [
            *(TaskOutcome(number, result.to_bytes()) for number, result in found if result.rows),
            *(TaskOutcome(number, error=error) for number, error in self._failed.items()),
        ]

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
            table = _writer(self._targets[number], self._ids, alone=alone)
        self._tables[number] = table
        try:
            table.write(_joined(waiting))
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

    def _rejecting(self, branch: Branch, rows: pa.RecordBatch) -> TaskWriter:
        known = self._rejects.get(branch.table)
        if known is None:
            target = None if branch.rejects_table is None else self._targets.get(branch.rejects_table)
            if target is None or branch.rejects_table is None:
                raise no_rejects_table(rows)
            known = self._rejects[branch.table] = (branch.rejects_table, TaskWriter(target, *self._ids))
        return known[1]

    def _fail(self, number: int, error: StreamlakeError) -> None:
        self._failed.setdefault(number, error)
        self._taken(number)
        table = self._tables.pop(number, None)
        if table is not None:
            table.abort()


def _writer(target: WriteTarget, ids: Ids, *, alone: bool) -> TaskWriter:
    """The writer of one table. Its files may be finished, and others begun, whenever too many are open.

    `alone`: no other files are open, so that these may have all of the memory.
    """
    whole = target.options.memory_budget_bytes
    budget = whole if alone else min(whole, max(_SMALLEST_BUDGET, whole // MAX_OPEN))
    return TaskWriter(replace(target, options=replace(target.options, memory_budget_bytes=budget)), *ids)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(batches)
    return rows.combine_chunks() if rows.num_rows < len(batches) * _SHORT_CHUNK_ROWS else rows


def _copied(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of the batches in memory of their own."""
    rows = pa.Table.from_batches(batches)
    taken = rows.take(pa.array(np.arange(rows.num_rows))).combine_chunks()
    return taken.to_batches()[0]
