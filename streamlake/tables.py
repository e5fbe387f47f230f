"""Tables for users: create one, load one, inspect it, scan it.

`LoadedTable` shows one version of a table and moves only by `refresh()`; everything it returns belongs to
that version. It does not write: the sink does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from streamlake.catalog.open import CatalogOption, create, open_table
from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_schema import schema_from_arrow
from streamlake.read.changes.change_scan import ChangeScan
from streamlake.read.incremental import IncrementalAppendScan
from streamlake.read.metadata.metadata_arrow import MetadataTable
from streamlake.read.scan import Filter, TableScan, epoch_ms
from streamlake.read.snapshot_points import SnapshotPoint
from streamlake.spec.metadata.snapshot import Snapshot, SnapshotLogEntry, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec, parse_partition_by
from streamlake.spec.partitioning.sort_order import SortOrder, parse_sort_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.spark_schema import schema_from_spark_json
from streamlake.table.table import Table
from streamlake.write.target.options import WriteOptions

DEFAULT_FORMAT_VERSION = 2


def load_table(location: str | os.PathLike[str], catalog: CatalogOption = None) -> LoadedTable:
    """The table at a path or URI (`catalog=None`), or of a name such as "db.orders" in a catalog.

    `catalog` is a name or a mapping of catalog properties. Raises TableNotFoundError, DataInvalidError.
    """
    return LoadedTable(open_table(os.fspath(location), catalog))


def create_table(
    location: str | os.PathLike[str],
    schema: Any,
    catalog: CatalogOption = None,
    partition_by: Iterable[str] = (),
    sort_by: Iterable[str] = (),
    format_version: int | None = DEFAULT_FORMAT_VERSION,
    properties: Mapping[str, str] | None = None,
) -> LoadedTable:
    """Create an empty table and load it.

    `schema`: a pyarrow schema, a Spark StructType, a Schema, or DDL text ("id long not null, at timestamp");
    `partition_by` such as `["day(ts)", "bucket(16, id)"]`, `sort_by` such as `["ts desc"]`. A
    `format-version` among the properties counts as `format_version`. Raises TableAlreadyExistsError,
    InvalidOptionError, FeatureUnsupportedError.
    """
    if format_version == DEFAULT_FORMAT_VERSION and "format-version" in (properties or {}):
        format_version = None
    columns = table_schema(schema)
    # A table that nobody could write to is not created.
    WriteOptions.from_properties(properties or {})
    table = create(
        os.fspath(location),
        columns,
        parse_partition_by(partition_by, columns),
        parse_sort_by(sort_by, columns),
        format_version,
        properties,
        catalog,
    )
    return LoadedTable(table)


def table_schema(schema: Any) -> Schema:
    """An Iceberg schema from any description of one. Raises InvalidOptionError, FeatureUnsupportedError."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, str):
        return parse_ddl(schema)
    if isinstance(schema, pa.Schema):
        return schema_from_arrow(schema)
    if callable(getattr(schema, "json", None)) and hasattr(schema, "fields"):
        return schema_from_spark_json(schema.json())
    raise InvalidOptionError(
        "schema is a pyarrow.Schema, a Spark StructType, or text such as 'id long, at timestamp', not "
        f"{type(schema).__name__}"
    )


