"""A table's entry in a Hive metastore: what Iceberg's Java library sets with a commit, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from streamlake import clock
from streamlake.catalog.metastores.pointers import Change
from streamlake.catalog.metastores.type_names import hive_type
from streamlake.options import bool_property
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import spec_to_json
from streamlake.spec.partitioning.sort_order import sort_order_to_json
from streamlake.spec.types.type_json import schema_to_json

OWNER = "hive.metastore.table.owner"
_HIVE_NAMES = {"gc.enabled": "external.table.purge"}
_STATISTICS = {
    "numFiles": "total-data-files",
    "numRows": "total-records",
    "totalSize": "total-files-size",
}
_DERIVED = (
    "current-schema",
    "current-snapshot-id",
    "current-snapshot-timestamp-ms",
    "current-snapshot-summary",
    "default-partition-spec",
    "default-sort-order",
)
_NO_STATISTICS = "DO_NOT_UPDATE_STATS"
_LARGEST = 32_672
_HANDLER = "org.apache.iceberg.mr.hive.HiveIceberg"
_PLAIN_FORMATS = (
    "org.apache.hadoop.mapred.FileInputFormat",
    "org.apache.hadoop.mapred.FileOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
)
_HIVE_FORMATS = (f"{_HANDLER}InputFormat", f"{_HANDLER}OutputFormat", f"{_HANDLER}SerDe")


def new_entry(database: str, name: str, owner: str) -> Any:
    """The entry of a new table, before `update_entry`."""
    now = clock.now_ms() // 1000
    return _types().Table(
        tableName=name,
        dbName=database,
        owner=owner,
        createTime=now,
        lastAccessTime=now,
        retention=2**31 - 1,
        partitionKeys=[],
        parameters={"EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE",
    )


def update_entry(entry: Any, change: Change, properties: Mapping[str, Any]) -> None:
    """Make the entry that of `change`; `properties` are the catalog's."""
    metadata = change.metadata
    by_hive = bool_property(
        metadata.properties,
        "engine.hive.enabled",
        bool_property(properties, "iceberg.engine.hive.enabled", False),
    )
    largest = int(properties.get("iceberg.hive.table-property-max-size", _LARGEST))
    parameters = dict(entry.parameters or {})
    removed = set() if change.base is None else change.base.properties.keys() - metadata.properties.keys()
    for key in (*removed, *_DERIVED):
        parameters.pop(key, None)
    parameters |= {
        _HIVE_NAMES.get(key, key): value for key, value in metadata.properties.items() if key.lower() != OWNER
    }
    parameters |= {
        "table_type": "ICEBERG",
        "metadata_location": change.metadata_location,
        "uuid": metadata.table_uuid,
        "snapshot-count": str(len(metadata.snapshots)),
        **_derived(metadata, largest),
    }
    if change.pointer is not None:
        parameters["previous_metadata_location"] = change.pointer.metadata_location
    parameters.pop("storage_handler", None)
    if by_hive:
        parameters["storage_handler"] = f"{_HANDLER}StorageHandler"
    if not bool_property(properties, "iceberg.hive.keep.stats", False):
        parameters.pop("COLUMN_STATS_ACCURATE", None)
        parameters[_NO_STATISTICS] = "true"
    entry.parameters = parameters
    entry.sd = _storage(
        metadata,
        _HIVE_FORMATS if by_hive else _PLAIN_FORMATS,
        local_time=not bool_property(properties, "hive.hive2-compatible", False),
    )


def environment(expected: str | None) -> Any:
    """What goes with an alteration: no statistics, and the path that the metastore is to compare, if any."""
    values = {_NO_STATISTICS: "true"}
    if expected is not None:
        values |= {"expected_parameter_key": "metadata_location", "expected_parameter_value": expected}
    return _types().EnvironmentContext(properties=values)


def _derived(metadata: TableMetadata, largest: int) -> dict[str, str]:
    """What is shown of the metadata, as far as the metastore takes it; readers use the metadata file."""
    snapshot = metadata.current_snapshot
    summary = {} if snapshot is None else {k: v for k, v in snapshot.summary.items() if k != "operation"}
    statistics = {key: summary[name] for key, name in _STATISTICS.items() if name in summary}
    if largest <= 0:
        return statistics
    texts = {"current-schema": _json(schema_to_json(metadata.schema))}
    if snapshot is not None:
        texts["current-snapshot-id"] = str(snapshot.snapshot_id)
        texts["current-snapshot-timestamp-ms"] = str(snapshot.timestamp_ms)
        texts["current-snapshot-summary"] = _json(summary)
    if metadata.spec.fields:
        texts["default-partition-spec"] = _json(spec_to_json(metadata.spec))
    if not metadata.sort_order.is_unsorted:
        texts["default-sort-order"] = _json(sort_order_to_json(metadata.sort_order))
    return {**statistics, **{key: text for key, text in texts.items() if len(text) <= largest}}


def _storage(metadata: TableMetadata, formats: tuple[str, str, str], *, local_time: bool) -> Any:
    types = _types()
    columns = [
        types.FieldSchema(part.name, hive_type(part.type, local_time=local_time), part.doc)
        for part in metadata.schema.fields
    ]
    return types.StorageDescriptor(
        cols=columns,
        location=metadata.location,
        inputFormat=formats[0],
        outputFormat=formats[1],
        serdeInfo=types.SerDeInfo(serializationLib=formats[2], parameters={}),
    )


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _types() -> Any:
    return import_module("hive_metastore.ttypes")
