"""Commits to a Hive metastore whose answers and locks get lost: a stand-in for its Thrift client fails on demand."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hive_metastore import ttypes as types

from streamlake.catalog.metastores.hive_metastore import HiveMetastore
from streamlake.catalog.metastores.metastore_catalog import MetastoreCatalog
from streamlake.catalog.metastores.metastore_operations import MetastoreTableOperations
from streamlake.catalog.new_tables import TableDefinition
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.updates.metadata_changes import with_properties
from tests.helpers.processes import wait_until

FAST = {
    "iceberg.hive.lock-check-min-wait-ms": "1",
    "iceberg.hive.lock-check-max-wait-ms": "5",
    "iceberg.hive.lock-creation-min-wait-ms": "1",
    "iceberg.hive.lock-timeout-ms": "200",
    "iceberg.hive.lock-creation-timeout-ms": "200",
}


class BrokenError(Exception):
    """The connection broke."""


class Thrift:
    """A metastore in memory. `faults` maps a call to what happens before and after it; each is done once."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}
        self.locks: dict[int, Any] = {}
        self.calls: list[str] = []
        self.contexts: list[dict[str, str]] = []
        self.states: list[int] = []
        """What the next locks' states are; ACQUIRED at the end."""
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    def __getattr__(self, call: str) -> Any:
        if call.startswith("_"):
            raise AttributeError(call)

        def done(*arguments: Any) -> Any:
            self.calls.append(call)
            self.before.pop(call, lambda: None)()
            answer = getattr(self, f"_{call}")(*arguments)
            self.after.pop(call, lambda: None)()
            return answer

        return done

    def _state(self) -> int:
        return self.states.pop(0) if self.states else types.LockState.ACQUIRED

    def _lock(self, request: Any) -> Any:
        lockid = len(self.calls)
        part = request.component[0]
        assert (part.type, part.level) == (types.LockType.EXCLUSIVE, types.LockLevel.TABLE)
        state = self._state()
        self.locks[lockid] = SimpleNamespace(lockid=lockid, state=state, agentInfo=request.agentInfo)
        return SimpleNamespace(lockid=lockid, state=state)

    def _check_lock(self, request: Any) -> Any:
        return SimpleNamespace(lockid=request.lockid, state=self._state())

    def _show_locks(self, _: Any) -> Any:
        return SimpleNamespace(locks=list(self.locks.values()))

    def _heartbeat(self, request: Any) -> None:
        assert request.lockid in self.locks

    def _unlock(self, request: Any) -> None:
        del self.locks[request.lockid]

    def _get_table(self, database: str, name: str) -> Any:
        if f"{database}.{name}" not in self.tables:
            raise types.NoSuchObjectException("no such table")
        return copy.deepcopy(self.tables[f"{database}.{name}"])

    def _create_table(self, entry: Any) -> None:
        key = f"{entry.dbName}.{entry.tableName}"
        if key in self.tables:
            raise types.AlreadyExistsException(key)
        self.tables[key] = entry

    def _alter_table_with_environment_context(
        self, database: str, name: str, entry: Any, context: Any
    ) -> None:
        self.contexts.append(context.properties)
        expected = context.properties.get("expected_parameter_value")
        here = self.tables[f"{database}.{name}"].parameters["metadata_location"]
        if expected not in (None, here):
            raise types.MetaException(
                "The table has been modified. The parameter value for key 'metadata_location' is "
                f"'{here}'. The expected was value was '{expected}'"
            )
        self.tables[f"{database}.{name}"] = entry


class Clients:
    def __init__(self, thrift: Thrift) -> None:
        self.thrift = thrift

    @contextmanager
    def client(self) -> Iterator[Thrift]:
        yield self.thrift

    def forget(self) -> None:
        pass


@pytest.fixture
def thrift() -> Thrift:
    return Thrift()


@pytest.fixture
def new(thrift: Thrift, tmp_path: Path) -> Callable[..., MetastoreTableOperations]:
    """Makes the table db.t, with properties of the catalog and of the table."""

    def make(properties: dict[str, str] | None = None, **catalog: str) -> MetastoreTableOperations:
        given = {
            "warehouse": str(tmp_path),
            **FAST,
            **{key.replace("_", "."): v for key, v in catalog.items()},
        }
        client = SimpleNamespace(
            name="hive",
            properties=given,
            load_namespace_properties=lambda _: {"location": f"{tmp_path}/db.db"},
        )
        store = HiveMetastore(client, Clients(thrift))  # type: ignore[arg-type]
        definition = TableDefinition(parse_ddl("id long"), properties=properties or {})
        MetastoreCatalog(store).create_table("db.t", definition)
        operations = MetastoreTableOperations(store, "db.t")
        operations.refresh()
        thrift.calls.clear()
        return operations

    return make


