"""The position map of a compaction: where each live row of the old files is in the new ones.

Rows that follow one another in an old file and in a new one are one stretch. So a map grows with the number
of deleted rows and of files; after a sort it has 16 bytes a row. Invariant: a position is in the map exactly
when the compaction wrote its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamlake.index.runs.file_moves import FileMoves, Moved

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class PositionMap:
    """Where the rows of old files went.

    `files` are the paths of the new ones by number, `moves` is by the path of the old file.
    """

    files: tuple[str, ...] = ()
    moves: Mapping[str, FileMoves] = field(default_factory=dict)

    def carried(self, path: str, positions: Array) -> dict[str, Array]:
        """The positions of an old file as positions of new files, by path, ascending; without those that had
        been deleted before.
        """
        return self._by_file(self.moves[path].moved(positions))

    def all_of(self, path: str) -> dict[str, Array]:
        """All rows of an old file as positions of new files, as `carried` gives them."""
        moves = self.moves[path]
        ends: Array = np.cumsum(moves.rows, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        ahead = np.arange(total) - np.repeat(ends - moves.rows, moves.rows)
        new = np.repeat(moves.new.astype(np.int64), moves.rows) + ahead
        return self._by_file(Moved(np.ones(total, dtype=bool), np.repeat(moves.files, moves.rows), new))

    def _by_file(self, moved: Moved) -> dict[str, Array]:
        order = np.lexsort((moved.positions, moved.files))
        files, places = moved.files[order], moved.positions[order]
        edges: Array = np.flatnonzero(files[1:] != files[:-1]) + 1
        parts = zip(np.split(files, edges), np.split(places, edges), strict=True)
        return {self.files[part[0]]: found for part, found in parts if len(part)}


class MovesRecorder:
    """Records where the rows of one group's files are written, batch by batch."""

    def __init__(self) -> None:
        self._parts: dict[int, list[FileMoves]] = {}

    def add(self, number: int, old: Array, files: Array, new: Array) -> None:
        """Record n rows of the old file `number`: ascending positions there, and places; (n,) each."""
        if len(old):
            self._parts.setdefault(number, []).append(_stretches(old, files, new))

    def add_mixed(self, numbers: Array, old: Array, files: Array, new: Array) -> None:
        """Record n rows of several old files in any order."""
        if len(old) and bool((numbers == numbers[0]).all()) and bool((old[1:] > old[:-1]).all()):
            self.add(int(numbers[0]), old, files, new)
            return
        order = np.lexsort((old, numbers))
        edges: Array = np.flatnonzero(np.diff(numbers[order])) + 1
        for part in np.split(order, edges) if len(order) else ():
            self.add(int(numbers[part[0]]), old[part], files[part], new[part])

    def map(self, old_paths: Sequence[str], new_paths: Sequence[str]) -> PositionMap:
        """The map; paths are by number."""
        moves = {path: _joined(self._parts.get(number, [])) for number, path in enumerate(old_paths)}
        return PositionMap(tuple(new_paths), moves)


def _stretches(old: Array, files: Array, new: Array) -> FileMoves:
    """Rows with ascending `old` as stretches."""
    breaks = (np.diff(old) != 1) | (np.diff(new) != 1) | (files[1:] != files[:-1])
    first = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    rows = np.diff(np.append(first, len(old)))
    return FileMoves(*map(_narrowed, (old[first], rows, files[first], new[first])))


def _joined(parts: Sequence[FileMoves]) -> FileMoves:
    if not parts:
        nothing = np.empty(0, dtype=np.uint32)
        return FileMoves(nothing, nothing, nothing, nothing)
    columns = [
        np.concatenate([getattr(part, name) for part in parts]) for name in ("old", "rows", "files", "new")
    ]
    if (columns[0][1:] < columns[0][:-1]).any():
        order = np.argsort(columns[0], kind="stable")
        columns = [column[order] for column in columns]
    return FileMoves(*columns)


def _narrowed(values: Array) -> Array:
    narrow: Array = values.astype(np.int64 if len(values) and int(values.max()) >> 32 else np.uint32)
    return narrow
