"""A day of an upsert stream in minutes, in a process of its own: `python day_run.py MODE MAINTENANCE CHECKPOINTS HOME`; prints
one JSON object.

MODE is v3-position, v2-position or v2-equality; MAINTENANCE is off, or where its runs work: process (as the product does it)
or thread. Checkpoints follow each other without a pause, through the sink's own code but for Spark: writer tasks, staging,
commits, the key index. At the end the rows are compared with what the stream has sent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.catalog.open import create
from streamlake.commit.receipt import CommitReceipt
from streamlake.maintain.background.due_tables import MaintainedTable
from streamlake.maintain.background.maintenance_settings import MaintenanceSettings
from streamlake.maintain.background.maintenance_worker import MaintenanceWorker
from streamlake.maintain.background.run_process import RunProcess
from streamlake.maintain.background.run_values import RunReport, RunRequest
from streamlake.maintain.background.table_run import run_maintenance
from streamlake.maintain.care import metadata_path
from streamlake.spec.types.ddl import parse_ddl
from streamlake.tables import load_table
from tests.helpers.batch_write import append
from tests.helpers.local_upserts import LocalUpserts

KEYS, CHANGES = 100_000, 200
SAMPLES, SCANS = 100, 20
DDL = "id long not null, payload string"
MAINTENANCE = {
    "rate-limit-seconds": 0,
    "manifests.schedule.commit-count": 100,
    "expire.schedule.commit-count": 25,
    "metadata.schedule.commit-count": 500,
}
"""A day of 8,640 checkpoints passes in minutes, and so do the retention and the pauses between two runs."""
PROPERTIES = {
    "history.expire.max-snapshot-age-ms": "1000",
    "history.expire.min-snapshots-to-keep": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class _InThread:
    """A runner without a process of its own."""

    def __call__(self, request: RunRequest) -> RunReport:
        return run_maintenance(request)

    def stop(self) -> None:
        pass


class _Counted:
    """A runner that keeps what its runs report."""

    def __init__(self, runner: Any, runs: list[RunReport]) -> None:
        self._runner, self._runs = runner, runs
        self._is_stopped = False

    def __call__(self, request: RunRequest) -> RunReport:
        report: RunReport = self._runner(request)
        if not self._is_stopped:
            self._runs.append(report)
        return report

    def stop(self) -> None:
        self._is_stopped = True
        self._runner.stop()


def main() -> None:
    mode, kind, checkpoints, home = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    location = home / "table"
    version, delete_mode = int(mode[1]), mode.partition("-")[2]
    create(
        str(location), key_schema(), format_version=version, properties=PROPERTIES if kind != "off" else {}
    )
    stream = LocalUpserts(str(location), key=["id"], delete_mode=delete_mode)
    random = np.random.default_rng(7)
    payloads = np.full(KEYS, "", dtype=object)
    runs: list[RunReport] = []
    make: Any = RunProcess if kind == "process" else _InThread
    worker = MaintenanceWorker(lambda: _Counted(make(), runs))
    maintained = MaintainedTable(str(location), None, "main", "day", MaintenanceSettings.of(MAINTENANCE))
    seconds: list[float] = []
    samples: list[dict[str, float]] = []
    scans: list[dict[str, float]] = []
    for number in range(checkpoints + 1):
        keys = np.arange(KEYS) if number == 0 else np.unique(random.integers(0, KEYS, CHANGES))
        payloads[keys] = [random.bytes(64).hex() for _ in keys]
        changes = pa.table({"id": pa.array(keys), "payload": pa.array(payloads[keys], pa.string())})
        began = time.perf_counter()
        receipt = stream.checkpoint(changes)
        seconds.append(time.perf_counter() - began)
        assert receipt is not None
        if kind != "off":
            metadata = stream.table.metadata
            snapshot = metadata.snapshot(receipt.snapshot_id)
            worker.committed(maintained, metadata, snapshot, 0.0)
        if number % max(1, checkpoints // SAMPLES) == 0:
            samples.append(measured(location, stream, number, receipt, seconds))
        if number % max(1, checkpoints // SCANS) == 0:
            scans.append({"checkpoint": number, "scan_ms": scan_ms(location)})
    worker.stop()
    rows = load_table(str(location)).scan().to_arrow().sort_by("id")
    assert rows["id"].to_pylist() == list(range(KEYS)), "a key is missing or there twice"
    assert rows["payload"].to_pylist() == payloads.tolist(), "a row is not the last that was sent"
    copy = create(str(home / "copy"), parse_ddl(DDL), format_version=version)
    append(copy, rows)
    late = sorted(seconds[1:])
    print(
        json.dumps(
            {
                "mode": mode,
                "maintenance": kind,
                "checkpoints": checkpoints,
                "checkpoint_ms": {
                    "median": round(1000 * late[len(late) // 2], 2),
                    "p99": round(1000 * late[int(len(late) * 0.99)], 2),
                    "max": round(1000 * late[-1], 2),
                },
                "seconds": round(sum(seconds), 2),
                "rewritten_checkpoints": stream.rewrites,
                "runs": len(runs),
                "failed_runs": [report.first_error for report in runs if report.first_error is not None],
                "actions": counted_actions(runs),
                "scan_ms": min(scan_ms(location) for _ in range(5)),
                "copy_scan_ms": min(scan_ms(home / "copy") for _ in range(5)),
                "samples": samples,
                "scans": scans,
            }
        )
    )


def key_schema() -> Any:
    """The table's schema, with its key."""
    from dataclasses import replace

    schema = parse_ddl(DDL)
    return replace(schema, identifier_field_ids=frozenset({schema.fields[0].field_id}))


def counted_actions(runs: list[RunReport]) -> dict[str, int]:
    found: dict[str, int] = {}
    for report in runs:
        for action in report.done:
            found[action] = found.get(action, 0) + 1
    return found


def measured(
    location: Path, stream: LocalUpserts, number: int, receipt: CommitReceipt, seconds: list[float]
) -> dict[str, float]:
    """The table and this process now."""
    table = stream.table
    summary = table.current_snapshot.summary
    path = metadata_path(table)
    stored = stored_bytes(location)
    live = int(summary["total-files-size"])
    recent = sorted(seconds[-50:])
    return {
        "checkpoint": number,
        "data_files": int(summary["total-data-files"]),
        "delete_files": int(summary.get("total-delete-files", 0)),
        "manifests": len(table.manifests(table.current_snapshot)),
        "snapshots": len(table.snapshots),
        "metadata_bytes": 0 if path is None else os.path.getsize(path),
        "stored_bytes": stored,
        "live_bytes": live,
        "stored_over_live": round(stored / live, 3),
        "commit_ms": receipt.commit_ms,
        "checkpoint_ms": round(1000 * recent[len(recent) // 2], 2),
        "memory_mb": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "open_files": len(os.listdir("/proc/self/fd")),
    }


def stored_bytes(location: Path) -> int:
    """The bytes of all files of the table that are there now; others may vanish meanwhile."""
    found = 0
    folders = [str(location)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        found += entry.stat().st_size
    return found


def scan_ms(location: Path) -> float:
    """How long a scan of all rows takes, opening the table included."""
    began = time.perf_counter()
    rows = load_table(str(location)).scan().to_arrow()
    taken = round(1000 * (time.perf_counter() - began), 1)
    assert pc.count(rows["id"]).as_py() == KEYS
    return taken


if __name__ == "__main__":
    main()
