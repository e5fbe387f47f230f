"""The resolution of a staged checkpoint against the index of a new head, after other writers have committed.

The checkpoint's own runs name every key that it changed, so its data files need not be read again.

    own entry older than what others committed for its key   too late: the own row is deleted, theirs stays
    any other                                                deletes the rows of its key, wherever they are
    values taken over from a row that is no longer there     the checkpoint has to be written again

Invariant: the index is that of the new head, without the checkpoint's own runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from streamlake import ids
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import IndexDamagedError, OutdatedValuesError
from streamlake.index.keys.keys import concat_keys
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.runs.entries import (
    BY_ARRIVAL,
    ENDS_SEARCH,
    LACKS_VALUES,
    NO_SEQUENCE,
    TOMBSTONE,
    TOOK_VALUES,
    Entries,
    sort_entries,
)
from streamlake.index.runs.lookup import Found, KeyIndex
from streamlake.index.runs.run import open_run, write_run
from streamlake.index.runs.run_format import ADVICE
from streamlake.index.runs.run_writer import RunRef, RunWriter
from streamlake.pipeline.key_index.covered import live_tasks
from streamlake.pipeline.key_index.indexed import Indexed
from streamlake.storage.file_io import FileIO
from streamlake.table.table import Table
from streamlake.write.deletes.deleted_positions import DeletedPositions
from streamlake.write.deletes.source_rows import SourceRows
from streamlake.write.upsert.lateness import is_late, places_of
from streamlake.write.upsert.truncation import TruncatePosition, keys_below, sequence_of
from streamlake.write.upsert.upsert_key import UpsertKey
from streamlake.write.upsert.upsert_target import UpsertTarget

Array = Any  # numpy array


@dataclass(frozen=True)
class Resolved:
    """The outcome of a resolution. `deleted` are rows of others, `late` own rows, both as data file path ->
    ascending positions. `runs` are the own runs without late entries. `outdated` is the number of rows with
    values that are no longer the table's.
    """

    deleted: Mapping[str, Array]
    late: Mapping[str, Array]
    runs: tuple[RunRef, ...]
    outdated: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Resolver:
    """Resolves one checkpoint.

    `floor` is the sequence value of the last truncate that the table knows, `truncate` that of the
    checkpoint's own; None: there is none. `known_files` gives the data files of the snapshot that the
    checkpoint was written against; None: that is no ancestor of the head any more. `new_run` gives the path
    of a new run.
    """

    io: FileIO
    key: UpsertKey
    indexed: Indexed
    sources: SourceRows
    known_files: Callable[[], frozenset[str] | None]
    floor: SequenceValues | None
    truncate: SequenceValues | None
    now_ms: int
    new_run: Callable[[], str]

    @staticmethod
    def of(
        table: Table,
        target: UpsertTarget,
        indexed: Indexed,
        committable: Committable,
        truncate: TruncatePosition | None,
    ) -> Resolver:
        """The resolver of `committable`. `target` is what tasks would get at the new head, `truncate` the
        source position of the checkpoint's last truncate.
        """
        floor = target.truncated_below
        return Resolver(
            table.io,
            target.key,
            indexed,
            target.source_rows(),
            cache(lambda: _known_files(table, committable.base_snapshot_id, indexed.snapshot_id)),
            None if floor is None else sequence_of(target, floor),
            None if truncate is None else sequence_of(target, truncate),
            target.time_ms,
            lambda: table.locations.index_run(ids.new_uuid()),
        )

    def resolved(self, own_runs: Sequence[RunRef]) -> Resolved:
        """Resolve the own runs. Raises IndexDamagedError where they are damaged or in other buckets."""
        deleted, late, counters = DeletedPositions(), DeletedPositions(), Counter[str]()
        runs = []
        outdated = 0
        for ref in own_runs:
            if ref.buckets != self.indexed.state.buckets:
                raise IndexDamagedError(
                    f"{ref.path} is of {ref.buckets} buckets, the index it is compared with of "
                    f"{self.indexed.state.buckets}; {ADVICE}"
                )
            index = self._index(ref.bucket)
            kept = []
            changed = False
            own = open_run(self.io, ref)
            for entries in own.entries():
                part = self._compared(entries, index)
                outdated += part.outdated
                deleted.add_found(part.found, part.replaces[part.found.query])
                changed |= part.changed
                for number in np.unique(entries.files[part.late & ~_is_tombstone(entries)]).tolist():
                    rows = part.late & ~_is_tombstone(entries) & (entries.files == number)
                    late.add(own.paths[number].path, entries.positions[rows])
                counters["late"] += int(np.count_nonzero(part.late))
                kept.append(part.entries)
            runs += self._rewritten(ref, kept, own.paths) if changed else [ref]
        if self.truncate is not None:
            runs += self._truncated(own_runs, deleted, counters)
        return Resolved(deleted.by_file(), late.by_file(), tuple(runs), outdated, counters)

    def _index(self, bucket: int) -> KeyIndex:
        older = [open_run(self.io, each) for each in self.indexed.state.runs_of(bucket)]
        return KeyIndex(older, self.indexed.live_files)

    def _compared(self, entries: Entries, index: KeyIndex) -> _Compared:
        flags = entries.flags
        if entries.sequence_values is None:
            # Without sequence values, an entry that only adds a row has nothing to be compared with.
            asked = np.flatnonzero(flags & (ENDS_SEARCH | TOOK_VALUES | LACKS_VALUES))
            found = index.lookup(entries.keys.take(asked))
            found = replace(found, query=asked[found.query])
            late: Array = np.zeros(len(entries), dtype=bool)
        else:
            found = index.lookup(entries.keys)
            late = self._late(entries, found)
        outdated = self._outdated(entries, found, late)
        fresh = entries
        if entries.sequence_values is not None:
            fresh = self._with_inherited_guards(entries, found, late)
        if late.any():
            fresh = fresh.take(np.flatnonzero(~late))
        replaces = (flags & ENDS_SEARCH != 0) & ~late
        return _Compared(fresh, found, late, replaces, outdated, fresh is not entries)

    def _late(self, entries: Entries, found: Found) -> Array:
        """(n,) bool: the own entries that are older than what others have committed since."""
        assert entries.sequence_values is not None
        count = len(entries)
        late = is_late(self.key, entries.sequence_values, found, np.arange(count), self.floor)
        late &= entries.flags & NO_SEQUENCE == 0
        by_arrival = entries.flags & BY_ARRIVAL != 0
        if by_arrival.any():
            nothing = replace(found, sequence_values=None, sequence_known=None)
            late[by_arrival] = is_late(
                self.key, entries.sequence_values, nothing, np.arange(count), self.floor
            )[by_arrival]
        if (
            self.truncate is not None
            and found.sequence_values is not None
            and found.sequence_known is not None
        ):
            bound = self.truncate.take(np.zeros(count, dtype=np.int64))
            is_mark = ~entries.sequence_values.below(bound) & ~bound.below(entries.sequence_values)
            buried = is_mark & _is_tombstone(entries) & ~by_arrival
            newer = found.sequence_known & ~places_of(self.key, found.sequence_values).below(bound)
            late[buried] = newer[buried]
        return late

    def _with_inherited_guards(self, entries: Entries, found: Found, late: Array) -> Entries:
        """The entries, where changes that are ordered by arrival take over the higher sequence value that
        others have committed for their key: they come after it.
        """
        assert entries.sequence_values is not None
        if found.sequence_values is None or found.sequence_known is None:
            return entries
        raised = (entries.flags & BY_ARRIVAL != 0) & ~late & found.sequence_known
        raised &= entries.sequence_values.below(found.sequence_values)
        if not raised.any():
            return entries
        return replace(
            entries,
            sequence_values=SequenceValues(
                np.where(raised, found.sequence_values.values, entries.sequence_values.values)
            ),
        )

    def _outdated(self, entries: Entries, found: Found, late: Array) -> int:
        """The number of own rows that took values over, or lack them, and would have others now."""
        took = (entries.flags & TOOK_VALUES != 0) & ~late
        lacks = (entries.flags & LACKS_VALUES != 0) & ~late
        if not (took.any() or lacks.any()):
            return 0
        known = self.known_files()
        if known is None:
            return int(np.count_nonzero(took | lacks))
        depends = (took | lacks)[found.query]
        there = self.sources.are_there(found, depends) & depends
        exists: Array = np.zeros(len(entries), dtype=bool)
        exists[found.query[there]] = True
        is_known = np.array([path in known for path in found.paths], dtype=bool)
        moved: Array = np.zeros(len(entries), dtype=bool)
        moved[found.query[depends & ~(there & is_known[found.file])]] = True
        return int(np.count_nonzero((took & (moved | ~exists)) | (lacks & exists)))

    def _rewritten(self, ref: RunRef, parts: Sequence[Entries], paths: Any) -> list[RunRef]:
        """The run with what is left of it; none where nothing is."""
        if not any(map(len, parts)):
            return []
        writer = RunWriter(self.io, self.new_run(), ref.bucket, ref.buckets)
        for part in parts:
            writer.append(part)
        return [writer.close(paths)]

    def _truncated(
        self, own_runs: Sequence[RunRef], deleted: DeletedPositions, counters: Counter[str]
    ) -> Iterable[RunRef]:
        """Delete what others added below the checkpoint's own truncate; gives runs of tombstones for it."""
        assert self.truncate is not None
        state = self.indexed.state
        for bucket, refs in state.runs_by_bucket().items():
            older = [open_run(self.io, ref) for ref in refs]
            own = KeyIndex(
                [open_run(self.io, ref) for ref in own_runs if ref.bucket == bucket], lambda _: True
            )
            buried = []
            below = keys_below(
                older, self.indexed.live_files, self.truncate, lambda guards: places_of(self.key, guards)
            )
            for gone, found in below:
                deleted.add_found(found)
                named = own.lookup(gone)
                new = (
                    ~named.exists if named.sequence_known is None else ~(named.exists | named.sequence_known)
                )
                buried.append(gone.take(np.flatnonzero(new)))
            if not any(map(len, buried)):
                continue
            keys = concat_keys(buried)
            counters["truncated-rows"] += len(keys)
            blank: Array = np.zeros(len(keys), dtype=np.int64)
            entries = sort_entries(
                keys,
                blank,
                blank,
                np.full(len(keys), TOMBSTONE),
                (),
                sequence_values=self.truncate.take(blank),
                times=np.full(len(keys), self.now_ms),
            )
            yield write_run(self.io, self.new_run(), entries, bucket, state.buckets)


