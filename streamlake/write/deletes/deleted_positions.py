"""Collects the positions of deleted rows by data file, as look-ups find them."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.formats.deletes.position_deletes import merged_positions
from streamlake.index.runs.lookup import Found

Array = np.ndarray[Any, Any]


class DeletedPositions:
    """Positions of deleted rows, by data file."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {}

    def add(self, path: str, positions: Array) -> None:
        """Add `positions` (n,) int64 of rows in the file at `path`, in any order."""
        self._parts.setdefault(path, []).append(positions)

    def add_found(self, found: Found, which: Array | None = None) -> None:
        """Add the rows of a look-up: those in the mask `which`, or all."""
        files, positions = found.file, found.positions
        if which is not None:
            files, positions = files[which], positions[which]
        if not len(files):
            return
        order = np.argsort(files, kind="stable")
        edges: Array = np.flatnonzero(np.diff(files[order])) + 1
        for part in np.split(order, edges):
            self.add(found.paths[files[part[0]]], positions[part])

    def by_file(self) -> dict[str, Array]:
        """Path -> ascending positions, each once."""
        return {path: merged_positions(parts) for path, parts in self._parts.items()}
