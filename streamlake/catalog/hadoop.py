"""The Hadoop catalog: a warehouse directory in which table `db.table` is the directory `db/table`.

The layout is that of Iceberg's HadoopCatalog; a table directory is one that holds metadata versions. Creating
a table is atomic (version 1 is created exclusively); dropping one is not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, TableNotFoundError
from streamlake.storage.arrow_fs import WITHOUT_COMMITS
from streamlake.storage.file_io import FileIO, file_io_for, scheme_of, storage_errors
from streamlake.storage.local import local_path
from streamlake.storage.locations import table_location
from streamlake.table.table import Table


def load_hadoop_table(
    location: str, properties: Mapping[str, str] | None = None, name: str | None = None
) -> Table:
    """The table in a directory. Raises TableNotFoundError, DataInvalidError."""
    location = table_location(location)
    operations = HadoopTableOperations(location, file_io_for(location, properties), name)
    operations.refresh()
    return Table(name or location, operations)


def create_hadoop_table(
    location: str,
    definition: TableDefinition,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Table:
    """Create a table in a directory. Raises TableAlreadyExistsError."""
    location = table_location(location)
    scheme = scheme_of(location)
    if scheme in WITHOUT_COMMITS:
        raise FeatureUnsupportedError(
            f"{location}: a table on {scheme}:// needs a catalog service, because {scheme}:// cannot decide "
            "between two commits: give catalog='...', and the table's name in it"
        )
    operations = HadoopTableOperations(location, file_io_for(location, properties), name)
    operations.create(initial_metadata(definition, location))
    return Table(name or location, operations)


class HadoopCatalog:
    """A catalog of the tables under one warehouse directory; `properties` configure its storage."""

    def __init__(self, warehouse: str, properties: Mapping[str, str] | None = None) -> None:
        self.warehouse = table_location(warehouse)
        self._properties = dict(properties or {})
        self._io: FileIO = file_io_for(self.warehouse, self._properties)

    def location_of(self, name: str) -> str:
        """The directory of a table. Raises InvalidOptionError for a name outside of the warehouse."""
        parts = name.split(".")
        if not all(parts) or any("/" in part or part == ".." for part in parts):
            raise InvalidOptionError(
                f"{name!r} is not a table name; write namespace.table, for example db.orders"
            )
        return "/".join((self.warehouse, *parts))

    def load_table(self, name: str) -> Table:
        """The table of this name. Raises TableNotFoundError."""
        return load_hadoop_table(self.location_of(name), self._properties, name)

    def create_table(self, name: str, definition: TableDefinition) -> Table:
        """Create a table. Raises TableAlreadyExistsError."""
        return create_hadoop_table(self.location_of(name), definition, self._properties, name)

    def table_exists(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return HadoopTableOperations(self.location_of(name), self._io, name).exists()

    def drop_table(self, name: str) -> None:
        """Remove the table's whole directory, data included. Raises TableNotFoundError."""
        location = self.location_of(name)
        if not HadoopTableOperations(location, self._io, name).exists():
            raise TableNotFoundError(
                f"there is no table {name} in warehouse {self.warehouse}, so none was dropped"
            )
        with storage_errors("dropping", location):
            shutil.rmtree(self._directory(location))

    def list_tables(self, namespace: str = "") -> list[str]:
        """The names of the tables directly in a namespace, sorted."""
        return [name for name, is_table in self._entries(namespace) if is_table]

    def list_namespaces(self, namespace: str = "") -> list[str]:
        """The names of the namespaces directly in a namespace, sorted."""
        return [name for name, is_table in self._entries(namespace) if not is_table]

    def _entries(self, namespace: str) -> list[tuple[str, bool]]:
        location = self.location_of(namespace) if namespace else self.warehouse
        found = []
        with storage_errors("listing", location):
            try:
                names = sorted(
                    entry.name for entry in os.scandir(self._directory(location)) if entry.is_dir()
                )
            except FileNotFoundError:
                return []
        for part in names:
            name = f"{namespace}.{part}" if namespace else part
            is_table = HadoopTableOperations(f"{location}/{part}", self._io).exists()
            found.append((name, is_table))
        return found

    def _directory(self, location: str) -> str:
        if scheme_of(location) not in ("", "file"):
            raise FeatureUnsupportedError(
                f"{location}: a warehouse on this storage cannot be listed or dropped from here; use a "
                "catalog service"
            )
        return local_path(location)
