"""Values that a change leaves out -> those of the row that it replaces.

A database does not send what an update left unchanged (TOASTed values), and a partial update has some fields only. Such a
value is that of the last change of the key in the same table of changes that knows it; where there is none since the key
was last deleted, that of the key's row in the files, of this checkpoint or of the table. A row that came from another key
takes it over from there, which `moved_rows` does. Invariant: whole rows are written, or none: what has no value anywhere
is treated by the policy, never by accident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import DecodeError, SchemaMismatchError
from streamlake.index.lookup import Found
from streamlake.spec.types import NestedField
from streamlake.write.changes import Changes
from streamlake.write.folding import Folding
from streamlake.write.old_rows import OldRows
from streamlake.write.part_rows import PartRows, part_rows
from streamlake.write.placed_writer import PlacedWriter
from streamlake.write.result import Refused
from streamlake.write.upsert_target import NULL, REJECT, UpsertTarget

Array = Any  # numpy array
Place = tuple[str, int, int] | None
PlaceOf = Callable[[int], Place]
LastOf = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Filled:
    """Whole rows, of those keys that bring one in and are neither refused nor held, in the order of the keys.

    `refused` (m,) bool; `held` (m,) bool: rows that wait for values of another key, which are in `waiting`, as `PartRows`.
    `took` (m,) int64: the place in what was found of the row that values were taken over from, -1: of none; `missed` (m,)
    bool: a value is left out, and there is no row of the key to take it from.
    """

    rows: pa.Table
    refused: Array
    held: Array
    took: Array
    missed: Array
    waiting: PartRows | None = None


@dataclass(frozen=True, eq=False)
class _Sources:
    """Where the values of one column come from, for k rows: `change` (k,) int64 is the change that knows it, or -1;
    `older` (k,) bool: the key's row in a file; `move` (k,) int64: another key's row, as this change says, or -1;
    `lacking` (k,) bool: nowhere, and `missed` (k,) bool: because the key has no row in a file."""

    change: Array
    older: Array
    move: Array
    lacking: Array
    missed: Array


class UnsetValues:
    """Fills in for one task, which writes its rows to `rows`."""

    def __init__(self, target: UpsertTarget, rows: PlacedWriter, counters: Counter[str]) -> None:
        self._target = target
        self._rows = rows
        self._old_rows = OldRows(target.table)
        self.policy = UnsetPolicy(target, counters)

    def filled(
        self, changes: Changes, winners: Array, group: Array, found: Found, late: Array, brings: Array
    ) -> Filled:
        """The rows of those `winners` (m,) that bring one in (m,) bool. `group` (n,) is the place of each change's key
        among the winners, `found` what the index knows of these, and `late` (n,) tells the changes that do not count.

        Raises DecodeError for a value that is nowhere, where the policy is to fail.
        """
        masks = {name: mask for name, mask in changes.unset.items() if (mask[winners] & brings).any()}
        partial: Array = np.zeros(len(winners), dtype=bool)
        for mask in masks.values():
            partial |= mask[winners]
        asked = np.flatnonzero(partial & brings)
        folding = Folding(changes, group, asked, late)
        row = _newest_rows(found, len(winners))[asked]
        sources = {
            name: _sources(changes, mask, lambda known: folding.last(known, winners[asked]), row)
            for name, mask in masks.items()
        }
        lacking = {name: source.lacking for name, source in sources.items()}
        refused = self.policy.judged(lacking, lambda at: _place(changes, int(winners[asked[at]])), len(asked))
        held = _any([source.move >= 0 for source in sources.values()], len(asked)) & ~refused
        refused_keys, held_keys = (_spread(asked[mask], len(winners)) for mask in (refused, held))
        whole = ~refused & ~held
        self.policy.counters["filled"] += int(np.count_nonzero(whole))
        brings = brings & ~refused_keys & ~held_keys
        base = changes.row_of[winners[brings]]
        at = (np.cumsum(brings) - 1)[asked[whole]]
        rows = self._composed(changes, base, at, _chosen(sources, whole), found, row[whole])
        waiting = None
        if held.any():
            some = _chosen(sources, held)
            of = winners[asked[held]]
            parts = self._composed(changes, changes.row_of[of], np.arange(len(of)), some, found, row[held])
            moves = {name: source.move for name, source in some.items()}
            waiting = part_rows(changes, parts, moves, {}, of)
        older = _any([source.older for source in sources.values()], len(asked))
        missed = _any([source.missed for source in sources.values()], len(asked))
        took: Array = np.full(len(winners), -1, dtype=np.int64)
        took[asked] = np.where(older, row, -1)
        return Filled(rows, refused_keys, held_keys, took, _spread(asked[missed], len(winners)), waiting)

    def before(self, changes: Changes, at: Array, group: Array, found: Found, late: Array) -> PartRows | None:
        """The rows of keys as they were before the k changes `at`, which take them out; those that there were.

        `group`, `found` and `late` as for `filled`.
        """
        folding = Folding(changes, group, np.unique(group[at]), late)
        row = _newest_rows(found, int(group.max()) + 1)[group[at]]
        none: Array = np.zeros(len(changes.keys), dtype=bool)
        sources = {
            name: _sources(
                changes,
                changes.unset.get(name, none),
                lambda known: folding.last(known, at, before=True),
                row,
            )
            for name in changes.rows.column_names
        }
        # Where the key has no value, it has no row.
        key = sources[self._target.key.columns[0]]
        there = ~key.lacking
        if not there.any():
            return None
        some = _chosen(sources, there)
        count = int(np.count_nonzero(there))
        blank: Array = np.full(count, -1, dtype=np.int64)
        parts = self._composed(changes, blank, np.arange(count), some, found, row[there])
        moves = {name: source.move for name, source in some.items()}
        return part_rows(
            changes, parts, moves, {name: source.lacking for name, source in some.items()}, at[there]
        )

    def _composed(
        self,
        changes: Changes,
        base: Array,
        at: Array,
        sources: Mapping[str, _Sources],
        found: Found,
        row: Array,
    ) -> pa.Table:
        """Rows of the table: the rows `base` (r,) of `changes`, with the values of k of them, which are at the places `at`,
        put together from `sources`. `row` (k,) is the place in `found` of each key's row in a file."""
        wanted = _any([source.older for source in sources.values()], len(at))
        names = [name for name, source in sources.items() if source.older.any()]
        old = self._read(found, row[wanted], names)
        old_place: Array = np.cumsum(wanted) - 1
        own = pa.array(base, mask=base < 0)
        columns = []
        for name, column in zip(changes.rows.column_names, changes.rows.columns, strict=True):
            source = sources.get(name)
            if source is None:
                columns.append(column.take(own))
                continue
            index = base.copy()
            index[at] = np.where(source.change >= 0, changes.row_of[source.change], -1)
            if name in names:
                index[at] = np.where(source.older, column.length() + old_place, index[at])
                column = pa.chunked_array([*column.chunks, *old.column(name).chunks], column.type)
            columns.append(column.take(pa.array(index, mask=index < 0)))
        return pa.Table.from_arrays(columns, schema=changes.rows.schema)

    def _read(self, found: Found, rows: Array, names: Sequence[str]) -> pa.Table:
        numbers = np.unique(found.file[rows]).tolist()
        paths = {found.paths[number] for number in numbers}
        files = self._rows.finished(paths)
        live = self._target.live_files
        files.update((path, live[path].data_file) for path in paths if path not in files)
        return self._old_rows.read(found.paths, found.file[rows], found.positions[rows], names, files)


