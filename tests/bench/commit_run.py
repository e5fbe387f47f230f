"""Commit times in a process of their own: `python commit_run.py HOME SNAPSHOTS`; prints one JSON object.

The table gets one snapshot per checkpoint of one data file, by the path that the sink takes: results in hand, delta
manifests, durable Committable, snapshot visible. After 20 and after SNAPSHOTS snapshots streamlake and Iceberg Java
(`newAppend().appendFile(...).commit()`) commit to that same table in alternating blocks. The first commit of a block
meets metadata that the other has written, so it is told apart from the others.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from streamlake import create_table, ids
from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable
from streamlake.checkpoint.delta_manifests import write_delta_manifests
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.store import CommittableStore
from streamlake.commit.committer import Committer
from streamlake.spec.metadata.data_file import DataFile
from tests.bench.data import DDL, events
from tests.helpers.batch_write import append, write_files
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.spark import build_session

BLOCKS, PER_BLOCK = 5, 6
JOB_ID = "bench"


class OurCommits:
    """The sink's way from results to a snapshot, without Spark."""

    def __init__(self, location: str, file: DataFile) -> None:
        self._table = open_table(location)
        self._committer = Committer(self._table, "main")
        self._store = CommittableStore(self._table.io, self._table.locations, JOB_ID)
        self._file = file
        self._numbers = count()

    @property
    def snapshots(self) -> int:
        return len(self._table.metadata.snapshots)

    def commit(self) -> float:
        """Milliseconds of one checkpoint."""
        number = next(self._numbers)
        file = replace(self._file, file_path=f"{self._file.file_path}-{number}")
        self._table.refresh()
        started = time.perf_counter()
        table = self._table
        manifests = write_delta_manifests(table.io, table.locations, table.metadata, [file], ids.new_uuid())
        identity = CheckpointIdentity("bench", JOB_ID, number, (), (str(number),))
        committable = Committable(
            identity,
            table.uuid,
            "main",
            "append",
            manifests,
            file.record_count,
            1,
            file.file_size_in_bytes,
        )
        self._store.record(committable)
        self._committer.commit(committable, files=[file])
        seconds = time.perf_counter() - started
        self._store.remove(identity)
        return seconds * 1000


class JavaCommits:
    """Iceberg Java on the same table, called through py4j; the clock runs in the JVM only."""

    def __init__(self, home: Path, location: str, file: DataFile) -> None:
        self._spark = build_session(home, runtime_jars=jars(iceberg_runtime()))
        self._jvm = self._spark.sparkContext._jvm
        conf = self._spark.sparkContext._jsc.hadoopConfiguration()
        self._table = self._jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(location)
        self._file = file
        self._numbers = count()

    def commit(self) -> float:
        """Milliseconds of one commit."""
        file = self._file
        built = (
            self._jvm.org.apache.iceberg.DataFiles.builder(self._table.spec())
            .withPath(f"{file.file_path}-java-{next(self._numbers)}")
            .withFormat("parquet")
            .withRecordCount(file.record_count)
            .withFileSizeInBytes(file.file_size_in_bytes)
            .build()
        )
        self._table.refresh()
        operation = self._table.newAppend().appendFile(built)
        started = self._jvm.System.nanoTime()
        operation.commit()
        return float(self._jvm.System.nanoTime() - started) / 1e6

    def stop(self) -> None:
        self._spark.stop()


def side_by_side(ours: OurCommits, java: JavaCommits) -> dict[str, Any]:
    """Median milliseconds of each, after the first of a block and (`*_first`) of the first."""
    times: dict[str, list[float]] = {"streamlake": [], "java": [], "streamlake_first": [], "java_first": []}
    for _ in range(BLOCKS):
        for name, engine in (("java", java), ("streamlake", ours)):
            first, *others = [engine.commit() for _ in range(PER_BLOCK)]
            times[f"{name}_first"].append(first)
            times[name] += others
    return {name: round(statistics.median(values), 2) for name, values in times.items()}


def main() -> None:
    home, snapshots = Path(sys.argv[1]), int(sys.argv[2])
    warm, measured = str(home / "warm"), str(home / "t")
    for location in (warm, measured):
        create_table(location, DDL)
    [file] = write_files(open_table(measured), events(0, 1_000)).data_files
    append(open_table(warm), events(0, 1_000))
    java_warm, ours_warm = JavaCommits(home / "spark", warm, file), OurCommits(warm, file)
    for engine in (java_warm, ours_warm) * 2:
        for _ in range(20):
            engine.commit()

    ours, java = OurCommits(measured, file), JavaCommits(home / "spark", measured, file)
    alone = [ours.commit() for _ in range(20)]
    figures: dict[str, Any] = {"at_20": side_by_side(ours, java)}
    while ours.snapshots < snapshots:
        alone.append(ours.commit())
    figures["alone_20_to_70"] = round(statistics.median(alone[20:70]), 2)
    figures["alone_last_50"] = round(statistics.median(alone[-50:]), 2)
    figures["alone_slowest"] = round(max(alone), 2)
    figures["alone_by_100"] = [
        round(statistics.median(alone[at : at + 100]), 2) for at in range(0, len(alone), 100)
    ]
    figures[f"at_{snapshots}"] = side_by_side(ours, java)
    java.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