def commit(operations: MetastoreTableOperations, value: str = "1") -> TableMetadata:
    base = operations.refresh()
    return operations.commit(base, with_properties(base, {"p": value}))


def files(tmp_path: Path) -> int:
    return len(list((tmp_path / "db.db" / "t" / "metadata").iterdir()))


def broken() -> None:
    raise BrokenError("no answer")


ALTER = "alter_table_with_environment_context"


def test_a_commit_locks_reads_alters_and_unlocks(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations]
) -> None:
    operations = new()
    thrift.states = [types.LockState.WAITING, types.LockState.WAITING]
    commit(operations)
    assert thrift.calls == ["get_table", "lock", "check_lock", "check_lock", "get_table", ALTER, "unlock"]
    assert thrift.contexts == [{"DO_NOT_UPDATE_STATS": "true"}]
    assert thrift.locks == {}


def test_without_locks_the_metastore_compares(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations], tmp_path: Path
) -> None:
    operations = new({"engine.hive.lock-enabled": "false"})
    before = operations.metadata_path
    commit(operations)
    assert thrift.calls == ["get_table", "get_table", ALTER]
    assert thrift.contexts[0]["expected_parameter_key"] == "metadata_location"
    assert thrift.contexts[0]["expected_parameter_value"] == before

    def overtaken() -> None:
        commit(MetastoreTableOperations(operations._metastore, "db.t"), "3")

    thrift.before[ALTER] = overtaken
    base = operations.refresh()
    with pytest.raises(CommitConflictError, match="another writer"):
        operations.commit(base, with_properties(base, {"p": "2"}))
    assert files(tmp_path) == 3
    assert operations.refresh().properties["p"] == "3"


@pytest.mark.parametrize("done", [True, False])
def test_an_alteration_whose_answer_is_lost(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations], done: bool, tmp_path: Path
) -> None:
    operations = new()
    (thrift.after if done else thrift.before)[ALTER] = broken
    if done:
        assert commit(operations).properties["p"] == "1"
    else:
        with pytest.raises(CommitStateUnknownError, match="no answer"):
            commit(operations)
    assert files(tmp_path) == 2, "what may still be the table's metadata is kept"
    assert thrift.locks == {}


def test_a_lost_request_is_not_called_lost_although_others_went_on(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations], tmp_path: Path
) -> None:
    """It may arrive late, and no lock will stop it then."""
    operations = new()

    def overtaken() -> None:
        other = copy.deepcopy(thrift.tables["db.t"])
        other.parameters["metadata_location"] = str(tmp_path / "db.db/t/metadata/00001-x.metadata.json")
        base = operations.metadata_path
        text = (
            Path(base)
            .read_text()
            .replace('"metadata-log":[]', f'"metadata-log":[{{"metadata-file":"{base}","timestamp-ms":1}}]')
        )
        Path(other.parameters["metadata_location"]).write_text(text)
        thrift.tables["db.t"] = other
        broken()

    thrift.before[ALTER] = overtaken
    with pytest.raises(CommitStateUnknownError):
        commit(operations)
    assert files(tmp_path) == 3


def test_a_lock_whose_answer_is_lost_is_found_by_its_mark(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations]
) -> None:
    operations = new()
    thrift.after["lock"] = broken
    commit(operations)
    assert thrift.calls == ["get_table", "lock", "show_locks", "get_table", ALTER, "unlock"]
    thrift.calls.clear()
    thrift.before["lock"] = broken
    commit_again = with_properties(base := operations.refresh(), {"p": "2"})
    operations.commit(base, commit_again)
    asked = ["get_table", "lock", "show_locks", "lock", "get_table", ALTER, "show_locks", "unlock"]
    assert thrift.calls == asked, "the first request may be done later: its lock is looked for"