class UnsetPolicy:
    """What becomes of changes with values that are nowhere, and how many there were."""

    def __init__(self, target: UpsertTarget, counters: Counter[str]) -> None:
        self._target = target
        self.refused: list[Refused] = []
        self.counters = counters

    def judged(self, lacking: Mapping[str, Array], place: PlaceOf, rows: int) -> Array:
        """(n,) bool: which of n rows are refused, because of columns that they are `lacking`, (n,) bool each. `place` says
        where a row's record is. Raises DecodeError or SchemaMismatchError where the policy is to fail or cannot be kept."""
        policy = self._target.unset_values
        refused: Array = np.zeros(rows, dtype=bool)
        for part in self._target.table.schema.fields:
            mask = lacking.get(part.name)
            if mask is None or not mask.any():
                continue
            if policy == REJECT:
                refused |= mask
            elif policy == NULL and not part.required:
                self.counters["unset-nulls"] += int(np.count_nonzero(mask))
            else:
                self._fail(part, place(int(np.argmax(mask))))
        for at in np.flatnonzero(refused).tolist():
            name = next(name for name, mask in lacking.items() if mask[at])
            topic, partition, offset = place(at) or (None, None, None)
            self.refused.append(Refused(topic, partition, offset, self._nowhere(place(at), name)))
        self.counters["refused"] += int(np.count_nonzero(refused))
        return refused

    def _fail(self, part: NestedField, place: Place) -> None:
        message = self._nowhere(place, part.name)
        if self._target.unset_values == NULL:
            raise SchemaMismatchError(
                f"{message}; it cannot become null as streamlake.upsert.unset-values says, because "
                "the table requires a value. Make the column optional in the table, or set the property to reject"
            )
        raise DecodeError(
            f"{message}; let the database send whole rows (PostgreSQL: alter table ... replica identity full), or say by the "
            "table property streamlake.upsert.unset-values what becomes of such changes: reject, or null"
        )

    def _nowhere(self, place: Place, column: str) -> str:
        where = "" if place is None else "{}-{} offset {}: ".format(*place)
        return (
            f"{where}{self._target.table.location}: column '{column}' has no value: the record leaves it out (a TOASTed value "
            "that an update did not change, or an absent field of a partial update), and there is no older row of its key "
            "to take it from"
        )


