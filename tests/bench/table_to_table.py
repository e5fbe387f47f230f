"""The benchmark of one table into another: the direct path beside Spark's own Iceberg stream, alternating.

Two tables are read: one of 50 snapshots of a file each, and one of a single snapshot of 20 files.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamlake import create_table
from streamlake.table.producers.append_files import AppendFiles
from streamlake.tables import LoadedTable
from tests.bench.data import DDL, events
from tests.bench.report import Figure
from tests.helpers.batch_write import write_files

SNAPSHOTS, FILES = 50, 20
PEER = "Spark's Iceberg stream"
Run = Callable[..., dict[str, Any]]


def bench_table_to_table(
    work: Path, repeat: int, run: Run, rows: int, rows_at_once: int
) -> tuple[list[Figure], dict[str, Any]]:
    """`rows` in 50 snapshots, five of them per micro-batch, and `rows_at_once` in one, in five micro-batches."""
    loads = {
        "50 snapshots": (many_snapshots(work / "source-50", rows), SNAPSHOTS // 10),
        "one snapshot": (one_snapshot(work / "source-1", rows_at_once), FILES // 5),
    }
    figures, found = [], {}
    for name, (source, files) in loads.items():
        runs: dict[str, list[dict[str, Any]]] = {"streamlake": [], "iceberg": []}
        for number in range(repeat):
            for engine, results in runs.items():
                home = work / f"{engine}-{name.split()[0]}-{number}"
                results.append(run("table_to_table_run.py", engine, source, home, files))
        expected = rows if name == "50 snapshots" else rows_at_once
        assert {one["rows"] for results in runs.values() for one in results} == {expected}
        found[name] = runs
        figures += [
            _figure(f"table to table, {name}, steady", "rows/s", runs, "steady_rows_per_second", 2.0),
            _figure(f"table to table, {name}, whole run", "s", runs, "whole_run_seconds", 1 / 1.3),
        ]
    return figures, {"table_to_table": found}


def many_snapshots(location: Path, rows: int) -> Path:
    """A table of 50 snapshots, each with one file."""
    if not location.exists():
        table, each = create_table(location, DDL), rows // SNAPSHOTS
        for number in range(SNAPSHOTS):
            _append(table, [(number * each, each)])
    return location


def one_snapshot(location: Path, rows: int) -> Path:
    """A table of one snapshot with 20 files."""
    if not location.exists():
        each = rows // FILES
        _append(create_table(location, DDL), [(number * each, each) for number in range(FILES)])
    return location


def _append(table: LoadedTable, ranges: list[tuple[int, int]]) -> None:
    operation = AppendFiles(table.table)
    for start, count in ranges:
        for file in write_files(table.table, events(start, count), batch_rows=count).data_files:
            operation.append_file(file)
    operation.commit()


def _figure(name: str, unit: str, runs: dict[str, list[dict[str, Any]]], key: str, goal: float) -> Figure:
    ours, peer = (
        statistics.median(float(one[key]) for one in runs[engine]) for engine in ("streamlake", "iceberg")
    )
    return Figure(name, unit, ours, peer, PEER, "lower" if unit == "s" else "higher", goal)
