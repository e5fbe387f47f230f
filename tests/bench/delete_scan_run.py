"""Full scans over deletes in a process of its own: `python delete_scan_run.py HOME ROUNDS [CHANGES KEYS]`; prints one JSON object.

A v2 table as Flink's sink leaves an upsert stream (`flink_table`) is read by Iceberg's Spark runtime and by our reader to
Arrow, in turn; figures are medians of ROUNDS scans after one that does not count.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from streamlake import load_table
from tests.bench.flink_table import flink_table
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.spark import ROOT, build_session

OURS = "import sys; from tests.bench import delete_scan_run as run; run.ours_alone(sys.argv[1])"


def ours_alone(location: str) -> None:
    """One scan of ours in a process of its own; prints its peak of resident memory, in MB."""
    rows = sum(batch.num_rows for batch in load_table(location).scan().to_batches())
    assert rows
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    home, rounds, *sizes = Path(sys.argv[1]), *map(int, sys.argv[2:])
    location = home / "t"
    table, counts = flink_table(location, *sizes)
    read: dict[str, int] = {}
    spark = build_session(home, runtime_jars=jars(iceberg_runtime()))

    def by_spark() -> None:
        frame = spark.read.format("iceberg").load(f"file://{location}")
        frame.write.format("noop").mode("overwrite").save()

    def by_us() -> None:
        read["rows"] = load_table(str(location)).scan().to_arrow().num_rows

    seconds: dict[str, list[float]] = {"spark": [], "streamlake": []}
    scans: dict[str, Callable[[], None]] = {"spark": by_spark, "streamlake": by_us}
    for _ in range(rounds + 1):
        for name, scan in scans.items():
            started = time.perf_counter()
            scan()
            seconds[name].append(time.perf_counter() - started)
    counted = spark.read.format("iceberg").load(f"file://{location}").count()
    spark.stop()
    assert counted == read["rows"] == counts["live_rows"], (counted, read, counts)
    started = time.perf_counter()
    assert table.scan().count() == counted
    count_seconds = time.perf_counter() - started
    alone = subprocess.run(
        [sys.executable, "-c", OURS, str(location)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    print(
        json.dumps(
            {
                **counts,
                "spark_seconds": round(statistics.median(seconds["spark"][1:]), 3),
                "our_seconds": round(statistics.median(seconds["streamlake"][1:]), 3),
                "rounds": {name: [round(each, 3) for each in times] for name, times in seconds.items()},
                "count_seconds": round(count_seconds, 3),
                "peak_megabytes": int(alone.stdout),
            }
        )
    )


if __name__ == "__main__":
    main()
