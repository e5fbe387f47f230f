"""SQL databases as metastores: one row per table, and a swap is one conditional UPDATE.

The tables are those of Iceberg's JdbcCatalog and of PyIceberg's SqlCatalog: `iceberg_tables` and
`iceberg_namespace_properties`. In the newer schema (V1) a row says whether it is a table or a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from streamlake.catalog.client_errors import translated
from streamlake.catalog.metastores.pointers import Change, Pointer
from streamlake.catalog.metastores.warehouse import (
    ensure_namespace,
    new_table_location,
    require_namespace,
    split_name,
)
from streamlake.catalog.sql_names import advice
from streamlake.catalog.storage_settings import storage_settings
from streamlake.errors import (
    CommitConflictError,
    InvalidOptionError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.spec.metadata.table_metadata import TableMetadata

_ROW = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
_IS_TABLE = " AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
_LONGEST_NAME, _LONGEST_PATH = 255, 1000
_COLLISIONS = ("database is locked", "database table is locked")
_COLLISION_STATES = ("40001", "40P01", "55P03")
"""PostgreSQL's codes of a transaction that lost against another one: it may be tried again."""


class SqlMetastore:
    """The tables of one catalog name in a database; `client` is PyIceberg's SqlCatalog. See Metastore."""

    repeats_requests = False

    def __init__(self, client: Any) -> None:
        self.client = client
        self._engine = client.engine
        self._sql = import_module("sqlalchemy")

    @property
    def name(self) -> str:
        """The catalog's name, under which the database keeps its tables."""
        return str(self.client.name)

    @cached_property
    def storage(self) -> Mapping[str, str]:
        """The settings of the tables' storage."""
        return storage_settings(self.client.properties)

    @cached_property
    def _has_types(self) -> bool:
        columns = self._sql.inspect(self._engine).get_columns("iceberg_tables")
        return any(column["name"] == "iceberg_type" for column in columns)

    def is_conditional(self, metadata: TableMetadata) -> bool:
        """Always: the database compares the path."""
        del metadata
        return True

    def pointer(self, table: str) -> Pointer:
        """The path in the table's row."""
        action = f"loading {table} from catalog {self.name}"
        with translated(action):
            try:
                found = self._read(table)
            except self._sql.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                found = self._read(table)  # the database was restarted since the connection was used last
        if found is None:
            raise TableNotFoundError(
                f"{action}: Table does not exist: {table}; check the name, or create the table"
                f"{advice(self.client, table)}"
            )
        if not found[0]:
            raise TableNotFoundError(f"{action}: its row names no metadata file; register one")
        return Pointer(str(found[0]))

    def _read(self, table: str) -> Any:
        with self._engine.connect() as connection:
            return connection.execute(self._select(), self._row(table)).first()

    def new_location(self, table: str) -> str:
        """In the warehouse: `namespace/table`."""
        _require_fitting_name(table)
        return new_table_location(self.client, table)

    def admit(self, table: str) -> None:
        """Names have a greatest length."""
        _require_fitting_name(table)
        ensure_namespace(self.client, table)

    def tables(self, namespace: str) -> list[str]:
        """The rows of tables, without those of views."""
        text = (
            "SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog AND "
            f"table_namespace = :namespace{_IS_TABLE if self._has_types else ''}"
        )
        with self._engine.connect() as connection:
            values = {"catalog": self.name, "namespace": namespace}
            found = [f"{namespace}.{row[0]}" for row in connection.execute(self._sql.text(text), values)]
        if not found:
            self.client.load_namespace_properties(namespace)
        return found

    def remove(self, table: str) -> None:
        """Delete the table's row."""
        text = f"DELETE FROM iceberg_tables WHERE {_ROW}{_IS_TABLE if self._has_types else ''}"
        if self._write(table, text, self._row(table)) != 1:
            raise TableNotFoundError(
                f"{table}: catalog {self.name} has no such table; check the name{advice(self.client, table)}"
            )

    def rename(self, table: str, name: str) -> None:
        """Update the name in the table's row, with whatever path it has."""
        _require_fitting_name(name)
        require_namespace(self.client, name)
        namespace, own = split_name(name)
        text = (
            "UPDATE iceberg_tables SET table_namespace = :to_namespace, table_name = :to_name "
            f"WHERE {_ROW}{_IS_TABLE if self._has_types else ''}"
        )
        values = {**self._row(table), "to_namespace": namespace, "to_name": own}
        try:
            renamed = self._write(table, text, values)
        except self._sql.exc.IntegrityError as error:
            raise TableAlreadyExistsError(
                f"renaming {table} in catalog {self.name}: there is a table or view {name} already; choose "
                "another name"
            ) from error
        if renamed != 1:
            raise TableNotFoundError(
                f"{table}: catalog {self.name} has no such table; check the name{advice(self.client, table)}"
            )

    def insert(self, table: str, change: Change) -> None:
        """Insert the table's row."""
        columns = "catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location"
        values = ":catalog, :namespace, :name, :path, NULL"
        if self._has_types:
            columns, values = f"{columns}, iceberg_type", f"{values}, 'TABLE'"
        text = f"INSERT INTO iceberg_tables ({columns}) VALUES ({values})"
        try:
            self._write(table, text, {**self._row(table), "path": _fitting(change.metadata_location)})
        except self._sql.exc.IntegrityError as error:
            raise TableAlreadyExistsError(
                f"creating {table} in catalog {self.name}: there is such a table or view already; load it, "
                "or choose another name"
            ) from error

    def swap(self, table: str, change: Change) -> None:
        """Update the table's row if it still has the path that the change is based on."""
        assert change.pointer is not None
        before = change.pointer.metadata_location
        text = (
            "UPDATE iceberg_tables SET metadata_location = :path, previous_metadata_location = :before "
            f"WHERE {_ROW} AND metadata_location = :before{_IS_TABLE if self._has_types else ''}"
        )
        values = {**self._row(table), "path": _fitting(change.metadata_location), "before": before}
        if self._write(table, text, values) != 1:
            raise CommitConflictError(
                f"{table}: catalog {self.name}: another writer committed first, or the table was dropped"
            )

    def _write(self, table: str, text: str, values: Mapping[str, str]) -> int:
        """The number of rows that one statement in a transaction of its own has changed.

        Before COMMIT is sent, an error means that nothing was done: the database rolls back.
        """
        with self._connection(table) as connection:
            try:
                rows = int(connection.execute(self._sql.text(text), values).rowcount)
            except self._sql.exc.IntegrityError:
                raise
            except self._sql.exc.SQLAlchemyError as error:
                if _is_collision(error):
                    raise CommitConflictError(f"{table}: catalog {self.name}: {error}") from error
                raise StorageError(f"{table}: catalog {self.name}: {error}") from error
            if rows == 1:
                try:
                    connection.commit()
                except BaseException:
                    # The connection may still be inside of the transaction, and would show it as if it were
                    # committed to whoever looks through it next.
                    connection.invalidate()
                    raise
        return rows

    def _connection(self, table: str) -> Any:
        try:
            return self._engine.connect()
        except self._sql.exc.SQLAlchemyError as error:
            raise StorageError(f"{table}: catalog {self.name} cannot be reached: {error}") from error

    def _select(self) -> Any:
        is_table = _IS_TABLE if self._has_types else ""
        return self._sql.text(f"SELECT metadata_location FROM iceberg_tables WHERE {_ROW}{is_table}")

    def _row(self, table: str) -> dict[str, str]:
        namespace, name = split_name(table)
        return {"catalog": self.name, "namespace": namespace, "name": name}


def _require_fitting_name(table: str) -> None:
    for part in split_name(table):
        if len(part) > _LONGEST_NAME:
            raise InvalidOptionError(f"{part!r} has over {_LONGEST_NAME} characters: choose a shorter name")


def _fitting(path: str) -> str:
    if len(path) > _LONGEST_PATH:
        raise InvalidOptionError(
            f"{path}: a SQL catalog holds paths of up to {_LONGEST_PATH} characters; choose a "
            "shorter location"
        )
    return path


def _is_collision(error: Any) -> bool:
    cause = getattr(error, "orig", None)
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return state in _COLLISION_STATES or any(text in str(cause) for text in _COLLISIONS)
