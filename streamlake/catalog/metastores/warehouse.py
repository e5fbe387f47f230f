"""Names of tables in a metastore, and where new ones go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamlake.catalog.client_errors import translated
from streamlake.errors import InvalidOptionError
from streamlake.storage.locations import table_location


def split_name(table: str) -> tuple[str, str]:
    """The namespace and the name of `namespace.table`. Raises InvalidOptionError."""
    namespace, _, name = table.rpartition(".")
    if not name or not all(namespace.split(".")):
        raise InvalidOptionError(
            f"{table!r} is not a table name; write namespace.table, for example db.orders"
        )
    return namespace, name


def listed_tables(client: Any, namespace: str) -> list[str]:
    """The names of a namespace's Iceberg tables, in no order, as PyIceberg's `client` lists them.

    A namespace that is not there is an error of the client's.
    """
    found = [".".join(name) for name in client.list_tables(namespace)]
    if not found:
        client.load_namespace_properties(namespace)
    return found


def require_namespace(client: Any, table: str) -> None:
    """Raise TableNotFoundError where the namespace of a table's name is not there."""
    namespace, _ = split_name(table)
    with translated(f"looking for namespace {namespace} in catalog {client.name}"):
        client.load_namespace_properties(namespace)


def ensure_namespace(
    client: Any, table: str, ending: str = "", *, place_namespace: bool = False
) -> Mapping[str, str]:
    """The properties of the namespace of a new table's name; it is created when it is missing.

    With `place_namespace` a new one gets its directory in the warehouse, whose name ends in `ending`.
    """
    namespace, _ = split_name(table)
    with translated(f"creating {table} in catalog {client.name}"):
        try:
            found: Mapping[str, str] = client.load_namespace_properties(namespace)
        except Exception as error:
            if type(error).__name__ != "NoSuchNamespaceError":
                raise
            place = {"location": f"{_directory(client)}/{namespace}{ending}"}
            placed = place_namespace and _directory(client)
            client.create_namespace_if_not_exists(namespace, place if placed else {})
            found = client.load_namespace_properties(namespace)
    return found


def new_table_location(
    client: Any, table: str, ending: str = "", key: str = "location", *, place_namespace: bool = False
) -> str:
    """Where a new table goes: in its namespace's location, else in the warehouse of PyIceberg's `client`.

    The namespace is created when it is missing; in the warehouse its directory ends in `ending`, and its
    property `key` may name another place. With `place_namespace` a new one gets that directory.
    Raises InvalidOptionError when there is neither.
    """
    namespace, name = split_name(table)
    properties = ensure_namespace(client, table, ending, place_namespace=place_namespace)
    home = properties.get(key) or properties.get("location")
    if not home and not _directory(client):
        raise InvalidOptionError(
            f"creating {table}: catalog {client.name} has no warehouse, and namespace {namespace} has no "
            "location; give the catalog warehouse=DIRECTORY"
        )
    home = home or f"{_directory(client)}/{namespace}{ending}"
    return table_location(f"{str(home).rstrip('/')}/{name}")


def _directory(client: Any) -> str:
    return str(client.properties.get("warehouse") or "").rstrip("/")
