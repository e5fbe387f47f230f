"""The key index of one branch, kept on the driver: its runs, its snapshot, and the live data files.

Before each checkpoint it is brought to the branch's head: from memory, from the state that the newest
snapshot of an upsert names, or from the table itself; what other writers added since is read and indexed.
Invariant: after `refresh` every live row of the head that a key can find is in the index, so the index is
never used for another snapshot.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from streamlake import clock
from streamlake.commit.marker import properties_on_branch
from streamlake.errors import IndexDamagedError, MissingFileError, StreamlakeError
from streamlake.failpoints import failpoint
from streamlake.index.bucketing import Bucketing
from streamlake.index.runs.entries import Entries
from streamlake.index.runs.merge import split_runs
from streamlake.index.runs.run import open_run
from streamlake.index.runs.run_writer import RunWriter
from streamlake.index.state import IndexState
from streamlake.pipeline.key_index.covered import Covered, live_tasks
from streamlake.pipeline.key_index.index_files import IndexFiles
from streamlake.pipeline.key_index.index_lineage import (
    is_cut_after,
    is_past,
    named_states_of,
    warn_built_anew,
)
from streamlake.pipeline.key_index.index_states import columns_text, named_states, property_name
from streamlake.pipeline.key_index.indexed import Indexed
from streamlake.pipeline.key_index.indexed_rows import IndexedRows
from streamlake.pipeline.key_index.widened_index import widened
from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head
from streamlake.write.upsert.upsert_key import UpsertKey

_LOG = logging.getLogger(__name__)


class TableIndex:
    """Keeps `Indexed` for the head of `branch`. `bucketing` is for an index that is built anew."""

    def __init__(self, table: Table, branch: str, key: UpsertKey, bucketing: Bucketing) -> None:
        self._table = table
        self._branch = branch
        self._key = key
        self._bucketing = bucketing
        self._indexed: Indexed | None = None
        self._rows_indexed = 0
        self.files = IndexFiles(table, branch, columns_text(key.key_ids, key.sequence_ids))
        self._started = False
        self._rebuilt: str | None = None

    def rows_indexed(self) -> int:
        """The number of rows of data files that were read for the index since the last call."""
        rows, self._rows_indexed = self._rows_indexed, 0
        return rows

    @property
    def indexed(self) -> Indexed | None:
        """The index after the last refresh; None before the first."""
        return self._indexed

    def refresh(
        self, session: SparkSession | None, *, rebuild: bool = False, bucketing: Bucketing | None = None
    ) -> Indexed:
        """The index of the branch's head in the refreshed table.

        Data files are read only where other writers added some, or where no index can be used; by Spark where
        there are many rows. `rebuild`: from the table alone. `bucketing`: in these buckets, whatever the
        index has.
        """
        if bucketing is not None:
            if not rebuild:
                return self._in_buckets(self.refresh(session), bucketing, session)
            self._bucketing = bucketing
        if not self._started:
            self._rebuilt = self._rebuilt_property()
        rebuilt_now = self._rebuilt_property()
        rebuilt = rebuilt_now if rebuilt_now != self._rebuilt else None
        if rebuild or rebuilt:
            self._indexed = None
        head = branch_head(self._table.metadata, self._branch)
        head_id = None if head is None else head.snapshot_id
        if self._indexed is not None and self._indexed.snapshot_id == head_id:
            return self._indexed
        tasks = live_tasks(self._table, head)
        known = Covered(self._empty()) if rebuild else self._known(head, tasks, rebuilt)
        known = known.through_compactions(
            self._table, head, tasks, lambda state, added: self._with_rows(session, state, added)
        )
        added = [task for path, task in tasks.items() if path not in known.files]
        state = self._with_rows(session, known.state, added) if added else known.state
        indexed = Indexed.planned(head_id, replace(state, base_snapshot_id=head_id), tasks)
        self.advance(indexed)
        self._rebuilt = rebuilt_now  # not earlier: a refresh that failed is tried again
        if not self._started:
            # Not earlier: files of a predecessor without an owner show that there was an index.
            self._started = True
            self.files.start()
        return indexed

    def _with_rows(
        self, session: SparkSession | None, state: IndexState, added: Sequence[FileScanTask]
    ) -> IndexState:
        """The index with the live rows of these data files, which are read."""
        rows = IndexedRows.of(self._table, self._key, state.bucketing)
        failpoint("before-indexing")
        runs = rows.index(session, added)
        self.files.made(runs)
        failpoint("after-indexing")
        self._rows_indexed += sum(task.data_file.record_count for task in added)
        return state.with_runs(runs)

    def _in_buckets(self, indexed: Indexed, bucketing: Bucketing, session: SparkSession | None) -> Indexed:
        """The index with its entries in other buckets; no entry is lost."""
        state, codec = indexed.state, self._key.codec
        if state.bucketing == bucketing:
            return indexed
        self._bucketing = bucketing

        def split(entries: Entries) -> list[Entries]:
            return bucketing.split(entries, codec)

        rows = IndexedRows.of(self._table, self._key, bucketing)
        try:
            runs = split_runs(
                [open_run(self._table.io, ref) for ref in state.runs],
                indexed.live_files,
                split,
                lambda bucket: RunWriter(self._table.io, rows.new_run(), bucket, bucketing.count),
                now_ms=state.tombstone_ms,
            )
        except (IndexDamagedError, MissingFileError) as error:
            self.warn_built_anew(error)
            return self.refresh(session, rebuild=True)
        self.files.made(runs)
        fresh = replace(
            state,
            buckets=bucketing.count,
            message_key=bucketing.name,
            runs=tuple(runs),
            shuffled_until=(0, 0),
        )
        self._indexed = replace(indexed, state=fresh)
        return self._indexed

    def advance(self, indexed: Indexed) -> None:
        """Take over the index of the snapshot that a commit of this run has just made."""
        self._indexed = indexed

    def warn_built_anew(self, reason: object) -> None:
        """Warn that the index is lost and built anew."""
        warn_built_anew(self._table.location, reason, is_ordered=self._key.sequence_codec is not None)

    def forget(self) -> None:
        """Drop the index from memory: the next refresh reads what the table names."""
        self._indexed = None

    def _known(
        self, head: Snapshot | None, tasks: Mapping[str, FileScanTask], rebuilt: str | None
    ) -> Covered:
        """The newest state that fits, with the data files that it covers; else an empty one that covers none.

        `tasks` are the head's. `rebuilt` is the property that names a rebuilt index, where it was set while
        this index was in use: then that one is used, though newer snapshots name states that go back to the
        old one.
        """
        metadata = self._table.metadata
        mine = self._indexed
        if mine is not None and not is_past(metadata, head, mine.snapshot_id):
            mine = self._indexed = None
        states = named_states(metadata, self._branch, down_to=None if mine is None else mine.snapshot_id)
        for named in sorted(states, key=lambda each: not each.is_rebuilt) if rebuilt else states:
            covered = tasks if named.snapshot == head else None
            try:
                state = self.loaded(named.path)
                if state is None:
                    covered = covered or live_tasks(self._table, named.snapshot)
                    state = self._widened(named.path, covered)
            except (IndexDamagedError, MissingFileError) as error:
                self.warn_built_anew(error)
                return Covered(self._empty())
            if state is not None:
                files = live_tasks(self._table, named.snapshot) if covered is None else covered
                return Covered(state, frozenset(files), named.snapshot.snapshot_id)
        if mine is None:
            return Covered(self._named_state(head, tasks))
        return Covered(mine.state, frozenset(mine.live_files), mine.snapshot_id)

    def _widened(self, path: str, live: Mapping[str, object]) -> IndexState | None:
        """The state at `path` if only types became wider, else None; `live`: its snapshot's data files."""
        state = self.files.load(path)
        if state.table_uuid != self._table.uuid:
            return None
        rows = IndexedRows.of(self._table, self._key, state.bucketing)
        found = widened(self._table.io, state, self._key, live, rows.new_run)
        if found is not None:
            self.files.made(found.runs)
        return found

    def _named_state(self, head: Snapshot | None, tasks: Mapping[str, FileScanTask]) -> IndexState:
        """The newest state that a pipeline's property names, where the snapshots that named states have
        expired; else an empty one. All rows are indexed again, because their positions are not certain.
        """
        metadata = self._table.metadata
        named = named_states_of(metadata, self._branch)
        of_this_key = [each for each in named if each.key_ids == self._key.key_ids]
        for each in of_this_key:
            if is_cut_after(metadata, head, each.sequence_number):
                try:
                    state = self.loaded(each.path) or self._widened(each.path, tasks)
                except (IndexDamagedError, MissingFileError) as error:
                    self.warn_built_anew(error)
                    return self._empty()
                if state is not None:
                    return state
        if of_this_key:
            self.warn_built_anew("its history has no index any more that is over the same columns and types")
        elif tasks and properties_on_branch(metadata, self._branch) and self._was_indexed():
            self.warn_built_anew("neither its history nor a property of a pipeline names its index any more")
        return self._empty()

    def _was_indexed(self) -> bool:
        """Whether there are files of an index over the same columns; an index that nothing names may contain
        too much to be used.
        """
        for path in self.files.states():
            with contextlib.suppress(StreamlakeError):
                if self.loaded(path) is not None:
                    return True
        return False

    def _rebuilt_property(self) -> str | None:
        return self._table.properties.get(property_name(self._branch))

    def loaded(self, path: str) -> IndexState | None:
        """The state at `path`; None for an index over other columns. Tasks verify runs that they open."""
        state = self.files.load(path)
        columns = (state.key_ids, state.key_types, state.sequence_ids, state.sequence_types)
        return state if (state.table_uuid, columns) == (self._table.uuid, self._key.index_columns) else None

    def _empty(self) -> IndexState:
        key = self._key
        return IndexState(
            table_uuid=self._table.uuid,
            key_ids=key.key_ids,
            sequence_ids=key.sequence_ids,
            buckets=self._bucketing.count,
            message_key=self._bucketing.name,
            runs=(),
            created_ms=clock.now_ms(),
            base_snapshot_id=None,
            key_types=key.key_types,
            sequence_types=key.sequence_types,
        )


def ancestors(metadata: TableMetadata, head: Snapshot | None) -> Iterator[Snapshot]:
    """A snapshot and those before it, newest first; empty without a snapshot."""
    return metadata.ancestors(None if head is None else head.snapshot_id)
