"""Random operations by three handles of one table, against a model: the live files per branch.

Operations meet other writers' commits before their swap, failing swaps and lost responses; whether an operation must
then be refused is told by the model. After each step the table's data files and position deletes are the model's, and
in the end no metadata file is left that the table does not refer to.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import CommitStateUnknownError, ConflictValidationError, HeadMovedError, StorageError
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.replace_partitions import ReplacePartitions
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.producers.snapshot_producer import SnapshotProducer
from streamlake.table.table import Table
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.tables import FaultyOperations, data_file, delete_file, make_table, metadata_files, stage


@dataclass
class Branch:
    """What a branch holds: data files by path, the position deletes of each by name, and its head's id; and how many
    equality deletes each category ever got."""

    files: dict[str, DataFile] = field(default_factory=dict)
    deletes: dict[str, dict[str, DataFile]] = field(default_factory=dict)
    equality: Counter[object] = field(default_factory=Counter)
    head: int | None = None

    def copy(self) -> Branch:
        deletes = {path: dict(found) for path, found in self.deletes.items()}
        return replace(self, files=dict(self.files), deletes=deletes, equality=Counter(self.equality))

    def add(self, *files: DataFile) -> None:
        self.files.update({file.file_path: file for file in files})

    def remove(self, path: str) -> None:
        del self.files[path]
        self.deletes.pop(path, None)

    def remove_partition(self, category: object) -> None:
        for path in [path for path, file in self.files.items() if file.partition == (category,)]:
            self.remove(path)

    def names(self) -> list[str]:
        return sorted([*self.files, *(name for found in self.deletes.values() for name in found)])


@dataclass
class Change:
    """One operation with what it does to the model. `conflicts` tells on the model that the swap meets whether it
    must be refused; None: never."""

    producer: SnapshotProducer
    apply: Callable[[Branch], None]
    conflicts: Callable[[Branch], bool] | None = None
    staged: list[ManifestFile] = field(default_factory=list)


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
        self.branches: dict[str, Branch] = {}
        self.refused: list[type[Exception]] = []

    def branch(self, name: str) -> Branch:
        return self.branches.get(name) or self.branches.get("main") or Branch()

    def step(self) -> Table:
        table, branch = self.chance.choice(self.handles), self.chance.choice(["main", "main", "dev"])
        if self.chance.random() < 0.05:
            UpdateProperties(table).set("x", str(self.chance.random())).commit()
            return table
        others = [handle for handle in self.handles if handle is not table]
        event = self.chance.choice(["none"] * 4 + ["other", "other", "failure", "loss"])
        left = [1]

        def before_swap() -> None:
            if left and event == "other":
                left.pop()
                self.commit(self.change(self.chance.choice(others), branch), branch)
            if event == "failure":
                raise StorageError("no space left")

        def after_swap() -> None:
            if event == "loss":
                raise CommitStateUnknownError("the connection broke")

        table.refresh()
        mine = Table(table.name, FaultyOperations(table.operations, before_swap, after_swap))
        mine.held_entries = table.held_entries
        change = self.change(mine, branch)
        if event == "failure":
            with pytest.raises(StorageError):
                change.producer.commit()
            self.forget(change)
        else:
            self.commit(change, branch)
        return table.refresh()

    def commit(self, change: Change, name: str) -> None:
        """Commit, and do the same to the model as it is then, or be refused as the model tells."""
        error = None
        try:
            head = change.producer.commit().snapshot_id
        except ConflictValidationError as refusal:
            error = refusal
        branch = self.branch(name).copy()
        expected = change.conflicts is not None and change.conflicts(branch)
        if expected != (error is not None):
            # Not an assertion: within another commit's swap, that would pass for a failure of the catalog.
            pytest.fail(f"refused: {error}, the model expects a conflict: {expected}")
        if error is not None:
            self.refused.append(type(error))
            self.forget(change)
            return
        change.apply(branch)
        branch.head = head
        self.branches[name] = branch

    def forget(self, change: Change) -> None:
        """Staged manifests of what was not committed are their owner's to remove."""
        for manifest in change.staged:
            Path(manifest.manifest_path).unlink()

    def change(self, table: Table, branch: str) -> Change:
        makers = [self.append, self.overwrite, self.replace, self.remove, *[self.row_delta] * 5]
        return self.chance.choice(makers)(table, branch)

    def new_file(self, table: Table) -> DataFile:
        records, size = self.chance.randint(0, 9), self.chance.randint(1, 99)
        return data_file(table, self.chance.choice("abc"), records=records, size=size)

    def stage(self, table: Table, *files: DataFile) -> ManifestFile:
        return stage(table, *files, uuid=str(UUID(int=self.chance.getrandbits(128))))

    def append(self, table: Table, branch: str) -> Change:
        files = [self.new_file(table) for _ in range(self.chance.randint(0, 4))]
        operation = AppendFiles(table, branch)
        staged = [self.stage(table, *files)] if files and self.chance.random() < 0.5 else []
        for manifest in staged:
            operation.append_manifest(manifest)
        for file in () if staged else files:
            operation.append_file(file)
        return Change(operation, lambda model: model.add(*files), staged=staged)

    def overwrite(self, table: Table, branch: str) -> Change:
        file = self.new_file(table)
        (category,) = file.partition
        operation = (
            OverwriteFiles(table, branch).overwrite_by_filter(f"category = '{category}'").add_file(file)
        )
        return Change(operation, lambda model: (model.remove_partition(category), model.add(file))[-1])

    def replace(self, table: Table, branch: str) -> Change:
        file = self.new_file(table)
        operation = ReplacePartitions(table, branch).add_file(file)
        return Change(operation, lambda model: (model.remove_partition(*file.partition), model.add(file))[-1])

    def remove(self, table: Table, branch: str) -> Change:
        before = self.branch(branch).copy()
        if not before.files:
            return self.append(table, branch)
        path = self.chance.choice(sorted(before.files))
        (category,) = before.files[path].partition

        def conflicts(model: Branch) -> bool:
            return (
                path not in model.files
                or model.equality[category] > before.equality[category]
                or not model.deletes.get(path, {}).keys() <= before.deletes.get(path, {}).keys()
            )

        operation = OverwriteFiles(table, branch).delete_file(before.files[path])
        operation.isolation("snapshot", before.head)
        return Change(operation, lambda model: model.remove(path), conflicts)

    def row_delta(self, table: Table, branch: str) -> Change:
        """Rows are added, deletes of some files replaced or added, other files removed."""
        before = self.branch(branch).copy()
        chosen = self.chance.sample(sorted(before.files), min(len(before.files), self.chance.randint(0, 3)))
        targets = [path for path in chosen if self.chance.random() < 0.7]
        emptied = [path for path in chosen if path not in targets]
        added = [self.new_file(table) for _ in range(self.chance.randint(0, 2))]
        replaced, deletes = [], []
        name = f"d{self.chance.getrandbits(60)}"
        for number, path in enumerate(targets):
            old = list(before.deletes.get(path, {}).values())
            # Version 2 may also pile them up.
            replaced += old if table.format_version >= 3 or self.chance.random() < 0.7 else []
            own = name if table.format_version >= 3 else f"{name}-{number}"
            records = self.chance.randint(1, 5)
            deletes.append(delete_file(table, before.files[path], own, records=records, offset=4 + number))
        operation = RowDelta(table, branch)
        strict = self.chance.random() < 0.3
        operation.require_head(before.head) if strict else operation.validate_from_snapshot(before.head)
        operation.validate_data_files_exist(targets).validate_deleted_files()
        for path in emptied:
            operation.remove_rows(before.files[path])
        for file in replaced:
            operation.remove_deletes(file)
        staged = []
        for files, add in ((added, operation.add_rows), (deletes, operation.add_deletes)):
            if files and self.chance.random() < 0.5:
                staged.append(self.stage(table, *files))
                operation.append_manifest(staged[-1])
            else:
                for file in files:
                    add(file)
        equality = [self.equality_delete(table)] if self.chance.random() < 0.2 else []
        for file in equality:
            operation.add_deletes(file)

        def conflicts(model: Branch) -> bool:
            if strict and model.head != before.head:
                return True
            if not all(path in model.files for path in chosen):
                return True
            if not all(
                _name(file) in model.deletes.get(file.referenced_data_file or "", {}) for file in replaced
            ):
                return True
            if table.format_version < 3:
                return False
            gone = {_name(file) for file in replaced}
            return any(not model.deletes.get(path, {}).keys() <= gone for path in targets)

        def apply(model: Branch) -> None:
            for path in emptied:
                model.remove(path)
            for file in replaced:
                del model.deletes[file.referenced_data_file or ""][_name(file)]
            for file in deletes:
                model.deletes.setdefault(file.referenced_data_file or "", {})[_name(file)] = file
            model.add(*added)
            model.equality.update(file.partition[0] for file in equality)

        return Change(operation, apply, conflicts, staged)

    def equality_delete(self, table: Table) -> DataFile:
        name = f"e{self.chance.getrandbits(60)}"
        file = data_file(table, self.chance.choice("abc"), records=3, name=name)
        return replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=(1,))


