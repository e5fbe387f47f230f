"""A table, its operators and other writers, and drivers that stream into it: what the model of the protocol acts on.

The stream is the numbers 0, 1, 2, ...; those that leave 3 when divided by 4 are filtered out, so that a checkpoint may be
empty and still move on. `check` holds after everything that happens: no row is live twice, and every row that Spark was
told to be done is live, except what an operator took (a rollback, a dropped table). And a checkpoint may only end well
when everything up to its end is there once, whatever an operator took: else the driver has to refuse. Where writing runs
`ahead` of committing, what is staged counts as there; `finish` sees to it that it comes into the table.

Where the power goes, everybody on the machine does, with what was not synced: our files by chance, of Spark's logs the
newest entries. Of that nothing may be lost either, and only the loss of Spark's logs (`logs_lost`) may have to be refused.

One thing nobody can know (`blind`): a rollback after which another writer has committed, and all snapshots from before
that commit have expired, looks like a history that is merely short.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.checkpoint.store import staged_by_all_jobs
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    FencedError,
    LineageError,
    StorageError,
    StreamlakeError,
    TableNotFoundError,
)
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.runs.micro_batch import run_micro_batch
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.durability import FSYNC
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_ref
from tests.helpers.invariants import check_table
from tests.helpers.local_appends import (
    LOCATION,
    AppendRun,
    Directory,
    LateQueue,
    Pointer,
    named_file,
    open_memory_table,
)
from tests.helpers.memory_files import Died, Fault, MemoryFileIO, MemoryFiles

REFUSALS = (LineageError, FencedError, DataInvalidError, TableNotFoundError)
MEANWHILE = ("successor", "successor twice", "append", "compact", "expire", "roll back")
"""Who may act while a driver stands still."""
TROUBLE = (StorageError, CommitStateUnknownError, CommitConflictError)
_PROPERTIES = {
    "commit.retry.min-wait-ms": "1",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.num-retries": "1",
    "commit.manifest.min-count-to-merge": "4",
}


def due(end: int) -> set[int]:
    """The rows that are in the table when the stream is done up to `end`."""
    return {row for row in range(end) if row % 4 != 3}


@dataclasses.dataclass
class Driver:
    """A running query: its state in memory, gone when it ends."""

    directory: Directory
    io: MemoryFileIO
    run: SinkRun | None = None
    failed: bool = False


class World:
    """One table (`service`: of a catalog service, else of the Hadoop catalog) and everything around it. Streams may have
    `ahead` checkpoints pending. `fsync` is the table's property."""

    definition = TableDefinition(parse_ddl("id long"))

    def __init__(self, *, service: bool = False, ahead: int = 1, fsync: bool = True) -> None:
        self._fsync = fsync
        self.files = MemoryFiles()
        self.rows_of: dict[str, tuple[int, ...]] = {}
        self.pointer: Pointer | None = None
        self.directories = [Directory("job-0")]
        self.at = 0
        self.drivers: dict[int, Driver] = {}
        self.done = 0
        """Spark was told that the stream is done up to here."""
        self.taken: set[int] = set()
        """Rows of it that an operator's action took."""
        self.blind: set[int] = set()
        """Those of which the table's history no longer tells that they were taken."""
        self.undone: set[int] = set()
        """Rows that a rollback took before Spark heard of their commit."""
        self.suspect = False
        """Whether an operator did what may have to be refused."""
        self.rivals = False
        """Whether two drivers may live in one directory: whichever has started last goes on."""
        self.logs_lost = False
        """Whether Spark's own logs have lost entries."""
        self.once_planned: list[int] = []
        """Where checkpoints end that they have lost."""
        self.receipts: list[CommitReceipt] = []
        self.heads: list[int] = []
        self.late: list[Callable[[], None]] = []
        self._rolling_back = False
        self._before_rollback: set[int] = set()
        self._foreign = 0
        self._tables = 0
        self._entries: dict[str, list[tuple[bool, DataFile]]] = {}
        self._service = service
        self.ahead = ahead
        self._create()

    # Drivers

    @property
    def directory(self) -> Directory:
        return self.directories[self.at]

    @property
    def driver(self) -> Driver | None:
        return self.drivers.get(self.at)

    def restart(self) -> None:
        """The driver of the present directory is gone, and the next checkpoint is a new one's."""
        self.drivers.pop(self.at, None)

    def checkpoint(self, rows: int = 2, files: int = 1, fault: Fault | None = None) -> str:
        """The next checkpoint, or Spark's replay of the last one; returns how it ended.

        A failed query is not restarted: its user's function tries the same micro-batch again.
        """
        directory = self.directory
        directory.plan(rows)
        checkpoint_id = directory.committed
        end = directory.ends[checkpoint_id]
        start = directory.ends[checkpoint_id - 1] if checkpoint_id else 0
        identity = directory.identity(checkpoint_id)
        driver = self.drivers.get(self.at)
        if driver is None:
            driver = self.drivers[self.at] = Driver(directory, MemoryFileIO(self.files))
        at = self.at
        driver.io.fault = fault
        self._rolling_back = fault is not None and fault.meanwhile == self._roll_back_one
        succeeded = False
        try:
            if driver.run is None:
                driver.run = self._opened(driver, checkpoint_id)
            receipt = run_micro_batch(driver.run, self.rows(start, end, files), identity)
            succeeded = True
        except Died:
            ending = "died"
            self._forget(at, driver)
        except TROUBLE:
            if fault is None and not self.suspect and (self.ahead == 1 or not driver.failed):
                raise  # trouble without a cause
            ending = "failed"
            driver.failed = True
        except REFUSALS as error:
            overtaken = fault is not None and fault.kind == "meanwhile"
            fenced = self.rivals and isinstance(error, FencedError)
            forgotten = self.logs_lost and isinstance(error, LineageError)
            if not (self.suspect or overtaken or fenced or forgotten):
                raise  # refused without a cause
            ending = "refused"
            self._forget(at, driver)
        finally:
            driver.io.fault = None
            self.late += driver.io.late
            driver.io.late = []
        if succeeded:
            ending = "staged" if receipt is None else receipt.outcome.value
            driver.failed = False
            if directory.committed == checkpoint_id:
                directory.committed += 1
                self.done = max(self.done, end)
            else:
                self._forget(at, driver)  # Spark's log has the checkpoint by now, from somebody else
            if receipt is not None:
                self._receive(directory, receipt)
            if self._rolling_back:
                self._note_what_is_taken()
        return ending

    def _receive(self, directory: Directory, receipt: CommitReceipt) -> None:
        """A driver says that everything up to this checkpoint is in the table."""
        self.receipts.append(receipt)
        if receipt.outcome is Outcome.EMPTY and self.ahead > 1:
            return  # adds nothing, and asks the table nothing: the next commit does
        if self._rolling_back:
            return  # perhaps after the commit: then the next one refuses
        end = directory.ends[receipt.checkpoint_id]
        # A successor may have gone on, and replaced rows of this checkpoint.
        due = self.due(end) & self.due(max(end, self.done))
        missing = due - self.live().keys() - self.blind
        assert not missing, f"{receipt} was given, and the rows {sorted(missing)} are lost"

    def _roll_back_one(self) -> None:
        self.roll_back(1)

    def overtaken(self, rows: int, at: int, what: str) -> str:
        """A checkpoint whose driver stands still at its `at`-th step while somebody else acts."""
        actions: dict[str, Callable[[], None]] = {
            "successor": lambda: self.succeed(1),
            "successor twice": lambda: self.succeed(2),
            "append": self.append_foreign,
            "compact": lambda: self.compact(0),
            "expire": lambda: self.expire(1),
            "roll back": self._roll_back_one,
        }
        return self.checkpoint(rows, 1, Fault(at, "meanwhile", actions[what]))

    def succeed(self, checkpoints: int) -> None:
        """The driver was declared dead: another one goes on in its directory."""
        self.rivals = True
        self.restart()
        for _ in range(checkpoints):
            self.checkpoint()

    def _forget(self, at: int, driver: Driver) -> None:
        if self.drivers.get(at) is driver:
            del self.drivers[at]

    def _opened(self, driver: Driver, checkpoint_id: int) -> SinkRun:
        """As IcebergSink opens a run."""
        directory = driver.directory
        noted = directory.note
        table = open_memory_table(driver.io, self.pointer)
        queue = (
            LateQueue(self.ahead, lambda receipt: self._receive(directory, receipt))
            if self.ahead > 1
            else None
        )
        run = self.run_on(table, directory, driver.io, queue)
        run.remember(noted, directory.identity(checkpoint_id), directory.logged)
        return run

    def run_on(
        self, table: Table, directory: Directory, io: MemoryFileIO, queue: CommitQueue | None
    ) -> SinkRun:
        return AppendRun(table, directory, io, self._tell, queue)

    def _tell(self, path: str, rows: Sequence[int]) -> None:
        self.rows_of[path] = tuple(rows)

    def due(self, end: int) -> set[int]:
        """What is in the table when the stream is done up to `end`."""
        return due(end)

    def rows(self, start: int, end: int, files: int) -> Any:
        """What a checkpoint brings, as the run takes it."""
        return _split(due(end) - due(start), files)

    def catch_up(self) -> None:
        """The driver has time to commit all that it has staged."""
        if self.driver is None or self.driver.run is None or self.driver.run.queue is None:
            return
        try:
            error = self.driver.run.queue.drain()
        except (*TROUBLE, *REFUSALS) as failure:
            error = failure
        if error is not None:
            forgotten = self.logs_lost and isinstance(error, LineageError)
            assert self.suspect or self.rivals or self.driver.failed or forgotten, (
                f"refused without a cause: {error!r}"
            )
            self.restart()

    # Operators

    def lose_last_spark_commit(self) -> None:
        """Spark replays the last checkpoint."""
        self.restart()
        directory = self.directory
        if directory.committed == len(directory.ends) > 0:
            directory.committed -= 1

    def lose_power(self, chance: random.Random, *, offsets: int = 0, commits: int = 0) -> None:
        """The machine goes, with every driver; Spark's logs lose so many entries."""
        self.drivers.clear()
        self.files.lose_power(chance)
        for directory in self.directories:
            before = list(directory.ends)
            directory.lose(offsets, commits)
            lost = before[len(directory.ends) :]
            self.once_planned += lost
            self.logs_lost = self.logs_lost or bool(lost)
        self._entries.clear()
        self._reader = self._table()

    def copy_directory(self) -> None:
        self.directories.append(self.directory.copy())

    def switch_directory(self, at: int) -> None:
        """Go on with another copy; the driver of this one keeps running, and may be switched back to."""
        at %= len(self.directories)
        self.suspect = self.suspect or at != self.at
        self.at = at

    def elsewhere(self, rows: int) -> None:
        """Another table is written from the present directory, for a checkpoint: this one misses it."""
        directory = self.directory
        if directory.committed < len(directory.ends):
            return
        self.suspect = True
        self.restart()
        directory.plan(rows)
        directory.committed += 1

    def lose_directory(self) -> None:
        self.suspect = True
        self.directories.append(Directory(f"job-{len(self.directories)}"))
        self.at = len(self.directories) - 1

    def roll_back(self, snapshots: int) -> None:
        metadata = self.metadata
        ancestors = [snapshot.snapshot_id for snapshot in metadata.ancestors(metadata.current_snapshot_id)]
        if len(ancestors) > 1:
            self.heads.append(ancestors[0])
            self._move_head(ancestors[min(snapshots, len(ancestors) - 1)])

    def roll_forward(self) -> None:
        """Undo a rollback, where the snapshot is still there."""
        if self.heads:
            head = self.heads.pop()
            if self.metadata.snapshot(head) is not None:
                self._move_head(head)

    def _move_head(self, snapshot_id: int) -> None:
        self.suspect = True
        before = self.live().keys()
        self._change(lambda base: with_ref(base, MAIN_BRANCH, SnapshotRef(snapshot_id, "branch")))
        self.undone |= before - self.live().keys()
        self._note_what_is_taken()
        metadata = self.metadata
        self._before_rollback = {s.snapshot_id for s in metadata.ancestors(metadata.current_snapshot_id)}

    def expire(self, keep: int, *, unreferenced: bool = True) -> None:
        """Expire all but the last `keep` snapshots of the branch, and delete files as Iceberg does."""
        metadata = self.metadata
        chain = list(metadata.ancestors(metadata.current_snapshot_id))
        gone = {snapshot.snapshot_id for snapshot in chain[keep:]}
        if unreferenced:
            chained = {snapshot.snapshot_id for snapshot in chain}
            gone |= {s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in chained}
        if not gone:
            return
        table = self._table()
        before = {path for s in metadata.snapshots for path in self._files_of(table, s)}
        kept = tuple(s for s in metadata.snapshots if s.snapshot_id not in gone)
        log = metadata.snapshot_log
        cut = max((at for at, entry in enumerate(log) if entry.snapshot_id in gone), default=-1) + 1
        self._change(lambda base: dataclasses.replace(base, snapshots=kept, snapshot_log=log[cut:]))
        if unreferenced and self._before_rollback.isdisjoint(s.snapshot_id for s in chain[:keep]):
            self.blind |= self.taken | (self.undone - self.live().keys())
        for path in before - {path for s in kept for path in self._files_of(table, s)}:
            self.files.content.pop(path, None)

    @staticmethod
    def _files_of(table: Table, snapshot: Snapshot) -> Iterable[str]:
        assert snapshot.manifest_list is not None
        return [snapshot.manifest_list, *(manifest.manifest_path for manifest in table.manifests(snapshot))]

    def recreate(self) -> None:
        """The table is dropped, with all its files, and created anew."""
        self.suspect = True
        self.files.clear()
        self.heads.clear()
        self._create()
        self._note_what_is_taken()

    def _create(self) -> None:
        self._tables += 1
        properties = {**_PROPERTIES, "number": "x" * self._tables}
        if not self._fsync:
            properties[FSYNC] = "false"
        metadata = initial_metadata(dataclasses.replace(self.definition, properties=properties), LOCATION)
        if self._service:
            if self.pointer is None:
                self.pointer = Pointer(metadata)
            self.pointer.metadata = metadata
        else:
            HadoopTableOperations(LOCATION, MemoryFileIO(self.files)).create(metadata)
        self._reader = self._table()

    def _note_what_is_taken(self) -> None:
        self.taken = self.due(self.done) - self.live().keys()

    # Other writers

    def append_foreign(self) -> None:
        self._foreign += 1
        file = named_file([-self._foreign])
        self._tell(file.file_path, [-self._foreign])
        append = AppendFiles(self._table())
        append.append_file(file)
        append.commit()

    def compact(self, first: int) -> None:
        """Two neighbouring data files become one."""
        table = self._table()
        files = self._live_files(table)
        pair = files[first % len(files) :][:2] if files else []
        if len(pair) < 2:
            return
        rows = sorted(row for file in pair for row in self.rows_of[file.file_path])
        new = named_file(rows)
        self._tell(new.file_path, rows)
        overwrite = OverwriteFiles(table)
        for file in pair:
            overwrite.delete_file(file)
        overwrite.add_file(new)
        overwrite.commit()

    def arrive(self) -> None:
        """A swap that was under way when its driver gave up reaches the catalog."""
        if self.late:
            try:
                self.late.pop(0)()
            except StreamlakeError:
                return

    # What is there

    @property
    def metadata(self) -> TableMetadata:
        return self._reader.refresh().metadata

    def live(self) -> Counter[int]:
        """How often each row is live. Raises AssertionError when a row of the stream is so twice."""
        self._reader.refresh()
        files = self._live_files(self._reader)
        gone = [file.file_path for file in files if file.file_path in self.files.lost]
        assert not gone, f"{gone} are in the table, and lost"
        live = Counter(row for file in files for row in self.rows_of[file.file_path])
        twice = sorted(row for row, times in live.items() if times > 1)
        assert not twice, f"the rows {twice} are live more than once"
        return live

    def check(self) -> None:
        known = self.live().keys() | self.staged()
        missing = self.due(self.done) - self.taken - self.blind - known
        assert not missing, f"the rows {sorted(missing)} are lost"

    def staged(self) -> set[int]:
        """The rows of checkpoints that are staged, where writing runs ahead."""
        if self.ahead == 1:
            return set()
        staged = staged_by_all_jobs(MemoryFileIO(self.files), self._reader.locations)
        return {
            row
            for committable in staged
            if all(manifest.manifest_path in self.files.content for manifest in committable.manifests)
            for file in self._files_in(committable.manifests)
            for row in self.rows_of[file.file_path]
        }

    def finish(self) -> None:
        """Start again without faults: without an operator's doing it goes on, and nothing is left staged but the last."""
        self.restart()
        for _ in range(2):
            self.checkpoint(4)
        self.catch_up()
        refused = self.suspect or self.logs_lost
        ended = refused or self.done == self.directory.ends[-1]
        assert ended, "the stream does not go on"
        self.check()
        if not refused:
            missing = self.due(self.done) - self.live().keys()
            assert not missing, f"the rows {sorted(missing)} were only staged"
        check_table(self._table())

    def _live_files(self, table: Table) -> list[DataFile]:
        return self._files_in(table.manifests(table.current_snapshot))

    def _files_in(self, manifests: Iterable[ManifestFile]) -> list[DataFile]:
        found = []
        for manifest in manifests:
            path = manifest.manifest_path
            assert path in self.files.content, f"{path} was deleted"
            entries = self._entries.get(path)
            if entries is None:
                read = read_manifest(MemoryFileIO(self.files), manifest, self._reader.specs)
                entries = self._entries[path] = [(entry.is_live, entry.data_file) for entry in read]
            found += [file for is_live, file in entries if is_live]
        return found

    def _table(self) -> Table:
        return open_memory_table(MemoryFileIO(self.files), self.pointer)

    def _change(self, change: Callable[[TableMetadata], TableMetadata]) -> None:
        operations = self._table().operations
        base = operations.refresh()
        operations.commit(base, change(base))


def _split(rows: Iterable[int], files: int) -> list[list[int]]:
    ordered = sorted(rows)
    size = max(1, -(-len(ordered) // files))
    return [ordered[at : at + size] for at in range(0, len(ordered), size)]
