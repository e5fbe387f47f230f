"""Catalogs for users: which namespaces and tables there are; tables dropped, renamed and registered.

Every function takes `catalog` as `load_table` does: a name, or a mapping of properties. What a kind of
catalog cannot do is a FeatureUnsupportedError, which says what to do instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from streamlake.catalog.open import Catalog, CatalogOption, open_catalog, service_of
from streamlake.errors import InvalidOptionError
from streamlake.maintain.table_drop import Dropped, all_tables
from streamlake.maintain.table_drop import drop_table as _drop_table
from streamlake.storage.locations import table_location
from streamlake.tables import LoadedTable


def list_tables(catalog: CatalogOption, namespace: str | None = None) -> list[str]:
    """The names of the tables of a namespace, sorted; None: of all namespaces.

    Raises TableNotFoundError for a namespace that is not there.
    """
    opened = _opened(catalog)
    return sorted(all_tables(opened)) if namespace is None else opened.list_tables(namespace)


def drop_table(
    location: str | os.PathLike[str],
    catalog: CatalogOption = None,
    *,
    purge: bool = False,
    dry_run: bool = False,
) -> Dropped:
    """Make the catalog forget a table. `purge` deletes its files too: of all snapshots, staged checkpoints,
    index.

    A table that is its directory (no catalog, or a hadoop warehouse) is only dropped with `purge`. A purge is
    refused where the catalog has the table under a second name, or where it refers to files in another
    table's location, and with the property `gc.enabled=false`. Raises TableNotFoundError, InvalidOptionError,
    FeatureUnsupportedError, StorageError.
    """
    return _drop_table(os.fspath(location), catalog, purge=purge, dry_run=dry_run)


def rename_table(name: str, new_name: str, catalog: CatalogOption) -> None:
    """Give a table another name, in any namespace that is there. Its files stay where they are.

    Raises TableNotFoundError, TableAlreadyExistsError, FeatureUnsupportedError (a hadoop warehouse).
    """
    _opened(catalog).rename_table(name, new_name)


def register_table(name: str, metadata_file: str | os.PathLike[str], catalog: CatalogOption) -> LoadedTable:
    """Make the catalog know an existing table by its metadata file, which should be its newest.

    The namespace is created when it is missing. Never have one table under two names: each would take the
    other's commits for lost. Raises TableAlreadyExistsError, InvalidOptionError, FeatureUnsupportedError.
    """
    path = table_location(os.fspath(metadata_file))
    return LoadedTable(_opened(catalog).register_table(name, path))


def list_namespaces(catalog: CatalogOption, parent: str = "") -> list[str]:
    """The names of the namespaces directly in `parent` ("": at the top), sorted."""
    return _opened(catalog).list_namespaces(parent)


def create_namespace(name: str, catalog: CatalogOption, properties: Mapping[str, str] | None = None) -> None:
    """Create a namespace. Raises TableAlreadyExistsError."""
    _opened(catalog).create_namespace(name, properties or {})


def drop_namespace(name: str, catalog: CatalogOption) -> None:
    """Drop an empty namespace. Raises TableNotFoundError, InvalidOptionError where it holds something."""
    _opened(catalog).drop_namespace(name)


def namespace_properties(name: str, catalog: CatalogOption) -> dict[str, str]:
    """The properties of a namespace, such as its `location`. Raises TableNotFoundError."""
    return _opened(catalog).namespace_properties(name)


def update_namespace_properties(
    name: str,
    catalog: CatalogOption,
    updates: Mapping[str, str] | None = None,
    removals: Iterable[str] = (),
) -> None:
    """Set and remove properties of a namespace. Raises TableNotFoundError."""
    _opened(catalog).update_namespace_properties(name, updates or {}, removals)


def _opened(catalog: CatalogOption) -> Catalog:
    service = service_of(catalog)
    if service is None:
        raise InvalidOptionError(
            "no catalog is given: name one, or give its properties, such as type=hadoop,warehouse=DIR"
        )
    return open_catalog(service)
