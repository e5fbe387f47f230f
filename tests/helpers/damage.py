"""Damage to tables, as bugs, operators and storage do it: each function changes files that Iceberg never changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from streamlake import ids
from streamlake.formats.manifests.manifest_lists import write_manifest_list
from streamlake.formats.manifests.manifests import read_manifest, write_manifest
from streamlake.spec.metadata.manifest import ManifestEntry, ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table

LONG_AGO_SECONDS = 3 * 24 * 3600


def rewrite_metadata(table: Table, change: Callable[[TableMetadata], TableMetadata]) -> None:
    """Commit other metadata, whatever it is."""
    base = table.operations.refresh()
    table.operations.commit(base, change(base))
    table.refresh()


def rewrite_head(
    table: Table,
    entries: Callable[[ManifestFile, list[ManifestEntry]], list[ManifestEntry]] = lambda manifest, found: (
        found
    ),
    manifests: Callable[[list[ManifestFile]], list[ManifestFile]] = lambda found: found,
) -> None:
    """Let the current snapshot have other manifests, with other content; all other snapshots keep theirs."""
    snapshot = head(table)
    rewritten = []
    for manifest in table.manifests(snapshot):
        found = read_manifest(table.io, manifest, table.specs)
        written = write_manifest(
            table.io,
            f"{manifest.manifest_path.removesuffix('.avro')}-{ids.new_uuid()}.avro",
            entries(manifest, found),
            table.specs[manifest.partition_spec_id],
            table.schema,
            table.format_version,
            manifest.content,
            manifest.added_snapshot_id,
        )
        kept = {
            "sequence_number": manifest.sequence_number,
            "min_sequence_number": manifest.min_sequence_number,
            "first_row_id": manifest.first_row_id,
        }
        rewritten.append(replace(written, **kept))
    path = table.locations.manifest_list(snapshot.snapshot_id, 0, ids.new_uuid())
    write_manifest_list(
        table.io,
        path,
        manifests(rewritten),
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number,
        table.format_version,
        table.metadata.next_row_id,
    )
    moved = replace(snapshot, manifest_list=path)

    def named(metadata: TableMetadata) -> TableMetadata:
        others = tuple(moved if each == snapshot else each for each in metadata.snapshots)
        return replace(metadata, snapshots=others)

    rewrite_metadata(table, named)


def head(table: Table) -> Snapshot:
    snapshot = table.refresh().current_snapshot
    assert snapshot is not None
    return snapshot


def with_summary(metadata: TableMetadata, **changes: str) -> TableMetadata:
    """The metadata with another summary of its current snapshot; underscores in names are dashes."""
    named = {key.replace("_", "-"): value for key, value in changes.items()}
    snapshots = tuple(
        replace(each, summary={**each.summary, **named})
        if each.snapshot_id == metadata.current_snapshot_id
        else each
        for each in metadata.snapshots
    )
    return replace(metadata, snapshots=snapshots)


def cut_short(path: str | Path, by: int = 1) -> None:
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:-by])


def left_behind(path: Path, content: bytes = b"left behind") -> Path:
    """A file that somebody forgot long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    then = time.time() - LONG_AGO_SECONDS
    os.utime(path, (then, then))
    return path
