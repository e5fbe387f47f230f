"""Tables for users: create one, load one, inspect it, scan it.

`LoadedTable` shows one version of a table and moves only by `refresh()`, by `delete` and by its maintenance;
everything it returns belongs to that version. It writes no rows: the sink does.
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
from streamlake.maintain.ages import Before, before_ms
from streamlake.maintain.compact.compact_options import BINPACK, CompactSettings
from streamlake.maintain.compact.compaction import Compaction, rewrite_data_files
from streamlake.maintain.deletes.delete_conversion import ConvertedDeletes, convert_deletes
from streamlake.maintain.expire import Expiry, expire_snapshots
from streamlake.maintain.manifest_rewrite import RewrittenManifests, rewrite_manifests
from streamlake.maintain.orphans import Orphans, remove_orphans
from streamlake.maintain.ref_expiry import expire_refs
from streamlake.maintain.row_deletion import RowDeletion, delete_rows
from streamlake.maintain.upkeep import Upkeep, UpkeepSettings, maintain
from streamlake.read.changes.change_scan import ChangeScan
from streamlake.read.incremental import IncrementalAppendScan
from streamlake.read.metadata.metadata_arrow import MetadataTable
from streamlake.read.scan import Filter, TableScan, epoch_ms
from streamlake.read.snapshot_points import SnapshotPoint
from streamlake.spec.expressions.expressions import Expression
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot, SnapshotLogEntry, SnapshotRef
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


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


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

    def compact(
        self,
        strategy: str = BINPACK,
        *,
        sort_by: Iterable[str] = (),
        filter: str | None = None,
        options: Mapping[str, Any] | None = None,
        branch: str = MAIN_BRANCH,
        dry_run: bool = False,
    ) -> Compaction:
        """Write small data files, and those with many deleted rows, again: Iceberg's `rewrite_data_files`.

        `strategy` is "binpack" (rows keep their order) or "sort" (by `sort_by`, such as `["ts desc"]`, or the
        table's sort order). `filter` chooses partitions; `options` have Iceberg's names, such as
        `{"target-file-size-bytes": 134217728}`. Streams go on writing: what they delete meanwhile is deleted.
        With `dry_run` nothing is changed.
        """
        settings = CompactSettings(strategy, _texts(sort_by), filter, options or {}, branch, dry_run)
        return rewrite_data_files(self.table, settings)

    def convert_deletes(
        self,
        filter: Filter = None,
        options: Mapping[str, Any] | None = None,
        *,
        branch: str = MAIN_BRANCH,
        dry_run: bool = False,
    ) -> ConvertedDeletes:
        """Convert equality deletes, merge position deletes, and drop deletes of nothing. Rows stay.

        Version 3 gets one deletion vector per data file, version 2 position delete files as
        `write.delete.granularity` says. `filter` chooses partitions; `options` are some of Iceberg's for
        `rewrite_position_delete_files`: rewrite-all, min-input-files, target-file-size-bytes and
        min-file-size-bytes. With `dry_run` nothing is changed.
        """
        return convert_deletes(self.table, options, filter=filter, branch=branch, dry_run=dry_run)

    def expire_snapshots(
        self,
        older_than: Before | None = None,
        retain_last: int | None = None,
        snapshot_ids: Iterable[int] = (),
        *,
        dry_run: bool = False,
    ) -> Expiry:
        """Expire old snapshots, branches and tags, and delete the files that only they needed.

        `older_than` is a time or an age ("5d"; None: `history.expire.max-snapshot-age-ms`). `retain_last` of
        the newest snapshots of every branch stay (None: `history.expire.min-snapshots-to-keep`);
        `snapshot_ids` expire whatever their age. A branch's and a tag's own retention comes first. Files that
        staged checkpoints need stay, and the snapshots that they build on. With `dry_run` nothing is changed.
        """
        return expire_snapshots(
            self.table,
            older_than_ms=before_ms(older_than),
            retain_last=retain_last,
            snapshot_ids=snapshot_ids,
            dry_run=dry_run,
        )

    def remove_orphans(
        self,
        older_than: Before | None = None,
        *,
        dry_run: bool = False,
        prefix_mismatch_mode: str = "error",
        equal_schemes: Mapping[str, str] | None = None,
        equal_authorities: Mapping[str, str] | None = None,
    ) -> Orphans:
        """Delete files in the table's folders that nothing refers to and that are old (None: three days).

        A file that differs from one of the table in scheme or authority only is an error, unless
        `equal_schemes` ({"s3a": "s3"}) or `equal_authorities` say that they are equal, or
        `prefix_mismatch_mode` is "ignore" or "delete". Staged checkpoints, the key index and tables below
        this one are left alone. With `dry_run` nothing is deleted.
        """
        return remove_orphans(
            self.table,
            older_than_ms=before_ms(older_than),
            dry_run=dry_run,
            prefix_mismatch_mode=prefix_mismatch_mode,
            equal_schemes=equal_schemes,
            equal_authorities=equal_authorities,
        )

    def rewrite_manifests(self, branch: str = MAIN_BRANCH, *, dry_run: bool = False) -> RewrittenManifests:
        """Rewrite a branch's manifests by partition, to `commit.manifest.target-size-bytes` each.

        Rows and files stay as they are. Nothing is committed where nothing would become better.
        """
        return rewrite_manifests(self.table, branch=branch, dry_run=dry_run)

    def maintain(
        self,
        only: Iterable[str] = (),
        *,
        older_than: Before | None = None,
        retain_last: int | None = None,
        orphans_older_than: Before | None = None,
        rejects_older_than: Before | None = None,
        delete_orphans: bool = True,
        dry_run: bool = False,
    ) -> Upkeep:
        """Keep the table healthy: compact, convert deletes, expire snapshots, delete orphans and more.

        `only` names some of "rejects", "compact", "deletes", "manifests", "expire", "metadata" and "orphans",
        which are done in this order. Without it, snapshots expire only where `older_than`, `retain_last` or
        the table's `history.expire.*` says so, and whole days of a rejects table are dropped only where
        `rejects_older_than` or its `streamlake.rejects-retention` does.
        """
        settings = UpkeepSettings(
            only=UpkeepSettings.actions(only),
            older_than_ms=before_ms(older_than),
            retain_last=retain_last,
            orphans_before_ms=before_ms(orphans_older_than, "orphans_older_than"),
            rejects_before_ms=before_ms(rejects_older_than, "rejects_older_than"),
            delete_orphans=delete_orphans,
            dry_run=dry_run,
        )
        return maintain(self.table, settings)

    def expire_refs(self, kind: str | None = None, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the branches and tags that are past their `max-ref-age-ms`, or the table's; returns their
        names.

        `kind` is "branch" or "tag" (None: both). Their snapshots stay until they expire.
        """
        return expire_refs(self.table, kind, dry_run=dry_run)

    def delete(
        self,
        filter: str | Expression,
        *,
        branch: str = MAIN_BRANCH,
        mode: str | None = None,
        dry_run: bool = False,
    ) -> RowDeletion:
        """Delete the rows for which `filter` is true, in one snapshot; those for which it is null stay.

        Files all of whose rows match are removed by their metadata. Of others, `mode` "copy-on-write"
        writes the rows that stay again, "merge-on-read" adds position deletes or deletion vectors (None:
        the property `write.delete.mode`). Changes of others meanwhile are taken into account. Raises
        InvalidOptionError, ConflictValidationError, CommitStateUnknownError.
        """
        return delete_rows(self.table, filter, branch=branch, mode=mode, dry_run=dry_run)

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
