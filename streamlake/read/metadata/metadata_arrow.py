"""One metadata table of one version of a table, as Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.options import unknown_option
from streamlake.read.metadata.metadata_schemas import metadata_schema
from streamlake.read.metadata.metadata_table_rows import METADATA_TABLES, OF_ONE_SNAPSHOT, metadata_rows
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table


@dataclass(frozen=True)
class MetadataTable:
    """A metadata table by its name, such as "files".

    `snapshot_id`, `ref` (branch or tag) or `as_of_ms` (epoch milliseconds) choose the snapshot of those that
    show one (manifests, partitions, files, data_files, delete_files, entries); without any it is the current
    one. Raises InvalidOptionError for a table or a snapshot that there is not.
    """

    name: str
    table: Table
    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None

    def __post_init__(self) -> None:
        if self.name not in METADATA_TABLES:
            raise unknown_option(self.name, METADATA_TABLES, "metadata table")
        chosen = (self.snapshot_id, self.ref, self.as_of_ms)
        if self.name not in OF_ONE_SNAPSHOT and any(each is not None for each in chosen):
            raise InvalidOptionError(
                f"metadata table {self.name} is not of one snapshot; leave out which one, or choose one of "
                f"{', '.join(OF_ONE_SNAPSHOT)}"
            )

    @property
    def schema(self) -> Schema:
        """The columns. Raises FeatureUnsupportedError for a partition transform that is not known."""
        return metadata_schema(self.name, self.table.metadata)

    def to_arrow(self) -> pa.Table:
        """The rows. Raises StorageError, DataInvalidError for metadata files that cannot be read."""
        snapshot = self.table.snapshot_by(snapshot_id=self.snapshot_id, ref=self.ref, as_of_ms=self.as_of_ms)
        rows = metadata_rows(self.name, self.table, snapshot)
        return pa.Table.from_pylist(rows, schema=schema_to_arrow(self.schema, field_ids=False))
