"""Compaction in a process of its own: `python compact_run.py STRATEGY HOME ROUNDS ROWS FILES`; prints one JSON object.

A v3 table of FILES small files, each with a deletion vector for one row in fifty, is compacted by Iceberg's procedure in Spark and
by ours, in turn, on tables of the same rows; figures are medians of ROUNDS after one that does not count. Ours runs
in a fresh process each time, which tells its peak of resident memory; both are timed without their start.
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

from streamlake import create_table, ids, load_table
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.helpers.batch_write import write_files
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.spark import ICE_CATALOG, ROOT, build_session

DDL = "id long, at timestamp, customer string, amount decimal(12,2), quantity int, note string"
DELETED = 50
SORT_BY = "customer"
OURS = "import sys; from tests.bench import compact_run as run; run.ours_alone(*sys.argv[1:])"


def ours_alone(location: str, strategy: str) -> None:
    """One compaction of ours; prints seconds, files, rows and the peak of resident memory in MB."""
    table = load_table(location)
    started = time.perf_counter()
    done = table.compact(strategy, sort_by=[SORT_BY] if strategy == "sort" else ())
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        json.dumps({"seconds": seconds, "files": done.rewritten.files, "rows": done.added.rows, "peak": peak})
    )


def small_files(location: str, rows: int, files: int) -> None:
    """The table, in two snapshots."""
    table = create_table(location, DDL, format_version=3).table
    chance = np.random.default_rng(1)
    each = rows // files
    append = AppendFiles(table)
    written = []
    for number in range(files):
        numbers = chance.integers(0, 100_000, each)
        data = {
            "id": pa.array(np.arange(number * each, (number + 1) * each)),
            "at": pa.array(np.arange(each) * 1_000_000 + number, pa.timestamp("us", tz="UTC")),
            "customer": pa.array(np.char.add("customer-", numbers.astype(str))),
            "amount": pa.array(numbers, pa.int64())
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(12, 2), safe=False),
            "quantity": pa.array((numbers % 100).astype(np.int32)),
            "note": pa.array(np.char.add("a note about order ", (numbers % 1000).astype(str))),
        }
        for file in write_files(table, pa.table(data)).data_files:
            append.append_file(file)
            written.append(file)
    append.commit()
    table.refresh()
    target = WriteTarget.for_table(
        table.metadata, io=table.io, job_id="bench", checkpoint_id=0, operation_uuid=ids.new_uuid()
    )
    delta = RowDelta(table)
    for number, file in enumerate(written):
        place = DeletedFile(file.file_path, file.spec_id, file.partition)
        gone = {place: np.arange(number % DELETED, file.record_count, DELETED)}
        for vector in write_deletion_vectors(target, OutputFiles(target, number, 0, 0), gone):
            delta.add_deletes(vector)
    delta.commit()


def main() -> None:
    strategy, home, *numbers = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    rounds, rows, files = numbers
    spark = build_session(home, runtime_jars=jars(iceberg_runtime()))
    runs: dict[str, list[dict[str, Any]]] = {"streamlake": [], "spark": []}

    def by_spark(name: str) -> dict[str, Any]:
        options = f", strategy => 'sort', sort_order => '{SORT_BY}'" if strategy == "sort" else ""
        started = time.perf_counter()
        call = f"CALL {ICE_CATALOG}.system.rewrite_data_files(table => 'bench.{name}'{options})"
        [done] = [row.asDict() for row in spark.sql(call).collect()]
        return {"seconds": time.perf_counter() - started, "files": done["rewritten_data_files_count"]}

    def by_us(name: str) -> dict[str, Any]:
        command = [sys.executable, "-c", OURS, str(home / ICE_CATALOG / "bench" / name), strategy]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    for number in range(rounds + 1):
        for engine, compact in (("spark", by_spark), ("streamlake", by_us)):
            name = f"{engine}_{number}"
            small_files(str(home / ICE_CATALOG / "bench" / name), rows, files)
            run = compact(name)
            run["live"] = spark.sql(f"SELECT count(*), sum(id) FROM {ICE_CATALOG}.bench.{name}").collect()[0][
                :
            ]
            runs[engine].append(run)
    spark.stop()
    every = [*runs["streamlake"], *runs["spark"]]
    assert {run["files"] for run in every} == {files}, every
    assert len({tuple(run["live"]) for run in every}) == 1, every
    seconds = {engine: [run["seconds"] for run in several[1:]] for engine, several in runs.items()}
    print(
        json.dumps(
            {
                "strategy": strategy,
                "rows": rows,
                "files": files,
                "our_seconds": round(statistics.median(seconds["streamlake"]), 3),
                "spark_seconds": round(statistics.median(seconds["spark"]), 3),
                "peak_megabytes": max(run["peak"] for run in runs["streamlake"]),
                "rounds": {
                    engine: [round(each, 3) for each in several] for engine, several in seconds.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
