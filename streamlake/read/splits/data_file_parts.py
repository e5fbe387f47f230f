"""File parts: the smallest pieces that a data file is read in, and that offsets count.

A Parquet or ORC file is cut at its split offsets (row groups, stripes), or every `split_size` bytes where
metadata has none; a row group or stripe belongs to the part in which it starts. Avro files are read whole: a
row's position is known only by reading the blocks before it. Invariant: every row of a file is in
exactly one of its parts, whatever the split offsets in metadata are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from streamlake.formats.columns.file_batches import Split
from streamlake.read.planning import FileScanTask

_ALL = 1 << 62
_CUT = ("parquet", "orc")


@dataclass(frozen=True)
class FilePart:
    """Bytes `start` up to `stop` of the data file of a task.

    `rows` is the number of its rows, estimated from the file's where it is not the whole file. `is_first` and
    `is_last`: it begins at the beginning of the file, and goes to its end, whatever metadata says where row
    groups are.
    """

    task: FileScanTask
    start: int
    stop: int
    rows: int
    is_first: bool
    is_last: bool

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.stop - self.start

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return self.is_first and self.is_last

    @property
    def split(self) -> Split | None:
        """What restricts a reader to the part: (offset, length); None for the whole file."""
        if self.is_whole:
            return None
        start = 0 if self.is_first else self.start
        return start, _ALL if self.is_last else self.stop - start

    def joins(self, other: FilePart) -> bool:
        """Whether `other` is of the same file and begins where this part ends."""
        return self.task is other.task and self.stop == other.start and not self.is_last

    def with_next(self, other: FilePart) -> FilePart:
        """This part and the one that joins it as one."""
        rows = self.rows + other.rows
        return FilePart(self.task, self.start, other.stop, rows, self.is_first, other.is_last)


def file_parts(task: FileScanTask, split_size: int) -> Iterator[FilePart]:
    """The parts of a task's file in file order; at least one."""
    file = task.data_file
    size = file.file_size_in_bytes
    bounds = [*_starts(task, split_size), size]
    if len(bounds) == 2:
        yield FilePart(task, bounds[0], size, file.record_count, is_first=True, is_last=True)
        return
    before = 0
    for start, stop in pairwise(bounds):
        up_to = file.record_count * stop // size
        yield FilePart(task, start, stop, up_to - before, start == bounds[0], stop == size)
        before = up_to


def _starts(task: FileScanTask, split_size: int) -> list[int]:
    """Where parts start, none beyond the end of the file. What comes before the first one belongs to it."""
    file = task.data_file
    if file.file_format.lower() not in _CUT:
        return [0]
    offsets = file.split_offsets
    if offsets and all(low < high for low, high in pairwise(offsets)):
        found = [each for each in offsets if 0 <= each < file.file_size_in_bytes]
        return found or [0]
    return list(range(0, max(file.file_size_in_bytes, 1), split_size))
