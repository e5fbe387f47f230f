"""The definition of a table to create, and its first metadata.

A caller describes a schema, a partition spec and a sort order that refer to each other by whatever ids they
came with. The first metadata has fresh ids, assigned as Iceberg does it (spec: Table Metadata Fields; Schema
Evolution).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streamlake import clock, ids
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.metadata.table_metadata import TableMetadata, new_table_metadata
from streamlake.spec.partitioning.partition_spec import FIRST_PARTITION_FIELD_ID, UNPARTITIONED, PartitionSpec
from streamlake.spec.partitioning.sort_order import UNSORTED, SortOrder
from streamlake.spec.types.schema import Schema, fresh_schema
from streamlake.table.updates.column_types import check_writable
from streamlake.table.updates.metadata_changes import RESERVED_PROPERTIES, WRITABLE_FORMAT_VERSIONS

DEFAULT_FORMAT_VERSION = 2
# Stored with a new table, so that every engine writes the same codec (as Iceberg does it), and keeps no more
# than the last metadata files: each repeats all snapshots, so a stream's would fill the storage within days.
# Nothing expires by itself; whoever maintains the table finds here what was agreed on.
_PERSISTED_DEFAULTS = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "history.expire.max-snapshot-age-ms": "432000000",
    "history.expire.min-snapshots-to-keep": "100",
}


@dataclass(frozen=True)
class TableDefinition:
    """A table to be created. `format_version` None: the `format-version` property, else 2."""

    schema: Schema
    partition_spec: PartitionSpec = UNPARTITIONED
    sort_order: SortOrder = UNSORTED
    format_version: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def initial_metadata(definition: TableDefinition, location: str) -> TableMetadata:
    """The metadata of version 1 of a table, without snapshots.

    Raises InvalidOptionError (a type, default or property that the format version does not allow) or
    FeatureUnsupportedError (something that cannot be written).
    """
    properties = {key: str(value) for key, value in definition.properties.items()}
    version = _format_version(definition.format_version, properties.pop("format-version", None))
    reserved = sorted(RESERVED_PROPERTIES.intersection(properties))
    if reserved:
        raise InvalidOptionError(f"table property {reserved[0]} is reserved and cannot be set")
    check_writable(definition.schema, version)
    schema = fresh_schema(definition.schema)
    renumbered = _Renumbered(definition.schema, schema)
    return new_table_metadata(
        location=location,
        table_uuid=ids.new_uuid(),
        now_ms=clock.now_ms(),
        schema=schema,
        spec=renumbered.spec(definition.partition_spec),
        sort_order=renumbered.order(definition.sort_order),
        format_version=version,
        properties={**_PERSISTED_DEFAULTS, **properties},
    )


def _format_version(given: int | None, text: str | None) -> int:
    if given is None and text is not None:
        if not text.strip().isdigit():
            raise InvalidOptionError(
                f"table property format-version={text!r} is not a format version; use 2 or 3"
            )
        given = int(text)
    version = DEFAULT_FORMAT_VERSION if given is None else given
    if version not in WRITABLE_FORMAT_VERSIONS:
        raise FeatureUnsupportedError(
            f"tables of format version {version} cannot be created here; use 2 or 3"
        )
    return version


class _Renumbered:
    """Maps the field ids of a definition's schema to those of the new table's."""

    def __init__(self, given: Schema, fresh: Schema) -> None:
        self._given = given
        self._fresh = fresh

    def _id(self, field_id: int, where: str) -> int:
        name = self._given.name_of(field_id)
        found = None if name is None else self._fresh.find(name)
        if found is None:
            raise InvalidOptionError(f"{where} refers to field id {field_id}, which the schema does not have")
        return found.field_id

    def spec(self, spec: PartitionSpec) -> PartitionSpec:
        fields = tuple(
            replace(
                part,
                source_id=self._id(part.source_id, "the partition spec"),
                field_id=FIRST_PARTITION_FIELD_ID + at,
            )
            for at, part in enumerate(spec.fields)
        )
        return PartitionSpec(0, fields)

    def order(self, order: SortOrder) -> SortOrder:
        if order.is_unsorted:
            return UNSORTED
        fields = tuple(
            replace(part, source_id=self._id(part.source_id, "the sort order")) for part in order.fields
        )
        return SortOrder(1, fields)
