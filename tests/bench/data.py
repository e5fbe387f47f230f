"""The benchmarks' input: 7 columns as an event stream has them, the same bytes on every machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.spec.types.ddl import parse_ddl

DDL = "id bigint, name string, category string, amount double, ts timestamp_ntz, payload string, seq bigint"
EPOCH_MICROS = 1_704_067_200_000_000


def events(start: int, rows: int) -> pa.Table:
    """Rows `start`..`start + rows` of the data set."""
    random = np.random.default_rng(start)
    seq = np.arange(start, start + rows, dtype=np.int64)
    ids = random.integers(0, 1 << 40, rows)
    digits = random.integers(0, 16, size=(rows, 60), dtype=np.uint8)
    hexes = np.frombuffer(b"0123456789abcdef", dtype="S1")[digits].view("S60").ravel()
    names = np.char.add(b"customer-", np.char.zfill((ids % 10_000_000_000).astype("S11"), 11))
    categories = np.array([f"category-{n:02d}" for n in range(16)])[random.integers(0, 16, rows)]
    stamps = EPOCH_MICROS + seq * 1_000 + random.integers(0, 1_000, rows)
    return pa.table(
        {
            "id": pa.array(ids),
            "name": pa.array(names).cast(pa.string()),
            "category": pa.array(categories),
            "amount": pa.array(np.round(random.gamma(2.0, 50.0, rows), 2)),
            "ts": pa.array(stamps).cast(pa.timestamp("us")),
            "payload": pa.array(hexes).cast(pa.string()),
            "seq": pa.array(seq),
        }
    )


def changes(start: int, rows: int, keys: int = 500_000, spacing: int = 20) -> pa.Table:
    """Upserts `start`..`start + rows`: events whose ids are among `keys` multiples of `spacing`, any of them alike."""
    table = events(start, rows)
    ids = table["id"].to_numpy() % keys * spacing
    return table.set_column(0, "id", pa.array(ids))


def base_rows(start: int, rows: int, keys: int) -> pa.Table:
    """Rows `start`..`start + rows` of a table that holds the ids 0..`keys` once each, in an order of their own."""
    table = events(start, rows)
    numbers = np.arange(start, start + rows, dtype=np.int64)
    # A bijection of 0..keys: 7919 is prime, and divides no round number of keys. Every change comes after every row.
    table = table.set_column(0, "id", pa.array(numbers * 7919 % keys))
    return table.set_column(6, "seq", pa.array(numbers - keys))


def write_files(
    folder: Path, files: int, rows_per_file: int, rows: Callable[[int, int], pa.Table] = events
) -> None:
    """One Parquet file per checkpoint of `rows(start, count)`, in row groups that both cores can read.

    The columns carry the field ids of a table that is made of `DDL`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    schema = schema_to_arrow(parse_ddl(DDL))
    for number in range(files):
        path = folder / f"part-{number:04d}.parquet"
        if not path.exists():
            table = rows(number * rows_per_file, rows_per_file).cast(schema)
            pq.write_table(
                table, path.with_suffix(".tmp"), row_group_size=rows_per_file // 8, compression="snappy"
            )
            path.with_suffix(".tmp").rename(path)
