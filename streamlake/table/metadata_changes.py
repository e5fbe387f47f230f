"""Pure changes from one table metadata to the next: snapshots, refs, properties, schema, format version.

Operations compose these into the `new` of `TableOperations.commit`. Invariants: time never goes back (the
snapshot log and `last-updated-ms` are monotonic even when clocks are not), `current-snapshot-id` follows the main
branch and nothing else, and whatever a function does not name is carried over, unknown fields included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamlake import clock, ids
from streamlake.errors import ConflictValidationError, FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.schema import Schema
from streamlake.spec.snapshot import MAIN_BRANCH, Snapshot, SnapshotLogEntry, SnapshotRef
from streamlake.spec.table_metadata import TableMetadata
from streamlake.table.column_properties import follow_columns

WRITABLE_FORMAT_VERSIONS = (2, 3)
RESERVED_PROPERTIES = frozenset(
    {
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)


def changed(base: TableMetadata, **fields: Any) -> TableMetadata:
    """`dataclasses.replace`, keeping the index of snapshots where they stay the same: building it for each version
    would make a commit cost what the table's history costs."""
    new = replace(base, **fields)
    if "snapshots" not in fields:
        _keep_index(new, base.snapshots_by_id)
    return new


def _keep_index(metadata: TableMetadata, index: dict[int, Snapshot]) -> None:
    vars(metadata)["snapshots_by_id"] = index


def change_time_ms(base: TableMetadata) -> int:
    """Now, but never before what the metadata already holds (milliseconds)."""
    last_logged = base.snapshot_log[-1].timestamp_ms if base.snapshot_log else 0
    return max(clock.now_ms(), base.last_updated_ms, last_logged)


def require_writable(base: TableMetadata, table: str) -> None:
    """FeatureUnsupportedError unless we write this format version."""
    if base.format_version not in WRITABLE_FORMAT_VERSIONS:
        raise FeatureUnsupportedError(
            f"table {table} has format version {base.format_version}, which is read but not written here;"
            " upgrade it first (UpdateProperties.upgrade_format_version(2))"
        )


def branch_head(base: TableMetadata, branch: str) -> Snapshot | None:
    """The snapshot that a commit to `branch` builds on: its head, or main's head where the branch is new."""
    ref = base.refs.get(branch)
    if ref is None:
        return base.current_snapshot
    if ref.type != "branch":
        raise InvalidOptionError(f"{branch!r} is a tag, and a commit needs a branch: name another branch")
    return base.snapshot(ref.snapshot_id)


def with_snapshot(base: TableMetadata, snapshot: Snapshot, branch: str) -> TableMetadata:
    """`base` with a new snapshot as the head of `branch` (created when missing)."""
    added_rows = snapshot.added_rows or 0
    new = changed(
        base,
        snapshots=(*base.snapshots, snapshot),
        last_sequence_number=max(base.last_sequence_number, snapshot.sequence_number),
        last_updated_ms=max(base.last_updated_ms, snapshot.timestamp_ms),
    )
    _keep_index(new, {**base.snapshots_by_id, snapshot.snapshot_id: snapshot})
    if base.format_version >= 3:
        new = changed(new, next_row_id=(base.next_row_id or 0) + added_rows)
    return _with_head(new, branch, snapshot.snapshot_id, snapshot.timestamp_ms)


def _with_head(base: TableMetadata, branch: str, snapshot_id: int, time_ms: int) -> TableMetadata:
    ref = base.refs.get(branch)
    ref = SnapshotRef(snapshot_id, "branch") if ref is None else replace(ref, snapshot_id=snapshot_id)
    new = changed(base, refs={**base.refs, branch: ref}, last_updated_ms=max(base.last_updated_ms, time_ms))
    if branch == MAIN_BRANCH:
        entry = SnapshotLogEntry(time_ms, snapshot_id)
        new = changed(new, current_snapshot_id=snapshot_id, snapshot_log=(*base.snapshot_log, entry))
    return new


