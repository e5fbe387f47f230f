"""The sink's appends without Spark and without data: rows are numbers, data files exist by name only.

Everything from the recovery of what a predecessor staged to the swap is the product's (`run_micro_batch`, `SinkRun`);
here are the parts around it: Spark's checkpoint directory, and a catalog that keeps its pointer in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import Noted
from streamlake.errors import CommitConflictError, CommitStateUnknownError, StorageError, StreamlakeError
from streamlake.pipeline.runs.commit_queue import CommitQueue, Work
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.operations import TableOperations
from streamlake.table.table import Table
from streamlake.write.files.result import WriteResult
from tests.helpers.memory_files import MemoryFileIO

LOCATION = "memory:/t"
PIPELINE = "p"
_names = count()


@dataclass
class Directory:
    """A checkpoint directory of Spark's: where each checkpoint ends, how many Spark has committed, and our note."""

    job_id: str
    ends: list[int] = field(default_factory=list)
    committed: int = 0
    note: Noted | None = None

    def copy(self) -> Directory:
        return replace(self, ends=list(self.ends))

    def plan(self, rows: int) -> None:
        """Spark's offset log: a new checkpoint of so many rows, unless there is one that is not committed."""
        if len(self.ends) == self.committed:
            self.ends.append((self.ends[-1] if self.ends else 0) + rows)

    def lose(self, offsets: int, commits: int) -> None:
        """A loss of power takes the newest so many entries of Spark's offset log, and of its commit log: neither is synced.
        Spark runs its last planned checkpoint again when that has no entry there, and none before it."""
        del self.ends[max(0, len(self.ends) - offsets) :]
        self.committed = min(self.committed, len(self.ends))
        if commits and self.committed == len(self.ends) > 0:
            self.committed -= 1

    def logged(self, checkpoint_id: int) -> tuple[str, ...] | None:
        """Where a checkpoint ends by Spark's offset log."""
        return (str(self.ends[checkpoint_id]),) if checkpoint_id < len(self.ends) else None

    def identity(self, checkpoint_id: int) -> CheckpointIdentity:
        start = (str(self.ends[checkpoint_id - 1]),) if checkpoint_id else ()
        return CheckpointIdentity(
            PIPELINE, self.job_id, checkpoint_id, start, (str(self.ends[checkpoint_id]),)
        )


class Note:
    """CheckpointTable over a Directory in memory. A driver stands still before it compares the note or after it has written
    one, not between the two, which takes a file system milliseconds."""

    def __init__(self, directory: Directory, io: MemoryFileIO) -> None:
        self._directory = directory
        self._io = io

    def read(self) -> Noted | None:
        self._io.step(lambda: None)
        return self._directory.note

    def others(self) -> list[str]:
        return []

    def write(self, noted: Noted) -> None:
        self._io.step(lambda: setattr(self._directory, "note", noted), undisturbed=True)


@dataclass
class Pointer:
    """What a catalog service keeps of one table."""

    metadata: TableMetadata


class ServiceOperations:
    """TableOperations with a compare-and-swap in memory, whose answer may be lost and whose request may be late."""

    def __init__(self, pointer: Pointer, io: MemoryFileIO) -> None:
        self._pointer = pointer
        self._seen = pointer.metadata
        self.io = io
        self.name = self.location = LOCATION

    def current(self) -> TableMetadata:
        return self._seen

    def refresh(self) -> TableMetadata:
        self.io.exists(LOCATION)
        self._seen = self._pointer.metadata
        return self._seen

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        def effect() -> None:
            if self._pointer.metadata is not base:
                raise CommitConflictError("another writer was first")
            self._pointer.metadata = new

        if base is not self._seen:
            raise CommitConflictError("made on an older version")
        if new is base:
            return base
        try:
            self.io.step(effect, swap=True)
        except StorageError as error:
            raise CommitStateUnknownError(f"the answer was lost: {error}") from error
        self._seen = new
        return new

    @contextmanager
    def commit_turn(self) -> Iterator[None]:
        yield


class LateQueue(CommitQueue):
    """A queue without a thread: commits as late as it may, in the thread that adds to it."""

    def put(self, work: Work) -> None:
        self._check()
        self._used = True
        self._waiting.append(work)
        while len(self._waiting) >= self._limit:
            self._commit_one()

    def drain(self) -> BaseException | None:
        while self._waiting and self._error is None:
            self._commit_one()
        return self._error

    def _commit_one(self) -> None:
        try:
            self._deliver(self._waiting[0]())
        except StreamlakeError as error:
            self._error = error
            raise
        self._waiting.popleft()


def open_memory_table(io: MemoryFileIO, pointer: Pointer | None) -> Table:
    """The table as a driver opens it: of a service where there is a `pointer`, else of the Hadoop catalog."""
    operations: TableOperations = (
        HadoopTableOperations(LOCATION, io) if pointer is None else ServiceOperations(pointer, io)
    )
    operations.refresh()
    return Table(LOCATION, operations)


def named_file(rows: Sequence[int]) -> DataFile:
    """A data file of these rows, by name only."""
    path = f"{LOCATION}/data/{rows[0]}-{rows[-1]}-{next(_names)}.parquet"
    return DataFile(FileContent.DATA, path, "parquet", 0, (), len(rows), 10 * len(rows))


class AppendRun(SinkRun):
    """A SinkRun that is given a checkpoint's rows as the lists that go into one data file each."""

    def __init__(
        self,
        table: Table,
        directory: Directory,
        io: MemoryFileIO,
        told: Callable[[str, Sequence[int]], None],
        queue: CommitQueue | None = None,
    ) -> None:
        super().__init__(
            table,
            cast(CheckpointTable, Note(directory, io)),
            RunSettings(
                job_id=directory.job_id,
                run_id="run",
                branch="main",
                mode="append",
                max_continuous_empty_commits=3,
                queue=queue,
            ),
        )
        self._told = told
        self._io = io

    def write(self, frame: Any, identity: CheckpointIdentity) -> list[WriteResult]:
        files = []
        for rows in frame:
            files.append(named_file(rows))
            self._io.place(files[-1].file_path)
            self._told(files[-1].file_path, rows)
        return [
            WriteResult(
                identity.job_id, identity.checkpoint_id, 0, 0, tuple(files), rows=sum(map(len, frame))
            )
        ]
