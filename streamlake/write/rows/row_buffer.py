"""Holds rows of many partitions that wait for their files, in bounded memory.

The buffer keeps whole tables ("stretches") and, per partition, where its rows are in them. Nothing is copied
or even sliced until the rows are taken. Taking some partitions leaves holes, which `compact` closes.
Invariant: after `compact`, the memory held is that of the waiting rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamlake.write.rows.partitioner import PartitionRun

_SHORT_CHUNK_ROWS = 512


class RowBuffer:
    """Waiting rows by partition number.

    The bytes of a partition are its share of the rows, times the bytes of the stretch.
    """

    def __init__(self) -> None:
        self._stretches: list[pa.Table] = []
        self._places: dict[int, list[tuple[int, int, int]]] = {}
        self._bytes: dict[int, float] = {}
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory that the buffer keeps alive, holes included."""
        return self._held_bytes

    @property
    def waiting_bytes(self) -> float:
        """Bytes of the rows that wait."""
        return sum(self._bytes.values())

    def partitions(self) -> list[int]:
        """Numbers of the partitions that have rows, in the order in which they came."""
        return list(self._places)

    def largest_first(self) -> list[tuple[int, float]]:
        """(partition number, bytes) of all partitions, the largest first."""
        return sorted(self._bytes.items(), key=lambda item: -item[1])

    def add(self, rows: pa.Table, runs: list[PartitionRun]) -> None:
        """Keep `rows`, which consist of `runs`."""
        if not rows.num_rows:
            return
        at = len(self._stretches)
        self._stretches.append(rows)
        size = rows.nbytes
        self._held_bytes += size
        per_row = size / rows.num_rows
        for run in runs:
            self._places.setdefault(run.number, []).append((at, run.start, run.stop))
            self._bytes[run.number] = self._bytes.get(run.number, 0.0) + (run.stop - run.start) * per_row

    def take(self, number: int) -> pa.Table:
        """Remove a partition's rows and return them, in the order in which they came."""
        del self._bytes[number]
        return self._slices(self._places.pop(number))

    def compact(self) -> None:
        """Copy the rows that still wait, so that the memory of those that were taken is freed."""
        kept, runs, start = [], [], 0
        for number in self.partitions():
            rows = self.take(number)
            kept.append(rows)
            runs.append(PartitionRun(number, start, start + rows.num_rows))
            start += rows.num_rows
        self._stretches, self._held_bytes = [], 0
        if kept:
            self.add(_copied(pa.concat_tables(kept)), runs)

    def _slices(self, places: list[tuple[int, int, int]]) -> pa.Table:
        rows = pa.concat_tables(
            [self._stretches[at].slice(start, stop - start) for at, start, stop in places]
        )
        # Encoders have a cost per chunk, so short chunks are joined.
        return rows.combine_chunks() if rows.num_rows < len(places) * _SHORT_CHUNK_ROWS else rows


def _copied(rows: pa.Table) -> pa.Table:
    """The rows in memory of their own. `combine_chunks` alone would keep a single chunk where it is."""
    single = all(column.num_chunks == 1 for column in rows.columns)
    return rows.take(pa.array(np.arange(rows.num_rows))) if single else rows.combine_chunks()
