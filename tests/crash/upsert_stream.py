"""The stream of changes that is crashed: a folder of Parquet files, one a checkpoint, upserted into a partitioned table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from streamlake import IcebergSink, load_table
from streamlake.catalog.open import open_table
from tests.helpers.file_times import set_turn
from tests.helpers.invariants import check_table, live_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "op string, id bigint, part int, payload string"
CHANGES_PER_FILE = 30_000
KEYS = 9_000
FILES = 5
TASKS = 2
EARLY_FILES = {
    "write.target-file-size-bytes": "20000",
    "streamlake.write.memory-budget-bytes": "1048576",
    "streamlake.upsert.buckets": str(TASKS),
}
"""A task finishes files while it still reads, and a checkpoint is more than one of its tables of changes."""

Model = dict[int, tuple[int, str]]


@dataclass(frozen=True)
class Deletes:
    """How the stream's sink deletes; `text` names it on a command line."""

    mode: str
    format_version: int

    @property
    def text(self) -> str:
        return f"{self.mode}/{self.format_version}"

    @staticmethod
    def of(text: str) -> Deletes:
        mode, _, version = text.partition("/")
        return Deletes(mode, int(version))


def changes(number: int) -> Iterator[tuple[str, int, int, str]]:
    """The changes of a file; a key comes several times."""
    for at in range(CHANGES_PER_FILE):
        key = (at * 7919 + number * 104_729) % KEYS
        kind = "-D" if (key + number + at % 3) % 8 == 0 else "+U"
        # The key decides the partition, because equality deletes reach no other.
        yield kind, key, key % 2, f"{number}-{at * 2654435761 % 2**32:x}"


def model(files: int) -> Model:
    """What the table holds after so many files."""
    rows: Model = {}
    for number in range(files):
        for kind, key, part, payload in changes(number):
            if kind == "-D":
                rows.pop(key, None)
            else:
                rows[key] = (part, payload)
    return rows


def land(home: Path, first: int = 0, files: int = FILES) -> None:
    """Put `files` files of changes into the folder."""
    folder = home / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        kinds, keys, parts, payloads = zip(*changes(number), strict=True)
        table = pa.table(
            {
                "op": kinds,
                "id": pa.array(keys, pa.int64()),
                "part": pa.array(parts, pa.int32()),
                "payload": payloads,
            }
        )
        # One row group is one input partition, whose order is that of the rows.
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        set_turn(path, number)


def run(spark: SparkSession, home: Path, deletes: Deletes) -> IcebergSink:
    """Upsert everything that has landed, from the checkpoint on."""
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(home / "landing"))
    sink = IcebergSink(
        str(home / "table"),
        mode="upsert",
        key=["id", "part"],
        row_kind="op",
        delete_mode=deletes.mode,
        create=True,
        format_version=deletes.format_version,
        partition_by=["part"],
        properties=EARLY_FILES,
    )
    query = sink.start(frame, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()
    return sink


def check_table_of(home: Path, checkpoints: int) -> Model:
    """One snapshot a checkpoint, in order, and the rows that the changes make."""
    location = str(home / "table")
    table = open_table(location)
    check_table(table, files_exist=True)
    ids = [snapshot.summary["streamlake.max-committed-checkpoint-id"] for snapshot in table.snapshots]
    assert ids == [str(number) for number in range(checkpoints)]
    found = load_table(location).scan().to_arrow()
    columns = [found.column(name).to_pylist() for name in ("id", "part", "payload")]
    expected = model(checkpoints)
    assert found.num_rows == len(expected)
    assert {key: (part, payload) for key, part, payload in zip(*columns, strict=True)} == expected
    return expected


def written_files(home: Path) -> set[str]:
    """Names of the data files, delete files and Puffin files that are there."""
    found = (home / "table" / "data").rglob("*")
    return {path.name for path in found if path.is_file() and not path.name.startswith(".")}


def referenced_files(home: Path) -> set[str]:
    """Names of the files that some snapshot has, or had."""
    table = open_table(str(home / "table"))
    return {
        Path(entry.data_file.file_path).name
        for snapshot in table.snapshots
        for entry in live_entries(table, snapshot)
    }
