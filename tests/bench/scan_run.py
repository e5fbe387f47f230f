"""Full scans of tables in a process of its own: `python scan_run.py HOME NAME=LOCATION...`; prints one JSON object.

Iceberg's Spark runtime scans each table in turn, and so does our reader; figures are medians of `ROUNDS` scans after one
that does not count. compacted=LOCATION stands for a fork of that table after Iceberg's rewrite_data_files.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from streamlake import load_table
from tests.bench.upsert_run import table_facts
from tests.helpers.forks import fork_table
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.spark import ICE_CATALOG, build_session

ROUNDS = 3


def main() -> None:
    home = Path(sys.argv[1])
    tables = {name: Path(location) for name, location in (pair.split("=", 1) for pair in sys.argv[2:])}
    spark = build_session(home, runtime_jars=jars(iceberg_runtime()))
    if "compacted" in tables:
        source, target = tables["compacted"], home / ICE_CATALOG / "db" / "compacted"
        fork_table(source, target)
        spark.sql(
            f"CALL {ICE_CATALOG}.system.rewrite_data_files(table => 'db.compacted', "
            "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
        )
        tables["compacted"] = target

    def by_spark(location: Path) -> None:
        frame = spark.read.format("iceberg").load(f"file://{location}")
        frame.write.format("noop").mode("overwrite").save()

    def by_us(location: Path) -> None:
        load_table(str(location)).scan().to_arrow()

    spark_seconds, our_seconds = _in_turn(by_spark, tables), _in_turn(by_us, tables)
    spark.stop()
    print(
        json.dumps(
            {
                name: {
                    "spark_seconds": spark_seconds[name],
                    "our_seconds": our_seconds[name],
                    **table_facts(location),
                }
                for name, location in tables.items()
            }
        )
    )


def _in_turn(scan: Callable[[Path], None], tables: dict[str, Path]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in tables}
    for _ in range(ROUNDS + 1):
        for name, location in tables.items():
            started = time.perf_counter()
            scan(location)
            times[name].append(time.perf_counter() - started)
    return {name: round(statistics.median(seconds[1:]), 3) for name, seconds in times.items()}


if __name__ == "__main__":
    main()
