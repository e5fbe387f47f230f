"""Checks what a sink says of its table beside the columns: properties, partitions, order, location."""

from __future__ import annotations

from collections.abc import Mapping

from streamlake.catalog.open import CatalogOption, service_of, storage_properties
from streamlake.operate.check.check_points import Points
from streamlake.pipeline.sinks.arguments.property_names import PropertyNames, misspelt_text
from streamlake.pipeline.sinks.arguments.unused_properties import Described, unused_layout, unused_properties
from streamlake.storage.locations import table_location
from streamlake.storage.write_access import require_writable
from streamlake.table.table import Table

PROPERTIES = "properties"
LAYOUT = "layout"
_WITH_FILES = ("hadoop", "sql")
"""The catalogs whose `warehouse` is a directory that this process writes to."""


def check_properties(given: Mapping[str, str], own: Mapping[str, str], points: Points) -> None:
    """Check the names of the properties that the sink gives, and of those that an existing table has."""
    names = PropertyNames.of(given)
    for name, near in names.misspelt.items():
        points.error(PROPERTIES, misspelt_text(name, near))
    others = PropertyNames.of(name for name in own if name not in given)
    for name, near in (*names.unknown.items(), *others.unknown.items(), *others.misspelt.items()):
        hint = f"; did you mean '{near}'?" if near else ""
        points.warning(PROPERTIES, f"neither streamlake nor Iceberg has a table property '{name}'{hint}")
    if names.of_others:
        points.note(
            PROPERTIES,
            f"streamlake stores {', '.join(names.of_others)} with the table and does not use them; other "
            "engines do",
        )


def check_layout(sink: Described, table: Table, points: Points) -> None:
    """Warn about what the sink says of an existing table that is otherwise."""
    for text in unused_layout(table, sink):
        points.warning(LAYOUT, text)
    unused = unused_properties(table, sink.properties or {})
    if unused:
        points.warning(
            PROPERTIES,
            f"{table.location} exists, so these properties of the sink change nothing: {', '.join(unused)}. "
            "Set them on the table itself, or leave them out",
        )


def require_place(table: str, catalog: CatalogOption, properties: Mapping[str, str]) -> None:
    """Raise StorageError where the files of a table that is to be created could not be written."""
    if service_of(catalog) is None:
        require_writable(table_location(table), {**storage_properties(catalog), **properties})
    elif isinstance(catalog, Mapping) and catalog.get("type") in _WITH_FILES and catalog.get("warehouse"):
        require_writable(table_location(catalog["warehouse"]), {**catalog, **properties})
