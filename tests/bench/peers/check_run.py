"""What runs have left, in a process of its own: `python check_run.py ROUNDS SCANNED NAME=LOCATION...`; prints one JSON object.

Iceberg's Spark runtime counts each table's rows and adds up their checksums, as `Event.java` has them. It then scans all
columns of the tables SCANNED (their names, with commas), in turn; `scan_seconds` is the median of ROUNDS scans.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.spark import build_session

CHECKSUM = (
    "crc32(concat_ws('|', id, name, category, cast(round(amount * 100) AS bigint), "
    "unix_micros(cast(ts AS timestamp)), payload, seq))"
)


def main() -> None:
    rounds = int(sys.argv[1])
    scanned = sys.argv[2].split(",") if sys.argv[2] else []
    tables = dict(pair.split("=", 1) for pair in sys.argv[3:])
    spark = build_session(
        Path.cwd(), runtime_jars=jars(iceberg_runtime()), extra={"spark.driver.memory": "6g"}
    )
    found: dict[str, dict[str, object]] = {}
    for name, location in tables.items():
        rows = spark.read.format("iceberg").load(f"file://{location}")
        count, checksum = rows.selectExpr("count(*)", f"sum({CHECKSUM})").first()
        found[name] = {"rows": count, "checksum": checksum}
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in scanned}
    for _ in range(rounds):
        for name in scanned:
            started = time.perf_counter()
            frame = spark.read.format("iceberg").load(f"file://{tables[name]}")
            frame.write.format("noop").mode("overwrite").save()
            seconds[name].append(round(time.perf_counter() - started, 3))
    spark.stop()
    for name, times in seconds.items():
        found[name] |= {"scan_seconds": statistics.median(times), "scans": times}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
