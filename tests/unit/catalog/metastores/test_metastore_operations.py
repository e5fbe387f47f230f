"""What all metastores have in common, with one in memory that acts and then fails, or fails to act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.metastores.metastore_operations import MetastoreTableOperations
from streamlake.catalog.metastores.pointers import Change, Pointer
from streamlake.catalog.new_tables import TableDefinition
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_properties
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers.invariants import check_table
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES, data_file


class MemoryMetastore:
    """Pointers in a dictionary, each with the number of its version."""

    def __init__(self, home: Path) -> None:
        self.name = "memory"
        self.client = None
        self.storage: dict[str, str] = {}
        self.repeats_requests = False
        self.conditional = True
        self.home = home
        self.pointers: dict[str, Pointer] = {}
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None

    def is_conditional(self, metadata: TableMetadata) -> bool:
        del metadata
        return self.conditional

    def pointer(self, table: str) -> Pointer:
        if table not in self.pointers:
            raise TableNotFoundError(table)
        return self.pointers[table]

    def new_location(self, table: str) -> str:
        return str(self.home / table)

    def insert(self, table: str, change: Change) -> None:
        self._hooked(lambda: self._insert(table, change))

    def _insert(self, table: str, change: Change) -> None:
        if table in self.pointers:
            raise TableAlreadyExistsError(table)
        self.pointers[table] = Pointer(change.metadata_location, "1")

    def swap(self, table: str, change: Change) -> None:
        self._hooked(lambda: self._swap(table, change))

    def _swap(self, table: str, change: Change) -> None:
        now = self.pointers[table]
        assert change.pointer is not None
        if self.conditional and not change.pointer.is_same(now):
            raise CommitConflictError(f"{table}: refused")
        self.pointers[table] = Pointer(change.metadata_location, str(int(now.version) + 1))

    def _hooked(self, action: Callable[[], None]) -> None:
        before, after, self.before, self.after = self.before, self.after, None, None
        if before is not None:
            before()
        action()
        if after is not None:
            after()


@pytest.fixture
def store(tmp_path: Path) -> MemoryMetastore:
    return MemoryMetastore(tmp_path)


def new_table(store: MemoryMetastore, version: int = 3, **properties: str) -> Table:
    given = {
        **FAST_RETRIES,
        **FAST_CHECKS,
        **{key.replace("_", "."): value for key, value in properties.items()},
    }
    definition = TableDefinition(parse_ddl("id long"), format_version=version, properties=given)
    return MetastoreCatalog(store).create_table("db.t", definition)


def files(store: MemoryMetastore) -> list[str]:
    return sorted(path.name for path in (store.home / "db.t" / "metadata").glob("*.metadata.json"))


def changed_once(store: MemoryMetastore) -> None:
    """Another writer commits."""
    table = MetastoreCatalog(store).load_table("db.t")
    UpdateProperties(table).set("other", str(len(table.metadata.metadata_log))).commit()


def lost() -> None:
    raise ConnectionResetError("no answer")


def commit(operations: MetastoreTableOperations, value: str = "1") -> TableMetadata:
    base = operations.refresh()
    return operations.commit(base, with_properties(base, {"p": value}))


@pytest.fixture
def operations(store: MemoryMetastore) -> MetastoreTableOperations:
    new_table(store)
    return MetastoreTableOperations(store, "db.t")


def test_files_are_named_and_numbered_as_iceberg_does(store: MemoryMetastore) -> None:
    table = new_table(store)
    AppendFiles(table).append_file(data_file(table)).commit()
    UpdateProperties(table).set("write.metadata.compression-codec", "gzip").commit()
    AppendFiles(table).append_file(data_file(table)).commit()
    names = files(store)
    assert [name[:6] for name in names] == ["00000-", "00001-", "00002-", "00003-"]
    assert [name.count(".gz.metadata.json") for name in names] == [0, 0, 1, 1]
    assert len(names[0]) == len("00000-.metadata.json") + 36
    fresh = MetastoreCatalog(store).load_table("db.t")
    check_table(fresh)
    assert [entry.metadata_file.rpartition("/")[2] for entry in fresh.metadata.metadata_log] == names[:3]


def test_superseded_files_are_deleted_where_the_table_wants_it(store: MemoryMetastore) -> None:
    table = new_table(store)
    keep = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true"}
    without = {**keep, "write.metadata.delete-after-commit.enabled": "false"}
    update = UpdateProperties(table)
    for name, value in without.items():
        update.set(name, value)
    update.commit()
    for number in range(4):
        UpdateProperties(table).set("p", str(number)).commit()
    assert len(files(store)) == 6
    UpdateProperties(table).set(*list(keep.items())[1]).commit()
    UpdateProperties(table).set("p", "last").commit()
    # Those that had left the log before are not in it any more: nobody deletes them.
    assert [name[:5] for name in files(store)] == ["00000", "00001", "00002", "00005", "00006", "00007"]


def test_a_commit_that_is_refused_leaves_no_file(
    store: MemoryMetastore, operations: MetastoreTableOperations
) -> None:
    store.before = lambda: changed_once(store)
    with pytest.raises(CommitConflictError):
        commit(operations)
    assert len(files(store)) == 2
    assert "p" in commit(operations).properties


def test_a_refusal_by_a_store_that_repeats_requests_is_looked_at(
    store: MemoryMetastore, operations: MetastoreTableOperations
) -> None:
    store.repeats_requests = True

    def refused() -> None:
        raise CommitConflictError("the second request was refused, the first was done")

    store.after = refused
    assert commit(operations).properties["p"] == "1"
    assert operations.metadata_path == store.pointers["db.t"].metadata_location

    def not_done() -> None:
        changed_once(store)
        raise CommitConflictError("refused")

    store.before = not_done
    before = set(files(store))
    with pytest.raises(CommitConflictError):
        commit(operations, "2")
    assert len(set(files(store)) - before) == 1


@pytest.mark.parametrize("others", [0, 1, 3])
def test_an_answer_that_is_lost_after_the_swap_is_a_commit(
    store: MemoryMetastore, operations: MetastoreTableOperations, others: int
) -> None:
    def done_and_lost() -> None:
        for _ in range(others):
            changed_once(store)
        lost()

    store.after = done_and_lost
    committed = commit(operations)
    assert committed.properties["p"] == "1"
    assert len(files(store)) == 2 + others


def test_an_answer_that_is_lost_before_the_swap_stays_unknown(
    store: MemoryMetastore, operations: MetastoreTableOperations
) -> None:
    store.before = lost
    with pytest.raises(CommitStateUnknownError, match="no answer"):
        commit(operations)
    assert len(files(store)) == 2, "the request may still arrive, and then this is the table's metadata"


@pytest.mark.parametrize("conditional", [True, False])
def test_a_lost_request_whose_place_was_taken_is_a_conflict_only_where_it_is_refused_later(
    store: MemoryMetastore, operations: MetastoreTableOperations, conditional: bool
) -> None:
    store.conditional = conditional

    def lost_and_overtaken() -> None:
        changed_once(store)
        lost()

    store.before = lost_and_overtaken
    with pytest.raises(CommitConflictError if conditional else CommitStateUnknownError):
        commit(operations)
    assert len(files(store)) == (2 if conditional else 3)


def test_a_table_that_cannot_be_read_leaves_the_outcome_open(
    store: MemoryMetastore, operations: MetastoreTableOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(table: str) -> Pointer:
        raise StorageError(f"{table}: the service is away")

    def done_and_away() -> None:
        monkeypatch.setattr(store, "pointer", unreadable)
        lost()

    store.after = done_and_away
    with pytest.raises(CommitStateUnknownError):
        commit(operations)
    assert len(files(store)) == 2


def test_an_error_that_says_that_nothing_was_done_leaves_no_file(
    store: MemoryMetastore, operations: MetastoreTableOperations
) -> None:
    def denied() -> None:
        raise StorageError("not allowed")

    store.before = denied
    with pytest.raises(StorageError, match="not allowed"):
        commit(operations)
    assert len(files(store)) == 1


def test_a_stale_base_is_refused_before_anything_is_written(
    store: MemoryMetastore, operations: MetastoreTableOperations
) -> None:
    base = operations.refresh()
    with pytest.raises(CommitConflictError):
        operations.commit(replace(base), with_properties(base, {"p": "1"}))
    assert operations.commit(base, base) is base
    assert len(files(store)) == 1


def test_creating_a_table_whose_answer_is_lost(store: MemoryMetastore) -> None:
    store.after = lost
    assert new_table(store).uuid == MetastoreCatalog(store).load_table("db.t").uuid
    with pytest.raises(TableAlreadyExistsError):
        new_table(store)
    assert len(files(store)) == 1
    store.pointers.clear()
    store.before = lost
    with pytest.raises(CommitStateUnknownError, match="look for the table"):
        new_table(store)
    assert len(files(store)) == 2

    def overtaken() -> None:
        new_table(store)
        lost()

    store.before = overtaken
    with pytest.raises(TableAlreadyExistsError, match="another writer"):
        new_table(store)
    assert len(files(store)) == 3


def test_a_metadata_file_that_is_gone_is_named(
    store: MemoryMetastore, operations: MetastoreTableOperations
) -> None:
    (path,) = (store.home / "db.t" / "metadata").glob("*.json")
    path.unlink()
    with pytest.raises(DataInvalidError, match=rf"{path.name}, and there is no such file: restore it"):
        operations.refresh()


def test_a_file_that_is_superseded_while_it_is_looked_for_is_no_error(
    store: MemoryMetastore, operations: MetastoreTableOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (store.home / "db.t" / "metadata").glob("*.json")
    old, pointer = store.pointers["db.t"], store.pointer
    changed_once(store)
    path.unlink()

    def once_old(table: str) -> Pointer:
        monkeypatch.setattr(store, "pointer", pointer)
        return old

    monkeypatch.setattr(store, "pointer", once_old)
    assert operations.refresh().properties["other"] == "0"


def test_metadata_that_is_known_is_not_read_again(
    store: MemoryMetastore, operations: MetastoreTableOperations
) -> None:
    commit(operations)
    for path in (store.home / "db.t" / "metadata").glob("*.json"):
        path.write_text("nothing")
    assert operations.refresh() is operations.refresh()
    commit(operations, "2")
