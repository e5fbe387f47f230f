"""Commit times in a process of their own: `python commit_run.py HOME SNAPSHOTS`; prints one JSON object.

The table gets SNAPSHOTS appends of one small data file each. Around 20 and at the end, streamlake's AppendFiles and
Iceberg Java's `newAppend().commit()` commit in turn on the same table, each warm.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from streamlake.tables import create_table

from streamlake.catalog.open import open_table
from streamlake.spec.data_file import DataFile
from streamlake.table.append_files import AppendFiles
from streamlake.table.table import Table
from tests.bench.data import DDL, events
from tests.helpers.batch_write import write_table
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.spark import build_session

SAMPLES = 15


def ours(table: Table, file: DataFile, number: int) -> float:
    started = time.perf_counter()
    append = AppendFiles(table)
    append.append_file(replace(file, file_path=f"{file.file_path}-{number}"))
    append.commit()
    return time.perf_counter() - started


class JavaCommits:
    """Iceberg Java on the same table, called through py4j; the clock runs in the JVM only."""

    def __init__(self, home: Path, location: str) -> None:
        self._spark = build_session(home, runtime_jars=jars(iceberg_runtime()))
        jvm = self._spark.sparkContext._jvm
        self._jvm = jvm
        conf = self._spark.sparkContext._jsc.hadoopConfiguration()
        self._table = jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(location)

    def commit(self, file: DataFile, number: int) -> float:
        builder = self._jvm.org.apache.iceberg.DataFiles.builder(self._table.spec())
        built = (
            builder.withPath(f"{file.file_path}-java-{number}")
            .withFormat("parquet")
            .withRecordCount(file.record_count)
            .withFileSizeInBytes(file.file_size_in_bytes)
            .build()
        )
        self._table.refresh()
        append = self._table.newAppend().appendFile(built)
        started = self._jvm.System.nanoTime()
        append.commit()
        return (self._jvm.System.nanoTime() - started) / 1e9

    def stop(self) -> None:
        self._spark.stop()


def main() -> None:
    home, snapshots = Path(sys.argv[1]), int(sys.argv[2])
    location = str(home / "t")
    create_table(location, DDL)
    write_table(location, events(0, 1_000))
    table = open_table(location)
    [file] = list(live_files(table))
    java = JavaCommits(home / "spark", location)
    for number in range(20):
        java.commit(file, -number - 1)
    figures: dict[str, object] = {}
    number = 0

    def sample(label: str) -> None:
        nonlocal number
        times: dict[str, list[float]] = {"streamlake": [], "java": []}
        for _ in range(SAMPLES):
            number += 1
            times["java"].append(java.commit(file, number))
            table.refresh()
            times["streamlake"].append(ours(table, file, number))
        figures[label] = {name: round(statistics.median(values) * 1000, 2) for name, values in times.items()}

    sample("around_20")
    own: list[float] = []
    while len(table.refresh().snapshots) < snapshots:
        number += 1
        own.append(ours(table, file, number) * 1000)
    figures["alone_first_50"] = round(statistics.median(own[:50]), 2)
    figures["alone_last_50"] = round(statistics.median(own[-50:]), 2)
    sample(f"around_{snapshots}")
    figures["every_100th"] = [
        round(statistics.median(own[at : at + 100]), 2) for at in range(0, len(own), 100)
    ]
    java.stop()
    print(json.dumps(figures))


def live_files(table: Table) -> list[DataFile]:
    from streamlake.formats.manifests import read_manifest

    return [
        entry.data_file
        for manifest in table.manifests(table.current_snapshot)
        for entry in read_manifest(table.io, manifest, table.metadata.specs_by_id, table.schema)
    ]


if __name__ == "__main__":
    main()
