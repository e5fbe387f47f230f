"""The demo's orders: a generated stream of changes, always the same, and the table that it must lead to.

Changes happen in one order and are delivered in another: some come late, after newer ones of the same order.
The final content follows from the versions alone, whatever the delivery.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Array = np.ndarray[Any, Any]

REGIONS = ("eu", "us", "apac", "latam")
STATUSES = ("placed", "paid", "packed", "shipped", "delivered", "returned")
KEY, VERSION, OPERATION = "order_id", "version", "op"
CREATE, UPDATE, DELETE = "c", "u", "d"
FILES, FILES_PER_CHECKPOINT = 16, 2
SEED = 20240301

_CREATES, _DELETES, _MOVES, _LATE = 0.3, 0.1, 0.03, 0.03
_START = int(datetime(2024, 3, 1, tzinfo=timezone.utc).timestamp())
_SPAN_US = 4 * 86_400_000_000
_KINDS = np.array([CREATE, UPDATE, DELETE])

SCHEMA = pa.schema(
    [
        (KEY, pa.int64()),
        ("region", pa.string()),
        ("customer_id", pa.int64()),
        ("status", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("updated_at", pa.timestamp("us", tz="UTC")),
        (VERSION, pa.int64()),
    ]
)
CHANGE_SCHEMA = pa.schema([*SCHEMA, (OPERATION, pa.string())])


@dataclass(frozen=True)
class OrderStream:
    """`changes` as they are delivered, in CHANGE_SCHEMA, and the `final` orders by id, in SCHEMA.

    `kinds` counts the changes by operation, `moved` those that move an order to another region. `late` counts
    those that a sink reads after a newer one from an earlier checkpoint, one per order and checkpoint, and
    must ignore.
    """

    changes: pa.Table
    final: pa.Table
    kinds: Mapping[str, int]
    moved: int
    late: int


@dataclass(frozen=True)
class _Histories:
    """The changes grouped by order, and within it in the order in which they happened."""

    order: Array
    version: Array
    kind: Array
    moved: Array
    at: Array


def order_stream(changes: int) -> OrderStream:
    """A stream of `changes` changes.

    Three in ten create an order, the others update or delete one, recent ones more often; a deleted order may
    come back. Some updates move an order to another region.
    """
    random = np.random.default_rng(SEED)
    histories = _histories(random, changes)
    table = _rows(random, histories)
    last: Array = np.append(histories.order[1:] != histories.order[:-1], True)
    kept = np.flatnonzero(last & (histories.kind != DELETE))
    delivered = _delivery(random, histories.at)
    kinds, counts = np.unique(histories.kind, return_counts=True)
    return OrderStream(
        changes=table.take(delivered),
        final=table.select(SCHEMA.names).take(kept),
        kinds={CREATE: 0, UPDATE: 0, DELETE: 0, **dict(zip(kinds.tolist(), counts.tolist(), strict=True))},
        moved=int(np.count_nonzero(histories.moved)),
        late=_late(histories, delivered),
    )


def write_changes(folder: Path, changes: pa.Table) -> None:
    """Write the changes into `folder` as up to 16 Parquet files, in the order of delivery.

    The folder becomes visible only when it is complete, as a file stream demands.
    """
    hidden = folder.with_name(f"_{folder.name}")
    hidden.mkdir(parents=True)
    for at, (first, end) in enumerate(_cuts(changes.num_rows)):
        path = hidden / f"part-{at:02d}.parquet"
        pq.write_table(changes.slice(first, end - first), path, compression="snappy")
        # A file stream takes files by modification time: one second apart, they come in order.
        os.utime(path, (_START + at, _START + at))
    hidden.rename(folder)


def checkpoints_of(changes: int) -> int:
    """How many checkpoints the files of so many changes make."""
    return -(-min(FILES, changes) // FILES_PER_CHECKPOINT)


def _cuts(rows: int) -> list[tuple[int, int]]:
    files = min(FILES, rows)
    return [(at * rows // files, (at + 1) * rows // files) for at in range(files)]


def _histories(random: Any, changes: int) -> _Histories:
    creates: Array = random.random(changes) < _CREATES
    creates[:1] = True
    known = np.cumsum(creates)
    touched = (known * np.sqrt(random.random(changes))).astype(np.int64)
    order = np.where(creates, known - 1, np.minimum(touched, known - 1))
    at = np.argsort(order, kind="stable")
    order = order[at]
    starts: Array = np.append(True, order[1:] != order[:-1])
    ordinal = np.arange(changes) - np.maximum.accumulate(np.where(starts, np.arange(changes), 0))
    # Never two deletes in a row: the change after a delete brings the order back.
    drawn: Array = (random.random(changes) < _DELETES) & ~starts
    deletes = drawn & ~np.append(False, drawn[:-1])
    comes = starts | np.append(False, deletes[:-1])
    moved: Array = (random.random(changes) < _MOVES) & ~deletes & ~comes
    kind = _KINDS[np.where(deletes, 2, np.where(comes, 0, 1))]
    return _Histories(order, ordinal + 1, kind, moved, at)


def _rows(random: Any, histories: _Histories) -> pa.Table:
    """Whole rows; those of a deleted order are as it was last known."""
    order, changes = histories.order, len(histories.order)
    orders = int(order[-1]) + 1
    first = histories.version == 1
    moves = np.cumsum(histories.moved)
    moves -= np.maximum.accumulate(np.where(first, moves, 0))
    region = (random.integers(0, len(REGIONS), orders)[order] + moves) % len(REGIONS)
    customer = random.integers(1, 20_000, orders)[order]
    status = np.minimum(histories.version - 1, len(STATUSES) - 1)
    cents: Array = random.integers(100, 50_000, changes, dtype=np.int64)
    micros = _START * 1_000_000 + histories.at * (_SPAN_US // changes)
    return pa.table(
        [
            pa.array(order + 1),
            _texts(region, REGIONS),
            pa.array(customer),
            _texts(status, STATUSES),
            _decimals(cents),
            pa.array(micros).cast(SCHEMA.field("updated_at").type),
            pa.array(histories.version),
            pa.array(histories.kind),
        ],
        schema=CHANGE_SCHEMA,
    )


def _delivery(random: Any, at: Array) -> Array:
    """The indexes of the histories in the order of delivery: as they happened, but a few later."""
    changes = len(at)
    delay: Array = random.integers(0, max(changes * 3 // 8, 1), changes)
    late: Array = random.random(changes) < _LATE
    return np.argsort(at + np.where(late, delay, 0), kind="stable")


def _late(histories: _Histories, delivered: Array) -> int:
    changes = len(delivered)
    checkpoint: Array = np.empty(changes, dtype=np.int64)
    for file, (first, end) in enumerate(_cuts(changes)):
        checkpoint[delivered[first:end]] = file // FILES_PER_CHECKPOINT
    # The newest version of each order in each checkpoint; ranks ascend over orders, so older orders never
    # interfere.
    group = np.argsort(histories.order * FILES + checkpoint, kind="stable")
    order, checkpoint = histories.order[group], checkpoint[group]
    starts: Array = np.append(True, (order[1:] != order[:-1]) | (checkpoint[1:] != checkpoint[:-1]))
    rank = histories.order * (changes + 1) + histories.version
    newest = np.maximum.reduceat(rank[group], np.flatnonzero(starts))
    return int(np.count_nonzero(newest[1:] < np.maximum.accumulate(newest)[:-1]))


def _texts(codes: Array, words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(words)).cast(pa.string())


def _decimals(cents: Array) -> pa.Array:
    """Cents as decimal(10, 2): the unscaled value in the low word, zero in the high one."""
    words: Array = np.zeros((len(cents), 2), dtype=np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(SCHEMA.field("amount").type, len(cents), [None, pa.py_buffer(words)])
