"""The key index after a compaction: the next checkpoint beside a usual one, and beside one that finds no position map."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.report import Figure

Run = Callable[..., dict[str, Any]]
CHANGES = 50_000


def bench_compacted_index(
    work: Path, repeat: int, keys: int, run: Run
) -> tuple[list[Figure], dict[str, Any]]:
    """A table of `keys` keys, which is compacted by size and by order `repeat` times each."""
    script = "compacted_index_run.py"
    result = run(script, work / "compacted-index", keys, CHANGES, repeat, timeout_seconds=7_200)
    usual, binpack, sort, without = (
        statistics.median(result[name]) for name in ("usual", "binpack", "sort", "without_map")
    )
    name = f"checkpoint of {CHANGES:,} changes to {keys:,} keys"
    return [
        Figure(f"{name}, after binpack", "s", binpack, usual, "usual", "lower", 1.2),
        Figure(f"{name}, after sort", "s", sort, usual, "usual", "lower", 1.2),
        Figure(f"{name}, after binpack without a map", "s", without, usual, "usual", "lower", None),
        Figure(
            "rows read for the index after a compaction",
            "rows",
            max(result["binpack_rows_indexed"], result["sort_rows_indexed"]),
            None,
            "goal",
            "lower",
            0,
        ),
    ], {"compacted_index": result}
