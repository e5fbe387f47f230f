"""The file parts of one snapshot in planning order, planned while they are taken.

What was planned and is not yet read is kept, so that a first scan that is read in many micro-batches is
planned once. Invariant: from one position the same parts follow, whether they were kept or are planned anew,
and whatever could not be read in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from streamlake.read.splits.data_file_parts import FilePart, file_parts
from streamlake.read.splits.numbered_files import SnapshotFiles
from streamlake.source.iceberg.table_offset import FilePosition


class NumberedPart(NamedTuple):
    """A part of a file, with its position in the snapshot."""

    at: FilePosition
    part: FilePart


class SnapshotParts:
    """The parts of one snapshot from a position on. Not thread-safe."""

    def __init__(self, files: SnapshotFiles, split_size: int, first: FilePosition) -> None:
        self._files = files
        self._split_size = split_size
        self._first = first
        self._kept: deque[NumberedPart] = deque()
        self._planned = self._plan()

    def has(self, position: FilePosition) -> bool:
        """Whether the parts from a position on can be taken."""
        return position >= self._first

    def since(self, position: FilePosition) -> Iterator[NumberedPart]:
        """The parts from a position on. One iteration at a time."""
        for each in tuple(self._kept):
            if each.at >= position:
                yield each
        while (more := self._next()) is not None:
            self._kept.append(more)
            if more.at >= position:
                yield more

    def forget(self, position: FilePosition) -> None:
        """Keep only the parts from a position on."""
        self._first = max(self._first, position)
        while self._kept and self._kept[0].at < position:
            self._kept.popleft()

    def _next(self) -> NumberedPart | None:
        """The next part that is not kept yet; None at the end of the snapshot."""
        try:
            return next(self._planned, None)
        except BaseException:
            # A generator that has raised says from then on that it is at its end.
            self._kept.clear()
            self._planned = self._plan()
            raise

    def _plan(self) -> Iterator[NumberedPart]:
        first = self._first
        for number, task in self._files.since(first.file):
            for at, part in enumerate(file_parts(task, self._split_size)):
                if (number, at) >= first:
                    yield NumberedPart(FilePosition(number, at), part)
