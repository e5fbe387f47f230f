"""The files of a table's key index: states are written and read here, and unneeded files are deleted.

A state is needed as long as it is among the newest ones of some branch; a run is needed as long as such a
state or a staged checkpoint names it. So a rollback of a few checkpoints still finds its index. A stream
deletes its own files as it goes, and, when it starts, files without an owner. Position maps belong to the
maintenance, which wrote them. Invariant: an index is never a
source of truth, so a file that cannot be deleted or read is left alone and is no error.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable

from streamlake import clock
from streamlake.checkpoint.store import staged_by_all_jobs
from streamlake.commit.marker import JOB_ID
from streamlake.errors import IndexDamagedError, MissingFileError, StreamlakeError
from streamlake.failpoints import failpoint
from streamlake.index.runs.run_writer import RunRef
from streamlake.index.state import IndexState
from streamlake.pipeline.key_index.index_lineage import named_states_of
from streamlake.pipeline.key_index.index_states import NamedState, branches, named_states
from streamlake.storage.file_info import FileInfo
from streamlake.storage.locations import POSITION_MAP_SUFFIX
from streamlake.table.table import Table

KEPT_STATES = 10
"""This many of the newest states of every branch are kept, for each set of key columns."""
UNOWNED_MS = 24 * 3600 * 1000
"""Age in milliseconds after which a file that nothing refers to counts as forgotten, not as work in
progress."""
SHARED_MS = 3600 * 1000
"""Where several jobs share an index, states of the last SHARED_MS milliseconds are kept as well: a slow job
reads the runs of a state while a fast one commits many."""
_AT_ONCE = 10


class IndexFiles:
    """The index files of one table, as one stream on `branch` sees them. `columns` are those of its own
    index, in the form of NamedState. Errors of the storage are raised by `load` and `store` only.
    """

    def __init__(self, table: Table, branch: str, columns: str) -> None:
        self._table = table
        self._branch = branch
        self._columns = columns
        self._own: dict[str, None] = {}
        self._runs: dict[str, frozenset[str]] = {}
        self._loose: dict[str, None] = {}
        self._prune_at = KEPT_STATES + _AT_ONCE

    def store(self, state: IndexState) -> str:
        """Make a state durable and return its path, whose name is the digest of its content."""
        data = state.to_bytes()
        path = self._table.locations.index_state(_digest(data))
        self._table.io.write_bytes(path, data)
        self._remember(path, state)
        self.adopt(path)
        failpoint("index-state-stored")
        return path

    def load(self, path: str) -> IndexState:
        """The state at `path`. Raises IndexDamagedError where its content has changed, MissingFileError."""
        state = load_state(self._table, path)
        self._remember(path, state)
        return state

    def states(self) -> list[str]:
        """The paths of all states, whoever wrote them; empty where the storage cannot list them."""
        with contextlib.suppress(StreamlakeError):
            listed = self._table.io.list_prefix(self._table.locations.index_directory)
            return [info.path for info in listed if info.path.endswith(".json")]
        return []

    def adopt(self, path: str) -> None:
        """Count a state as this stream's own, to be deleted with its runs once nothing needs them."""
        self._own[path] = None

    def made(self, runs: Iterable[RunRef]) -> None:
        """Count runs that no state names yet as this stream's own: they may be merged away before."""
        self._loose.update((run.path, None) for run in runs)

    def start(self) -> None:
        """Take over what a predecessor of the stream left, and delete old files that nothing refers to."""
        with contextlib.suppress(StreamlakeError):
            listed = list(self._table.io.list_prefix(self._table.locations.index_directory))
            present = {_name(info.path) for info in listed}
            found = [
                each.path for each in named_states(self._table.metadata, self._branch) if self._is_own(each)
            ]
            for path in reversed(found):
                if _name(path) in present:
                    self.adopt(path)
            self._sweep(listed)

    def prune(self, state: IndexState) -> None:
        """Delete own states that are no longer needed, with runs that only they name; only now and then.

        Called when nothing of the stream is being committed.
        """
        self._prune_loose(state)
        if len(self._own) < self._prune_at:
            return
        with contextlib.suppress(StreamlakeError):
            needed = self._needed_states(own_only=True)
            kept = self._named_by(needed)
            gone = [path for path in self._own if path not in needed]
            for path in gone:
                try:
                    runs = self._runs_of(path)
                except (IndexDamagedError, MissingFileError):
                    runs = frozenset()
                self._delete(runs - kept)
                self._delete([path])
                del self._own[path]
            self._runs = {path: runs for path, runs in self._runs.items() if path in needed}
            self._prune_at = max(len(self._own), KEPT_STATES) + _AT_ONCE

    def _prune_loose(self, state: IndexState) -> None:
        """Delete the runs that no state has ever named and that are not in `state`, the present index."""
        used = {run.path for run in state.runs}
        loose = [path for path in self._loose if path not in used]
        if loose:
            named = {run for path in self._own for run in self._runs.get(path, ())}
            self._delete(path for path in loose if path not in named)
            self._loose = {path: None for path in self._loose if path in used}

    def _sweep(self, listed: Iterable[FileInfo]) -> None:
        listed = [info for info in listed if not info.path.endswith(POSITION_MAP_SUFFIX)]
        before = clock.now_ms() - UNOWNED_MS
        states = {_name(path) for path in self._needed_states()}
        old = [info.path for info in listed if info.modified_ms < before and _name(info.path) not in states]
        if not old:
            return
        table = self._table
        staged = list(staged_by_all_jobs(table.io, table.locations))
        pending = [committable.index_state for committable in staged if committable.index_state]
        needed = {*self._needed_states(), *pending}
        kept = {_name(path) for path in needed} | {_name(path) for path in self._named_by(needed)}
        kept |= {_name(path) for committable in staged for path in committable.runs}
        self._delete(path for path in old if _name(path) not in kept)

    def _needed_states(self, *, own_only: bool = False) -> set[str]:
        """The newest states of every branch, of each set of columns; `own_only`: of own columns only."""
        metadata = self._table.metadata
        needed: set[str] = set()
        for branch in branches(metadata):
            by_columns: dict[str, list[NamedState]] = {}
            for each in named_states(metadata, branch):
                if not own_only or self._is_own(each):
                    by_columns.setdefault(each.columns, []).append(each)
            for states in by_columns.values():
                needed.update(each.path for each in states[:KEPT_STATES])
                needed.update(_shared(states))
            needed.update(each.path for each in named_states_of(metadata, branch))
        return needed

    def _is_own(self, state: NamedState) -> bool:
        return state.columns in ("", self._columns)

    def _named_by(self, states: Iterable[str]) -> set[str]:
        """The paths of all runs of these states. Raises StreamlakeError when a state is there that cannot be
        read: somebody else may need its runs.
        """
        named: set[str] = set()
        for path in states:
            with contextlib.suppress(MissingFileError):
                named |= self._runs_of(path)
        return named

    def _runs_of(self, path: str) -> frozenset[str]:
        if path not in self._runs:
            self.load(path)
        return self._runs[path]

    def _remember(self, path: str, state: IndexState) -> None:
        self._runs[path] = frozenset(run.path for run in state.runs)

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(StreamlakeError):
                self._table.io.delete(path)
            failpoint("index-files-pruned")


def _shared(states: Iterable[NamedState]) -> list[str]:
    """The latest states where several jobs share an index; empty where there is one job."""
    now = clock.now_ms()
    recent = [each for each in states if now - each.snapshot.timestamp_ms < UNOWNED_MS]
    if len({each.snapshot.summary.get(JOB_ID) for each in recent}) < 2:
        return []
    return [each.path for each in recent if now - each.snapshot.timestamp_ms < SHARED_MS]


def load_state(table: Table, path: str) -> IndexState:
    """The state of the key index at `path`. Raises IndexDamagedError, MissingFileError."""
    data = table.io.read_bytes(path)
    if _name(path) != f"{_digest(data)}.json":
        raise IndexDamagedError(f"{path}: the state of the key index is not the one that was written there")
    return IndexState.from_bytes(data, path)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
