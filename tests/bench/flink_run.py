"""Flink's Iceberg sink in a process of its own: `python flink_run.py SOURCE HOME [SMALL_FILES]`; prints one JSON object.

Upserts the changes in the files of SOURCE into fresh v2 tables: the first SMALL_FILES of them and then all, each as one
job that checkpoints about once per file: as often as a first job says that a file takes. The rate is marginal, difference over difference, so that it tells nothing of a
job's start. The files are read as an Iceberg table, Flink's own reader of Parquet.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from streamlake import load_table
from tests.bench.data import DDL
from tests.bench.upsert_run import table_facts
from tests.helpers.flink import CATALOG, FlinkEngine, Upsert
from tests.helpers.forks import table_of_files

COLUMNS = (
    "id BIGINT, name STRING, category STRING, amount DOUBLE, ts TIMESTAMP(6), payload STRING, seq BIGINT, "
    "PRIMARY KEY (id) NOT ENFORCED"
)


def upsert_files(engine: FlinkEngine, name: str, files: list[Path]) -> tuple[int, float]:
    """Rows and seconds of one job that upserts `files` into a new table `name`."""
    source = table_of_files(engine.location(f"{name}_input"), DDL, files)
    engine.sql(
        f"CREATE TABLE {CATALOG}.db.{name} ({COLUMNS}) "
        "WITH ('format-version'='2', 'write.upsert.enabled'='true', 'write.format.default'='parquet')"
    )
    started = time.perf_counter()
    engine.upsert_all([Upsert(name, f"SELECT * FROM {CATALOG}.db.{name}_input")])
    return source.scan().count(), time.perf_counter() - started


def main() -> None:
    files, home = sorted(Path(sys.argv[1]).glob("*.parquet")), Path(sys.argv[2])
    few = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    with FlinkEngine(home, memory="4g") as engine:
        upsert_files(engine, "cold", files[:1])
        _, warm_seconds = upsert_files(engine, "warm", files[:few])
        engine.checkpoint_every(warm_seconds / few)
        small_rows, small_seconds = upsert_files(engine, "small", files[:few])
        rows, seconds = upsert_files(engine, "t", files)
    location = engine.location("t")
    checkpoints = len(load_table(str(location)).snapshots)
    result = {
        "rows": rows,
        "seconds": round(seconds, 2),
        "small_rows": small_rows,
        "small_seconds": round(small_seconds, 2),
        "marginal_rows_per_second": round((rows - small_rows) / (seconds - small_seconds)),
        "checkpoints": checkpoints,
        "rows_per_checkpoint": round(rows / checkpoints),
    }
    print(json.dumps(result | table_facts(location)))


if __name__ == "__main__":
    main()
