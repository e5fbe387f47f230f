"""The rows of every metadata table, with values as Arrow takes them.

Reads metadata and manifests, never data files. The tables named `all_...` hold what any snapshot has that has
not expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

from streamlake.formats.manifests.manifests import read_manifest
from streamlake.read.metadata_tables import (
    FileColumns,
    Row,
    history_rows,
    live_entries,
    manifest_rows,
    partition_rows,
    ref_rows,
    snapshot_rows,
)
from streamlake.read.natural_values import instant
from streamlake.spec.metadata.manifest import ManifestContent, ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.types.data_types import IcebergType
from streamlake.table.table import Table

_DATA, _DELETES = ManifestContent.DATA, ManifestContent.DELETES
_ANY = (_DATA, _DELETES)


def metadata_rows(name: str, table: Table, snapshot: Snapshot | None) -> list[Row]:
    """The rows of a metadata table, of one snapshot where it has those of one."""
    return _ROWS[name](table, snapshot)


def _value(type_: IcebergType, value: Any) -> Any:
    """A value of the specification's domain as Arrow takes it: everything but uuids unchanged."""
    del type_
    return value.bytes if isinstance(value, UUID) else value


def _files(
    table: Table, manifests: Iterable[ManifestFile], contents: tuple[ManifestContent, ...]
) -> list[Row]:
    columns = FileColumns.of(table.metadata, _value)
    chosen = (each for each in manifests if each.content in contents)
    return [_for_arrow(columns.row(entry.data_file)) for entry in live_entries(table, chosen)]


def _entries(table: Table, manifests: Iterable[ManifestFile]) -> list[Row]:
    columns = FileColumns.of(table.metadata, _value)
    found = []
    for manifest in manifests:
        for entry in read_manifest(table.io, manifest, table.specs, table.schema):
            file = _for_arrow(columns.row(entry.data_file))
            found.append(
                {
                    "status": int(entry.status),
                    "snapshot_id": entry.snapshot_id,
                    "sequence_number": entry.sequence_number,
                    "file_sequence_number": entry.file_sequence_number,
                    "data_file": file,
                    "readable_metrics": file["readable_metrics"],
                }
            )
    return found


def _all_manifests(table: Table) -> Iterator[ManifestFile]:
    """The manifests of all snapshots, each once."""
    seen: set[str] = set()
    for snapshot in table.snapshots:
        for manifest in table.manifests(snapshot):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest


def _all_manifest_rows(table: Table) -> list[Row]:
    rows = []
    for snapshot in table.snapshots:
        manifests = table.manifests(snapshot)
        for row, manifest in zip(manifest_rows(table, snapshot), manifests, strict=True):
            more = {"reference_snapshot_id": snapshot.snapshot_id, "key_metadata": manifest.key_metadata}
            rows.append({**row, **more})
    return rows


def _log_rows(table: Table) -> list[Row]:
    """One row per metadata file that is still known, oldest first, the current one last."""
    metadata = table.metadata
    path = str(getattr(table.operations, "metadata_path", table.location))
    files = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    rows = []
    for timestamp_ms, file in (*files, (metadata.last_updated_ms, path)):
        past = [entry.snapshot_id for entry in metadata.snapshot_log if entry.timestamp_ms <= timestamp_ms]
        latest = metadata.snapshot(past[-1]) if past else None
        rows.append(
            {
                "timestamp": instant(timestamp_ms),
                "file": file,
                "latest_snapshot_id": None if latest is None else latest.snapshot_id,
                "latest_schema_id": None if latest is None else latest.schema_id,
                "latest_sequence_number": None if latest is None else latest.sequence_number,
            }
        )
    return rows


def _for_arrow(row: Row) -> Row:
    """Arrow takes the entries of maps as pairs."""
    return {
        key: list(value.items()) if isinstance(value, dict) and key.endswith(_MAPS) else value
        for key, value in row.items()
    }


_MAPS = ("_sizes", "_counts", "_bounds")
_ROWS: dict[str, Callable[[Table, Snapshot | None], list[Row]]] = {
    "snapshots": lambda table, _: [
        {**row, "summary": list(row["summary"].items())} for row in snapshot_rows(table)
    ],
    "history": lambda table, _: history_rows(table),
    "refs": lambda table, _: ref_rows(table),
    "metadata_log_entries": lambda table, _: _log_rows(table),
    "manifests": manifest_rows,
    "partitions": lambda table, snapshot: partition_rows(table, snapshot, _value),
    "files": lambda table, snapshot: _files(table, table.manifests(snapshot), _ANY),
    "data_files": lambda table, snapshot: _files(table, table.manifests(snapshot), (_DATA,)),
    "delete_files": lambda table, snapshot: _files(table, table.manifests(snapshot), (_DELETES,)),
    "entries": lambda table, snapshot: _entries(table, table.manifests(snapshot)),
    "all_manifests": lambda table, _: _all_manifest_rows(table),
    "all_files": lambda table, _: _files(table, _all_manifests(table), _ANY),
    "all_data_files": lambda table, _: _files(table, _all_manifests(table), (_DATA,)),
    "all_delete_files": lambda table, _: _files(table, _all_manifests(table), (_DELETES,)),
    "all_entries": lambda table, _: _entries(table, _all_manifests(table)),
}
METADATA_TABLES = tuple(_ROWS)
OF_ONE_SNAPSHOT = ("manifests", "partitions", "files", "data_files", "delete_files", "entries")
"""The tables that time travel changes."""
