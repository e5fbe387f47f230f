"""A v2 table in the shape in which Flink's Iceberg sink leaves an upsert stream, made without Flink.

Per checkpoint and writer task: a data file in order of arrival, one equality delete file with every key of the
checkpoint, and position deletes for the rows that a later change of the same checkpoint replaced. Parquet files are
laid out as Java's writer does it: one row group of up to 128 MB, pages of at most 20,000 rows, zstd, dictionaries.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamlake import create_table
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.deletes.position_deletes import POSITION_DELETES
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.types.data_types import LongType, NestedField
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.values import to_bytes
from streamlake.table.producers.row_delta import RowDelta
from streamlake.tables import LoadedTable
from tests.bench.data import DDL, events

CHANGES, KEYS, CHECKPOINTS, TASKS = 10_000_000, 500_000, 9, 2
KEY = Schema((NestedField(1, "id", LongType()),))


def flink_table(
    location: Path,
    changes: int = CHANGES,
    keys: int = KEYS,
    checkpoints: int = CHECKPOINTS,
    tasks: int = TASKS,
) -> tuple[LoadedTable, dict[str, int]]:
    """The table, and what is in it: position deletes, equality deletes, live rows."""
    table = create_table(location, DDL, format_version=2)
    random = np.random.default_rng(7)
    names = random.permutation(np.unique(random.integers(0, 1 << 40, keys * 2)))[:keys].astype(np.int64)
    counts = {"position_deletes": 0, "equality_deletes": 0, "live_rows": 0}
    seen = np.zeros(keys, dtype=bool)
    for checkpoint in range(checkpoints):
        first, last = (changes * each // checkpoints for each in (checkpoint, checkpoint + 1))
        drawn = random.integers(0, keys, last - first)
        rows = events(first, last - first).set_column(0, "id", pa.array(names[drawn]))
        seen[drawn] = True
        files = []
        for task in range(tasks):
            mine = np.flatnonzero(drawn % tasks == task)
            files += _task_files(table, f"{checkpoint:05d}-{task}", rows.take(mine), counts)
        delta = RowDelta(table.table)
        for file in files:
            (delta.add_rows if file.is_data else delta.add_deletes)(file)
        delta.commit()
        table.refresh()
    counts["live_rows"] = int(seen.sum())
    return table, counts


def _task_files(table: LoadedTable, name: str, rows: pa.Table, counts: dict[str, int]) -> list[DataFile]:
    ids = rows["id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    last_of_key = np.append(ids[order][1:] != ids[order][:-1], True)
    dead = np.sort(order[~last_of_key])
    distinct = ids[order][last_of_key]
    counts["position_deletes"] += len(dead)
    counts["equality_deletes"] += len(distinct)
    data = _write(table, f"{name}-data", rows, table.schema, FileContent.DATA)
    # In order of arrival, as Flink writes them: a key is deleted when it is met first.
    _, met = np.unique(ids, return_index=True)
    keys = _write(
        table,
        f"{name}-keys",
        pa.table({"id": ids[np.sort(met)]}),
        KEY,
        FileContent.EQUALITY_DELETES,
        equality_ids=(1,),
    )
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(dead), dtype=np.int32), [data.file_path])
    positions = _write(
        table,
        f"{name}-positions",
        pa.table({"file_path": paths.cast(pa.string()), "pos": dead}),
        POSITION_DELETES,
        FileContent.POSITION_DELETES,
    )
    return [data, keys, positions]


def _write(
    table: LoadedTable, name: str, rows: pa.Table, schema: Schema, content: FileContent, **fields: object
) -> DataFile:
    path = Path(table.location) / "data" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        rows.cast(schema_to_arrow(schema)),
        path,
        row_group_size=1 << 26,
        compression="zstd",
        compression_level=3,
        data_page_size=1 << 20,
        # Java gives a dictionary up when it does not pay on the first page.
        use_dictionary=["category", "file_path"],
        write_page_index=True,
        max_rows_per_page=20_000,
        store_schema=False,
    )
    bounds = {}
    for part, column in zip(schema.fields, rows.columns, strict=True):
        low, high = (pc.min_max(column)[side] for side in ("min", "max"))
        if pa.types.is_timestamp(column.type):
            low, high = low.cast(pa.int64()), high.cast(pa.int64())
        bounds[part.field_id] = [to_bytes(part.type, each.as_py()) for each in (low, high)]
    return DataFile(
        content=content,
        file_path=str(path),
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        value_counts=dict.fromkeys(bounds, rows.num_rows),
        null_value_counts=dict.fromkeys(bounds, 0),
        lower_bounds={key: pair[0] for key, pair in bounds.items()},
        upper_bounds={key: pair[1] for key, pair in bounds.items()},
        **fields,
    )
