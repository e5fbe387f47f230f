"""Part rows: rows that wait for values of another key's row, as tasks send them to the driver.

Made by `missing_values`, completed by `key_changes`. Invariant: a missing value is marked in MISSING_FIELDS,
never just null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.formats.arrow.missing_fields import missing_fields_column
from streamlake.records import KEY_CHANGE, MISSING_FIELDS, PLACE, PLACE_TYPE, ROW_SEQUENCE
from streamlake.write.upsert.changes import Changes

Array = np.ndarray[Any, Any]

SEQUENCE_VALUE = "_guard"
"""The column of part rows with the sequence value of the change, where changes have one."""
NEW_KEY = "_new_key"
"""The column, in rows that left their key, with the key they have now; as KEY_CHANGE."""
BASE = "_base"
"""The column, in rows that left their key, that is true where the row was as the
table had it before the checkpoint.
"""


@dataclass(frozen=True, eq=False)
class PartRows:
    """n rows that wait for values of another key's row.

    `rows` has nulls for these values, and the columns MISSING_FIELDS, KEY_CHANGE (the other key) and PLACE.
    `changes` (n,) int64 is the number of the change that each row is the state after.
    """

    rows: pa.Table
    changes: Array


def part_rows(
    changes: Changes, rows: pa.Table, moves: Mapping[str, Array], lacking: Mapping[str, Array], of: Array
) -> PartRows:
    """Part rows (n of them), the states after the changes `of`.

    `moves` has for each column (n,) int64: the change that says which other key's row has the value,
    -1 for none. `lacking` has for each column (n,) bool: the values that are found nowhere. A row
    waits for one other key at most.
    """
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
    key_changes = pa.nulls(len(of)) if changes.key_changes is None else changes.key_changes.take(at)
    places = pa.nulls(len(of), PLACE_TYPE) if changes.places is None else changes.places.take(pa.array(of))
    table = rows.append_column(MISSING_FIELDS, missing_fields_column(masks, len(of)))
    return PartRows(table.append_column(KEY_CHANGE, key_changes).append_column(PLACE, places), of)


def sequenced(parts: PartRows, changes: Changes) -> pa.Table:
    """Part rows with the sequence values and the source positions of their changes, where these have any."""
    rows = parts.rows
    if changes.sequence is not None:
        rows = rows.append_column(ROW_SEQUENCE, changes.sequence.take(pa.array(parts.changes)))
    if changes.sequence_values is None:
        return rows
    return rows.append_column(SEQUENCE_VALUE, pa.array(changes.sequence_values.take(parts.changes).values))


def packed(tables: Sequence[pa.Table]) -> bytes:
    """Tables of part rows as one value, an Arrow IPC stream; empty when there are none."""
    if not tables:
        return b""
    sink = pa.BufferOutputStream()
    table = pa.concat_tables(tables)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(parts: Iterable[bytes]) -> pa.Table | None:
    """The rows of several values of `packed` as one table; None when there are none."""
    tables = [pa.ipc.open_stream(pa.py_buffer(part)).read_all() for part in parts if part]
    return pa.concat_tables(tables).combine_chunks() if tables else None
