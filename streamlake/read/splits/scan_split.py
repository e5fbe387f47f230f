"""Scan splits: what one task reads. Parts of files, combined by size, with the deletes that apply to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamlake.read.splits.bin_packing import packed
from streamlake.read.splits.data_file_parts import FilePart
from streamlake.spec.metadata.data_file import DataFile


@dataclass(frozen=True)
class ScanSplit:
    """Parts of files that one task reads, in order. Frozen and picklable."""

    parts: tuple[FilePart, ...]

    @property
    def rows(self) -> int:
        """The number of rows, as metadata counts them, deleted ones included."""
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """The number of bytes of data files."""
        return sum(part.length for part in self.parts)


def combined(
    parts: Iterable[FilePart], split_size: int, lookback: int, open_file_cost: int
) -> Iterator[ScanSplit]:
    """The parts as splits (Iceberg's `TableScanUtil.planTasks`), neighbours in a file joined again."""

    def weight(part: FilePart) -> int:
        deletes = part.task.delete_files
        return max(part.length + sum(map(content_size, deletes)), (1 + len(deletes)) * open_file_cost)

    for items in packed(parts, split_size, lookback, weight):
        yield ScanSplit(tuple(_joined(items)))


def _joined(parts: Iterable[FilePart]) -> Iterator[FilePart]:
    last: FilePart | None = None
    for part in parts:
        if last is not None and last.joins(part):
            last = last.with_next(part)
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


def content_size(file: DataFile) -> int:
    """The bytes of a delete file that are read: of a deletion vector its blob."""
    return file.file_size_in_bytes if file.content_size_in_bytes is None else file.content_size_in_bytes
