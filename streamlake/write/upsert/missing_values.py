"""Fills in values that a change leaves out, from the row that the change replaces.

A database does not send values that an update left unchanged (TOASTed values arrive as unavailable values),
and a partial update has missing fields. Such a value is taken from the last change of the key in the same
table of changes that has it. Where there is none since the key was last deleted, it is taken from the key's
row in the files, of this checkpoint or of the table. After a key change the values come from the row under
the old key, which `key_changes` does. Invariant: rows are written whole or not at all. A value that is found
nowhere is treated by the policy, never by accident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import DecodeError, SchemaMismatchError
from streamlake.index.last_per_key import ranks
from streamlake.index.runs.lookup import Found
from streamlake.spec.types.data_types import NestedField
from streamlake.write.files.placed_writer import PlacedWriter
from streamlake.write.files.result import Refused
from streamlake.write.upsert.changes import Changes
from streamlake.write.upsert.old_rows import OldRows
from streamlake.write.upsert.part_rows import PartRows, part_rows
from streamlake.write.upsert.upsert_target import NULL, REJECT, UpsertTarget

Array = np.ndarray[Any, Any]
Place = tuple[str, int, int] | None
PlaceOf = Callable[[int], Place]
LastOf = Callable[[Array], Array]


class ChangeOrder:
    """The changes of some keys in the order in which they apply, for finding the last one that has a value.

    `group` (n,) int64 is the key number of each of n changes. `asked` are the numbers of the keys that
    matter, and `late` (n,) bool are the changes that do not count.
    """

    def __init__(self, changes: Changes, group: Array, asked: Array, late: Array) -> None:
        wanted: Array = np.zeros(int(group.max()) + 1 if len(group) else 0, dtype=bool)
        wanted[asked] = True
        rows = np.flatnonzero(wanted[group] & ~late)
        by = [] if changes.sequence_values is None else ranks(changes.sequence_values, rows)
        order = np.lexsort((rows, changes.order[rows], *reversed(by), group[rows]))
        self._rows = rows[order]
        groups = group[self._rows]
        self._places: Array = np.full(len(group), -1, dtype=np.int64)
        self._places[self._rows] = np.arange(len(self._rows))
        self._starts: Array = np.searchsorted(groups, groups)

    def last(self, known: Array, at: Array, *, before: bool = False) -> Array:
        """(k,) int64: for k changes `at`, the last change of the same key that is `known`, (n,) bool.

        The changes `at` must count. The change itself counts too, but not with
        `before`. -1 where there is none.
        """
        if not len(at):
            return np.zeros(0, dtype=np.int64)
        latest = self._latest(known)
        places = self._places[at]
        found = latest[np.maximum(places - 1, 0) if before else places]
        counts = (found >= self._starts[places]) & ~(before & (places == 0))
        return np.where(counts, self._rows[found], -1)

    def _latest(self, known: Array) -> Array:
        """For each place in the order, the last one up to it whose change is `known`.

        -1 where there is none.
        """
        latest: Array = np.maximum.accumulate(np.where(known[self._rows], np.arange(len(self._rows)), -1))
        return latest


@dataclass(frozen=True, eq=False)
class Filled:
    """The result of filling in left-out values.

    `rows` are whole rows, of the keys that bring one in and are neither refused nor held, in the order of the
    keys. `refused` (m,) bool are the keys whose row is refused. `held` (m,) bool are rows that wait for
    values of another key; they are in `waiting`, as `PartRows`. `took` (m,) int64 is the number, in what was
    found, of the row that values were taken over from, -1 for none. `missed` (m,) bool: a value is left out,
    and the key has no row to take it from.
    """

    rows: pa.Table
    refused: Array
    held: Array
    took: Array
    missed: Array
    waiting: PartRows | None = None


@dataclass(frozen=True, eq=False)
class _Sources:
    """Where the values of one column come from, for k rows.

    `change` (k,) int64 is the change that has the value, or -1. `older` (k,) bool: the key's row in a file
    has it. `move` (k,) int64 is the change that names another key whose row has it, or -1. `lacking` (k,)
    bool: it is found nowhere. `missed` (k,) bool: nowhere, because the key has no row in a file.
    """

    change: Array
    older: Array
    move: Array
    lacking: Array
    missed: Array


class MissingValues:
    """Fills in left-out values for one task, which writes its rows to `rows`."""

    def __init__(self, target: UpsertTarget, rows: PlacedWriter, counters: Counter[str]) -> None:
        self._target = target
        self._rows = rows
        self._old_rows = OldRows(target.table)
        self.policy = MissingValuePolicy(target, counters)

    def filled(
        self, changes: Changes, winners: Array, group: Array, found: Found, late: Array, brings: Array
    ) -> Filled:
        """The rows of those `winners` (m,) that bring one in, `brings` (m,) bool.

        `group` (n,) is the number of each change's key among the winners, `found` what the index knows of
        these keys, and `late` (n,) bool are the changes that do not count. Raises DecodeError for a value
        that is found nowhere, when the policy is to fail.
        """
        masks = {name: mask for name, mask in changes.missing.items() if (mask[winners] & brings).any()}
        partial: Array = np.zeros(len(winners), dtype=bool)
        for mask in masks.values():
            partial |= mask[winners]
        asked = np.flatnonzero(partial & brings)
        change_order = ChangeOrder(changes, group, asked, late)
        row = _newest_rows(found, len(winners))[asked]
        sources = {
            name: _sources(changes, mask, lambda known: change_order.last(known, winners[asked]), row)
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
        """The rows of keys just before the k changes `at` remove them, where there was one; None: no row.

        `group`, `found` and `late` are as for `filled`.
        """
        change_order = ChangeOrder(changes, group, np.unique(group[at]), late)
        row = _newest_rows(found, int(group.max()) + 1)[group[at]]
        none: Array = np.zeros(len(changes.keys), dtype=bool)
        sources = {
            name: _sources(
                changes,
                changes.missing.get(name, none),
                lambda known: change_order.last(known, at, before=True),
                row,
            )
            for name in changes.rows.column_names
        }
        # A key without a value of its key column has no row.
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
        """Rows of the table: the rows `base` (r,) of `changes`, with values from `sources`.

        k of them, at the places `at`, are put together from `sources`. `row` (k,) is the number in `found` of
        each key's row in a file.
        """
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


class MissingValuePolicy:
    """Applies the policy for values that are found nowhere, and counts them."""

    def __init__(self, target: UpsertTarget, counters: Counter[str]) -> None:
        self._target = target
        self.refused: list[Refused] = []
        self.counters = counters

    def judged(self, lacking: Mapping[str, Array], place: PlaceOf, rows: int) -> Array:
        """(n,) bool: which of n rows are refused.

        `lacking` has for each column (n,) bool the values that are found nowhere, and `place` gives the
        position of a row's record.

        Raises DecodeError when the policy is to fail, SchemaMismatchError when it cannot be followed.
        """
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
                "the table requires a value. Make the column optional in the table, or set the property to "
                "reject"
            )
        raise DecodeError(
            f"{message}; let the database send whole rows (PostgreSQL: alter table ... replica identity "
            "full), or set the table property streamlake.upsert.unset-values to reject or null for such "
            "changes"
        )

    def _nowhere(self, place: Place, column: str) -> str:
        where = "" if place is None else "{}-{} offset {}: ".format(*place)
        return (
            f"{where}{self._target.table.location}: column '{column}' has no value: the record leaves it out "
            "(a TOASTed value that an update did not change, or an absent field of a partial update), and "
            "there is no older row of its key to take it from"
        )


def _sources(changes: Changes, missing: Array, last: LastOf, row: Array) -> _Sources:
    """Where the values of a column come from for the changes in `missing`, (n,) bool, which leave them out.

    `row` (k,) is -1 where the key has no row in a file.
    """
    arrives = changes.is_key_change & ~changes.removes
    change = last(changes.removes | arrives | ~missing)
    there = change >= 0
    removed = there & changes.removes[change]
    move = np.where(there & arrives[change] & missing[change], change, -1)
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
    """(keys,) int64: the number in `found` of the newest row of each key, -1 where it has none."""
    newest: Array = np.full(keys, -1, dtype=np.int64)
    order = np.lexsort((found.positions, found.file, -found.run))
    newest[found.query[order]] = order
    return newest


def _place(changes: Changes, change: int) -> Place:
    """Topic, partition and offset of the record of a change; None when it came without them."""
    found = None if changes.places is None else changes.places[change].as_py()
    return None if found is None else (found["topic"], found["partition"], found["offset"])
