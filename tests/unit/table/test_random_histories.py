"""Random operations by three handles of one table, against a model: a dictionary of live files per branch."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from streamlake.catalog.open import open_table
from streamlake.spec.data_file import DataFile
from streamlake.table.append_files import AppendFiles
from streamlake.table.overwrite_files import OverwriteFiles
from streamlake.table.replace_partitions import ReplacePartitions
from streamlake.table.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.table.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.tables import data_file, delete_file, make_table, metadata_files, stage

Live = dict[str, DataFile]


class History:
    """One run; `step()` applies a random operation to the table and to the model."""

    def __init__(self, location: Path, seed: int, format_version: int) -> None:
        self.chance = random.Random(seed)
        properties = {
            "commit.manifest.min-count-to-merge": self.chance.choice("235"),
            "commit.manifest.target-size-bytes": self.chance.choice(["1", "9000", "8388608"]),
            "write.metadata.delete-after-commit.enabled": self.chance.choice(["true", "false"]),
            "write.metadata.previous-versions-max": "3",
        }
        first = make_table(
            location, partition_by=("category",), format_version=format_version, properties=properties
        )
        self.handles = [first, open_table(str(location)), open_table(str(location))]
        self.live: dict[str, Live] = {}

    def step(self) -> Table:
        table, branch = self.chance.choice(self.handles), self.chance.choice(["main", "main", "dev"])
        live = dict(self.live.get(branch, self.live.get("main", {})))
        choices = [
            self.append,
            self.append,
            self.append,
            self.overwrite,
            self.replace,
            self.remove,
            self.delete_rows,
        ]
        if self.chance.random() < 0.1:
            UpdateProperties(table).set("x", str(self.chance.random())).commit()
            return table
        if self.chance.choice(choices)(table, branch, live):
            self.live[branch] = live
        return table

    def new_file(self, table: Table) -> DataFile:
        records, size = self.chance.randint(0, 9), self.chance.randint(1, 99)
        return data_file(table, self.chance.choice("abc"), records=records, size=size)

    def append(self, table: Table, branch: str, live: Live) -> bool:
        files = [self.new_file(table) for _ in range(self.chance.randint(0, 4))]
        operation = AppendFiles(table, branch)
        if files and self.chance.random() < 0.5:
            operation.append_manifest(stage(table, *files, uuid=str(UUID(int=self.chance.getrandbits(128)))))
        else:
            for file in files:
                operation.append_file(file)
        operation.commit()
        live.update({file.file_path: file for file in files})
        return True

    def overwrite(self, table: Table, branch: str, live: Live) -> bool:
        file = self.new_file(table)
        category = file.partition[0]
        OverwriteFiles(table, branch).overwrite_by_filter(f"category = '{category}'").add_file(file).commit()
        self._replace(live, file)
        return True

    def replace(self, table: Table, branch: str, live: Live) -> bool:
        file = self.new_file(table)
        ReplacePartitions(table, branch).add_file(file).commit()
        self._replace(live, file)
        return True

    def remove(self, table: Table, branch: str, live: Live) -> bool:
        if not live:
            return False
        file = live.pop(self.chance.choice(sorted(live)))
        head = table.refresh().metadata.head(branch) or table.current_snapshot
        operation = OverwriteFiles(table, branch).delete_file(file)
        operation.isolation("serializable", None if head is None else head.snapshot_id).commit()
        return True

    def delete_rows(self, table: Table, branch: str, live: Live) -> bool:
        if not live or branch != "main":
            return False
        file = live[self.chance.choice(sorted(live))]
        entries = live_entries(table.refresh())
        if file.file_path in {entry.data_file.referenced_data_file for entry in entries}:
            return False
        delete = delete_file(table, file, f"d{self.chance.random()}", dv=table.format_version >= 3)
        RowDelta(table, branch).add_deletes(delete).commit()
        return True

    @staticmethod
    def _replace(live: Live, file: DataFile) -> None:
        for path in [path for path, other in live.items() if other.partition == file.partition]:
            del live[path]
        live[file.file_path] = file


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_table_and_model_agree_after_every_step(tmp_path: Path, seed: int, format_version: int) -> None:
    history = History(tmp_path, seed, format_version)
    for _ in range(50):
        table = history.step()
        check_table(table)
        for branch, live in history.live.items():
            found = live_data_files(table, table.snapshot_by(ref=branch))
            assert sorted(file.file_path for file in found) == sorted(live), branch
    table = history.handles[0].refresh()
    referenced = {
        Path(part.manifest_path).name for snapshot in table.snapshots for part in table.manifests(snapshot)
    } | {Path(snapshot.manifest_list or "").name for snapshot in table.snapshots}
    assert {name for name in metadata_files(table) if name.endswith(".avro")} == referenced
