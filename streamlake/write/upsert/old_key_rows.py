"""Records what rows were when their key changed in this checkpoint, where the table does not already show it.

A task of the old key keeps this for the driver, which completes rows that arrived under a new key without all
of their values (`key_changes`). Where a row did not change in this checkpoint before it left its key, it is
still in a file as the index knew it. Then nothing is recorded, unless its key has a new row by the end of the
checkpoint: then the record says that the row was as the table had it. Invariant: whoever asks for a row that
left its key gets the row as it was then, never what the key has now.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.index.keys.keys import Keys
from streamlake.index.runs.lookup import Found, KeyIndex
from streamlake.write.upsert.changes import Changes
from streamlake.write.upsert.missing_values import MissingValues
from streamlake.write.upsert.part_rows import BASE, NEW_KEY, PartRows, part_rows, sequenced

Array = np.ndarray[Any, Any]


class OldKeyRows:
    """The rows of one task that left their key."""

    def __init__(self, missing: MissingValues) -> None:
        self._missing = missing
        self._recorded: list[pa.Table] = []
        self._left: list[tuple[Keys, pa.Table]] = []

    def note(self, changes: Changes, group: Array, found: Found, late: Array, newer: int) -> None:
        """Record the key changes among n changes.

        `found` has the rows of the keys; runs with a number below `newer` are of this checkpoint. `group` and
        `late` are as for `UnsetValues.filled`.
        """
        at = np.flatnonzero(changes.is_key_change & changes.removes & ~late)
        if not len(at):
            return
        changed: Array = np.bincount(group[~late], minlength=int(group.max()) + 1) > 1
        changed[found.query[found.run < newer]] = True
        recorded = at[changed[group[at]]]
        if len(recorded):
            parts = self._missing.before(changes, recorded, group, found, late)
            if parts is not None:
                self._recorded.append(_shipped(parts, changes, base=False))
        left = at[~changed[group[at]]]
        if len(left):
            parts = part_rows(changes, _keys_alone(changes, left), {}, {}, left)
            self._left.append((changes.keys.take(left), _shipped(parts, changes, base=True)))

    def tables(self, now: KeyIndex) -> list[pa.Table]:
        """The tables of part rows for the driver.

        `now` is the index of all that the checkpoint has written for its keys.
        """
        again = []
        for keys, table in self._left:
            exists = now.lookup(keys).exists
            if exists.any():
                again.append(table.filter(pa.array(exists)))
        return [*self._recorded, *again]


def _keys_alone(changes: Changes, at: Array) -> pa.Table:
    """Rows that have only their key columns; all others are null."""
    keyed = changes.keyed.take(pa.array(at))
    return pa.Table.from_arrays(
        [
            keyed.column(part.name) if part.name in keyed.column_names else pa.nulls(len(at), part.type)
            for part in changes.rows.schema
        ],
        schema=changes.rows.schema,
    )


def _shipped(parts: PartRows, changes: Changes, *, base: bool) -> pa.Table:
    assert changes.key_changes is not None
    new_keys = changes.key_changes.take(pa.array(parts.changes))
    table = sequenced(parts, changes).append_column(NEW_KEY, new_keys)
    return table.append_column(BASE, pa.array(np.full(len(parts.changes), base)))
