"""Opens tables and catalogs from a user's options: a path, or a name in a catalog.

This is the one module that knows which catalogs there are. `catalog=None` means that `location` is the
table's own directory (the Hadoop catalog); a mapping gives a type and its properties; a string is a catalog
that PyIceberg's configuration knows. A mapping of nothing but storage settings (`s3.endpoint`, ...) is no
catalog: it says how the table's own directory is reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from streamlake.catalog.hadoop import HadoopCatalog, create_hadoop_table, load_hadoop_table
from streamlake.catalog.new_tables import TableDefinition
from streamlake.catalog.service import SERVICE_TYPES, configured_properties, load_service
from streamlake.catalog.storage_settings import STORAGE_PREFIXES, storage_settings
from streamlake.errors import InvalidOptionError, TableNotFoundError
from streamlake.options import suggestion
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, PartitionSpec
from streamlake.spec.partitioning.sort_order import UNSORTED, SortOrder
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table

CatalogOption = str | Mapping[str, str] | None
_DOTTED = re.compile(r"\w+(\.\w+)+")


class Catalog(Protocol):
    """The protocol of a catalog. Names are dotted: `namespace.table`."""

    def load_table(self, name: str) -> Table:
        """The table of this name. Raises TableNotFoundError."""
        ...

    def create_table(self, name: str, definition: TableDefinition) -> Table:
        """Create a table. Raises TableAlreadyExistsError."""
        ...

    def register_table(self, name: str, metadata_file: str) -> Table:
        """Make the catalog know an existing metadata file. Raises TableAlreadyExistsError."""
        ...

    def list_tables(self, namespace: str) -> list[str]:
        """The names of the tables directly in a namespace, sorted. Raises TableNotFoundError."""
        ...

    def metadata_location(self, name: str) -> str:
        """The table's current metadata file, which need not exist. Raises TableNotFoundError."""
        ...

    def drop_table(self, name: str) -> None:
        """Forget a table; its files stay. Raises TableNotFoundError, FeatureUnsupportedError."""
        ...

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name. Raises TableNotFoundError, TableAlreadyExistsError."""
        ...

    def list_namespaces(self, parent: str = "") -> list[str]:
        """The names of the namespaces directly in a namespace ("": at the top), sorted."""
        ...

    def create_namespace(self, name: str, properties: Mapping[str, str]) -> None:
        """Create a namespace. Raises TableAlreadyExistsError."""
        ...

    def drop_namespace(self, name: str) -> None:
        """Drop an empty namespace. Raises TableNotFoundError, InvalidOptionError."""
        ...

    def namespace_properties(self, name: str) -> dict[str, str]:
        """The properties of a namespace. Raises TableNotFoundError."""
        ...

    def update_namespace_properties(
        self, name: str, updates: Mapping[str, str], removals: Iterable[str] = ()
    ) -> None:
        """Set and remove properties of a namespace. Raises TableNotFoundError."""
        ...


def open_catalog(catalog: str | Mapping[str, str]) -> Catalog:
    """The catalog that an option describes. Raises InvalidOptionError, FeatureUnsupportedError."""
    if isinstance(catalog, Mapping) and catalog.get("type") == "hadoop":
        warehouse = catalog.get("warehouse")
        if not warehouse:
            raise InvalidOptionError("catalog: a hadoop catalog needs warehouse=DIRECTORY")
        return HadoopCatalog(warehouse, catalog)
    kind = catalog.get("type") if isinstance(catalog, Mapping) else None
    if kind is not None and kind not in SERVICE_TYPES:
        known = ("hadoop", *SERVICE_TYPES)
        near = suggestion(kind, known)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"
        raise InvalidOptionError(f"catalog: unknown type {kind!r}; {hint}")
    return load_service(catalog)


def is_catalog_name(location: str) -> bool:
    """Whether a location looks like `namespace.table`, and there is no directory of this name."""
    return _DOTTED.fullmatch(location) is not None and not Path(location).is_dir()


def _without_catalog(name: str) -> str:
    return (
        f"'{name}' is a name in a catalog, and no catalog is given: name the catalog, or write ./{name} for "
        "a directory of this name"
    )


def storage_properties(catalog: CatalogOption) -> dict[str, str]:
    """The storage settings (`s3.*`, `gcs.*`, `adls.*`, `hdfs.*`, `client.*`) of a catalog option.

    Raises InvalidOptionError when PyIceberg, which knows a catalog by its name, is not installed.
    """
    given = configured_properties(catalog) if isinstance(catalog, str) else catalog or {}
    return storage_settings(given)


def service_of(catalog: CatalogOption) -> str | Mapping[str, str] | None:
    """The catalog that an option names; None for none, and for nothing but settings of the storage of a
    table's directory.
    """
    if isinstance(catalog, str):
        return catalog
    return None if all(key.startswith(STORAGE_PREFIXES) for key in catalog or {}) else catalog


def open_table(location: str, catalog: CatalogOption = None) -> Table:
    """Load a table by its directory (see `service_of`) or by its name in a catalog.

    Raises TableNotFoundError.
    """
    service = service_of(catalog)
    if service is None:
        try:
            return load_hadoop_table(location, storage_properties(catalog))
        except TableNotFoundError as error:
            if is_catalog_name(location):
                raise TableNotFoundError(_without_catalog(location)) from error
            raise
    return open_catalog(service).load_table(location)


def create(
    location: str,
    schema: Schema,
    partition_spec: PartitionSpec = UNPARTITIONED,
    sort_order: SortOrder = UNSORTED,
    format_version: int | None = None,
    properties: Mapping[str, str] | None = None,
    catalog: CatalogOption = None,
) -> Table:
    """Create a table; field ids are assigned anew. `format_version` None: 2.

    Raises TableAlreadyExistsError, InvalidOptionError, FeatureUnsupportedError, StorageError.
    """
    definition = TableDefinition(schema, partition_spec, sort_order, format_version, dict(properties or {}))
    service = service_of(catalog)
    if service is None:
        if is_catalog_name(location):
            raise InvalidOptionError(_without_catalog(location))
        return create_hadoop_table(location, definition, storage_properties(catalog))
    return open_catalog(service).create_table(location, definition)