def test_a_request_for_a_lock_that_comes_late_does_not_keep_its_sender_waiting(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations]
) -> None:
    operations = new()

    def arrives() -> None:
        (second,) = thrift.locks.values()
        late = SimpleNamespace(lockid=-1, state=types.LockState.ACQUIRED, agentInfo=second.agentInfo)
        thrift.locks[-1] = late

    def looked_for() -> None:
        thrift.before["show_locks"] = arrives

    thrift.before = {"lock": broken, "show_locks": looked_for}
    thrift.states = [types.LockState.WAITING] * 10_000
    assert commit(operations).properties["p"] == "1"
    assert thrift.locks == {}


def test_a_lock_is_released_although_the_connection_breaks(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations]
) -> None:
    operations = new()
    thrift.before["unlock"] = broken
    commit(operations)
    assert thrift.locks == {}


def test_a_lock_that_is_not_given_is_a_conflict_and_is_withdrawn(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations], tmp_path: Path
) -> None:
    operations = new()
    thrift.states = [types.LockState.WAITING] * 100_000
    with pytest.raises(CommitConflictError, match="lock for 200 ms"):
        commit(operations)
    thrift.states = [types.LockState.ABORT]
    with pytest.raises(CommitConflictError, match="did not give"):
        commit(operations)
    assert (files(tmp_path), thrift.locks, ALTER in thrift.calls) == (1, {}, False)
    thrift.states = []
    commit(operations)


def test_a_metastore_that_gives_no_lock_at_all(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations], tmp_path: Path
) -> None:
    operations = new()

    def never() -> None:
        thrift.before["lock"] = never
        raise BrokenError("still no answer")

    thrift.before["lock"] = never
    with pytest.raises(StorageError, match="still no answer"):
        commit(operations)
    assert files(tmp_path) == 1
    thrift.before["lock"] = lambda: (_ for _ in ()).throw(
        BrokenError("Table/View 'HIVE_LOCKS' does not exist")
    )
    with pytest.raises(StorageError, match="supports transactions"):
        commit(operations)


def test_heartbeats_keep_the_lock_while_the_commit_runs(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations]
) -> None:
    operations = new(**{"iceberg_hive_lock-heartbeat-interval-ms": "20"})
    thrift.before[ALTER] = lambda: wait_until(lambda: thrift.calls.count("heartbeat") >= 3, 20, "heartbeats")
    commit(operations)
    wait_until(lambda: not any(each.name == "lock of db.t" for each in threading.enumerate()), 20, "its end")


@pytest.mark.parametrize("when", ["get_table", ALTER])
def test_a_lock_that_is_lost_meanwhile(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations], when: str, tmp_path: Path
) -> None:
    """Before the alteration nothing is sent; during it, the table says whether it was done."""
    operations = new(**{"iceberg_hive_lock-heartbeat-interval-ms": "20"})
    base = operations.refresh()

    def lose() -> None:
        thrift.before["heartbeat"] = broken
        wait_until(lambda: "heartbeat" not in thrift.before, 20, "a heartbeat")
        time.sleep(0.1)

    thrift.before[when] = lose
    changed = with_properties(base, {"p": "1"})
    if when == ALTER:
        assert operations.commit(base, changed).properties["p"] == "1"
        return
    with pytest.raises(CommitConflictError, match="lost before"):
        operations.commit(base, changed)
    assert (files(tmp_path), thrift.locks) == (1, {})


def test_dropped_and_refused(
    thrift: Thrift, new: Callable[..., MetastoreTableOperations], tmp_path: Path
) -> None:
    operations = new()
    with pytest.raises(TableAlreadyExistsError):
        new()
    assert files(tmp_path) == 1

    def refused() -> None:
        raise types.InvalidObjectException("a column has no type")

    thrift.before[ALTER] = refused
    with pytest.raises(StorageError, match=r"refused: .*no type"):
        commit(operations)
    base = operations.refresh()
    kept = thrift.tables.pop("db.t")
    with pytest.raises(TableNotFoundError, match="dropped"):
        operations.commit(base, with_properties(base, {"p": "1"}))
    assert (files(tmp_path), thrift.locks) == (1, {})
    kept.parameters["table_type"] = "HUDI"
    thrift.tables["db.t"] = kept
    with pytest.raises(TableNotFoundError, match="not an Iceberg table"):
        operations.refresh()
