"""Small tables for tests of metadata: data files that exist by name only, and a catalog that can be made to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from streamlake.catalog.open import create
from streamlake.formats.manifests.manifests import write_manifest
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, parse_partition_by
from streamlake.spec.types.data_types import IcebergType
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.values import to_bytes
from streamlake.table.operations import TableOperations
from streamlake.table.table import Table

FAST_RETRIES = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "5"}
FAST_CHECKS = {"commit.status-check.min-wait-ms": "1", "commit.status-check.max-wait-ms": "2"}
ALL_MAY_EXPIRE = {"history.expire.min-snapshots-to-keep": "1"}
"""Tables that we create keep their newest 100 snapshots, more than most tests make."""
_names = count()


def make_table(
    location: Path,
    ddl: str = "id long, category string",
    partition_by: tuple[str, ...] = (),
    format_version: int = 2,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """A new table whose commits retry without long waits."""
    schema = parse_ddl(ddl)
    spec = parse_partition_by(list(partition_by), schema) if partition_by else UNPARTITIONED
    given = {**FAST_RETRIES, **FAST_CHECKS, **ALL_MAY_EXPIRE, **(properties or {})}
    return create(str(location), schema, spec, format_version=format_version, properties=given)


def data_file(
    table: Table,
    *partition: Any,
    records: int = 10,
    size: int = 1000,
    name: str | None = None,
    bounds: Mapping[str, tuple[Any, Any]] | None = None,
) -> DataFile:
    """A data file of the table's current spec that no test reads; `bounds` are of columns without nulls."""
    fields = {column: table.schema.find(column) for column in bounds or {}}
    types: dict[int, tuple[IcebergType, tuple[Any, Any]]] = {
        field.field_id: (field.type, (bounds or {})[column]) for column, field in fields.items() if field
    }
    return DataFile(
        content=FileContent.DATA,
        file_path=f"{table.location}/data/{name or f'file-{next(_names)}'}.parquet",
        file_format="parquet",
        spec_id=table.spec.spec_id,
        partition=tuple(partition),
        record_count=records,
        file_size_in_bytes=size,
        value_counts=dict.fromkeys(types, records),
        null_value_counts=dict.fromkeys(types, 0),
        lower_bounds={key: to_bytes(type_, pair[0]) for key, (type_, pair) in types.items()},
        upper_bounds={key: to_bytes(type_, pair[1]) for key, (type_, pair) in types.items()},
    )


def delete_file(
    table: Table,
    target: DataFile,
    name: str = "d",
    *,
    dv: bool | None = None,
    records: int = 2,
    offset: int = 4,
) -> DataFile:
    """Deletes of some rows of one data file, as the table's format version has them: a file by name only."""
    vector = table.format_version >= 3 if dv is None else dv
    return replace(
        data_file(table, *target.partition, records=records, size=20, name=name),
        content=FileContent.POSITION_DELETES,
        file_format="puffin" if vector else "parquet",
        spec_id=target.spec_id,
        referenced_data_file=target.file_path,
        content_offset=offset if vector else None,
        content_size_in_bytes=16 if vector else None,
    )


def stage(table: Table, *files: DataFile, uuid: str = "staged") -> ManifestFile:
    """A staged delta manifest of files of one content, as a checkpoint writes it."""
    entries = [ManifestEntry(EntryStatus.ADDED, None, None, None, file) for file in files]
    content = ManifestContent.DATA if all(file.is_data for file in files) else ManifestContent.DELETES
    path = table.locations.manifest(uuid, 0)
    return write_manifest(
        table.io, path, entries, table.spec, table.schema, table.format_version, content, None
    )


class FaultyOperations:
    """A table's operations with a hook before and after the swap; either may raise."""

    def __init__(
        self,
        wrapped: TableOperations,
        before_swap: Callable[[], None] | None = None,
        after_swap: Callable[[], None] | None = None,
    ) -> None:
        self.wrapped = wrapped
        self.before_swap = before_swap
        self.after_swap = after_swap
        self.attempts = 0
        self.name = wrapped.name
        self.location = wrapped.location
        self.io = wrapped.io

    def current(self) -> TableMetadata:
        return self.wrapped.current()

    def refresh(self) -> TableMetadata:
        return self.wrapped.refresh()

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        self.attempts += 1
        if self.before_swap is not None:
            self.before_swap()
        committed = self.wrapped.commit(base, new)
        if self.after_swap is not None:
            self.after_swap()
        return committed

    @contextmanager
    def commit_turn(self) -> Iterator[None]:
        yield


def metadata_files(table: Table) -> set[str]:
    """Names in the metadata directory."""
    return {path.name for path in Path(table.location, "metadata").iterdir() if path.is_file()}
