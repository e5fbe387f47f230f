"""The offset ranges of a micro-batch, passed to its tasks together with their code.

Place in the flow: after `direct_offsets`, which finds the ranges on the driver. So the tasks of the direct
path need no read stage before theirs, which would cost a Python worker per core. Invariant: a replay gets the
same records, in the same order of ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamlake.records import OFFSET_RANGES
from streamlake.source.offsets import OffsetRange, at_most, grouped
from streamlake.tasks.intake import Batches

Task = Callable[[Batches], Batches]


class RangeFrame:
    """Ranges as the input of tasks: one range per task, or several small ones; see `grouped`. They keep their
    order: an earlier range is in an earlier partition, or earlier in the same one.
    """

    def __init__(
        self, session: SparkSession, ranges: Sequence[OffsetRange], min_partitions: int | None = None
    ) -> None:
        self.session = session
        self.ranges = tuple(ranges)
        self._tasks = max(session.sparkContext.defaultParallelism, min_partitions or 1, 1)
        self._groups = tuple(tuple(group) for group in grouped(ranges, self._tasks))

    def groups(
        self, of: Callable[[str], int | None], limits: Mapping[int, int]
    ) -> Sequence[Sequence[OffsetRange]]:
        """The ranges that each task gets. Those of a table with a limit are in no more groups than that; `of`
        gives the number of a topic's table.
        """
        return limited(self.ranges, self._tasks, of, limits) if limits else self._groups

    def together(self, groups: Sequence[Sequence[OffsetRange]], most: int, task: Task, ddl: str) -> DataFrame:
        """Like `tasks`, with one batch for each of these groups, in at most `most` tasks."""
        count = len(groups)
        numbers = self.session.range(0, count, 1, max(min(count, most), 1))
        return numbers.mapInArrow(_OfGroups(task, tuple(map(tuple, groups))), ddl)

    def tasks(self, task: Task, ddl: str) -> DataFrame:
        """The rows, with the schema `ddl`, that `task` makes from batches with the schema OFFSET_RANGES."""
        count = len(self._groups)
        numbers = self.session.range(0, count, 1, max(count, 1))
        return numbers.mapInArrow(_OfGroups(task, self._groups), ddl)


def limited(
    ranges: Sequence[OffsetRange], tasks: int, of: Callable[[str], int | None], limits: Mapping[int, int]
) -> list[list[OffsetRange]]:
    """The ranges of each table in `limits` in no more groups than its limit, those of all others as for
    `tasks` tasks.
    """
    by_table: dict[int, list[OffsetRange]] = {}
    others = []
    for piece in ranges:
        table = of(piece.topic)
        if table is None or table not in limits:
            others.append(piece)
        else:
            by_table.setdefault(table, []).append(piece)
    few = [group for table, own in by_table.items() for group in at_most(own, limits[table])]
    return [*few, *grouped(others, tasks)]


@dataclass(frozen=True)
class _OfGroups:
    """Gives a task the ranges for the group numbers in its batches."""

    task: Task
    groups: tuple[tuple[OffsetRange, ...], ...]

    def __call__(self, batches: Batches) -> Batches:
        return self.task(
            _batch(self.groups[number]) for batch in batches for number in batch.column(0).to_pylist()
        )


def _batch(ranges: Sequence[OffsetRange]) -> pa.RecordBatch:
    rows = [(piece.topic, piece.partition, piece.start, piece.until, piece.topic_id) for piece in ranges]
    columns = [
        pa.array(list(column), part.type)
        for column, part in zip(zip(*rows, strict=True), OFFSET_RANGES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OFFSET_RANGES)