class LoadedTable:
    """One version of a table: its metadata, and scans of its rows."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __repr__(self) -> str:
        current = self.current_snapshot
        return f"LoadedTable({self.location!r}, snapshot={None if current is None else current.snapshot_id})"

    @property
    def name(self) -> str:
        """The table's name in its catalog, or its location."""
        return self.table.name

    @property
    def location(self) -> str:
        """The location of the table, a path or URI."""
        return self.table.location

    @property
    def metadata(self) -> TableMetadata:
        """The metadata of this version."""
        return self.table.metadata

    @property
    def format_version(self) -> int:
        """The version of the table format."""
        return self.table.format_version

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return self.table.schema

    @property
    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return self.table.spec

    @property
    def specs(self) -> Mapping[int, PartitionSpec]:
        """All partition specs, by id."""
        return self.table.specs

    @property
    def sort_order(self) -> SortOrder:
        """The current sort order."""
        return self.table.sort_order

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties."""
        return self.table.properties

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots that have not expired."""
        return self.table.snapshots

    @property
    def current_snapshot(self) -> Snapshot | None:
        """The newest snapshot of the main branch; None for a table that was never written."""
        return self.table.current_snapshot

    @property
    def history(self) -> tuple[SnapshotLogEntry, ...]:
        """When each snapshot became the current one."""
        return self.metadata.snapshot_log

    @property
    def refs(self) -> Mapping[str, SnapshotRef]:
        """The branches and tags, by name."""
        return self.table.refs

    def refresh(self) -> LoadedTable:
        """Move to the table's newest version; returns the same object."""
        self.table.refresh()
        return self

    def scan(
        self,
        filter: Filter = None,
        columns: Iterable[str] | None = None,
        snapshot_id: int | None = None,
        as_of: int | str | datetime | date | None = None,
        ref: str | None = None,
        limit: int | None = None,
    ) -> TableScan:
        """A scan with `.to_arrow()`, `.to_pandas()`, `.to_batches()`, `.count()`; see `TableScan`.

        It ends after `limit` rows (None: all of them).
        """
        scan = TableScan(self.table, filter, columns, snapshot_id, as_of, ref)
        return scan if limit is None else scan.limit(limit)

    def scan_incremental(
        self,
        from_snapshot_id: SnapshotPoint | None = None,
        to_snapshot_id: SnapshotPoint | None = None,
        filter: Filter = None,
        columns: Iterable[str] | None = None,
        *,
        skip_overwrites: bool = False,
    ) -> IncrementalAppendScan:
        """Rows appended after one snapshot up to and with another; see `IncrementalAppendScan`.

        Both are given by id, branch, tag or time.
        """
        return IncrementalAppendScan(
            self.table, from_snapshot_id, to_snapshot_id, filter, columns, skip_overwrites=skip_overwrites
        )

    def scan_changes(
        self,
        from_snapshot_id: SnapshotPoint | None = None,
        to_snapshot_id: SnapshotPoint | None = None,
        filter: Filter = None,
        columns: Iterable[str] | None = None,
        *,
        keys: Iterable[str] | None = None,
        schema_id: int | None = None,
        net_changes: bool = False,
    ) -> ChangeScan:
        """Rows added, updated and removed after one snapshot up to and with another; see `ChangeScan`.

        Both are given by id, branch, tag or time.
        """
        return ChangeScan(
            self.table,
            from_snapshot_id,
            to_snapshot_id,
            filter,
            columns,
            keys=keys,
            schema_id=schema_id,
            net_changes=net_changes,
        )

    def metadata_table(
        self,
        name: str,
        snapshot_id: int | None = None,
        as_of: int | str | datetime | date | None = None,
        ref: str | None = None,
    ) -> pa.Table:
        """A metadata table as Arrow, with the columns of Iceberg's own.

        `name`: snapshots, history, refs, metadata_log_entries, manifests, partitions, files, data_files,
        delete_files, entries, and all_manifests, all_files, all_data_files, all_delete_files, all_entries.
        The snapshot of those that show one is chosen as for `scan`. Raises InvalidOptionError.
        """
        as_of_ms = None if as_of is None else epoch_ms(as_of)
        return MetadataTable(name, self.table, snapshot_id, ref, as_of_ms).to_arrow()

    def files(self) -> pa.Table:
        """The live data and delete files of the current snapshot; see `metadata_table`."""
        return self.metadata_table("files")

    def data_files(self) -> pa.Table:
        """The live data files of the current snapshot; see `metadata_table`."""
        return self.metadata_table("data_files")

    def delete_files(self) -> pa.Table:
        """The live delete files of the current snapshot; see `metadata_table`."""
        return self.metadata_table("delete_files")

    def manifests(self) -> pa.Table:
        """The manifests of the current snapshot; see `metadata_table`."""
        return self.metadata_table("manifests")

    def partitions(self) -> pa.Table:
        """The partitions of the current snapshot; see `metadata_table`."""
        return self.metadata_table("partitions")

    def entries(self) -> pa.Table:
        """The manifest entries of the current snapshot, also of removed files; see `metadata_table`."""
        return self.metadata_table("entries")

    def metadata_log_entries(self) -> pa.Table:
        """The metadata files that are still known; see `metadata_table`."""
        return self.metadata_table("metadata_log_entries")
