"""A Hive metastore: lock the table, read it, compare its pointer, alter it, unlock.

Without locks (`engine.hive.lock-enabled=false`), for metastores that compare by themselves: the alteration
names the path that it replaces (HIVE-26882).
"""

from __future__ import annotations

import getpass
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import Any

from streamlake.catalog.client_errors import translated
from streamlake.catalog.metastores.hive_clients import HiveClients
from streamlake.catalog.metastores.hive_entries import OWNER, environment, new_entry, update_entry
from streamlake.catalog.metastores.hive_lock import HiveLock, LockOptions
from streamlake.catalog.metastores.pointers import Change, Pointer
from streamlake.catalog.metastores.warehouse import (
    ensure_namespace,
    listed_tables,
    new_table_location,
    require_namespace,
    split_name,
)
from streamlake.catalog.storage_settings import storage_settings
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidOptionError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.options import bool_property
from streamlake.spec.metadata.table_metadata import TableMetadata

_REFUSALS = ("InvalidObjectException", "InvalidOperationException")
"""Answers of a metastore that has looked at an entry and does not take it: nothing was done."""
_NOT_SAME = "The table has been modified. The parameter value for key 'metadata_location' is"


class HiveMetastore:
    """The tables of a Hive metastore; `client` is PyIceberg's HiveCatalog. See Metastore."""

    repeats_requests = False

    def __init__(self, client: Any, clients: HiveClients | None = None) -> None:
        self.client = client
        self._clients = clients or HiveClients(client)
        self._options = LockOptions.parse(client.properties)
        self._turns: dict[str, Lock] = defaultdict(Lock)

    @property
    def name(self) -> str:
        """The catalog's name."""
        return str(self.client.name)

    @cached_property
    def storage(self) -> Mapping[str, str]:
        """The settings of the tables' storage."""
        return storage_settings(self.client.properties)

    def is_conditional(self, metadata: TableMetadata) -> bool:
        """Only without locks: an alteration that is late does not know that its lock is gone."""
        return not self._is_locked(metadata)

    def pointer(self, table: str) -> Pointer:
        """The path among the table's parameters."""
        action = f"loading {table} from catalog {self.name}"
        with translated(action):
            try:
                entry = self._entry(table)
            except Exception as error:
                if not _is_broken(error):
                    raise
                self._clients.forget()
                entry = self._entry(table)
        if entry is None:
            raise TableNotFoundError(f"{action}: there is no such table; check the name, or create it")
        parameters = entry.parameters or {}
        if parameters.get("table_type", "").lower() != "iceberg" or not parameters.get("metadata_location"):
            raise TableNotFoundError(f"{action}: the metastore has it, but it is not an Iceberg table")
        return Pointer(parameters["metadata_location"])

    def new_location(self, table: str) -> str:
        """In the database's location."""
        _require_name(table)
        return new_table_location(self.client, table, ".db", place_namespace=True)

    def admit(self, table: str) -> None:
        """Names have two parts."""
        _require_name(table)
        ensure_namespace(self.client, table, ".db", place_namespace=True)

    def tables(self, namespace: str) -> list[str]:
        """The Iceberg tables of a database."""
        return listed_tables(self.client, namespace)

    def remove(self, table: str) -> None:
        """Drop the metastore's table; Hive deletes no files."""
        self.pointer(table)
        database, name = split_name(table)
        with self._clients.client() as client:
            try:
                client.drop_table(database, name, False)
            except Exception as error:
                if type(error).__name__ == "NoSuchObjectException":
                    return  # dropped meanwhile
                if type(error).__name__ == "MetaException":
                    raise StorageError(
                        f"dropping {table} from catalog {self.name}: the metastore refused: {error}"
                    ) from error
                raise

    def rename(self, table: str, name: str) -> None:
        """Alter the names of the table, under its lock, so that no commit comes between."""
        _require_name(name)
        require_namespace(self.client, name)
        self.pointer(table)
        with translated(f"looking for {name} in catalog {self.name}"):
            taken = self._entry(name) is not None
        if taken:
            raise TableAlreadyExistsError(
                f"renaming {table} in catalog {self.name}: there is a table or view {name} already; choose "
                "another name"
            )
        if not bool_property(self.client.properties, "iceberg.engine.hive.lock-enabled", True):
            self._alter_names(table, name)
            return
        database, own = split_name(table)
        lock = HiveLock(self._clients, database, own, self._options, self._turns[table])
        lock.acquire()
        try:
            self._alter_names(table, name)
        finally:
            lock.release()

    def _alter_names(self, table: str, name: str) -> None:
        action = f"renaming {table} in catalog {self.name}"
        with translated(action):
            entry = self._entry(table)
        if entry is None:
            raise TableNotFoundError(f"{action}: the table was dropped")
        # A writer may do without locks, as the table's own property says; where it may, the metastore
        # compares.
        expected = (entry.parameters or {}).get("metadata_location")
        entry.dbName, entry.tableName = split_name(name)
        database, own = split_name(table)
        with self._clients.client() as client:
            try:
                client.alter_table_with_environment_context(database, own, entry, environment(expected))
            except Exception as error:
                if _NOT_SAME in str(error):
                    raise CommitConflictError(f"{action}: another writer committed meanwhile") from error
                if type(error).__name__ in ("InvalidOperationException", "InvalidObjectException"):
                    raise StorageError(f"{action}: the metastore refused: {error}") from error
                raise

    def insert(self, table: str, change: Change) -> None:
        """Create the table, under its lock."""
        database, name = split_name(table)
        owner = change.metadata.properties.get(OWNER) or getpass.getuser()
        entry = new_entry(database, name, owner)
        update_entry(entry, change, self.client.properties)
        action = f"creating {table} in catalog {self.name}"
        with self._clients.client() as client:
            try:
                client.create_table(entry)
            except Exception as error:
                kind = type(error).__name__
                if kind == "AlreadyExistsException":
                    raise TableAlreadyExistsError(
                        f"{action}: there is such a table already; load it, or choose another name"
                    ) from error
                if kind in (*_REFUSALS, "NoSuchObjectException"):
                    raise StorageError(f"{action}: the metastore refused: {error}") from error
                raise

    def swap(self, table: str, change: Change) -> None:
        """Alter the table if it still has the path that the change is based on."""
        assert change.base is not None
        database, name = split_name(table)
        if not self._is_locked(change.base):
            self._alter(table, change, None)
            return
        lock = HiveLock(self._clients, database, name, self._options, self._turns[table])
        lock.acquire()
        try:
            self._alter(table, change, lock)
        finally:
            lock.release()

    def _alter(self, table: str, change: Change, lock: HiveLock | None) -> None:
        assert change.pointer is not None
        database, name = split_name(table)
        message, before = f"{table}: catalog {self.name}", change.pointer.metadata_location
        try:
            entry = self._entry(table)
        except Exception as error:
            raise StorageError(f"{message}: {error}") from error
        if entry is None:
            raise TableNotFoundError(f"{message}: the table was dropped")
        if (entry.parameters or {}).get("metadata_location") != before:
            raise CommitConflictError(f"{message}: another writer committed first")
        update_entry(entry, change, self.client.properties)
        lost = None if lock is None else lock.is_lost()
        if lost is not None:
            raise CommitConflictError(f"{message}: the table's lock was lost before the commit: {lost}")
        with self._clients.client() as client:
            try:
                client.alter_table_with_environment_context(
                    database, name, entry, environment(before if lock is None else None)
                )
            except Exception as error:
                if type(error).__name__ in _REFUSALS:
                    raise StorageError(
                        f"{message}: the metastore refused: {error}{_advice(error)}"
                    ) from error
                # Also where the comparison failed: the metastore repeats what its database has interrupted.
                raise CommitStateUnknownError(f"{message}: {_reason(error)}") from error
        lost = None if lock is None else lock.is_lost()
        if lost is not None:
            raise CommitStateUnknownError(
                f"{message}: the table's lock was lost during the commit ({lost}): another writer may have "
                "overwritten it; a shorter iceberg.hive.lock-heartbeat-interval-ms keeps the lock"
            )

    def _entry(self, table: str) -> Any:
        """The metastore's table; None where there is none."""
        database, name = split_name(table)
        with self._clients.client() as client:
            try:
                return client.get_table(database, name)
            except Exception as error:
                if type(error).__name__ == "NoSuchObjectException":
                    return None
                raise

    def _is_locked(self, metadata: TableMetadata) -> bool:
        default = bool_property(self.client.properties, "iceberg.engine.hive.lock-enabled", True)
        return bool_property(metadata.properties, "engine.hive.lock-enabled", default)


def _require_name(table: str) -> None:
    if table.count(".") != 1:
        raise InvalidOptionError(f"creating {table}: a Hive metastore takes names such as db.orders")


def _advice(error: Exception) -> str:
    if "incompatible" not in str(error):
        return ""
    return (
        "; it compares columns by their position, as Iceberg does not: set "
        "metastore.disallow.incompatible.col.type.changes=false in the metastore"
    )


def _is_broken(error: Exception) -> bool:
    """Whether the connection broke, which a metastore that was restarted does to those that were idle."""
    return type(error).__name__ == "TTransportException"


def _reason(error: Exception) -> str:
    return "another writer committed first" if _NOT_SAME in str(error) else f"{type(error).__name__}: {error}"
