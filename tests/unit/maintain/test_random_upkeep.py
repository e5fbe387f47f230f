"""Random histories with maintenance in between, against a mark-and-sweep of this file's own.

The sweep reads metadata with json and fastavro alone, and knows nothing of streamlake. After each maintenance every file
that a snapshot names is there and every snapshot that is left has the rows it had; after an expiry nothing else is there
than what was unreachable before, and after the removal of orphans nothing else at all.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streamlake import clock
from streamlake.catalog.open import open_table
from streamlake.maintain.expire import expire_snapshots
from streamlake.maintain.manifest_rewrite import rewrite_manifests
from streamlake.maintain.old_metadata import remove_old_metadata
from streamlake.maintain.orphans import remove_orphans
from streamlake.read.scan import TableScan
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.local import local_path
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.metadata_changes import changed
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.batch_write import append, write_files
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.row_deltas import row_delta
from tests.helpers.tables import make_table

DATA_PATHS = ("data", "./data", "data/../data", "other")


def place(path: str) -> str:
    return os.path.realpath(path.removeprefix("file://"))


def marked(location: str) -> set[str]:
    """Every file that the newest metadata reaches, apart from metadata files: read without streamlake."""
    newest = max(
        Path(location, "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name.split(".")[0][1:])
    )
    metadata = json.loads(newest.read_text())
    found = {
        place(entry["statistics-path"])
        for kind in ("statistics", "partition-statistics")
        for entry in metadata.get(kind, ())
    }
    for snapshot in metadata["snapshots"]:
        found.add(place(snapshot["manifest-list"]))
        for manifest in _records(snapshot["manifest-list"]):
            found.add(place(manifest["manifest_path"]))
            for entry in _records(manifest["manifest_path"]):
                if entry["status"] != 2:
                    found.add(place(entry["data_file"]["file_path"]))
    return found


def _records(path: str) -> Iterator[dict[str, Any]]:
    with open(local_path(path), "rb") as file:
        yield from fastavro.reader(file)  # type: ignore[misc]


def there(location: str) -> set[str]:
    """Every file below the table's location, apart from metadata files."""
    return {
        os.path.realpath(path)
        for path in Path(location).rglob("*")
        if path.is_file() and not path.name.endswith((".metadata.json", ".crc", "version-hint.text"))
    }


