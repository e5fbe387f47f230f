"""Rows of which some values are another key's, on their way from tasks to the driver, which puts them together.

Made by `unset_values`, taken by `moved_rows`. Invariant: a value that is not there is marked, never just null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.formats.unset_cells import unset_column
from streamlake.records import MOVED, PLACE, PLACE_TYPE, ROW_SEQUENCE, UNSET
from streamlake.write.changes import Changes

Array = Any  # numpy array

GUARD = "_guard"
"""The column of part rows that holds the guard of the change, where changes have any."""
NEW_KEY = "_new_key"
"""The column of rows that left their key that holds the key they have now, as MOVED does."""
BASE = "_base"
"""The column of rows that left their key that is true where they were as the table had them before the checkpoint."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """n rows of which some values are those of another key's row: `rows` with nulls there, UNSET, MOVED (the other key),
    and PLACE. `changes` (n,) int64 are the changes that they are the state after."""

    rows: pa.Table
    changes: Array


def part_rows(
    changes: Changes, rows: pa.Table, moves: Mapping[str, Array], lacking: Mapping[str, Array], of: Array
) -> PartRows:
    """Part rows, n of them: `moves` has for columns the change that says which other key's row has the value, (n,) int64, -1:
    none; `lacking`, (n,) bool, values that are nowhere. `of` are the changes. A row waits for one other key at most."""
    move: Array = np.full(len(of), -1, dtype=np.int64)
    masks: dict[str, Array] = {}
    for name in rows.column_names:
        masks[name] = np.zeros(len(of), dtype=bool)
        if name in moves:
            masks[name] |= moves[name] >= 0
            move = np.maximum(move, moves[name])
        if name in lacking:
            masks[name] |= lacking[name]
    at = pa.array(move, mask=move < 0)
    moved = pa.nulls(len(of)) if changes.moved is None else changes.moved.take(at)
    places = pa.nulls(len(of), PLACE_TYPE) if changes.places is None else changes.places.take(pa.array(of))
    table = rows.append_column(UNSET, unset_column(masks, len(of)))
    return PartRows(table.append_column(MOVED, moved).append_column(PLACE, places), of)


def guarded(parts: PartRows, changes: Changes) -> pa.Table:
    """Part rows with the guards of their changes and their places in the database's log, where there are any."""
    rows = parts.rows
    if changes.sequence is not None:
        rows = rows.append_column(ROW_SEQUENCE, changes.sequence.take(pa.array(parts.changes)))
    if changes.guards is None:
        return rows
    return rows.append_column(GUARD, pa.array(changes.guards.take(parts.changes).values))


def packed(tables: Sequence[pa.Table]) -> bytes:
    """Tables of part rows as one value."""
    if not tables:
        return b""
    sink = pa.BufferOutputStream()
    table = pa.concat_tables(tables)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(parts: Iterable[bytes]) -> pa.Table | None:
    """The rows of several such values as one table; None where there is none."""
    tables = [pa.ipc.open_stream(pa.py_buffer(part)).read_all() for part in parts if part]
    return pa.concat_tables(tables).combine_chunks() if tables else None
