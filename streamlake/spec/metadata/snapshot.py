"""Snapshots, branches and tags, and the two logs of table metadata (spec: Snapshots, Snapshot References)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MAIN_BRANCH = "main"


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """The state of a table at one time.

    `summary` includes `operation`; `manifests` is the embedded list of version 1.
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    manifest_list: str | None
    summary: dict[str, str] = field(default_factory=dict)
    schema_id: int | None = None
    first_row_id: int | None = None
    added_rows: int | None = None
    key_id: str | None = None
    manifests: tuple[str, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def operation(self) -> str | None:
        """The operation (`append`, `overwrite`, `replace`, `delete`); None when not recorded."""
        return self.summary.get("operation")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and snapshot_to_json(self) == snapshot_to_json(other)

    def __hash__(self) -> int:
        return hash(self.snapshot_id)


@dataclass(frozen=True)
class SnapshotRef:
    """A named pointer to a snapshot: a branch moves, a tag does not."""

    snapshot_id: int
    type: str
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None
    extra: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class SnapshotLogEntry:
    """An entry of the snapshot log: which snapshot was current from a time on (epoch milliseconds)."""

    timestamp_ms: int
    snapshot_id: int


@dataclass(frozen=True)
class MetadataLogEntry:
    """An entry of the metadata log: an earlier metadata file and its time (epoch milliseconds)."""

    timestamp_ms: int
    metadata_file: str


_SNAPSHOT_KEYS = {
    "snapshot-id",
    "parent-snapshot-id",
    "sequence-number",
    "timestamp-ms",
    "manifest-list",
    "manifests",
    "summary",
    "schema-id",
    "first-row-id",
    "added-rows",
    "key-id",
}
_REF_KEYS = {"snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"}


def snapshot_from_json(obj: dict[str, Any]) -> Snapshot:
    """A snapshot from its JSON object, whose summary it takes over. Unknown keys are kept in `extra`."""
    manifests = obj.get("manifests")
    return Snapshot(
        snapshot_id=obj["snapshot-id"],
        parent_snapshot_id=obj.get("parent-snapshot-id"),
        sequence_number=obj.get("sequence-number", 0),
        timestamp_ms=obj["timestamp-ms"],
        manifest_list=obj.get("manifest-list"),
        summary=obj.get("summary") or {},
        schema_id=obj.get("schema-id"),
        first_row_id=obj.get("first-row-id"),
        added_rows=obj.get("added-rows"),
        key_id=obj.get("key-id"),
        manifests=None if manifests is None else tuple(manifests),
        extra={key: value for key, value in obj.items() if key not in _SNAPSHOT_KEYS},
    )


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON object of a snapshot, the inverse of `snapshot_from_json`."""
    obj: dict[str, Any] = {"snapshot-id": snapshot.snapshot_id}
    if snapshot.sequence_number:
        obj["sequence-number"] = snapshot.sequence_number
    optional = {
        "parent-snapshot-id": snapshot.parent_snapshot_id,
        "timestamp-ms": snapshot.timestamp_ms,
        "summary": snapshot.summary or None,
        "manifest-list": snapshot.manifest_list,
        "manifests": None if snapshot.manifests is None else list(snapshot.manifests),
        "schema-id": snapshot.schema_id,
        "first-row-id": snapshot.first_row_id,
        "added-rows": snapshot.added_rows,
        "key-id": snapshot.key_id,
    }
    obj.update((key, value) for key, value in optional.items() if value is not None)
    return {**obj, **snapshot.extra}


def ref_from_json(obj: dict[str, Any]) -> SnapshotRef:
    """A branch or tag from its JSON object. Unknown keys are kept in `extra`."""
    return SnapshotRef(
        snapshot_id=obj["snapshot-id"],
        type=obj["type"],
        min_snapshots_to_keep=obj.get("min-snapshots-to-keep"),
        max_snapshot_age_ms=obj.get("max-snapshot-age-ms"),
        max_ref_age_ms=obj.get("max-ref-age-ms"),
        extra={key: value for key, value in obj.items() if key not in _REF_KEYS},
    )


def ref_to_json(ref: SnapshotRef) -> dict[str, Any]:
    """The JSON object of a branch or tag, the inverse of `ref_from_json`."""
    optional = {
        "min-snapshots-to-keep": ref.min_snapshots_to_keep,
        "max-snapshot-age-ms": ref.max_snapshot_age_ms,
        "max-ref-age-ms": ref.max_ref_age_ms,
    }
    return {
        "snapshot-id": ref.snapshot_id,
        "type": ref.type,
        **{key: value for key, value in optional.items() if value is not None},
        **ref.extra,
    }
