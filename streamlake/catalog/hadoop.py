"""The Hadoop catalog: a warehouse directory in which table `db.table` is the directory `db/table`.

The layout is that of Iceberg's HadoopCatalog; a table directory is one that holds metadata versions. Creating
a table is atomic (version 1 is created exclusively); so is dropping one (the newest version goes last).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from streamlake.catalog.hadoop_operations import HadoopTableOperations
from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.errors import (
    FeatureUnsupportedError,
    InvalidOptionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
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

    def register_table(self, name: str, metadata_file: str) -> Table:
        """Not possible: raises FeatureUnsupportedError."""
        raise FeatureUnsupportedError(
            f"{name} cannot be registered for {metadata_file}: in a hadoop warehouse a table is its "
            "directory. Open the table by its own directory, or register it in a catalog service"
        )

    def metadata_location(self, name: str) -> str:
        """The table's newest metadata file. Raises TableNotFoundError."""
        return HadoopTableOperations(self.location_of(name), self._io, name).metadata_path

    def drop_table(self, name: str) -> None:
        """Not possible without its files: raises FeatureUnsupportedError."""
        raise FeatureUnsupportedError(dropped_whole(name))

    def rename_table(self, name: str, new_name: str) -> None:
        """Not possible: raises FeatureUnsupportedError."""
        raise FeatureUnsupportedError(
            f"{name} cannot be renamed to {new_name}: in a hadoop warehouse a table's name is its directory, "
            "and its metadata names files there. Use a catalog service, or write a new table"
        )

    def list_tables(self, namespace: str = "") -> list[str]:
        """The names of the tables directly in a namespace, sorted. Raises TableNotFoundError."""
        return [name for name, is_table in self._entries(namespace) if is_table]

    def list_namespaces(self, parent: str = "") -> list[str]:
        """The names of the namespaces directly in a namespace, sorted."""
        return [name for name, is_table in self._entries(parent) if not is_table]

    def create_namespace(self, name: str, properties: Mapping[str, str]) -> None:
        """Make the directory of a namespace, which has no properties. Raises TableAlreadyExistsError."""
        directory = self._directory(self.location_of(name))
        if properties:
            raise FeatureUnsupportedError(
                f"namespace {name}: a hadoop warehouse keeps no properties of namespaces; leave them out"
            )
        with storage_errors("creating", directory):
            try:
                os.makedirs(directory)
            except FileExistsError as error:
                raise TableAlreadyExistsError(
                    f"namespace {name}: warehouse {self.warehouse} has such a namespace or table already"
                ) from error

    def drop_namespace(self, name: str) -> None:
        """Remove the directory of an empty namespace. Raises TableNotFoundError, InvalidOptionError."""
        self._require_namespace(name)
        directory = self._directory(self.location_of(name))
        inside = next((each for each in sorted(os.listdir(directory))), None)
        if inside is not None:
            raise InvalidOptionError(
                f"namespace {name} of warehouse {self.warehouse} is not empty, there is {inside}; drop what "
                "it holds first"
            )
        with storage_errors("removing", directory):
            os.rmdir(directory)

    def namespace_properties(self, name: str) -> dict[str, str]:
        """The location of a namespace. Raises TableNotFoundError."""
        self._require_namespace(name)
        return {"location": self.location_of(name)}

    def update_namespace_properties(
        self, name: str, updates: Mapping[str, str], removals: Iterable[str] = ()
    ) -> None:
        """Not possible: raises FeatureUnsupportedError."""
        raise FeatureUnsupportedError(
            f"namespace {name}: a hadoop warehouse keeps no properties of namespaces; use a catalog service "
            f"for {', '.join((*updates, *removals)) or 'them'}"
        )

    def _require_namespace(self, name: str) -> None:
        location = self.location_of(name)
        is_table = HadoopTableOperations(location, self._io, name).exists()
        if is_table or not (os.path.isdir(self._directory(location))):
            what = "a table and no namespace" if is_table else "not there"
            raise TableNotFoundError(f"namespace {name} of warehouse {self.warehouse} is {what}")

    def _entries(self, namespace: str) -> list[tuple[str, bool]]:
        location = self.location_of(namespace) if namespace else self.warehouse
        files, directories = self._io.list_level(location)
        if namespace and not files and not directories and scheme_of(location) in ("", "file"):
            self._require_namespace(namespace)
        found = []
        for directory in sorted(directories):
            part = directory.rstrip("/").rpartition("/")[2]
            name = f"{namespace}.{part}" if namespace else part
            is_table = HadoopTableOperations(f"{location}/{part}", self._io).exists()
            found.append((name, is_table))
        return found

    def _directory(self, location: str) -> str:
        if scheme_of(location) not in ("", "file"):
            raise FeatureUnsupportedError(
                f"{location}: an empty namespace cannot be kept on this storage; a namespace is there with "
                "its first table"
            )
        return local_path(location)


def dropped_whole(name: str) -> str:
    """Why a table without a catalog service is only dropped with its files."""
    return (
        f"{name}: without a catalog service a table is its directory, and there is nothing to drop but its "
        "files. Drop it with --purge (in Python: purge=True) to delete them, or move the directory away to "
        "keep them"
    )
