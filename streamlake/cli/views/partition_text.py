"""Partition values as people read them: `at_month=2024-01` where metadata has 648 months since 1970."""

from __future__ import annotations

from typing import Any

from streamlake.read.metadata_tables import Row
from streamlake.spec.partitioning.transforms import Hour, Month, Year
from streamlake.table.table import Table


def readable_partition(table: Table, partition: Row) -> dict[str, Any]:
    """The partition of a row of `files` or `partitions`, with years, months and hours as texts."""
    schema = table.schema
    units = {
        part.name: (part.transform, part.source_type(schema))
        for spec in table.specs.values()
        for part in spec.fields
        if isinstance(part.transform, Year | Month | Hour) and schema.field(part.source_id) is not None
    }
    return {
        name: units[name][0].human(value, units[name][1])
        if name in units and isinstance(value, int)
        else value
        for name, value in partition.items()
    }