class Upkept:
    """A table with a random life; `contents` are the rows of each snapshot when it was made."""

    def __init__(self, location: Path, seed: int, version: int) -> None:
        self.chance = random.Random(seed)
        self.table = make_table(
            location,
            partition_by=self.chance.choice([(), ("category",)]),
            format_version=version,
            properties={
                "commit.manifest.min-count-to-merge": self.chance.choice("2359"),
                "write.object-storage.enabled": self.chance.choice(["true", "false"]),
                "write.metadata.previous-versions-max": "4",
            },
        )
        self.contents: dict[int, list[int]] = {}
        self.removed: list[DataFile] = []
        self.number = 0
        self.names: list[str] = []

    def rows(self, count: int) -> pa.Table:
        first, self.number = self.number, self.number + count
        numbers = range(first, first + count)
        categories = ["a b", "ä/ö", "%2F", "_c", ""]
        return pa.table(
            {
                "id": pa.array(numbers, pa.int64()),
                "category": [categories[n % len(categories)] for n in numbers],
            }
        )

    def step(self) -> None:
        self.chance.choice(
            [
                self.append,
                self.append,
                self.change,
                self.change,
                self.drop,
                self.again,
                self.refs,
                self.roll_back,
                self.move,
                self.describe,
                self.rewrite,
                self.litter,
            ]
        )()
        self.table = open_table(self.table.location)
        for snapshot in self.table.snapshots:
            if snapshot.snapshot_id not in self.contents:
                self.contents[snapshot.snapshot_id] = self.ids(snapshot.snapshot_id)

    def ids(self, snapshot_id: int) -> list[int]:
        found = TableScan(self.table, snapshot_id=snapshot_id).to_arrow()
        return sorted(found["id"].to_pylist())

    def append(self) -> None:
        branches = [name for name, ref in self.table.refs.items() if ref.type == "branch"]
        append(self.table, self.rows(self.chance.randint(2, 9)), self.chance.choice([*branches, "main"]))

    def change(self) -> None:
        """Deletes in many files at once: the vectors of a commit share one puffin file."""
        if self.table.current_snapshot is None:
            return
        gone = {n for n in range(self.number) if self.chance.random() < 0.2}
        row_delta(self.table, gone, self.rows(2)).commit()

    def drop(self) -> None:
        files = live_data_files(self.table) if self.table.current_snapshot else []
        if files:
            file = self.chance.choice(files)
            OverwriteFiles(self.table).delete_file(file).commit()
            self.removed.append(file)

    def again(self) -> None:
        """A file that was removed is added again, while it is still there."""
        alive = (
            {file.file_path for file in live_data_files(self.table)} if self.table.current_snapshot else set()
        )
        known = [
            file
            for file in self.removed
            if file.file_path not in alive and Path(place(file.file_path)).exists()
        ]
        if known:
            file = replace(self.chance.choice(known), first_row_id=None)
            AppendFiles(self.table).append_file(file).commit()

    def refs(self) -> None:
        if self.names and self.chance.random() < 0.4:
            ManageRefs(self.table).remove(self.names.pop(self.chance.randrange(len(self.names)))).commit()
        elif self.table.snapshots:
            name = f"r{self.number}-{len(self.names)}"
            snapshot = self.chance.choice(self.table.snapshots).snapshot_id
            make = self.chance.choice([ManageRefs.create_branch, ManageRefs.create_tag])
            make(ManageRefs(self.table), name, snapshot).commit()
            self.names.append(name)

    def roll_back(self) -> None:
        head = self.table.current_snapshot
        if head is not None:
            earlier = self.chance.choice(list(self.table.metadata.ancestors(head.snapshot_id)))
            ManageRefs(self.table).set_branch("main", earlier.snapshot_id).commit()

    def move(self) -> None:
        path = f"{self.table.location}/{self.chance.choice(DATA_PATHS)}"
        Path(self.table.location, "data").mkdir(exist_ok=True)
        UpdateProperties(self.table).set("write.data.path", path).commit()

    def describe(self) -> None:
        """Statistics for one or two snapshots, which may share a file."""
        if not self.table.snapshots:
            return
        path = Path(self.table.location, "metadata", f"{self.number}-{self.chance.random()}.stats")
        path.write_bytes(b"PFA1")
        chosen = {self.chance.choice(self.table.snapshots).snapshot_id for _ in range(2)}
        entries = tuple(
            {"snapshot-id": each, "statistics-path": str(path), "file-size-in-bytes": 4} for each in chosen
        )

        def change(base: TableMetadata) -> TableMetadata:
            kept = tuple(each for each in base.partition_statistics if each["snapshot-id"] not in chosen)
            return changed(base, partition_statistics=(*kept, *entries))

        metadata = self.table.operations.refresh()
        self.table.operations.commit(metadata, change(metadata))

    def rewrite(self) -> None:
        if self.table.current_snapshot is not None:
            rewrite_manifests(self.table)

    def litter(self) -> None:
        write_files(self.table, self.rows(2))

    def expire(self) -> None:
        location = self.table.location
        before, reached = there(location), marked(location)
        times = [each.timestamp_ms for each in self.table.snapshots] or [0]
        older_than = self.chance.choice([clock.now_ms() + 1, self.chance.choice(times)])
        expire_snapshots(self.table, older_than_ms=older_than, retain_last=self.chance.randint(1, 4))
        assert there(location) == before - (reached - marked(location))

    def sweep(self) -> None:
        location = self.table.location
        then = clock.now_ms() / 1000 - 10 * 86_400
        for path in Path(location).rglob("*"):
            os.utime(path, (then, then), follow_symlinks=False)
        folders = {f"{location}/metadata", place(self.table.locations.data_directory)}
        remove_orphans(self.table)
        remove_old_metadata(self.table)
        left = {path for path in there(location) if path.startswith(tuple(f"{each}/" for each in folders))}
        assert left <= marked(location)

    def check(self) -> None:
        assert marked(self.table.location) <= there(self.table.location), (
            "a file that a snapshot names is gone"
        )
        self.table = open_table(self.table.location)
        check_table(self.table, files_exist=True)
        for snapshot in self.table.snapshots:
            assert self.ids(snapshot.snapshot_id) == self.contents[snapshot.snapshot_id]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_maintenance_takes_what_nothing_reaches_and_nothing_else(
    seed: int, version: int, tmp_path: Path
) -> None:
    life = Upkept(tmp_path / "t", seed, version)
    for _ in range(4):
        for _ in range(7):
            life.step()
        upkeep: list[Callable[[], None]] = [life.expire, life.sweep]
        for action in life.chance.sample(upkeep, 2):
            action()
            life.check()
