"""A warning about a sink's properties without effect: they are for a new table, and the table exists."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streamlake.options import shown
from streamlake.table.table import Table

_LOG = logging.getLogger(__name__)


def tell_unused(table: Table, properties: Mapping[str, str]) -> None:
    """Warn about those of `properties` that the table has with another value, or not at all."""
    unused = [
        f"{name}={value} (the table has {table.properties.get(name, 'none, so the default')})"
        for name, value in sorted(shown(properties).items())
        if table.properties.get(name) != str(properties[name])
    ]
    if unused:
        _LOG.warning(
            "%s exists, so these properties of the sink change nothing: %s. Set them on the table itself, "
            "for example by ALTER TABLE ... SET TBLPROPERTIES, have the files of this sink alone written so "
            "by write_options, or leave them out",
            table.location,
            ", ".join(unused),
        )
