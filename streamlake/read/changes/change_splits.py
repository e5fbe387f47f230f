"""Change splits: what one task reads of changes, with rows that belong together in one piece.

The pieces of a snapshot that only adds rows, or only removes some, are files and parts of files. The pieces
of any other are all of its rows, or a part of them by key, each of which reads the same files. Pieces stay in
the order of the snapshots, and so do the splits that they are combined in. All values are frozen and pickle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from streamlake.read.changes.change_tasks import ChangedSnapshot, RowsTask, SnapshotChanges
from streamlake.read.splits.bin_packing import packed
from streamlake.read.splits.data_file_parts import FilePart
from streamlake.read.splits.scan_split import content_size

ROWS_PAIRED_AT_ONCE = 1_000_000
"""About so many rows of one snapshot does a task pair in memory, where they can be parted."""
_ROWS_READ_TOGETHER = 2_000_000


@dataclass(frozen=True)
class AddedPart:
    """The live rows of a part of a data file, as rows that a snapshot added."""

    snapshot: ChangedSnapshot
    part: FilePart

    @property
    def rows(self) -> int:
        """The number of rows, as metadata counts them, deleted ones included."""
        return self.part.rows

    @property
    def size(self) -> int:
        """The number of bytes of the data file."""
        return self.part.length

    @property
    def weight(self) -> tuple[int, int]:
        """Bytes to read, and files to open."""
        deletes = self.part.task.delete_files
        return self.size + sum(map(content_size, deletes)), 1 + len(deletes)


@dataclass(frozen=True)
class ChangedFile:
    """The rows of one data file that a snapshot added or removed, which are paired with no others."""

    snapshot: ChangedSnapshot
    task: RowsTask

    @property
    def rows(self) -> int:
        """About how many rows there are."""
        return self.task.rows_expected

    @property
    def size(self) -> int:
        """About how many bytes of the data file are read."""
        return self.task.size_expected

    @property
    def weight(self) -> tuple[int, int]:
        """Bytes to read, and files to open."""
        return _weight(self.task)


@dataclass(frozen=True)
class PairedChanges:
    """Part `part` of `parts` of all rows that snapshots changed, which are paired: those of each snapshot, or
    with `is_net` those of all of them together.
    """

    changes: tuple[SnapshotChanges, ...]
    part: int = 0
    parts: int = 1
    is_net: bool = False

    @property
    def rows(self) -> int:
        """About how many rows there are."""
        return sum(each.rows_expected for each in self.changes) // self.parts

    @property
    def size(self) -> int:
        """About how many bytes of data files are read for them; parts read the same ones."""
        return sum(task.size_expected for each in self.changes for task in each.tasks) // self.parts

    @property
    def weight(self) -> tuple[int, int]:
        """Bytes to read, and files to open."""
        weights = [_weight(task) for each in self.changes for task in each.tasks]
        return sum(size for size, _ in weights), sum(files for _, files in weights)


ChangePiece = AddedPart | ChangedFile | PairedChanges


@dataclass(frozen=True)
class ChangeSplit:
    """Pieces of changes that one task reads, in order."""

    pieces: tuple[ChangePiece, ...]

    @property
    def rows(self) -> int:
        """About how many rows there are to read."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def size(self) -> int:
        """About how many bytes of data files there are to read."""
        return sum(piece.size for piece in self.pieces)


def pieces_of(changes: SnapshotChanges, rows_in_memory: int | None) -> Iterator[ChangePiece]:
    """The pieces of one snapshot, none where it changed nothing.

    About `rows_in_memory` rows are paired at a time; None: all, because they cannot be parted.
    """
    if changes.is_one_sided:
        for task in changes.tasks:
            yield ChangedFile(changes.snapshot, task)
    else:
        yield from _parted([changes], rows_in_memory)


def gathered_pieces(pieces: Iterable[ChangePiece]) -> Iterator[ChangePiece]:
    """The pieces, with paired ones of successive snapshots in one, as long as they have few rows together.

    The old rows of updates lie in the same files, snapshot for snapshot; so each is read once for all.
    """
    last: PairedChanges | None = None
    for piece in pieces:
        if not isinstance(piece, PairedChanges) or piece.parts > 1:
            if last is not None:
                yield last
            yield piece
            last = None
        elif last is not None and last.rows + piece.rows <= _ROWS_READ_TOGETHER:
            last = replace(last, changes=last.changes + piece.changes)
        else:
            if last is not None:
                yield last
            last = piece
    if last is not None:
        yield last


def netted_pieces(changes: Sequence[SnapshotChanges], rows_in_memory: int | None) -> Iterator[PairedChanges]:
    """The pieces of snapshots whose changes are netted together; `rows_in_memory` as for `pieces_of`."""
    for piece in _parted(changes, rows_in_memory):
        yield replace(piece, is_net=True)


def _parted(changes: Sequence[SnapshotChanges], rows_in_memory: int | None) -> Iterator[PairedChanges]:
    found = tuple(each for each in changes if each.tasks)
    if not found:
        return
    rows = sum(each.rows_expected for each in found)
    parts = 1 if rows_in_memory is None else max(1, -(-rows // rows_in_memory))
    for part in range(parts):
        yield PairedChanges(found, part, parts)


def combined_in_order(
    pieces: Iterable[ChangePiece], split_size: int, open_file_cost: int
) -> Iterator[ChangeSplit]:
    """The pieces as splits of about `split_size` bytes at most, neighbours in a file joined again.

    Their order is kept, so that reading the splits one after the other gives the changes in the order of the
    snapshots.
    """

    def weight(piece: ChangePiece) -> int:
        size, files = piece.weight
        return max(size, files * open_file_cost)

    for found in packed(pieces, split_size, 0, weight):
        yield ChangeSplit(tuple(_joined(found)))


def _joined(pieces: Iterable[ChangePiece]) -> Iterator[ChangePiece]:
    last: ChangePiece | None = None
    for piece in pieces:
        if isinstance(last, AddedPart) and isinstance(piece, AddedPart) and last.part.joins(piece.part):
            last = AddedPart(last.snapshot, last.part.with_next(piece.part))
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _weight(task: RowsTask) -> tuple[int, int]:
    causes = () if task.deleted_by is None else task.deleted_by.delete_files
    deletes = {file.identity: content_size(file) for file in (*task.rows.delete_files, *causes)}
    return task.size_expected + sum(deletes.values()), 1 + len(deletes)