def _name(file: DataFile) -> str:
    return file.file_path if file.content_offset is None else f"{file.file_path}#{file.content_offset}"


def live_names(table: Table, branch: str) -> list[str]:
    """Data files and position deletes; an equality delete goes when nothing older is left, which is not modelled."""
    files = [entry.data_file for entry in live_entries(table, table.snapshot_by(ref=branch))]
    return sorted(_name(file) for file in files if file.content != FileContent.EQUALITY_DELETES)


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("seed", [11, 12, 13, 14, 15])
def test_table_and_model_agree_after_every_step(tmp_path: Path, seed: int, format_version: int) -> None:
    history = History(tmp_path, seed, format_version)
    for _ in range(60):
        table = history.step()
        check_table(table)
        for name, branch in history.branches.items():
            assert live_names(table, name) == branch.names(), name
    table = history.handles[0].refresh()
    referenced = {
        Path(part.manifest_path).name for snapshot in table.snapshots for part in table.manifests(snapshot)
    } | {Path(snapshot.manifest_list or "").name for snapshot in table.snapshots}
    assert {name for name in metadata_files(table) if name.endswith(".avro")} == referenced


def test_the_histories_meet_every_kind_of_conflict(tmp_path: Path) -> None:
    history = History(tmp_path, 11, 3)
    for _ in range(150):
        history.step()
        if len(history.refused) >= 5 and set(history.refused) == {ConflictValidationError, HeadMovedError}:
            return
    pytest.fail(f"the histories are too tame: {history.refused}")
