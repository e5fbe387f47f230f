"""Applies the changes of one bucket: writes data files, collects deleted rows, makes index entries.

For each table of changes: the last change of each key wins, the index finds the key's old rows, late changes
are dropped, new rows are written, and old rows are noted as deleted. A row that an earlier table of the same
checkpoint wrote is found like any other, so a checkpoint may be larger than memory. Invariant: every key that
is changed has an entry in `entries`, so what has to be deleted can be found again from the entries alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import InvalidOptionError
from streamlake.index.keys.keys import Keys, concat_keys
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.last_per_key import last_per_key
from streamlake.index.runs.entries import (
    BY_ARRIVAL,
    SUPERSEDES,
    TOMBSTONE,
    Entries,
    RunFile,
    sort_entries,
)
from streamlake.index.runs.lookup import Found, KeyIndex
from streamlake.index.runs.run import Run
from streamlake.write.deletes.deleted_positions import DeletedPositions
from streamlake.write.deletes.equality_deletes import EqualityDeleteWriter
from streamlake.write.files.placed_writer import PlacedWriter
from streamlake.write.files.result import Refused
from streamlake.write.upsert.changes import Changes
from streamlake.write.upsert.deferred_changes import DeferredChanges
from streamlake.write.upsert.depending_keys import DependingKeys
from streamlake.write.upsert.lateness import is_late, places_of
from streamlake.write.upsert.missing_values import MissingValues
from streamlake.write.upsert.old_key_rows import OldKeyRows
from streamlake.write.upsert.part_rows import sequenced
from streamlake.write.upsert.source_positions import FIRST, NO_PLACE, PLACED, Floor, inherited
from streamlake.write.upsert.truncation import TruncatePosition, keys_below, later, sequence_of
from streamlake.write.upsert.upsert_target import UPSERT, UpsertTarget

Array = np.ndarray[Any, Any]

MOST_ENTRIES = 4 << 20
"""The most index entries that a task keeps in memory, at some 40 bytes each."""


class UpsertWriter:
    """Applies the changes of one task.

    `runs` are the bucket's, newest first. `equality` takes the keys to delete when the table's deletes are
    equality deletes, None else. `spill` merges many entries into one run, to free their memory.
    """

    def __init__(
        self,
        target: UpsertTarget,
        rows: PlacedWriter,
        runs: Sequence[Run],
        now_ms: int,
        spill: Callable[[Sequence[Run | Entries]], Run],
        equality: EqualityDeleteWriter | None = None,
    ) -> None:
        self._target = target
        self._rows = rows
        self._runs = runs
        self._now_ms = now_ms
        self._equality = equality
        self._spill = spill
        self._entries: list[Run | Entries] = []  # the newest first
        self._held = 0
        self.deleted_here = DeletedPositions()
        self.deleted = DeletedPositions()
        self.own_files: set[str] = set()
        self.counters: Counter[str] = Counter()
        self.held_rows: list[pa.Table] = []
        self.moved_rows: list[pa.Table] = []
        self._deferred = DeferredChanges()
        self._floor: SequenceValues | None = None
        self._floor_order = FIRST
        self.truncated_below: TruncatePosition | None = None
        if target.truncated_below is not None and target.uses_index:
            self._floor = sequence_of(target, target.truncated_below)
        self._missing = MissingValues(target, rows, self.counters)
        self._sources = target.source_rows()
        self._depending = DependingKeys()
        self._old_key_rows = OldKeyRows(self._missing)

    @property
    def entries(self) -> Sequence[Run | Entries]:
        """The index entries of all keys that were changed, the newest table of changes first."""
        return self._entries

    @property
    def refused(self) -> Sequence[Refused]:
        """The changes that were not applied, because a value that they leave out is found nowhere."""
        return self._missing.policy.refused

    def write(self, changes: Changes) -> None:
        """Apply changes; they follow those given before."""
        self.counters["changes"] += len(changes.keys)
        self._write(self._deferred.without(changes))

    def finish(self) -> None:
        """Apply the deferred changes. Nothing may follow."""
        deferred = self._deferred.take()
        if deferred is not None:
            self._write(deferred)
        self.moved_rows = self._old_key_rows.tables(KeyIndex(self._entries, self._is_live))

    def _write(self, changes: Changes) -> None:  # noqa: PLR0915
        by_arrival = self._is_by_arrival(changes)
        arrival = changes.arrival
        if changes.arrival is not None and not by_arrival:
            first, group = last_per_key(changes.keys)
            changes = self._placed(changes, group, self._lookup(changes.keys.among(first)))
        order = (
            [changes.order]
            if changes.sequence_values is None or by_arrival
            else [changes.sequence_values, changes.order]
        )
        winners, group = last_per_key(changes.keys, order)
        self.counters["replaced-in-checkpoint"] += len(changes.keys) - len(winners)
        keys = changes.keys.among(winners)
        found = self._lookup(keys)
        if by_arrival:
            changes = self._placed(changes, group, found)
        sequence_values = None if changes.sequence_values is None else changes.sequence_values.take(winners)
        late: Array = np.zeros(len(winners), dtype=bool)
        if sequence_values is not None:
            late = self._late(sequence_values, found, np.arange(len(winners)))
            self.counters["late"] += int(np.count_nonzero(late))
        removes = changes.removes[winners]
        unwritten: Array = np.zeros(len(winners), dtype=bool)
        rows: pa.Table | None = None
        flags: Array = np.zeros(len(winners), dtype=np.uint8)
        if arrival is not None and not self._target.yields:
            flags[arrival[winners] != PLACED] = BY_ARRIVAL
        if changes.missing or changes.key_changes is not None:
            rows, unwritten, depends = self._with_older_values(changes, winners, group, found, late)
            flags |= depends
        deletes_old = self._deletes_old(changes, keys, group, found)
        overtaken = self._overtaken(found, deletes_old & late)
        self._note_deleted(found, deletes_old, late, overtaken)
        self._count(removes, late | unwritten, found.exists)
        # Such a key has no row here, so it counts as deleted.
        removes |= unwritten
        inserts = ~removes & ~late
        if rows is None:
            rows = changes.rows.take(changes.row_of[winners[inserts]])
        places = self._rows.write(rows)
        kept = np.flatnonzero(~late)
        files: Array = np.zeros(len(winners), np.int32)
        positions: Array = np.zeros(len(winners), np.int64)
        files[inserts], positions[inserts] = places
        flags |= np.where(removes, TOMBSTONE, np.where(deletes_old, SUPERSEDES, 0)).astype(np.uint8)
        if self._equality is not None:
            due = deletes_old & (~late | overtaken) & ~self._seen(found, len(winners))
            self._equality.write(changes.keyed.take(winners[due]))
        if overtaken.any():
            self._supersede(keys, found, overtaken)
        entries = sort_entries(
            keys.among(kept),
            files[kept],
            positions[kept],
            flags[kept],
            [RunFile(path, own=True) for path in self._rows.paths],
            sequence_values=None if sequence_values is None else sequence_values.take(kept),
            times=np.full(len(kept), self._now_ms) if removes.any() else None,
        )
        if len(entries):
            self._entries.insert(0, entries)
            self._held += len(entries)
            if self._held > MOST_ENTRIES:
                self._entries, self._held = [self._spill(self._entries)], 0

    def truncate(self, positions: Iterable[TruncatePosition], orders: Iterable[int] | None = None) -> None:
        """Delete the rows whose source position is below the greatest of `positions`.

        Older changes that are still to come are late. `orders` are the truncates' orders of
        arrival; None: before all that is still to come. Raises InvalidOptionError when rows are
        not ordered by source position.
        """
        positions = list(positions)
        position = self.truncated_below
        for each in positions:
            position = later(position, each)
        if position is None or position == self.truncated_below:
            return
        bound = sequence_of(self._target, position)
        self.truncated_below = position
        if self._floor is not None and not self._floor.below(bound).any():
            return
        self._floor = bound
        self._floor_order = FIRST
        if orders is not None:
            self._floor_order = min(
                at for each, at in zip(positions, orders, strict=True) if each == position
            )
        parts = [*self._entries, *self._runs]
        gone = []
        for keys, found in keys_below(parts, self._is_live, bound, self._places):
            gone.append(keys)
            here = found.run < len(self._entries)
            self.deleted_here.add_found(found, here)
            self.deleted.add_found(found, ~here)
            self.own_files.update(
                path for path, own in zip(found.paths, found.own.tolist(), strict=True) if own
            )
            self.counters["truncated-rows"] += len(found)
        if gone:
            self._bury(concat_keys(gone), bound)

    def _bury(self, keys: Keys, sequence_value: SequenceValues) -> None:
        """Record keys as deleted, with one sequence value for all."""
        count = len(keys)
        blank: Array = np.zeros(count, dtype=np.int64)
        entries = sort_entries(
            keys,
            blank,
            blank,
            np.full(count, TOMBSTONE),
            [RunFile(path, own=True) for path in self._rows.paths],
            sequence_values=sequence_value.take(blank),
            times=np.full(count, self._now_ms),
        )
        self._entries.insert(0, entries)
        self._held += count
        if self._held > MOST_ENTRIES:
            self._entries, self._held = [self._spill(self._entries)], 0

    def _late(self, sequence_values: SequenceValues, found: Found, which: Array) -> Array:
        return is_late(self._target.key, sequence_values, found, which, self._floor)

    def _places(self, sequence_values: SequenceValues) -> SequenceValues:
        return places_of(self._target.key, sequence_values)

    def _lookup(self, keys: Keys) -> Found:
        return KeyIndex([*self._entries, *self._runs], self._is_live).lookup(keys)

    def _is_by_arrival(self, changes: Changes) -> bool:
        """Whether no change has a source position of its own, and none could be late."""
        return changes.arrival is not None and self._floor is None and bool((changes.arrival != PLACED).all())

    def _placed(self, changes: Changes, group: Array, found: Found) -> Changes:
        """The changes with the sequence values that they inherit.

        `found` is what the index knows of their keys.
        """
        assert changes.sequence_values is not None
        assert changes.arrival is not None
        known: Array = np.full(len(found.exists), NO_PLACE, dtype=np.int64)
        held, is_known = found.sequence_values, found.sequence_known
        if held is not None and is_known is not None and not self._target.yields:
            known[is_known] = held.values[is_known]
        floor = None if self._floor is None else Floor(int(self._floor.values[0]), self._floor_order)
        sequence_values = inherited(
            changes.sequence_values, changes.arrival, changes.order, group, known, floor
        )
        return replace(changes, sequence_values=sequence_values, arrival=None)

    def _is_live(self, path: str) -> bool:
        return path in self._target.live_files or path in self._rows.paths

    def _with_older_values(
        self, changes: Changes, winners: Array, group: Array, found: Found, late: Array
    ) -> tuple[pa.Table | None, Array, Array]:
        """The rows to write as whole rows (None: as they came), the unwritten keys, and the keys' flags.

        The unwritten keys are (m,) bool: the row is refused for want of a value, or held until the row under
        its old key is known. The flags (m,) are set for keys whose values depend on the table.
        """
        late_changes: Array = np.zeros(len(changes.keys), dtype=bool)
        if changes.sequence_values is not None:
            late_changes = self._late(changes.sequence_values, found, group)
        if self._finds_rows:
            found = self._there(changes, group, found)
        if changes.key_changes is not None and self._finds_rows:
            self._old_key_rows.note(changes, group, found, late_changes, len(self._entries))
        if not changes.missing:
            return None, np.zeros(len(winners), dtype=bool), np.zeros(len(winners), dtype=np.uint8)
        if not self._finds_rows:
            raise InvalidOptionError(
                f"{self._target.table.location}: a change leaves out the value of column "
                f"'{next(iter(changes.missing))}', which is then that of the row that it replaces; mode "
                f"'{self._target.mode}' with delete_mode '{self._target.delete_mode}' does not look for that "
                "row. Use mode 'upsert' with delete_mode 'position' or 'copy-on-write', or let the source "
                "send whole rows"
            )
        brings = ~changes.removes[winners] & ~late
        filled = self._missing.filled(changes, winners, group, found, late_changes, brings)
        if filled.waiting is not None:
            self.held_rows.append(sequenced(filled.waiting, changes))
        depends = self._depending.flags(
            changes.keys.hashes[winners], filled, found, found.run < len(self._entries)
        )
        return filled.rows, filled.refused | filled.held, depends

    def _there(self, changes: Changes, group: Array, found: Found) -> Found:
        """What was found, without rows that others deleted, as far as values are taken over from them."""
        asked: Array = np.zeros(len(found.exists), dtype=bool)
        for mask in (*changes.missing.values(), changes.is_key_change):
            asked[group[mask]] = True
        there = self._sources.are_there(found, asked[found.query] & (found.run >= len(self._entries)))
        return found if there.all() else found.only(there)

    @property
    def _finds_rows(self) -> bool:
        return self._target.mode == UPSERT and self._target.uses_index

    def _deletes_old(self, changes: Changes, keys: Keys, group: Array, found: Found) -> Array:
        """(m,) bool: the keys whose older rows are deleted.

        In a changelog these are the keys with a removal that is not late, that is, not older than what was
        known of its key before this checkpoint.
        """
        if self._target.mode == UPSERT:
            return np.ones(len(keys), dtype=bool)
        removals = np.flatnonzero(changes.removes)
        if changes.sequence_values is not None and len(removals):
            sequence_values = changes.sequence_values.take(removals)
            late = self._late(sequence_values, found, group[removals])
            if self._entries and late.any():
                asked, place = np.unique(group[removals[late]], return_inverse=True)
                before = KeyIndex(self._runs, self._is_live).lookup(keys.take(asked))
                late[late] = self._late(sequence_values.take(np.flatnonzero(late)), before, place)
            removals = removals[~late]
        deletes_old: Array = np.zeros(len(keys), dtype=bool)
        deletes_old[group[removals]] = True
        return deletes_old

    def _overtaken(self, found: Found, late: Array) -> Array:
        """(m,) bool: keys with a newer row of this checkpoint whose last change is late but a delete is not.

        Whatever the order in which the changes came, that newer row replaces what is older.
        """
        overtaken: Array = np.zeros(len(late), dtype=bool)
        if self._target.mode != UPSERT and late.any():
            overtaken[found.query[found.run < len(self._entries)]] = True
        return overtaken & late

    def _note_deleted(self, found: Found, deletes_old: Array, late: Array, overtaken: Array) -> None:
        """Note the older rows that the changes of their keys delete.

        Rows of earlier checkpoints are deleted when the change says so, rows of this one
        whenever their key comes again.
        """
        here = found.run < len(self._entries)
        is_due = ~late[found.query]
        self.deleted_here.add_found(found, here & is_due)
        self.deleted.add_found(found, ~here & deletes_old[found.query] & (is_due | overtaken[found.query]))
        self.own_files.update(path for path, own in zip(found.paths, found.own.tolist(), strict=True) if own)

    def _supersede(self, keys: Keys, found: Found, overtaken: Array) -> None:
        """Record that the newest row of this checkpoint replaces what is older of these keys."""
        rows = np.flatnonzero(overtaken[found.query] & (found.run < len(self._entries)))
        rows = rows[np.argsort(found.run[rows], kind="stable")]
        group, newest = np.unique(found.query[rows], return_index=True)
        rows = rows[newest]
        numbers = {path: number for number, path in enumerate(self._rows.paths)}
        numbered = np.array([numbers.get(path, -1) for path in found.paths], dtype=np.int32)
        entries = sort_entries(
            keys.take(group),
            numbered[found.file[rows]],
            found.positions[rows],
            np.full(len(group), SUPERSEDES),
            [RunFile(path, own=True) for path in self._rows.paths],
            sequence_values=None if found.sequence_values is None else found.sequence_values.take(group),
        )
        self._entries.insert(0, entries)
        self._held += len(entries)

    def _seen(self, found: Found, rows: int) -> Array:
        """(rows,) bool: keys that had an entry in this checkpoint, so their equality delete is written.

        Where an entry does not show this, as in a changelog, the delete is written again.
        """
        seen: Array = np.zeros(rows, dtype=bool)
        if self._target.mode == UPSERT:
            seen[found.query[found.run < len(self._entries)]] = True
        return seen

    def _count(self, removes: Array, late: Array, exists: Array) -> None:
        counts = self.counters
        counts["deletes"] += int(np.count_nonzero(removes & ~late))
        if self._target.uses_index:
            counts["deletes-of-unknown-keys"] += int(np.count_nonzero(removes & ~late & ~exists))
            counts["updates"] += int(np.count_nonzero(~removes & ~late & exists))
            counts["inserts"] += int(np.count_nonzero(~removes & ~late & ~exists))
        else:
            counts["rows"] += int(np.count_nonzero(~removes & ~late))
