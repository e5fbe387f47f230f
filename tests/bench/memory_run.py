"""The memory of one upsert: `python memory_run.py build|write HOME BASE CHANGES`.

The table has one bucket. `build` indexes all keys of the table at BASE and upserts one file of CHANGES, `write`
upserts the next one in a process that has done nothing else and prints, as JSON, its peak of resident memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

from tests.bench.data import DDL
from tests.helpers.forks import table_of_same_files
from tests.helpers.local_upserts import LocalUpserts


def main() -> None:
    what, home, base, changes = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    location = home / "table"
    if what == "build":
        table_of_same_files(location, DDL, base, {"format-version": "3"})
    upserts = LocalUpserts(str(location), key=["id"], tasks=1, batch_rows=10_000)
    upserts.checkpoint_id = 0 if what == "build" else 1
    before = _status("VmHWM")
    file = sorted(changes.glob("*.parquet"))[upserts.checkpoint_id]
    receipt = upserts.checkpoint(pq.read_table(file))
    assert receipt is not None
    print(
        json.dumps(
            {
                "peak_resident_mb": round(_status("VmHWM") / 1024, 1),
                "before_mb": round(before / 1024, 1),
                "index_entries": sum(run.entries for run in upserts.run.index_runs),
                "changes": receipt.counters["changes"],
                "rows_indexed": receipt.counters["rows-indexed"],
            }
        )
    )


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"no {name} in /proc/self/status")


if __name__ == "__main__":
    main()
