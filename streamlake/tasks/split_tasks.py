"""The tasks of a query that reads a table: splits in, rows written or shuffle blocks out.

    append   the task that reads a split writes its rows too
    upsert   a task turns splits into shuffle blocks, and another writes those of a bucket; see `table_tasks`

They run on the executors. Invariant: rows come in the order of the splits and of the rows in them, so that of
two changes of a key the later one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from streamlake.tasks.intake import Batches, KeyRoute
from streamlake.tasks.shuffle_block_task import ORDER_BITS
from streamlake.tasks.shuffle_blocks import noted, packed_error
from streamlake.tasks.table_tasks import outcome_of
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.tasks.watermarks import Watermarks
from streamlake.tasks.worker_memory import keep_freed_memory
from streamlake.tasks.worker_paths import keep_archive_directories
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import TaskContext, write_rows

ONLY_TABLE = 0
"""The number of the one table that such a query writes."""

Splits = Iterator[Any]
SplitTask = Callable[[Splits], Batches]
"""Splits of one Spark task in, Arrow batches out."""


class SplitRows(Protocol):
    """What reads the splits of a table. Frozen and picklable; called once per split of a task, in order."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows."""
        ...

    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a split, the same whenever they are read."""
        ...


@dataclass(frozen=True)
class SplitReader:
    """Reads splits as rows with these `columns`. `watermark_column` is one of the columns of `scan`, None for
    no watermark; `part` is the source table's name there.
    """

    scan: SplitRows
    columns: tuple[str, ...]
    watermark_column: str | None = None
    part: str = ""

    def rows(self, splits: Iterable[Any], times: Watermarks) -> Iterator[pa.RecordBatch]:
        """The rows of the splits. Raises DataInvalidError, StorageError for files that cannot be read."""
        names = list(self.columns)
        is_all = self.scan.arrow_schema.names == names
        for split in splits:
            for rows in self.scan.read(split):
                times.see_rows(self.part, rows)
                yield rows if is_all else rows.select(names)


@dataclass(frozen=True)
class AppendSplits:
    """A SplitTask that writes the rows of its splits and gives the outcome."""

    reader: SplitReader
    target: WriteTarget
    context: TaskContext

    def __call__(self, splits: Splits) -> Batches:
        """The outcome of the table."""
        keep_archive_directories()
        keep_freed_memory()
        times = Watermarks(self.reader.watermark_column)
        write = partial(write_rows, self.target, self.reader.rows(splits, times), *self.context())
        yield from outcome_of(ONLY_TABLE, write, times.taken)


@dataclass(frozen=True)
class SplitBlocks:
    """A SplitTask that turns the rows of its splits into shuffle blocks of changes."""

    reader: SplitReader
    route: KeyRoute
    context: TaskContext

    def __call__(self, splits: Splits) -> Batches:
        """The shuffle blocks; an error takes the place of the rows after it."""
        keep_archive_directories()
        keep_freed_memory()
        order = self.context()[0] << ORDER_BITS
        times = Watermarks(self.reader.watermark_column)
        try:
            for rows in self.reader.rows(splits, times):
                yield from noted(self.route.shuffle_blocks(rows, order), times.taken())
                order += rows.num_rows
        except FINAL_ERRORS as error:
            yield packed_error(self.route.first_slot, order, error)
