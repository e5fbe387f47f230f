"""Which rows that the index knows are still in the table: another writer may have deleted some of them since.

A value that a change leaves out comes from the row of its key. The index names every row of a live file that no own change has
replaced, and is not told of deletes by others. So whoever takes values over asks here first. Invariant: a row that a position
delete, a deletion vector or an equality delete takes out is no source of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from streamlake.index.lookup import Found
from streamlake.storage.file_io import FileIO
from streamlake.write.live_file import LiveFile
from streamlake.write.merged_deletes import deleted_before

Array = Any  # numpy array


class KeyDeletes(Protocol):
    """What equality deletes leave of data files. Travels to executors."""

    def live_positions(self, path: str) -> Array | None:
        """The positions of a data file's rows that no equality delete takes out, ascending; None: none applies to the file."""
        ...


class SourceRows:
    """Those of one snapshot. Each delete file is read when it is first needed, and kept."""

    def __init__(
        self, io: FileIO, live_files: Mapping[str, LiveFile], key_deletes: KeyDeletes | None
    ) -> None:
        self._io = io
        self._live_files = live_files
        self._key_deletes = key_deletes
        self._positions: dict[str, tuple[Array, Array | None]] = {}

    def are_there(self, found: Found, asked: Array) -> Array:
        """(m,) bool for the m rows that a look-up found: whether each of those in the mask `asked` is in the table; true for
        others."""
        there: Array = np.ones(len(found), dtype=bool)
        for number in np.unique(found.file[asked]).tolist():
            rows = np.flatnonzero(asked & (found.file == number))
            there[rows] = self.of_file(found.paths[number], found.positions[rows])
        return there

    def of_file(self, path: str, positions: Array) -> Array:
        """(n,) bool: which of n positions of a data file are in the table; none where it is not live."""
        live = self._live_files.get(path)
        if live is None:
            return np.zeros(len(positions), dtype=bool)
        if path not in self._positions:
            by_key = None if self._key_deletes is None else self._key_deletes.live_positions(path)
            self._positions[path] = deleted_before(self._io, live), by_key
        deleted, left = self._positions[path]
        there = ~np.isin(positions, deleted)
        return there if left is None else there & np.isin(positions, left)
