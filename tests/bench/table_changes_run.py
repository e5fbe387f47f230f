"""Changes of an upserted table in a process of its own: `python table_changes_run.py HOME ROUNDS [KEYS CHANGES SNAPSHOTS VERSION]`.

Prints one JSON object. A table of KEYS rows gets SNAPSHOTS checkpoints of CHANGES updates each, of random keys (deletion vectors in
version 3, position deletes in 2). Then a stream with read-mode=changes reads them: its enumerator plans, its splits are read one after
the other in one process, as a task reads them. Figures are medians of ROUNDS after one round that does not count; a change is
one updated key, which is two rows, the old and the new one.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake import create_table, load_table
from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.records import ROW_KIND, RowKind
from streamlake.source.iceberg.iceberg_source import IcebergSource
from tests.bench.data import DDL, events
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.spark import ROOT

ALONE = (
    "import sys; from tests.bench import table_changes_run as run; run.alone(sys.argv[1], int(sys.argv[2]))"
)
KEYS, CHANGES, SNAPSHOTS, VERSION = 10_000_000, 250_000, 8, 3
_LOADED_AT_A_TIME = 1_000_000


def changed_table(location: Path, keys: int, changes: int, snapshots: int, version: int) -> int:
    """Fills the table; the id of the snapshot before the changes."""
    create_table(str(location), DDL, format_version=version)
    stream = LocalUpserts(str(location), key=["id"])
    for first in range(0, keys, _LOADED_AT_A_TIME):
        stream.checkpoint(rows(np.arange(first, min(first + _LOADED_AT_A_TIME, keys)), first))
    loaded: int = load_table(str(location)).current_snapshot.snapshot_id
    random = np.random.default_rng(7)
    for at in range(snapshots):
        stream.checkpoint(rows(random.choice(keys, changes, replace=False), keys + at * changes))
    return loaded


def rows(ids: Any, first: int) -> pa.Table:
    """Updates of these keys."""
    kinds = pa.array(np.full(len(ids), RowKind.UPDATE_AFTER, dtype=np.int8))
    return events(first, len(ids)).set_column(0, "id", pa.array(ids)).append_column(ROW_KIND, kinds)


def read_changes(location: str, since: int) -> dict[str, float]:
    """One pass over all changes after a snapshot: seconds, CPU seconds, and rows by kind."""
    options = {
        "read-mode": "changes",
        "identifier-columns": "id",
        "starting-strategy": "incremental-from-snapshot-id",
        "start-snapshot-id": str(since),
    }
    enumerator = SnapshotEnumerator(load_table(location).table, IcebergSource(location, options=options))
    first = enumerator.first(target=since)
    started, used = time.perf_counter(), _cpu()
    end = enumerator.next(first)
    splits = enumerator.splits(first, end)
    planned = time.perf_counter()
    scan = enumerator.split_scan(end)
    found = sum(batch.num_rows for split in splits for batch in scan.read(split))
    return {
        "plan_seconds": planned - started,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": _cpu() - used,
        "rows": found,
        "splits": len(splits),
    }


def alone(location: str, since: int) -> None:
    """One pass in a process of its own; prints its peak of resident memory, in MB."""
    read_changes(location, since)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    home, rounds = Path(sys.argv[1]), int(sys.argv[2])
    given = [int(each) for each in sys.argv[3:]]
    keys, changes, snapshots, version = [*given, *(KEYS, CHANGES, SNAPSHOTS, VERSION)[len(given) :]]
    location = home / "t"
    since = changed_table(location, keys, changes, snapshots, version)
    found = [read_changes(str(location), since) for _ in range(rounds + 1)][1:]
    assert {each["rows"] for each in found} == {2 * changes * snapshots}, found
    peak = subprocess.run(
        [sys.executable, "-c", ALONE, str(location), str(since)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    medians = {name: statistics.median(each[name] for each in found) for name in found[0]}
    total = changes * snapshots
    print(
        json.dumps(
            {
                "keys": keys,
                "changes_per_snapshot": changes,
                "snapshots": snapshots,
                "format_version": version,
                **{name: round(value, 3) for name, value in medians.items()},
                "changes_per_second": round(total / medians["seconds"]),
                "changes_per_cpu_second": round(total / medians["cpu_seconds"]),
                "peak_megabytes": int(peak.stdout),
                "rounds": found,
            }
        )
    )


if __name__ == "__main__":
    main()
