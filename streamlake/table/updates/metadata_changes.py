"""Pure changes from one table metadata to the next: snapshots, refs, properties, schema, layout, version.

Operations combine these into the `new` of `TableOperations.commit`. Invariants: time never goes back
(the snapshot log and `last-updated-ms` are monotonic even when clocks are not), `current-snapshot-id`
follows the main branch and nothing else, and everything that a function does not name is carried
over, unknown fields included.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any

from streamlake import clock, ids
from streamlake.errors import (
    ConflictValidationError,
    DataInvalidError,
    FeatureUnsupportedError,
    InvalidOptionError,
)
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot, SnapshotLogEntry, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec
from streamlake.spec.partitioning.sort_order import UNSORTED, SortField, SortOrder
from streamlake.spec.partitioning.transforms import Transform
from streamlake.spec.types.schema import Schema

_LOG = logging.getLogger(__name__)

_PREFIXES = (
    "write.metadata.metrics.column.",
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.bloom-filter-fpp.column.",
    "write.parquet.stats-enabled.column.",
)


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


def follow_columns(properties: Mapping[str, str], old: Schema, new: Schema) -> Mapping[str, str]:
    """The properties after the current schema changed from `old` to `new`.

    Properties of renamed columns get the new names, those of dropped columns are removed.
    """
    followed: dict[str, str] = {}
    for key, value in properties.items():
        name = _followed(key, old, new)
        if name is not None:
            followed[name] = value
    mapping = properties.get(NAME_MAPPING_PROPERTY)
    if mapping is not None:
        try:
            followed[NAME_MAPPING_PROPERTY] = NameMapping.from_json(mapping).updated(new).to_json()
        except DataInvalidError as error:
            _LOG.warning("the name mapping stays as it is: %s", error)
    return followed


def _followed(key: str, old: Schema, new: Schema) -> str | None:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            part = old.find(key[len(prefix) :])
            if part is None:
                return key
            name = new.name_of(part.field_id)
            return None if name is None else prefix + name
    return key


def changed(base: TableMetadata, **fields: Any) -> TableMetadata:
    """`dataclasses.replace` that keeps the index of snapshots where they stay the same.

    Building it for each version would make the cost of a commit grow with the table's history.
    """
    new = replace(base, **fields)
    if "snapshots" not in fields:
        _keep_index(new, base.snapshots_by_id)
    return new


def _keep_index(metadata: TableMetadata, index: dict[int, Snapshot]) -> None:
    vars(metadata)["snapshots_by_id"] = index


def change_time_ms(base: TableMetadata) -> int:
    """The current time, but never before any time in the metadata (epoch milliseconds)."""
    last_logged = base.snapshot_log[-1].timestamp_ms if base.snapshot_log else 0
    return max(clock.now_ms(), base.last_updated_ms, last_logged)


def require_writable(base: TableMetadata, table: str) -> None:
    """Raises FeatureUnsupportedError unless streamlake writes this format version."""
    if base.format_version not in WRITABLE_FORMAT_VERSIONS:
        raise FeatureUnsupportedError(
            f"table {table} has format version {base.format_version}, which is read but not written here;"
            " upgrade it first (UpdateProperties.upgrade_format_version(2))"
        )


def branch_head(base: TableMetadata, branch: str) -> Snapshot | None:
    """The snapshot that a commit to `branch` builds on: its head, or main's head when the branch is new.

    Raises InvalidOptionError when the name is a tag's.
    """
    ref = base.refs.get(branch)
    if ref is None:
        return base.current_snapshot
    if ref.type != "branch":
        raise InvalidOptionError(f"{branch!r} is a tag, and a commit needs a branch: name another branch")
    return base.snapshot(ref.snapshot_id)


def with_snapshot(base: TableMetadata, snapshot: Snapshot, branch: str) -> TableMetadata:
    """`base` with a new snapshot as the head of `branch`, which is created when missing."""
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
    """`base` with a branch or tag set. Moving main also moves `current-snapshot-id` and is logged."""
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
    """`base` without a branch or tag. The snapshots stay until they expire."""
    if name == MAIN_BRANCH:
        raise InvalidOptionError("the main branch cannot be removed")
    if name not in base.refs:
        return base
    refs = {other: ref for other, ref in base.refs.items() if other != name}
    return changed(base, refs=refs, last_updated_ms=change_time_ms(base))


def without_snapshots(
    base: TableMetadata, snapshot_ids: Collection[int], refs: Collection[str] = ()
) -> TableMetadata:
    """`base` without these snapshots, the branches and tags in `refs`, and the statistics of the snapshots;
    the same object when nothing changes.

    The snapshot log begins after its last removed snapshot, because with a gap it would say that another
    snapshot was current then. Raises InvalidOptionError for a snapshot that a branch or tag needs.
    """
    gone = base.snapshots_by_id.keys() & set(snapshot_ids)
    kept_refs = {name: ref for name, ref in base.refs.items() if name not in refs or name == MAIN_BRANCH}
    if not gone and len(kept_refs) == len(base.refs):
        return base
    for name, ref in kept_refs.items():
        if ref.snapshot_id in gone:
            raise InvalidOptionError(
                f"{base.location}: snapshot {ref.snapshot_id} cannot expire, the {ref.type} '{name}' needs it"
            )
    snapshots = tuple([each for each in base.snapshots if each.snapshot_id not in gone])
    after_gap = 1 + max(
        (at for at, entry in enumerate(base.snapshot_log) if entry.snapshot_id in gone), default=-1
    )
    return changed(
        base,
        snapshots=snapshots,
        refs=kept_refs,
        snapshot_log=base.snapshot_log[after_gap:] if gone else base.snapshot_log,
        statistics=_of_others(base.statistics, gone),
        partition_statistics=_of_others(base.partition_statistics, gone),
        last_updated_ms=change_time_ms(base),
    )


def _of_others(statistics: tuple[dict[str, Any], ...], gone: Set[int]) -> tuple[dict[str, Any], ...]:
    return tuple([entry for entry in statistics if entry.get("snapshot-id") not in gone])


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
    """`base` with the columns of `schema` as the current schema; the same object when nothing changes.

    The schema gets its old id when the table has had it before, else a new one, whatever its own id.
    Properties that name columns are updated.
    """
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


def with_spec(base: TableMetadata, fields: tuple[PartitionField, ...]) -> TableMetadata:
    """`base` with a current partition spec of these fields; the same object when it has it already.

    The spec gets its old id when the table has had it before, else a new one.
    """
    wanted = [_same_field(part) for part in fields]
    found = next((spec for spec in base.specs if [_same_field(part) for part in spec.fields] == wanted), None)
    if found is not None and found.spec_id == base.default_spec_id:
        return base
    chosen = found or PartitionSpec(max(spec.spec_id for spec in base.specs) + 1, fields)
    return changed(
        base,
        specs=base.specs if found is not None else (*base.specs, chosen),
        default_spec_id=chosen.spec_id,
        last_partition_id=max(base.last_partition_id, chosen.highest_field_id),
        last_updated_ms=change_time_ms(base),
    )


def _same_field(part: PartitionField) -> tuple[int, str, Transform]:
    return part.source_id, part.name, part.transform


def with_sort_order(base: TableMetadata, fields: tuple[SortField, ...]) -> TableMetadata:
    """`base` with a current sort order of these fields (none: unsorted); the same object when it has it."""
    found = next((order for order in base.sort_orders if order.fields == fields), None)
    if not fields:
        found = next((order for order in base.sort_orders if order.order_id == UNSORTED.order_id), None)
    if found is not None and found.order_id == base.default_sort_order_id:
        return base
    new_id = max((order.order_id for order in base.sort_orders), default=0) + 1
    chosen = found or (SortOrder(new_id, fields) if fields else UNSORTED)
    return changed(
        base,
        sort_orders=base.sort_orders if found is not None else (*base.sort_orders, chosen),
        default_sort_order_id=chosen.order_id,
        last_updated_ms=change_time_ms(base),
    )
