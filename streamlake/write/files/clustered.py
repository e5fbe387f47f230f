"""The clustered writer: rows of a partition come together, so one file is open and no row waits."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streamlake.errors import SchemaMismatchError
from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.files.partition_writer import PartitionWriter
from streamlake.write.rows.partitioner import Partitioner


class ClusteredWriter:
    """Writes partition after partition. Raises SchemaMismatchError when one returns after it was finished."""

    def __init__(
        self,
        partitioner: Partitioner,
        open_partition: Callable[[int], PartitionWriter],
        describe: Callable[[int], str],
    ) -> None:
        self._partitioner = partitioner
        self._open_partition = open_partition
        self._describe = describe
        self._current: int | None = None
        self._writer: PartitionWriter | None = None
        self._finished: set[int] = set()
        self._files: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Take rows of the table, clustered by partition."""
        for piece, runs in self._partitioner.split(rows, keep_order=True):
            for run in runs:
                self._writer_of(run.number).write(piece.slice(run.start, run.stop - run.start))

    def close(self) -> tuple[DataFile, ...]:
        """Finish the last partition and describe all files."""
        self._finish()
        return tuple(self._files)

    def abort(self) -> None:
        """Close what is open without finishing it; never raises."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def _writer_of(self, number: int) -> PartitionWriter:
        if self._writer is None or number != self._current:
            self._finish()
            if number in self._finished:
                raise SchemaMismatchError(
                    f"The rows are said to be clustered by partition, but {self._describe(number)} returned "
                    "after it was finished. Sort the input by the partition columns, or write with "
                    "input_order='fanout'."
                )
            self._current, self._writer = number, self._open_partition(number)
        return self._writer

    def _finish(self) -> None:
        if self._writer is None or self._current is None:
            return
        self._files.extend(self._writer.close())
        self._finished.add(self._current)
        self._writer = None