def _sources(changes: Changes, unset: Array, last: LastOf, row: Array) -> _Sources:
    """Where the values of a column come from that the changes in `unset`, (n,) bool, leave out; `row` (k,) is -1 where the
    key has no row in a file."""
    arrives = changes.is_moved & ~changes.removes
    change = last(changes.removes | arrives | ~unset)
    there = change >= 0
    removed = there & changes.removes[change]
    move = np.where(there & arrives[change] & unset[change], change, -1)
    missed = ~there & (row < 0)
    return _Sources(
        np.where(removed | (move >= 0), -1, change), ~there & (row >= 0), move, removed | missed, missed
    )


def _chosen(sources: Mapping[str, _Sources], mask: Array) -> dict[str, _Sources]:
    return {
        name: _Sources(
            each.change[mask], each.older[mask], each.move[mask], each.lacking[mask], each.missed[mask]
        )
        for name, each in sources.items()
    }


def _any(masks: Sequence[Array], rows: int) -> Array:
    found: Array = np.zeros(rows, dtype=bool)
    for mask in masks:
        found |= mask
    return found


def _spread(places: Array, rows: int) -> Array:
    mask: Array = np.zeros(rows, dtype=bool)
    mask[places] = True
    return mask


def _newest_rows(found: Found, keys: int) -> Array:
    """(keys,) int64: the place in `found` of the newest row of each key, -1 where it has none."""
    newest: Array = np.full(keys, -1, dtype=np.int64)
    order = np.lexsort((found.positions, found.file, -found.run))
    newest[found.query[order]] = order
    return newest


def _place(changes: Changes, change: int) -> Place:
    """Topic, partition and offset of the record of a change, as far as it came with them."""
    found = None if changes.places is None else changes.places[change].as_py()
    return None if found is None else (found["topic"], found["partition"], found["offset"])
