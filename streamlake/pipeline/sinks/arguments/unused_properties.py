"""A warning about a sink's description of its table that changes nothing, because the table exists."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from streamlake.errors import StreamlakeError
from streamlake.options import shown
from streamlake.spec.partitioning.partition_spec import PartitionSpec, parse_partition_by
from streamlake.spec.partitioning.sort_order import SortOrder, parse_sort_by
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table

_LOG = logging.getLogger(__name__)


class Described(Protocol):
    """What a sink says of the table that it would create."""

    @property
    def partition_by(self) -> Sequence[str]:
        """The partition fields, as texts."""
        ...

    @property
    def sort_by(self) -> Sequence[str]:
        """The sort fields, as texts."""
        ...

    @property
    def format_version(self) -> int | None:
        """The format version; None: the default."""
        ...

    @property
    def properties(self) -> Mapping[str, str] | None:
        """The table properties."""
        ...


def tell_unused(table: Table, sink: Described) -> None:
    """Warn about what a sink says of a table that is there, and is otherwise."""
    unused = unused_properties(table, sink.properties or {})
    if unused:
        _LOG.warning(
            "%s exists, so these properties of the sink change nothing: %s. Set them on the table itself, "
            "for example by ALTER TABLE ... SET TBLPROPERTIES, have the files of this sink alone written so "
            "by write_options, or leave them out",
            table.location,
            ", ".join(unused),
        )
    for text in unused_layout(table, sink):
        _LOG.warning("%s", text)


def unused_properties(table: Table, properties: Mapping[str, str]) -> list[str]:
    """Those of `properties` that the table has with another value, or not at all, as messages show them."""
    return [
        f"{name}={value} (the table has {table.properties.get(name, 'none, so the default')})"
        for name, value in sorted(shown(properties).items())
        if table.properties.get(name) != str(properties[name])
    ]


def unused_layout(table: Table, sink: Described) -> list[str]:
    """Sentences about the partitions, order and format version of a sink that are not the table's."""
    schema, found = table.schema, []
    if sink.partition_by and not _same_spec(sink.partition_by, table):
        found.append(
            f"partition_by is {', '.join(sink.partition_by)}, but {table.location} exists and is "
            f"partitioned by {spec_text(table.spec, schema)}: partition_by changes nothing. Make it what the "
            "table has, or leave it out; to partition the table anew, change its partition spec (for example "
            "by ALTER TABLE ... ADD PARTITION FIELD)"
        )
    if sink.sort_by and not _same_order(sink.sort_by, table):
        found.append(
            f"sort_by is {', '.join(sink.sort_by)}, but {table.location} exists and is sorted by "
            f"{order_text(table.sort_order, schema)}: sort_by changes nothing. Make it what the table has, "
            "or leave it out; to sort the table otherwise, use ALTER TABLE ... WRITE ORDERED BY"
        )
    if sink.format_version not in (None, table.format_version):
        found.append(
            f"format_version is {sink.format_version}, but {table.location} exists and has format version "
            f"{table.format_version}: format_version changes nothing. Leave it out, or upgrade the table by "
            "its property format-version"
        )
    return found


def spec_text(spec: PartitionSpec, schema: Schema) -> str:
    """A partition spec as `partition_by` writes it; "nothing" for an unpartitioned table."""
    parts = [
        _call(str(part.transform), str(schema.name_of(part.source_id)))
        for part in spec.fields
        if str(part.transform) != "void"
    ]
    return ", ".join(parts) or "nothing"


def order_text(order: SortOrder, schema: Schema) -> str:
    """A sort order as `sort_by` writes it; "nothing" for an unsorted table."""
    parts = [
        f"{_call(str(part.transform), str(schema.name_of(part.source_id)))} {part.direction}"
        for part in order.fields
    ]
    return ", ".join(parts) or "nothing"


def _call(transform: str, column: str) -> str:
    """`day(ts)`, `bucket(16, id)`, or the column alone; `transform` as in metadata: `bucket[16]`."""
    if transform == "identity":
        return column
    name, bracket, width = transform.partition("[")
    return f"{name}({width.rstrip(']')}, {column})" if bracket else f"{name}({column})"


def _same_spec(wanted: Sequence[str], table: Table) -> bool:
    try:
        spec = parse_partition_by(wanted, table.schema)
    except StreamlakeError:
        return False
    return _spec_parts(spec) == _spec_parts(table.spec)


def _spec_parts(spec: PartitionSpec) -> list[tuple[int, str]]:
    parts = [(part.source_id, str(part.transform)) for part in spec.fields]
    return [part for part in parts if part[1] != "void"]


def _same_order(wanted: Sequence[str], table: Table) -> bool:
    try:
        order = parse_sort_by(wanted, table.schema)
    except StreamlakeError:
        return False
    return order.fields == table.sort_order.fields
