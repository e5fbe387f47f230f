"""The difference between two versions of table metadata, as the updates and requirements of catalog services.

Catalogs with a server do not take a whole metadata file: they apply updates when requirements hold, both in
the JSON of the REST catalog protocol. Invariant: the requirements pin every ref of the base and of the new
metadata. So a commit is refused when another snapshot was committed before it, on whatever branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamlake.errors import FeatureUnsupportedError
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, ref_to_json, snapshot_to_json
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import spec_to_json
from streamlake.spec.partitioning.sort_order import sort_order_to_json
from streamlake.spec.types.type_json import schema_to_json

Json = dict[str, Any]


def requirements(base: TableMetadata, new: TableMetadata, *, by_server: bool = False) -> list[Json]:
    """The conditions under which the updates may be applied: ids and refs of `base` are still current.

    A ref that `new` adds must not exist yet. PyIceberg refuses to look for a ref in a table without
    snapshots, so that case is left out where it checks the conditions, and not a server (`by_server`).
    """
    pinned: list[Json] = [{"type": "assert-table-uuid", "uuid": base.table_uuid}]
    refs = {
        **(dict.fromkeys(new.refs) if base.snapshots or by_server else {}),
        MAIN_BRANCH: base.current_snapshot_id,
        **{name: ref.snapshot_id for name, ref in base.refs.items()},
    }
    pinned += (
        {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": id_} for name, id_ in refs.items()
    )
    if new.last_column_id != base.last_column_id:
        last = base.last_column_id
        pinned.append({"type": "assert-last-assigned-field-id", "last-assigned-field-id": last})
    if new.last_partition_id != base.last_partition_id:
        last = base.last_partition_id
        pinned.append({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": last})
    if new.default_sort_order_id != base.default_sort_order_id:
        order = base.default_sort_order_id
        pinned.append({"type": "assert-default-sort-order-id", "default-sort-order-id": order})
    return [
        *pinned,
        {"type": "assert-current-schema-id", "current-schema-id": base.current_schema_id},
        {"type": "assert-default-spec-id", "default-spec-id": base.default_spec_id},
    ]


def updates(base: TableMetadata, new: TableMetadata) -> list[Json]:
    """The changes that turn `base` into `new`, in the order in which they must be applied.

    Raises FeatureUnsupportedError for a difference that no update expresses.
    """
    for name in ("table_uuid", "location", "extra"):
        if getattr(base, name) != getattr(new, name):
            raise FeatureUnsupportedError(
                f"{base.location}: a catalog service cannot change {name.replace('_', '-')}"
            )
    changes: list[Json] = []
    if new.format_version != base.format_version:
        changes.append({"action": "upgrade-format-version", "format-version": new.format_version})
    changes += _layout(base, new)
    changes += _properties(base, new)
    changes += _snapshots(base, new)
    changes += _refs(base, new)
    changes += _statistics(base, new)
    return changes


def _layout(base: TableMetadata, new: TableMetadata) -> Iterable[Json]:
    for schema in _added(base.schemas, new.schemas):
        yield {"action": "add-schema", "schema": schema_to_json(schema), "last-column-id": new.last_column_id}
    if new.current_schema_id != base.current_schema_id:
        yield {"action": "set-current-schema", "schema-id": new.current_schema_id}
    for spec in _added(base.specs, new.specs):
        yield {"action": "add-spec", "spec": spec_to_json(spec)}
    if new.default_spec_id != base.default_spec_id:
        yield {"action": "set-default-spec", "spec-id": new.default_spec_id}
    for order in _added(base.sort_orders, new.sort_orders):
        yield {"action": "add-sort-order", "sort-order": sort_order_to_json(order)}
    if new.default_sort_order_id != base.default_sort_order_id:
        yield {"action": "set-default-sort-order", "sort-order-id": new.default_sort_order_id}


def _added(before: tuple[Any, ...], after: tuple[Any, ...]) -> list[Any]:
    return [] if before is after else [part for part in after if part not in before]


def _properties(base: TableMetadata, new: TableMetadata) -> Iterable[Json]:
    changed = {key: value for key, value in new.properties.items() if base.properties.get(key) != value}
    removed = [key for key in base.properties if key not in new.properties]
    if changed:
        yield {"action": "set-properties", "updates": changed}
    if removed:
        yield {"action": "remove-properties", "removals": removed}


def _snapshots(base: TableMetadata, new: TableMetadata) -> Iterable[Json]:
    before, after = base.snapshots_by_id, new.snapshots_by_id
    for snapshot in new.snapshots:  # in the order of their sequence numbers, which servers insist on
        if snapshot.snapshot_id not in before:
            yield {"action": "add-snapshot", "snapshot": snapshot_to_json(snapshot)}
    removed = sorted(before.keys() - after.keys())
    if removed:
        yield {"action": "remove-snapshots", "snapshot-ids": removed}


def _refs(base: TableMetadata, new: TableMetadata) -> Iterable[Json]:
    for name, ref in new.refs.items():
        if base.refs.get(name) != ref:
            yield {"action": "set-snapshot-ref", "ref-name": name, **ref_to_json(ref)}
    for name in base.refs:
        if name not in new.refs:
            yield {"action": "remove-snapshot-ref", "ref-name": name}


def _statistics(base: TableMetadata, new: TableMetadata) -> Iterable[Json]:
    for kind in ("statistics", "partition-statistics"):
        before, after = (
            {entry["snapshot-id"]: entry for entry in getattr(metadata, kind.replace("-", "_"))}
            for metadata in (base, new)
        )
        for snapshot_id, entry in after.items():
            if before.get(snapshot_id) != entry:
                yield {"action": f"set-{kind}", kind: entry, "snapshot-id": snapshot_id}
        for snapshot_id in before.keys() - after.keys():
            yield {"action": f"remove-{kind}", "snapshot-id": snapshot_id}
