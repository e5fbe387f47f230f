"""Truncates: finds in the runs of a bucket the keys whose rows a truncate deletes.

A truncate has a source position S (a position in the database's log). It deletes all older rows, whatever
partition it arrived through. The index keeps the sequence value of each key, so the task of a bucket finds
its rows below S. Invariant: a key is deleted as a whole, when the greatest sequence value known of it is
below S, or when none is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceValues
from streamlake.index.last_per_key import last_per_key
from streamlake.index.runs.entries import NO_SEQUENCE, TOMBSTONE, Entries
from streamlake.index.runs.lookup import Found, KeyIndex, Live, blocks_of, live_files
from streamlake.index.runs.run import Run
from streamlake.records import ROW_SEQUENCE
from streamlake.write.rows.conversion import NotConvertibleError, converted
from streamlake.write.upsert.upsert_target import UPSERT, UpsertTarget

Array = np.ndarray[Any, Any]

TruncatePosition = int | str
"""A source position: a position in a database's log, as its envelope gives it."""


def later(a: TruncatePosition | None, b: TruncatePosition | None) -> TruncatePosition | None:
    """The greater of two source positions; None means there is none.

    Raises InvalidOptionError when they cannot be compared.
    """
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, str) != isinstance(b, str):
        raise InvalidOptionError(
            f"truncates at {a!r} and at {b!r} come from different databases, whose logs cannot be compared; "
            "give each its own table"
        )
    return max(a, b)


def sequence_of(target: UpsertTarget, position: TruncatePosition) -> SequenceValues:
    """The sequence value that a change at this source position would have, as one row.

    Raises InvalidOptionError when rows are not ordered by one column that holds source positions.
    """
    codec = target.key.sequence_codec
    table = target.table.location
    if not target.uses_index or codec is None or len(codec.fields) != 1 or target.mode != UPSERT:
        raise InvalidOptionError(
            f"{table}: the database truncated its table at {position!r}, which deletes the rows that are "
            f"older; that takes sequence_by=['{ROW_SEQUENCE}'], the position in the database's log (or a "
            "column that keeps it), mode 'upsert' and a delete_mode other than 'equality'; here these are "
            f"[{', '.join(target.key.sequence_by)}], '{target.mode}' and '{target.delete_mode}'"
        )
    try:
        column = converted(pa.array([position]), codec.fields[0].type, codec.fields[0].name)
    except NotConvertibleError as error:
        raise SchemaMismatchError(
            f"{table}: a truncate at {position!r} cannot be compared with column '{codec.fields[0].name}' of "
            f"`sequence_by`: {error.message}. Order by the position in the database's log: "
            f"sequence_by=['{ROW_SEQUENCE}']"
        ) from error
    return codec.encode([column], table)


def keys_below(
    parts: Sequence[Run | Entries],
    live: Live,
    bound: SequenceValues,
    places: Callable[[SequenceValues], SequenceValues],
) -> Iterator[tuple[Keys, Found]]:
    """The keys of some runs (newest first) that a truncate at `bound` deletes, each once, and their rows.

    They come one stretch of the runs at a time. `places` gives what sequence
    values count with against truncates.
    """
    index = KeyIndex(parts, live)
    for number, part in enumerate(parts):
        alive = live_files(part, live)
        for block in blocks_of(part):
            entries = block.entries(0, len(block), ())
            block.release()
            rows = np.flatnonzero(entries.flags & TOMBSTONE == 0)
            rows = rows[alive[entries.files[rows]]]
            if entries.sequence_values is not None:
                known = entries.flags[rows] & NO_SEQUENCE == 0
                old = places(entries.sequence_values.take(rows)).below(
                    bound.take(np.zeros(len(rows), dtype=np.int64))
                )
                rows = rows[~known | old]
            keys = entries.keys.take(rows)
            keys = keys.take(last_per_key(keys)[0])
            found = index.lookup(keys)
            # If another run knows a newer row of the key, the key is reported with that run.
            newest: Array = np.full(len(keys), len(parts), dtype=np.int64)
            np.minimum.at(newest, found.query, found.run)
            gone = newest == number
            if found.sequence_values is not None and found.sequence_known is not None:
                below = places(found.sequence_values).below(bound.take(np.zeros(len(keys), dtype=np.int64)))
                gone &= ~found.sequence_known | below
            if gone.any():
                chosen = keys.take(np.flatnonzero(gone))
                yield chosen, _of(found, gone)


def _of(found: Found, keys: Array) -> Found:
    """What was found of the keys in a mask. `query` still numbers all keys."""
    rows = keys[found.query]
    return Found(
        found.query[rows],
        found.run[rows],
        found.file[rows],
        found.positions[rows],
        found.paths,
        found.own,
        found.exists,
    )
