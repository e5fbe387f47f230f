"""Terminal views of `streamlake inspect`: metadata rows as tables.

They are readable, so not everything is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import RenderableType

from streamlake.cli.views.partition_text import readable_partition
from streamlake.cli.views.rendering import (
    facts,
    grid,
    human_count,
    human_deleted_rows,
    human_partition,
    human_rows,
    human_size,
    human_time,
    human_value,
)
from streamlake.read.metadata_tables import Row
from streamlake.read.row_counts import counted_rows
from streamlake.table.table import Table
from streamlake.wording import counted

CONTENTS = {0: "data", 1: "position deletes", 2: "equality deletes"}
MANIFEST_CONTENTS = {0: "data", 1: "deletes"}


def _table_view(table: Table, content: Row) -> RenderableType:
    summary = content["summary"] or {}
    pairs = [
        ("location", table.location),
        ("format version", str(content["format_version"])),
        ("uuid", content["table_uuid"]),
        ("last updated", human_time(content["last_updated_at"])),
        ("schema", ", ".join(f"{part.name} {part.type}" for part in table.schema.fields)),
        ("partitioned by", _spec_text(table)),
        ("sorted by", _order_text(table)),
        ("snapshots", human_count(content["snapshots"])),
        ("current snapshot", str(content["current_snapshot_id"] or "none: the table is empty")),
    ]
    if summary:
        pairs.append(("live rows", human_rows(content["live_rows"], content["live_rows_at_most"])))
        pairs.append(("deleted rows", human_deleted_rows(content["live_rows"], content["deleted_rows"])))
    if "total-data-files" in summary:
        pairs.append(("data files", human_count(int(summary["total-data-files"]))))
    if "total-files-size" in summary:
        pairs.append(("size", human_size(int(summary["total-files-size"]))))
    pairs += [(f"property {key}", value) for key, value in sorted(content["properties"].items())]
    return facts(pairs)


def _schema_view(table: Table, content: Row) -> RenderableType:
    schema = table.schema
    identifiers = set(schema.identifier_field_ids)
    return grid(
        f"schema {schema.schema_id}; partitioned by {_spec_text(table)}; sorted by {_order_text(table)}",
        [("id", "right"), ("name", "left"), ("type", "left"), ("required", "left"), ("doc", "left")],
        [
            (
                str(field_id),
                schema.names_by_id[field_id],
                str(part.type),
                ("yes" if part.required else "") + (" (identifier)" if field_id in identifiers else ""),
                part.doc or "",
            )
            for field_id, part in sorted(schema.fields_by_id.items(), key=lambda pair: pair[0])
        ],
    )


def _snapshots_view(table: Table, rows: list[Row]) -> RenderableType:
    return grid(
        counted(len(rows), "snapshot"),
        [
            ("committed at (UTC)", "right"),
            ("snapshot", "right"),
            ("parent", "right"),
            ("operation", "left"),
            ("added rows", "right"),
            ("added files", "right"),
            ("removed rows", "right"),
            ("live rows", "right"),
            ("deleted rows", "right"),
            ("checkpoint", "right"),
        ],
        [
            (
                human_time(row["committed_at"]),
                str(row["snapshot_id"]),
                str(row["parent_id"] or ""),
                row["operation"] or "",
                _counter(row, "added-records"),
                _counter(row, "added-data-files"),
                _counter(row, "deleted-records"),
                human_rows(row["live_rows"], row["live_rows_at_most"]),
                human_deleted_rows(row["live_rows"], row["deleted_rows"]),
                row["summary"].get("streamlake.max-committed-checkpoint-id", ""),
            )
            for row in rows
        ],
        optional=("parent", "removed rows", "added files", "deleted rows", "checkpoint", "added rows"),
    )


def _counter(row: Row, key: str) -> str:
    text = row["summary"].get(key, "")
    return human_count(int(text)) if text.isdigit() else text


def _history_view(table: Table, rows: list[Row]) -> RenderableType:
    return grid(
        f"{counted(len(rows), 'change')} of the current snapshot",
        [
            ("made current at (UTC)", "right"),
            ("snapshot", "right"),
            ("parent", "right"),
            ("current ancestor", "left"),
        ],
        [
            (
                human_time(row["made_current_at"]),
                str(row["snapshot_id"]),
                str(row["parent_id"] or ""),
                "yes" if row["is_current_ancestor"] else "no",
            )
            for row in rows
        ],
        optional=("parent",),
    )


def _refs_view(table: Table, rows: list[Row]) -> RenderableType:
    return grid(
        counted(len(rows), "branch or tag", "branches and tags"),
        [
            ("name", "left"),
            ("type", "left"),
            ("snapshot", "right"),
            ("max ref age ms", "right"),
            ("min snapshots", "right"),
            ("max snapshot age ms", "right"),
        ],
        [
            (
                row["name"],
                row["type"].lower(),
                str(row["snapshot_id"]),
                human_count(row["max_reference_age_in_ms"]),
                human_count(row["min_snapshots_to_keep"]),
                human_count(row["max_snapshot_age_in_ms"]),
            )
            for row in rows
        ],
    )


def _manifests_view(table: Table, rows: list[Row]) -> RenderableType:
    return grid(
        f"{len(rows)} manifests",
        [
            ("path", "left"),
            ("content", "left"),
            ("size", "right"),
            ("spec", "right"),
            ("snapshot", "right"),
            ("added", "right"),
            ("existing", "right"),
            ("deleted", "right"),
            ("partitions", "left"),
        ],
        [
            (
                _short(row["path"], table),
                MANIFEST_CONTENTS[row["content"]],
                human_size(row["length"]),
                str(row["partition_spec_id"]),
                str(row["added_snapshot_id"]),
                *(
                    str((row[f"{kind}_data_files_count"] or 0) + (row[f"{kind}_delete_files_count"] or 0))
                    for kind in ("added", "existing", "deleted")
                ),
                ", ".join(_range(part) for part in row["partition_summaries"]),
            )
            for row in rows
        ],
    )


def _range(summary: Row) -> str:
    lower, upper = human_value(summary["lower_bound"]), human_value(summary["upper_bound"])
    return lower if lower == upper else f"{lower} … {upper}"


def _files_view(table: Table, rows: list[Row]) -> RenderableType:
    return grid(
        counted(len(rows), "file"),
        [
            ("path", "left"),
            ("content", "left"),
            ("rows", "right"),
            ("size", "right"),
            ("partition", "left"),
            ("bounds", "left"),
        ],
        [
            (
                _short(row["file_path"], table),
                CONTENTS[row["content"]],
                human_count(row["record_count"]),
                human_size(row["file_size_in_bytes"]),
                human_partition(readable_partition(table, row["partition"])),
                "\n".join(
                    f"{name}: {human_value(metrics['lower_bound'])} … {human_value(metrics['upper_bound'])}"
                    for name, metrics in row["readable_metrics"].items()
                    if metrics["lower_bound"] is not None
                ),
            )
            for row in rows
        ],
    )


def _partitions_view(table: Table, rows: list[Row]) -> RenderableType:
    # Those of an unpartitioned spec hold in every partition.
    by_equality = sum(row["equality_delete_record_count"] for row in rows)
    return grid(
        counted(len(rows), "partition"),
        [
            ("partition", "left"),
            ("live rows", "right"),
            ("files", "right"),
            ("size", "right"),
            ("position deletes", "right"),
            ("equality deletes", "right"),
            ("last updated (UTC)", "right"),
        ],
        [
            (
                human_partition(readable_partition(table, row["partition"])),
                _partition_rows(row, by_equality),
                human_count(row["file_count"]),
                human_size(row["total_data_file_size_in_bytes"]),
                human_count(row["position_delete_record_count"]),
                human_count(row["equality_delete_record_count"]),
                human_time(row["last_updated_at"]),
            )
            for row in rows
        ],
        optional=("last updated (UTC)",),
    )


def _partition_rows(row: Row, by_equality: int) -> str:
    rows = counted_rows(row["record_count"], row["position_delete_record_count"], by_equality)
    return human_rows(rows.live, rows.at_most)


def _short(path: str, table: Table) -> str:
    """A path below the table, without the table's location."""
    prefix = table.location.rstrip("/") + "/"
    return path.removeprefix(prefix)


def _spec_text(table: Table) -> str:
    parts = [
        f"{part.transform}({table.schema.name_of(part.source_id)})"
        if str(part.transform) != "identity"
        else str(table.schema.name_of(part.source_id))
        for part in table.spec.fields
    ]
    return ", ".join(parts) or "nothing"


def _order_text(table: Table) -> str:
    parts = [
        f"{table.schema.name_of(part.source_id)} {part.direction}"
        if str(part.transform) == "identity"
        else f"{part.transform}({table.schema.name_of(part.source_id)}) {part.direction}"
        for part in table.sort_order.fields
    ]
    return ", ".join(parts) or "nothing"


VIEWS: dict[str, Callable[[Table, Any], RenderableType]] = {
    "table": _table_view,
    "snapshots": _snapshots_view,
    "history": _history_view,
    "files": _files_view,
    "manifests": _manifests_view,
    "partitions": _partitions_view,
    "refs": _refs_view,
    "schema": _schema_view,
}
