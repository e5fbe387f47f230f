"""Finds the last change of each key: deduplication inside a checkpoint.

Runs in the writer task before anything is looked up or written. Rows are sorted by hash once; winners are
found per run of equal hashes. Invariant: the result is exact, also where different keys share a hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.index.keys.keys import Keys
from streamlake.index.keys.sequence_values import SequenceValues

Array = np.ndarray[Any, Any]

_FEW_BYTES = 64


def last_per_key(keys: Keys, order: Sequence[Array | pa.Array | SequenceValues] = ()) -> tuple[Array, Array]:
    """(winners, group) of n rows.

    `order` ranks the changes of a key, most significant first (sequence values, then source order): (n,)
    integers, Arrow arrays of integers or binary without nulls, or `SequenceValues`. The greatest wins; among
    equals the row that comes last. `winners` is (m,) int64: the winning rows, ascending, one per key. `group`
    is (n,) int64: for each row, the number of its key's winner among the winners.
    """
    rows = len(keys)
    if not rows:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    sorted_rows, starts = _by_key(keys)
    sizes = np.diff(starts, append=rows)
    last = _last_rows(sorted_rows, starts, sizes, order)
    wins: Array = np.zeros(rows, dtype=bool)
    wins[last] = True
    place = np.cumsum(wins) - 1
    group: Array = np.empty(rows, dtype=np.int64)
    group[sorted_rows] = np.repeat(place[last], sizes)
    return np.flatnonzero(wins), group


def _by_key(keys: Keys) -> tuple[Array, Array]:
    """The rows with equal keys next to each other, and where each key starts among them."""
    sorted_rows = keys.order
    hashes = keys.hashes[sorted_rows]
    new: Array = np.ones(len(hashes), dtype=bool)
    np.not_equal(hashes[1:], hashes[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if (keys.nulls is None and keys.data is None) or len(starts) == len(hashes):
        return sorted_rows, starts
    sizes = np.diff(starts, append=len(hashes))
    first: Array = np.repeat(starts, sizes)
    others = np.flatnonzero(~new)
    differs = ~keys.take(sorted_rows[others]).equal(keys.take(sorted_rows[first[others]]))
    if not differs.any():
        return sorted_rows, starts
    mixed: Array = np.zeros(len(hashes), dtype=bool)
    mixed[first[others[differs]]] = True
    return _untangled(keys, sorted_rows.copy(), new, np.flatnonzero(mixed[first]))


def _untangled(keys: Keys, sorted_rows: Array, new: Array, mixed: Array) -> tuple[Array, Array]:
    """Split the runs of equal hashes that hold several keys; `mixed` are all places in such runs."""
    some = sorted_rows[mixed]
    codes: Array = np.zeros(len(some), dtype=np.int64)
    if keys.data is not None:
        codes += pc.dictionary_encode(keys.data.take(pa.array(some))).indices.to_numpy()
    if keys.nulls is not None:
        codes = codes * 2 + keys.nulls[some]
    hashes = keys.hashes[some]
    order = np.lexsort((codes, hashes))
    sorted_rows[mixed] = some[order]
    codes, hashes = codes[order], hashes[order]
    new[mixed[1:]] = (codes[1:] != codes[:-1]) | (hashes[1:] != hashes[:-1])
    return sorted_rows, np.flatnonzero(new)


def _last_rows(sorted_rows: Array, starts: Array, sizes: Array, order: Sequence[Any]) -> Array:
    """The winning row of each key. The candidates of keys with several rows are narrowed column by column."""
    if len(starts) == len(sorted_rows):
        return sorted_rows
    if not order:
        return np.maximum.reduceat(sorted_rows, starts)
    last = sorted_rows[starts]
    several = np.flatnonzero(sizes > 1)
    rows = sorted_rows[np.repeat(sizes > 1, sizes)]
    sizes = sizes[several]
    for column in order:
        for at, values in enumerate(ranks(column, rows)):
            if not at:
                ranked = np.arange(len(rows))
            firsts = np.cumsum(sizes) - sizes
            found = values[ranked]
            best = found == np.repeat(np.maximum.reduceat(found, firsts), sizes)
            rows, ranked = rows[best], ranked[best]
            sizes = np.add.reduceat(best.astype(np.int64), firsts)
    last[several] = np.maximum.reduceat(rows, np.cumsum(sizes) - sizes)
    return last


def ranks(column: Array | pa.Array | SequenceValues, rows: Array) -> list[Array]:
    """Integers that order as the values of (m,) `rows` do: arrays of (m,), most significant first."""
    values = column.values if isinstance(column, SequenceValues) else column
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        return [np.asarray(values)[rows]]
    if pa.types.is_integer(values.type):
        return [values.to_numpy(zero_copy_only=False)[rows]]
    data, _, lengths = byte_strings(values)
    width = int(lengths[0])
    if (lengths != width).any() or not 0 < width <= _FEW_BYTES:
        values = values.take(pa.array(rows))
        return [pc.rank(values, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)]
    padded: Array = np.zeros((len(rows), (width + 7) // 8 * 8), dtype=np.uint8)
    padded[:, :width] = data.reshape(-1, width)[rows]
    return [word.astype(np.uint64) for word in padded.view(">u8").T]
