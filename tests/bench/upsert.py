"""The upsert benchmark: the same changes by streamlake, by MERGE INTO with Iceberg's runtime, and by Flink's sink.

Every run is a process of its own, engines in turn; then all that they have left is scanned. `Sizes` says how much.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.data import DDL, base_rows, changes, write_files
from tests.bench.key_index import bench_key_index
from tests.bench.report import Figure
from tests.helpers.forks import table_of_files

Run = Callable[..., dict[str, Any]]
Result = dict[str, Any]
ENGINES = ("merge", "streamlake", "flink")
MERGE, FLINK = "MERGE INTO", "Flink's sink"


@dataclass(frozen=True)
class Sizes:
    """Rows per checkpoint, how many checkpoints, and the keys of both tables. The big table's ids take in the small's."""

    small_checkpoint: int = 250_000
    small_checkpoints: int = 8
    large_checkpoint: int = 1_000_000
    large_checkpoints: int = 10
    keys: int = 500_000
    big_table_keys: int = 10_000_000
    big_table_files: int = 20

    def scaled(self, factor: float) -> Sizes:
        """The same shape with `factor` times the rows and keys."""
        return Sizes(
            small_checkpoint=int(self.small_checkpoint * factor),
            large_checkpoint=int(self.large_checkpoint * factor),
            keys=int(self.keys * factor),
            big_table_keys=int(self.big_table_keys * factor),
        )


def bench_upsert(
    work: Path, repeat: int, run: Run, engines: Sequence[str] = ENGINES, sizes: Sizes | None = None
) -> tuple[list[Figure], dict[str, Any]]:
    """Every part for which both engines of a comparison are among `engines` makes figures; all runs are returned."""
    sizes = sizes or Sizes()
    small, large, big = work / "changes-small", work / "changes-large", work / "big" / "base"
    drawn = partial(changes, keys=sizes.keys, spacing=sizes.big_table_keys // sizes.keys)
    write_files(small, sizes.small_checkpoints, sizes.small_checkpoint, drawn)
    write_files(large, sizes.large_checkpoints, sizes.large_checkpoint, drawn)
    _big_table(big, work / "big" / "files", sizes)
    runs: dict[str, list[Result]] = {}

    def take(name: str, script: str, *arguments: object) -> None:
        home = work / f"{name}-{len(runs.get(name, ()))}"
        runs.setdefault(name, []).append(run(script, *(home if each is ... else each for each in arguments)))

    for _ in range(repeat):
        for engine in engines:
            if engine == "flink":
                take("flink", "flink_run.py", large, ...)
                continue
            take(engine, "upsert_run.py", engine, small, ...)
            take(f"{engine}-on-big", "upsert_run.py", engine, small, ..., big)
            if engine == "streamlake":
                take("streamlake-large", "upsert_run.py", engine, large, ...)
                take("streamlake-v2", "upsert_run.py", "streamlake-v2", small, ...)
            else:
                take("merge-v3", "upsert_run.py", "merge-v3", small, ...)
    left = {name: runs[name][-1]["location"] for name in (*engines, "streamlake-v2") if name in runs}
    if "merge" in left:
        left["compacted"] = left["merge"]
    if left:
        take("upsert-scan", "scan_run.py", ..., *(f"{name}={location}" for name, location in left.items()))
    figures = _figures(runs)
    if "streamlake" not in engines:
        return figures, {"upsert": runs}
    more, raw = bench_key_index(work, big, small, run)
    return figures + more, {"upsert": runs, **raw}


def _big_table(location: Path, files: Path, sizes: Sizes) -> None:
    """A table of all the keys, made once; the engines' tables share its data files."""
    if not location.exists():
        rows = sizes.big_table_keys // sizes.big_table_files
        write_files(files, sizes.big_table_files, rows, partial(base_rows, keys=sizes.big_table_keys))
        table_of_files(location, DDL, sorted(files.glob("*.parquet")))


def _figures(runs: dict[str, list[Result]]) -> list[Figure]:
    found: list[Figure] = []

    def add(
        name: str, unit: str, ours: float, peer: float | None, peer_name: str, goal: float | None
    ) -> None:
        better = "lower" if unit in {"s", "bytes", "files"} else "higher"
        found.append(Figure(f"upsert, {name}", unit, ours, peer, peer_name, better, goal))

    def middle(run: str, key: str) -> float:
        return statistics.median(float(one[key]) for one in runs[run])

    steady, whole = "steady_rows_per_second", "whole_run_rows_per_second"
    seconds = "steady_checkpoint_seconds"
    ours, ours_on_big = "streamlake", "streamlake-on-big"
    if ours in runs and "merge" in runs:
        add("steady", "rows/s", middle(ours, steady), middle("merge", steady), MERGE, 3.5)
        add("whole run", "rows/s", middle(ours, whole), middle("merge", whole), MERGE, 2.2)
        big = f"{MERGE}, same table"
        add(
            "10M keys, steady", "rows/s", middle(ours_on_big, steady), middle("merge-on-big", steady), big, 10
        )
        add(
            "bytes written",
            "bytes",
            middle(ours, "bytes_written"),
            middle("merge", "bytes_written"),
            MERGE,
            None,
        )
        add(
            "delete files left",
            "files",
            middle(ours, "total_delete_files"),
            middle("merge", "total_delete_files"),
            MERGE,
            None,
        )
    if ours in runs:
        add(
            "10M keys, checkpoint", "s", middle(ours_on_big, seconds), middle(ours, seconds), "500k keys", 1.3
        )
    if "streamlake-large" in runs and "flink" in runs:
        marginal = middle("flink", "marginal_rows_per_second")
        add("1M per checkpoint, steady", "rows/s", middle("streamlake-large", steady), marginal, FLINK, 1.3)
    scans = runs["upsert-scan"][-1] if "upsert-scan" in runs else {}
    if ours in scans:
        mine = scans[ours]["spark_seconds"]
        for peer, label, goal in (
            ("flink", f"{FLINK}, v2", 0.1),
            ("merge", MERGE, 1.2),
            ("compacted", "compacted", 2),
        ):
            if peer in scans:
                add(f"Spark's scan beside {peer}", "s", mine, scans[peer]["spark_seconds"], label, goal)
    if "flink" in scans:
        table = scans["flink"]
        rate = [table["live_rows"] / table[key] for key in ("our_seconds", "spark_seconds")]
        add("our scan of Flink's table", "rows/s", rate[0], rate[1], "Iceberg's Spark runtime", 5)
    return found
