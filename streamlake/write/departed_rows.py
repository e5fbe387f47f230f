"""Rows that left their key in this checkpoint: what they were, as far as the table does not say it.

A task keeps them for the driver, for rows that came to another key without all of their values (`moved_rows`). Where the
row did not change in this checkpoint before it left, it is still in a file as the index knew it, and nothing is told; but
that it is so must be told where its key has a new row by the end. Invariant: whoever asks for a row that left gets it as
it was then, never what its key has now.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.keys import Keys
from streamlake.index.lookup import Found, KeyIndex
from streamlake.write.changes import Changes
from streamlake.write.part_rows import BASE, NEW_KEY, PartRows, guarded, part_rows
from streamlake.write.unset_values import UnsetValues

Array = Any  # numpy array


class DepartedRows:
    """Those of one task."""

    def __init__(self, unset: UnsetValues) -> None:
        self._unset = unset
        self._told: list[pa.Table] = []
        self._left: list[tuple[Keys, pa.Table]] = []

    def note(self, changes: Changes, group: Array, found: Found, late: Array, newer: int) -> None:
        """Take the moves among n changes, with the keys' rows in `found`; runs before `newer` are of this checkpoint. `group`
        and `late` as for `UnsetValues.filled`."""
        at = np.flatnonzero(changes.is_moved & changes.removes & ~late)
        if not len(at):
            return
        changed: Array = np.bincount(group[~late], minlength=int(group.max()) + 1) > 1
        changed[found.query[found.run < newer]] = True
        told = at[changed[group[at]]]
        if len(told):
            parts = self._unset.before(changes, told, group, found, late)
            if parts is not None:
                self._told.append(_shipped(parts, changes, base=False))
        left = at[~changed[group[at]]]
        if len(left):
            parts = part_rows(changes, _keys_alone(changes, left), {}, {}, left)
            self._left.append((changes.keys.take(left), _shipped(parts, changes, base=True)))

    def tables(self, now: KeyIndex) -> list[pa.Table]:
        """What is to be told, when `now` is all that the checkpoint knows of its keys."""
        again = []
        for keys, table in self._left:
            exists = now.lookup(keys).exists
            if exists.any():
                again.append(table.filter(pa.array(exists)))
        return [*self._told, *again]


def _keys_alone(changes: Changes, at: Array) -> pa.Table:
    """Rows of which only the key is known."""
    keyed = changes.keyed.take(pa.array(at))
    return pa.Table.from_arrays(
        [
            keyed.column(part.name) if part.name in keyed.column_names else pa.nulls(len(at), part.type)
            for part in changes.rows.schema
        ],
        schema=changes.rows.schema,
    )


def _shipped(parts: PartRows, changes: Changes, *, base: bool) -> pa.Table:
    assert changes.moved is not None
    new_keys = changes.moved.take(pa.array(parts.changes))
    table = guarded(parts, changes).append_column(NEW_KEY, new_keys)
    return table.append_column(BASE, pa.array(np.full(len(parts.changes), base)))