def with_ref(base: TableMetadata, name: str, ref: SnapshotRef) -> TableMetadata:
    """`base` with a branch or tag set; moving main also moves `current-snapshot-id` and is logged."""
    if base.refs.get(name) == ref:
        return base
    if base.snapshot(ref.snapshot_id) is None:
        raise ConflictValidationError(
            f"{ref.type} {name!r} cannot point to snapshot {ref.snapshot_id}: the table has none such"
        )
    time_ms = change_time_ms(base)
    if name == MAIN_BRANCH:
        if ref.type != "branch":
            raise InvalidOptionError("main is always a branch: give the tag another name")
        if base.current_snapshot_id != ref.snapshot_id:
            base = _with_head(base, name, ref.snapshot_id, time_ms)
    return changed(base, refs={**base.refs, name: ref}, last_updated_ms=time_ms)


def without_ref(base: TableMetadata, name: str) -> TableMetadata:
    """`base` without a branch or tag; the snapshots stay until they expire."""
    if name == MAIN_BRANCH:
        raise InvalidOptionError("the main branch cannot be removed")
    if name not in base.refs:
        return base
    refs = {other: ref for other, ref in base.refs.items() if other != name}
    return changed(base, refs=refs, last_updated_ms=change_time_ms(base))


def with_properties(
    base: TableMetadata, updates: Mapping[str, str], removals: Iterable[str] = ()
) -> TableMetadata:
    """`base` with table properties set and removed; the same object when nothing changes."""
    reserved = sorted(RESERVED_PROPERTIES.intersection(updates))
    if reserved:
        raise InvalidOptionError(
            f"table property {reserved[0]} is reserved: it is derived from the metadata and cannot be set"
        )
    removed = set(removals)
    properties = {key: value for key, value in base.properties.items() if key not in removed}
    properties.update({key: str(value) for key, value in updates.items()})
    if properties == base.properties:
        return base
    return changed(base, properties=properties, last_updated_ms=change_time_ms(base))


def with_schema(base: TableMetadata, schema: Schema, last_column_id: int) -> TableMetadata:
    """`base` with `schema`, whatever its id, as the current one: under its old id where the table has had it before, else
    under a new one; the same object when nothing changes. Properties that name columns follow."""
    same = [known for known in base.schemas if _same_columns(known, schema)]
    if base.schema in same:
        return base
    if same:
        chosen, schemas = same[0], base.schemas
    else:
        chosen = replace(schema, schema_id=max(known.schema_id for known in base.schemas) + 1)
        schemas = (*base.schemas, chosen)
    return changed(
        base,
        schemas=schemas,
        current_schema_id=chosen.schema_id,
        last_column_id=max(base.last_column_id, last_column_id),
        properties=follow_columns(base.properties, base.schema, chosen),
        last_updated_ms=change_time_ms(base),
    )


def _same_columns(one: Schema, other: Schema) -> bool:
    return (one.fields, set(one.identifier_field_ids)) == (other.fields, set(other.identifier_field_ids))


def with_format_version(base: TableMetadata, version: int) -> TableMetadata:
    """`base` upgraded to a higher format version (spec: Appendix E); nothing is rewritten."""
    if version == base.format_version:
        return base
    if version < base.format_version:
        raise InvalidOptionError(f"format version {base.format_version} cannot go back to {version}")
    if version not in WRITABLE_FORMAT_VERSIONS:
        raise FeatureUnsupportedError(
            f"format version {version} is not written here; use one of {WRITABLE_FORMAT_VERSIONS}"
        )
    next_row_id = (base.next_row_id or 0) if version >= 3 else base.next_row_id
    table_uuid = base.table_uuid or ids.new_uuid()
    return changed(
        base,
        format_version=version,
        table_uuid=table_uuid,
        next_row_id=next_row_id,
        last_updated_ms=change_time_ms(base),
    )
