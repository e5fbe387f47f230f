"""Values that a change leaves out -> those of the row that it replaces.

A database does not send what an update left unchanged (TOASTed values), and a partial update has some fields only. Such a
value is that of the last change of the key in the same table of changes that knows it; where there is none since the key
was last deleted, that of the key's row in the files, of this checkpoint or of the table. Invariant: whole rows are written,
or none: what has no value anywhere is treated by the policy, never by accident.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import DecodeError, SchemaMismatchError
from streamlake.index.lookup import Found
from streamlake.write.changes import Changes
from streamlake.write.folding import Folding
from streamlake.write.old_rows import OldRows
from streamlake.write.placed_writer import PlacedWriter
from streamlake.write.result import Refused
from streamlake.write.upsert_target import NULL, REJECT, UpsertTarget

Array = Any  # numpy array


@dataclass(frozen=True, eq=False)
class Filled:
    """Whole rows, of those keys that bring one in and are not refused, in the order of the keys. `refused` (m,) bool."""

    rows: pa.Table
    refused: Array


@dataclass(frozen=True, eq=False)
class _Sources:
    """Where the values of one column come from, for k keys: `change` (k,) int64 is the change that knows it, or -1;
    `older` (k,) bool: the key's row in a file; `lacking` (k,) bool: nowhere."""

    change: Array
    older: Array
    lacking: Array


class UnsetValues:
    """Fills in for one task, which writes its rows to `rows`."""

    def __init__(self, target: UpsertTarget, rows: PlacedWriter, counters: Counter[str]) -> None:
        self._target = target
        self._rows = rows
        self._old_rows = OldRows(target.table)
        self.refused: list[Refused] = []
        self.counters = counters

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
            name: _sources(folding.last(changes.removes | ~mask), changes.removes, row)
            for name, mask in masks.items()
        }
        refused = self._judged(changes, winners[asked], sources)
        refused_keys: Array = np.zeros(len(winners), dtype=bool)
        refused_keys[asked[refused]] = True
        self.counters["filled"] += int(np.count_nonzero(~refused))
        brings = brings & ~refused_keys
        rows = self._composed(changes, winners, brings, asked[~refused], ~refused, found, row, sources)
        return Filled(rows, refused_keys)

    def _judged(self, changes: Changes, asked: Array, sources: dict[str, _Sources]) -> Array:
        """(k,) bool: which of the changes `asked` are refused because a value is nowhere."""
        policy = self._target.unset_values
        refused: Array = np.zeros(len(asked), dtype=bool)
        for part in self._target.table.schema.fields:
            source = sources.get(part.name)
            if source is None or not source.lacking.any():
                continue
            first = int(asked[np.argmax(source.lacking)])
            if policy == REJECT:
                refused |= source.lacking
            elif policy != NULL:
                raise DecodeError(f"{self._nowhere(changes, first, part.name)}; {_ADVICE}")
            elif part.required:
                raise SchemaMismatchError(
                    f"{self._nowhere(changes, first, part.name)}; it cannot become null as streamlake.upsert.unset-values says, because "
                    "the table requires a value. Make the column optional in the table, or set the property to reject"
                )
            else:
                self.counters["unset-nulls"] += int(np.count_nonzero(source.lacking))
        for at in np.flatnonzero(refused).tolist():
            name = next(name for name, source in sources.items() if source.lacking[at])
            reason = self._nowhere(changes, int(asked[at]), name)
            topic, partition, offset = _place(changes, int(asked[at])) or (None, None, None)
            self.refused.append(Refused(topic, partition, offset, reason))
        self.counters["refused"] += int(np.count_nonzero(refused))
        return refused

    def _nowhere(self, changes: Changes, change: int, column: str) -> str:
        place = _place(changes, change)
        where = "" if place is None else "{}-{} offset {}: ".format(*place)
        return (
            f"{where}{self._target.table.location}: column '{column}' has no value: the record leaves it out (a TOASTed value "
            "that an update did not change, or an absent field of a partial update), and there is no older row of its key "
            "to take it from"
        )

    def _composed(
        self,
        changes: Changes,
        winners: Array,
        brings: Array,
        asked: Array,
        kept: Array,
        found: Found,
        row: Array,
        sources: dict[str, _Sources],
    ) -> pa.Table:
        """The rows of the keys that bring one in, with the values of the `asked` ones put together."""
        place: Array = np.cumsum(brings) - 1
        at = place[asked]
        plain = changes.row_of[winners[brings]]
        own = pa.array(plain)
        older = {name: source.older[kept] for name, source in sources.items()}
        wanted: Array = np.zeros(len(asked), dtype=bool)
        for mask in older.values():
            wanted |= mask
        names = [name for name, mask in older.items() if mask.any()]
        old = self._read(found, row[kept][wanted], names)
        old_place: Array = np.cumsum(wanted) - 1
        columns = []
        for name, column in zip(changes.rows.column_names, changes.rows.columns, strict=True):
            if name not in sources:
                columns.append(column.take(own))
                continue
            change = sources[name].change[kept]
            index = plain.copy()
            index[at] = np.where(change >= 0, changes.row_of[change], -1)
            if name in names:
                index[at] = np.where(older[name], changes.rows.num_rows + old_place, index[at])
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


_ADVICE = (
    "let the database send whole rows (PostgreSQL: alter table ... replica identity full), or say by the table property "
    "streamlake.upsert.unset-values what becomes of such changes: reject, or null"
)


def _sources(change: Array, removes: Array, row: Array) -> _Sources:
    """Of the last change of each key that knows the value or takes the row out (-1: none), and its row in a file."""
    removed = (change >= 0) & removes[change]
    older = (change < 0) & (row >= 0)
    return _Sources(np.where(removed, -1, change), older, removed | ((change < 0) & (row < 0)))


def _newest_rows(found: Found, keys: int) -> Array:
    """(keys,) int64: the place in `found` of the newest row of each key, -1 where it has none."""
    newest: Array = np.full(keys, -1, dtype=np.int64)
    order = np.lexsort((found.positions, found.file, -found.run))
    newest[found.query[order]] = order
    return newest


def _place(changes: Changes, change: int) -> tuple[str, int, int] | None:
    """Topic, partition and offset of the record of a change, as far as it came with them."""
    found = None if changes.places is None else changes.places[change].as_py()
    return None if found is None else (found["topic"], found["partition"], found["offset"])