@dataclass(frozen=True, eq=False)
class _Compared:
    """n own entries compared with the index. `late` (n,) bool; `replaces` (n,) bool: older rows of the key
    are deleted; `entries` are those that are left, and `changed` says whether they differ from the given
    ones.
    """

    entries: Entries
    found: Found
    late: Array
    replaces: Array
    outdated: int
    changed: bool


def _known_files(table: Table, base: int | None, head: int | None) -> frozenset[str] | None:
    """The data files of the snapshot `base`; None where it is no ancestor of `head`, or has expired."""
    if base is None:
        return frozenset()
    if not any(each.snapshot_id == base for each in table.metadata.ancestors(head)):
        return None
    return frozenset(live_tasks(table, table.metadata.snapshot(base)))


def outdated_values(table: str, identity: CheckpointIdentity) -> OutdatedValuesError:
    """The error for a checkpoint whose rows have values that are no longer the table's."""
    return OutdatedValuesError(
        f"{table}: {identity} takes over values that changes leave out from rows of the table, and other "
        "writers have moved, changed or deleted such rows since it was written; it is written again. Where "
        "this ends the query, start it again, and let the other writers commit less often, or raise "
        "commit.retry.total-timeout-ms"
    )


def outdated_key(
    table: str, identity: CheckpointIdentity, key: Sequence[str], sequence_by: Sequence[str]
) -> OutdatedValuesError:
    """The error for a checkpoint that was written before a column that its rows are found by was changed."""
    return OutdatedValuesError(
        f"{table}: {identity} was written before the type of a key column ({', '.join(key)})"
        + (f" or of a column that orders changes ({', '.join(sequence_by)})" if sequence_by else "")
        + " was changed in the table, and other writers have committed since; it is written again. Where "
        "this ends the query, start it again"
    )


def _is_tombstone(entries: Entries) -> Array:
    return entries.flags & TOMBSTONE != 0
