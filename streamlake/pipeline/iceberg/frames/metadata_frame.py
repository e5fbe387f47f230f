"""Metadata tables as DataFrames: `option("metadata-table", "files")`. One task reads the manifests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from streamlake.errors import CommitError, SchemaMismatchError
from streamlake.pipeline.iceberg.frames.frame_options import FrameOptions
from streamlake.pipeline.iceberg.frames.table_frame import TYPES, TableFrame
from streamlake.pipeline.spark.admission_control import TABLE_FORMAT
from streamlake.read.column_selection import select_columns
from streamlake.read.metadata.metadata_arrow import MetadataTable
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO
from streamlake.table.table import Table


@dataclass(frozen=True)
class OneVersion:
    """Operations of a table that stays as it is, for a task; see TableOperations."""

    name: str
    location: str
    metadata_path: str
    io: FileIO
    metadata: TableMetadata

    def current(self) -> TableMetadata:
        """The one version."""
        return self.metadata

    def refresh(self) -> TableMetadata:
        """The one version."""
        return self.metadata

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        """Raises CommitError."""
        raise CommitError(f"{self.name}: this is one version of the table, which takes no commits")

    def commit_turn(self) -> AbstractContextManager[None]:
        """There are no commits to wait for."""
        return nullcontext()


@dataclass
class MetadataPartition(InputPartition):
    """What the task reads."""

    version: OneVersion


def metadata_frame(options: FrameOptions, table: Table) -> TableFrame:
    """The columns of a metadata table, as the table is now.

    Raises InvalidOptionError for a name, a snapshot or a column that there is not, FeatureUnsupportedError
    for a column of a type that Spark lacks.
    """
    found = _metadata_table(options, table)
    whole = found.schema
    stored = select_columns(whole, options.source.columns_for(whole)).output
    return TableFrame(stored, Schema(TYPES.fields(stored)), 0, None)


class MetadataReader(DataSourceReader):
    """Reads a metadata table of the version that the table has when an action begins.

    Raises SchemaMismatchError when its columns are not those of `load()` any more.
    """

    def __init__(self, options: FrameOptions, frame: TableFrame, table: Table) -> None:
        if metadata_frame(options, table).stored != frame.stored:
            raise SchemaMismatchError(
                f"{TABLE_FORMAT}: the columns or partition specs of table {table.name} have changed since "
                f"metadata-table={options.metadata_table} was loaded; load it again"
            )
        # The catalog's settings stay on the driver.
        self._options = replace(options, source=replace(options.source, catalog=None))
        self._rows = frame.rows
        self._version = OneVersion(
            table.name,
            table.location,
            str(getattr(table.operations, "metadata_path", table.location)),
            table.io,
            table.metadata,
        )

    def partitions(self) -> list[InputPartition]:
        """One partition."""
        return [MetadataPartition(self._version)]

    def read(self, partition: MetadataPartition) -> Iterator[pa.RecordBatch]:
        """The rows. Raises DataInvalidError, StorageError."""
        table = Table(partition.version.name, partition.version)
        found = _metadata_table(self._options, table).to_arrow()
        chosen = found.select([part.name for part in self._rows.stored.fields])
        return self._rows.limited(chosen.to_batches(), self._options.limit)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_version": None}


def _metadata_table(options: FrameOptions, table: Table) -> MetadataTable:
    settings = options.source.as_batch().settings
    assert options.metadata_table is not None
    ref = settings.tag or (settings.branch if settings.branch != MAIN_BRANCH else None)
    found = MetadataTable(
        options.metadata_table, table, settings.snapshot_id, ref, settings.as_of_timestamp_ms
    )
    table.snapshot_by(snapshot_id=found.snapshot_id, ref=found.ref, as_of_ms=found.as_of_ms)
    return found
