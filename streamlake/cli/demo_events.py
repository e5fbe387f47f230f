"""The demo's events: made up, but the same ones every time, with the truth that the table is compared with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CATEGORIES = ("browse", "search", "cart", "purchase")
SHARES = (0.55, 0.25, 0.13, 0.07)
DAYS = 4
FILES = 16
START = datetime(2024, 3, 1, tzinfo=timezone.utc)
SEED = 20240301

SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("category", pa.string()),
        ("user_id", pa.int64()),
        ("amount", pa.decimal128(10, 2)),
        ("session", pa.string()),
    ]
)


@dataclass(frozen=True)
class EventTruth:
    """What the table must hold in the end. `amount` is an exact sum."""

    rows: int
    id_sum: int
    amount: Decimal
    rows_by_category: Mapping[str, int]


def write_events(folder: Path, rows: int) -> EventTruth:
    """Write `rows` events into `folder` as up to 16 Parquet files, in time order, and return the truth about them.

    Each file becomes visible only when it is whole, as a file stream demands.
    """
    folder.mkdir(parents=True, exist_ok=True)
    truths = []
    files = min(FILES, rows)
    for at in range(files):
        events = make_events(at * rows // files, (at + 1) * rows // files, rows)
        hidden = folder / f"_part-{at:02d}.parquet"
        pq.write_table(events, hidden, compression="zstd")
        visible = folder / f"part-{at:02d}.parquet"
        hidden.rename(visible)
        # A file stream takes files by modification time: one second apart, they come in order.
        os.utime(visible, (START.timestamp() + at, START.timestamp() + at))
        truths.append(truth_of(events))
    return add_truths(truths)


def make_events(first: int, end: int, total: int) -> pa.Table:
    """Events `first` to `end` of `total`, spread evenly over four days."""
    random = np.random.default_rng([SEED, first])
    count = end - first
    ids: Any = np.arange(first, end, dtype=np.int64)
    micros: Any = int(START.timestamp()) * 1_000_000 + ids * (DAYS * 86_400_000_000 // total)
    category = random.choice(len(CATEGORIES), size=count, p=SHARES).astype(np.int8)
    cents = random.integers(1, 50_000, count, dtype=np.int64) * (category == CATEGORIES.index("purchase"))
    session = random.integers(0, 1 << 60, count, dtype=np.int64)
    dictionary = pa.DictionaryArray.from_arrays(pa.array(category), pa.array(CATEGORIES))
    return pa.table(
        [
            pa.array(ids),
            pa.array(micros).cast(SCHEMA.field("ts").type),
            dictionary.cast(pa.string()),
            pa.array(random.integers(1, 20_000, count, dtype=np.int64)),
            _decimals(cents),
            pa.array(session).cast(pa.string()),
        ],
        schema=SCHEMA,
    )


def truth_of(events: pa.Table) -> EventTruth:
    """Count and exact sums of a table of events; also applied to what comes back from the table."""
    counts = events.column("category").value_counts().to_pylist()
    # Summed with 38 digits: ten overflow above some five million events.
    amount = pc.sum(events.column("amount").cast(pa.decimal128(38, 2))).as_py()
    return EventTruth(
        rows=events.num_rows,
        id_sum=pc.sum(events.column("event_id")).as_py() or 0,
        amount=amount or Decimal(0),
        rows_by_category={entry["values"]: entry["counts"] for entry in counts},
    )


def add_truths(truths: Iterable[EventTruth]) -> EventTruth:
    """The truth of several tables together."""
    parts = list(truths)
    names = {name for part in parts for name in part.rows_by_category}
    return EventTruth(
        rows=sum(part.rows for part in parts),
        id_sum=sum(part.id_sum for part in parts),
        amount=sum((part.amount for part in parts), Decimal(0)),
        rows_by_category={name: sum(part.rows_by_category.get(name, 0) for part in parts) for name in names},
    )


def _decimals(cents: Any) -> pa.Array:
    """Cents as decimal(10, 2): the unscaled value in the low word, zero in the high one."""
    words: Any = np.zeros((len(cents), 2), dtype=np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(SCHEMA.field("amount").type, len(cents), [None, pa.py_buffer(words)])
