"""Moved places: the present places of a run's rows, some of whose data files were compacted since.

Built when a run with position maps is opened; `blocks` asks it for each entry that it gives out. Invariant: a
row that a map does not move stays where it was, in a file that is not live: it was deleted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamlake.index.runs.entries import RunFile
from streamlake.index.runs.position_map_file import MapFile

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class _Step:
    """What one map says.

    `old` (files,) are the numbers in the map of the files known so far, -1 for files that it does not move;
    `new` are the ordinals of its new files.
    """

    map: MapFile
    old: Array
    new: Array


@dataclass(frozen=True, eq=False)
class MovedPlaces:
    """`paths` are the files of the run, and those that their rows have moved to."""

    paths: tuple[RunFile, ...]
    _steps: tuple[_Step, ...]

    @staticmethod
    def of(paths: Sequence[RunFile], maps: Sequence[MapFile]) -> MovedPlaces | None:
        """The present places for a run that refers to `paths`, by maps oldest first; None: nothing moved."""
        ordinals = {file.path: at for at, file in enumerate(paths)}
        known = list(paths)
        steps = []
        for map_ in maps:
            old = np.array([map_.number_of(file.path) for file in known], dtype=np.int64)
            if (old < 0).all():
                continue
            new: Array = np.full(len(map_.new_files), -1, dtype=np.int32)
            reached = {number for at in old[old >= 0].tolist() for number in map_.old_files[at][1]}
            for number in sorted(reached):
                path, _ = map_.new_files[number]
                if path not in ordinals:
                    ordinals[path] = len(known)
                    known.append(RunFile(path, own=False))
                new[number] = ordinals[path]
            steps.append(_Step(map_, old, new))
        return MovedPlaces(tuple(known), tuple(steps)) if steps else None

    def places(self, files: Array, positions: Array) -> tuple[Array, Array]:
        """Ordinals of files (int32) and positions (int64) of n rows, given those that the run has."""
        for step in self._steps:
            old = step.old[files]
            asked = np.flatnonzero(old >= 0)
            if not len(asked):
                continue
            numbers, places = step.map.places(old[asked], positions[asked])
            moved = asked[numbers >= 0]
            files, positions = files.copy(), positions.copy()
            files[moved] = step.new[numbers[numbers >= 0]]
            positions[moved] = places[numbers >= 0]
        return files, positions
