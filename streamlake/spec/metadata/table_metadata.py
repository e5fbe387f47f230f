"""Table metadata as one frozen value (spec: Table Metadata Fields; Appendix C).

Unknown fields are kept in `extra`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.spec.metadata.snapshot import (
    MAIN_BRANCH,
    MetadataLogEntry,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
    ref_from_json,
    ref_to_json,
    snapshot_from_json,
    snapshot_to_json,
)
from streamlake.spec.partitioning.partition_spec import (
    FIRST_PARTITION_FIELD_ID,
    PartitionSpec,
    fields_from_json,
    fields_to_json,
    spec_from_json,
    spec_to_json,
)
from streamlake.spec.partitioning.sort_order import (
    UNSORTED,
    SortOrder,
    sort_order_from_json,
    sort_order_to_json,
)
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_from_json, schema_to_json

SUPPORTED_FORMAT_VERSIONS = (1, 2, 3)


@dataclass(frozen=True, eq=False)
class TableMetadata:
    """Everything in a metadata file. Changed only by `dataclasses.replace`."""

    format_version: int
    table_uuid: str
    location: str
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    current_schema_id: int
    schemas: tuple[Schema, ...]
    default_spec_id: int
    specs: tuple[PartitionSpec, ...]
    last_partition_id: int
    default_sort_order_id: int
    sort_orders: tuple[SortOrder, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    snapshot_log: tuple[SnapshotLogEntry, ...] = ()
    metadata_log: tuple[MetadataLogEntry, ...] = ()
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)
    statistics: tuple[dict[str, Any], ...] = ()
    partition_statistics: tuple[dict[str, Any], ...] = ()
    next_row_id: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Partition specs get types of source columns from older schemas where the current one lacks them."""
        lost = self.lost_sources
        if lost:
            newest_first = sorted(self.schemas, key=lambda schema: -schema.schema_id)
            found = [(each, schema.field(each)) for each in lost for schema in newest_first]
            types = {each: column.type for each, column in reversed(found) if column is not None}
            if types:
                specs = tuple(spec.with_former_sources(types) for spec in self.specs)
                object.__setattr__(self, "specs", specs)

    @property
    def lost_sources(self) -> set[int]:
        """Source columns of partition fields that the current schema lacks and whose type is unknown."""
        current = next((each for each in self.schemas if each.schema_id == self.current_schema_id), None)
        return {
            part.source_id
            for spec in self.specs
            for part in spec.fields
            if part.former_source is None and current is not None and current.field(part.source_id) is None
        }

    @cached_property
    def schema(self) -> Schema:
        """The current schema. Raises DataInvalidError when the metadata lacks it."""
        return self.schema_by_id(self.current_schema_id)

    @cached_property
    def spec(self) -> PartitionSpec:
        """The current partition spec. Raises DataInvalidError when the metadata lacks it."""
        return self.spec_by_id(self.default_spec_id)

    @cached_property
    def sort_order(self) -> SortOrder:
        """The current sort order, UNSORTED when the metadata lacks it."""
        found = (order for order in self.sort_orders if order.order_id == self.default_sort_order_id)
        return next(found, UNSORTED)

    @cached_property
    def specs_by_id(self) -> dict[int, PartitionSpec]:
        """All partition specs by spec id."""
        return {spec.spec_id: spec for spec in self.specs}

    @cached_property
    def snapshots_by_id(self) -> dict[int, Snapshot]:
        """All snapshots by snapshot id."""
        return {snapshot.snapshot_id: snapshot for snapshot in self.snapshots}

    @property
    def current_snapshot(self) -> Snapshot | None:
        """The current snapshot; None for an empty table."""
        return None if self.current_snapshot_id is None else self.snapshot(self.current_snapshot_id)

    def schema_by_id(self, schema_id: int) -> Schema:
        """The schema with an id. Raises DataInvalidError when there is none."""
        for schema in self.schemas:
            if schema.schema_id == schema_id:
                return schema
        raise DataInvalidError(f"the metadata of {self.location} has no schema with id {schema_id}")

    def spec_by_id(self, spec_id: int) -> PartitionSpec:
        """The partition spec with an id. Raises DataInvalidError when there is none."""
        if spec_id in self.specs_by_id:
            return self.specs_by_id[spec_id]
        raise DataInvalidError(f"the metadata of {self.location} has no partition spec with id {spec_id}")

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with an id, or None."""
        return self.snapshots_by_id.get(snapshot_id)

    def ref(self, name: str) -> SnapshotRef | None:
        """The branch or tag with a name, or None."""
        return self.refs.get(name)

    def head(self, branch: str = MAIN_BRANCH) -> Snapshot | None:
        """The snapshot that a branch or tag points to; for main, the current snapshot."""
        if branch == MAIN_BRANCH:
            return self.current_snapshot
        ref = self.refs.get(branch)
        return None if ref is None else self.snapshot(ref.snapshot_id)

    def ancestors(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """A snapshot and its parents, newest first, until one that has expired."""
        while snapshot_id is not None:
            snapshot = self.snapshot(snapshot_id)
            if snapshot is None:
                return
            yield snapshot
            snapshot_id = snapshot.parent_snapshot_id


def new_table_metadata(
    *,
    location: str,
    table_uuid: str,
    now_ms: int,
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder = UNSORTED,
    format_version: int = 2,
    properties: Mapping[str, str] | None = None,
) -> TableMetadata:
    """Metadata of a table without snapshots.

    `schema` has fresh ids, which `spec` and `sort_order` refer to.
    """
    orders = (UNSORTED,) if sort_order.is_unsorted else (UNSORTED, sort_order)
    return TableMetadata(
        format_version=format_version,
        table_uuid=table_uuid,
        location=location,
        last_sequence_number=0,
        last_updated_ms=now_ms,
        last_column_id=schema.highest_field_id,
        current_schema_id=schema.schema_id,
        schemas=(schema,),
        default_spec_id=spec.spec_id,
        specs=(spec,),
        last_partition_id=spec.highest_field_id,
        default_sort_order_id=sort_order.order_id,
        sort_orders=orders,
        properties=dict(properties or {}),
        next_row_id=0 if format_version >= 3 else None,
    )


_KEYS = {
    "format-version",
    "table-uuid",
    "location",
    "last-sequence-number",
    "last-updated-ms",
    "last-column-id",
    "schema",
    "schemas",
    "current-schema-id",
    "partition-spec",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "properties",
    "current-snapshot-id",
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "sort-orders",
    "default-sort-order-id",
    "refs",
    "statistics",
    "partition-statistics",
    "next-row-id",
}


def metadata_from_json(obj: dict[str, Any]) -> TableMetadata:
    """Table metadata of format version 1, 2 or 3 from its JSON object.

    Raises FeatureUnsupportedError for another version and DataInvalidError when required fields are missing.
    """
    version = obj.get("format-version")
    if version not in SUPPORTED_FORMAT_VERSIONS:
        raise FeatureUnsupportedError(
            f"format version {version!r} is not supported; streamlake knows 1, 2 and 3"
        )
    try:
        return _from_json(obj, version)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataInvalidError(f"table metadata lacks or misplaces a required field: {error!r}") from error


def _from_json(obj: dict[str, Any], version: int) -> TableMetadata:
    schemas = tuple(map(schema_from_json, obj["schemas"] if obj.get("schemas") else [obj["schema"]]))
    if obj.get("partition-specs"):
        specs = tuple(map(spec_from_json, obj["partition-specs"]))
    else:
        specs = (PartitionSpec(0, fields_from_json(obj["partition-spec"])),)
    orders = tuple(map(sort_order_from_json, obj.get("sort-orders") or ())) or (UNSORTED,)
    current = obj.get("current-snapshot-id")
    current = None if current in (None, -1) else current
    refs = {name: ref_from_json(ref) for name, ref in (obj.get("refs") or {}).items()}
    if current is not None and MAIN_BRANCH not in refs:
        refs[MAIN_BRANCH] = SnapshotRef(current, "branch")
    highest = max((spec.highest_field_id for spec in specs), default=FIRST_PARTITION_FIELD_ID - 1)
    return TableMetadata(
        format_version=version,
        table_uuid=obj["table-uuid"] if version > 1 else obj.get("table-uuid", ""),
        location=obj["location"],
        last_sequence_number=obj.get("last-sequence-number", 0),
        last_updated_ms=obj["last-updated-ms"],
        last_column_id=obj["last-column-id"],
        current_schema_id=obj.get("current-schema-id", schemas[0].schema_id),
        schemas=schemas,
        default_spec_id=obj.get("default-spec-id", specs[0].spec_id),
        specs=specs,
        last_partition_id=obj.get("last-partition-id", highest),
        default_sort_order_id=obj.get("default-sort-order-id", orders[0].order_id),
        sort_orders=orders,
        properties=dict(obj.get("properties") or {}),
        current_snapshot_id=current,
        snapshots=tuple(map(snapshot_from_json, obj.get("snapshots") or ())),
        snapshot_log=tuple(
            SnapshotLogEntry(entry["timestamp-ms"], entry["snapshot-id"])
            for entry in obj.get("snapshot-log") or ()
        ),
        metadata_log=tuple(
            MetadataLogEntry(entry["timestamp-ms"], entry["metadata-file"])
            for entry in obj.get("metadata-log") or ()
        ),
        refs=refs,
        statistics=tuple(obj.get("statistics") or ()),
        partition_statistics=tuple(obj.get("partition-statistics") or ()),
        next_row_id=obj.get("next-row-id", 0) if version >= 3 else None,
        extra={key: value for key, value in obj.items() if key not in _KEYS},
    )


def metadata_to_json(metadata: TableMetadata, *, with_snapshots: bool = True) -> dict[str, Any]:
    """The JSON object of a metadata file.

    Without snapshots, "snapshots" is an empty list for the caller to fill.
    """
    version = metadata.format_version
    obj: dict[str, Any] = {
        "format-version": version,
        "table-uuid": metadata.table_uuid,
        "location": metadata.location,
    }
    if version > 1:
        obj["last-sequence-number"] = metadata.last_sequence_number
    obj["last-updated-ms"] = metadata.last_updated_ms
    obj["last-column-id"] = metadata.last_column_id
    if version == 1:
        obj["schema"] = schema_to_json(metadata.schema)
        obj["partition-spec"] = fields_to_json(metadata.spec)
    obj["current-schema-id"] = metadata.current_schema_id
    obj["schemas"] = [schema_to_json(schema) for schema in metadata.schemas]
    obj["default-spec-id"] = metadata.default_spec_id
    obj["partition-specs"] = [spec_to_json(spec) for spec in metadata.specs]
    obj["last-partition-id"] = metadata.last_partition_id
    obj["default-sort-order-id"] = metadata.default_sort_order_id
    obj["sort-orders"] = [sort_order_to_json(order) for order in metadata.sort_orders]
    obj["properties"] = dict(metadata.properties)
    if metadata.current_snapshot_id is not None:
        obj["current-snapshot-id"] = metadata.current_snapshot_id
    elif version < 3:
        obj["current-snapshot-id"] = -1
    if version >= 3:
        obj["next-row-id"] = metadata.next_row_id or 0
    obj["refs"] = {name: ref_to_json(ref) for name, ref in metadata.refs.items()}
    obj["snapshots"] = (
        [snapshot_to_json(snapshot) for snapshot in metadata.snapshots] if with_snapshots else []
    )
    obj["statistics"] = list(metadata.statistics)
    obj["partition-statistics"] = list(metadata.partition_statistics)
    obj["snapshot-log"] = [
        {"timestamp-ms": entry.timestamp_ms, "snapshot-id": entry.snapshot_id}
        for entry in metadata.snapshot_log
    ]
    obj["metadata-log"] = [
        {"timestamp-ms": entry.timestamp_ms, "metadata-file": entry.metadata_file}
        for entry in metadata.metadata_log
    ]
    return {**obj, **metadata.extra}
