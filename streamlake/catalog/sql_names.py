"""The names that a SQL catalog's database knows a table under: each catalog sees only those of its own name.

Asked where a table is not found, for the message. Invariant: it never fails, and never changes what is found.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any


def names_with_table(client: Any, table: str) -> list[str]:
    """The names of the other catalogs in the database of `client` that have a table of this name.

    Empty for a client of another kind, and where the database cannot be asked.
    """
    engine = getattr(client, "engine", None)
    namespace, _, name = table.rpartition(".")
    if engine is None:
        return []
    with contextlib.suppress(Exception):
        sql = import_module("sqlalchemy").text(
            "SELECT catalog_name FROM iceberg_tables "
            "WHERE table_namespace = :namespace AND table_name = :name"
        )
        with engine.connect() as connection:
            found = connection.execute(sql, {"namespace": namespace, "name": name})
            return sorted(str(row[0]) for row in found if row[0] != client.name)
    return []


def advice(client: Any, table: str) -> str:
    """What to do about a table that is not found; empty where nothing is known."""
    found = names_with_table(client, table)
    if not found:
        return ""
    return (
        f"; the catalog's database has it under the catalog name {' and '.join(map(repr, found))}, while "
        f"this catalog is named '{client.name}': give the property name, such as name={found[0]}"
    )
