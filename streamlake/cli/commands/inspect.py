"""`streamlake inspect`: prints a table's metadata as readable tables or as complete JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from streamlake.cli.arguments import parse_catalog
from streamlake.cli.views.inspect_views import VIEWS
from streamlake.cli.views.rendering import json_text, show
from streamlake.options import unknown_option
from streamlake.read.metadata_tables import (
    Row,
    file_rows,
    history_rows,
    manifest_rows,
    partition_rows,
    ref_rows,
    snapshot_rows,
)
from streamlake.read.natural_values import instant
from streamlake.read.row_counts import row_counts
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.partitioning.partition_spec import spec_to_json
from streamlake.spec.partitioning.sort_order import sort_order_to_json
from streamlake.spec.types.type_json import schema_to_json
from streamlake.table.table import Table
from streamlake.tables import load_table


def run(
    location: str,
    what: str,
    *,
    as_json: bool,
    catalog: str | None = None,
    ref: str | None = None,
    snapshot_id: int | None = None,
) -> int:
    """Print one view of a table. Raises InvalidOptionError, TableNotFoundError, DataInvalidError."""
    if what not in VIEWS:
        raise unknown_option(what, VIEWS, "inspect")
    table = load_table(location, catalog=parse_catalog(catalog)).table
    snapshot = table.snapshot_by(ref=ref, snapshot_id=snapshot_id)
    content = ROWS[what](table, snapshot)
    if as_json:
        sys.stdout.write(json_text(content) + "\n")
        return 0
    show(VIEWS[what](table, content))
    return 0


def table_summary(table: Table, snapshot: Snapshot | None) -> Row:
    """The table at a glance, ready for JSON."""
    metadata = table.metadata
    return {
        "location": table.location,
        "format_version": metadata.format_version,
        "table_uuid": metadata.table_uuid,
        "last_updated_at": instant(metadata.last_updated_ms),
        "current_snapshot_id": metadata.current_snapshot_id,
        "snapshots": len(metadata.snapshots),
        "summary": None if snapshot is None else dict(snapshot.summary),
        **_rows({} if snapshot is None else snapshot.summary),
        "schema": schema_to_json(table.schema),
        "partition_spec": spec_to_json(table.spec),
        "sort_order": sort_order_to_json(table.sort_order),
        "properties": dict(table.properties),
    }


def schema_content(table: Table, snapshot: Snapshot | None) -> Row:
    """The current schema, and every schema, partition spec and sort order that the table has had."""
    metadata = table.metadata
    return {
        "current_schema_id": metadata.current_schema_id,
        "schemas": [schema_to_json(schema) for schema in metadata.schemas],
        "default_spec_id": metadata.default_spec_id,
        "partition_specs": [spec_to_json(spec) for spec in metadata.specs],
        "default_sort_order_id": metadata.default_sort_order_id,
        "sort_orders": [sort_order_to_json(order) for order in metadata.sort_orders],
    }


def _rows(summary: Mapping[str, str]) -> Row:
    rows = row_counts(summary)
    return {"live_rows": rows.live, "live_rows_at_most": rows.at_most, "deleted_rows": rows.deleted}


ROWS: dict[str, Callable[[Table, Snapshot | None], Any]] = {
    "table": table_summary,
    "snapshots": lambda table, snapshot: [{**row, **_rows(row["summary"])} for row in snapshot_rows(table)],
    "history": lambda table, snapshot: history_rows(table),
    "files": file_rows,
    "manifests": manifest_rows,
    "partitions": partition_rows,
    "refs": lambda table, snapshot: ref_rows(table),
    "schema": schema_content,
}
