"""Finds out which rows of the index are still in the table; other writers may have deleted some.

A value that a change leaves out comes from the row of its key. The index names every row of a live file that
no change of this stream has replaced, but it does not know deletes of other writers. So every step that takes
values over asks here first. Invariant: a row that a position delete, a deletion vector or an equality delete
removes is no source of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from streamlake.index.runs.lookup import Found
from streamlake.storage.file_io import FileIO
from streamlake.write.deletes.live_file import LiveFile
from streamlake.write.deletes.merged_deletes import deleted_before

Array = np.ndarray[Any, Any]


class KeyDeletes(Protocol):
    """Which rows of data files the equality deletes leave. Can be sent to executors."""

    def live_positions(self, path: str) -> Array | None:
        """The ascending positions of a data file's rows that no equality delete removes.

        None: no equality delete applies to the file.
        """
        ...


class SourceRows:
    """The source rows of one snapshot. Each delete file is read when it is first needed, and kept."""

    def __init__(
        self, io: FileIO, live_files: Mapping[str, LiveFile], key_deletes: KeyDeletes | None
    ) -> None:
        self._io = io
        self._live_files = live_files
        self._key_deletes = key_deletes
        self._positions: dict[str, tuple[Array, Array | None]] = {}

    def are_there(self, found: Found, asked: Array) -> Array:
        """(m,) bool for m rows that a look-up found: whether they are in the table.

        Only the rows in the mask `asked` are checked; all others are true.
        """
        there: Array = np.ones(len(found), dtype=bool)
        for number in np.unique(found.file[asked]).tolist():
            rows = np.flatnonzero(asked & (found.file == number))
            there[rows] = self.of_file(found.paths[number], found.positions[rows])
        return there

    def of_file(self, path: str, positions: Array) -> Array:
        """(n,) bool: which of n positions of a data file are in the table.

        All false when the file is not live.
        """
        live = self._live_files.get(path)
        if live is None:
            return np.zeros(len(positions), dtype=bool)
        if path not in self._positions:
            by_key = None if self._key_deletes is None else self._key_deletes.live_positions(path)
            self._positions[path] = deleted_before(self._io, live), by_key
        deleted, left = self._positions[path]
        there = ~np.isin(positions, deleted)
        return there if left is None else there & np.isin(positions, left)
