"""The table that a stream reads, asked for news at most once per monitor interval.

Invariant: between two refreshes everything is planned from one version of the table's metadata.
"""

from __future__ import annotations

from streamlake import clock
from streamlake.errors import InvalidOptionError
from streamlake.options import int_property
from streamlake.pipeline.iceberg.lineage_path import Lineage
from streamlake.pipeline.iceberg.source_columns import rows_schema, with_types_of
from streamlake.pipeline.iceberg.starting_position import Bounds
from streamlake.read.changes.change_columns import ChangeColumns
from streamlake.read.changes.change_split_scan import ChangeSplitScan
from streamlake.read.column_selection import select_columns
from streamlake.read.splits.split_protocols import TaskScan
from streamlake.read.splits.split_scan import SplitScan
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import Pairing, SplitPlanning
from streamlake.spec.expressions.binding import bind, unknown_column
from streamlake.spec.expressions.expressions import Expression
from streamlake.spec.types.data_types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
)
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table

_ORDERED = (
    DateType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
    TimestampNsType,
    TimestamptzNsType,
)
_DEFAULTS = {
    "read.split.target-size": 128 * 1024 * 1024,
    "read.split.planning-lookback": 10,
    "read.split.open-file-cost": 4 * 1024 * 1024,
}


def has_row_ids_now(table: Table) -> bool:
    """Whether the table, as it was last read, has row ids (spec: Row Lineage)."""
    return table.metadata.format_version >= 3


class SourceTable:
    """One table as one stream reads it. Not thread-safe.

    `has_row_ids`: whether changes have row ids (None: where the table has them now). All micro-batches of a
    run have the same columns, also when the table gets row ids meanwhile.
    """

    def __init__(self, table: Table, source: IcebergSource, *, has_row_ids: bool | None = None) -> None:
        self.table = table
        self.source = source
        self._asked_at: float | None = None
        self._has_row_ids = has_row_ids_now(table) if has_row_ids is None else has_row_ids

    @property
    def bounds(self) -> Bounds:
        """Where the stream begins and ends, as the table is now."""
        table = self.table
        return Bounds(table.name, table.location, table.metadata, self.source.settings)

    @property
    def lineage(self) -> Lineage:
        """The history of the branch."""
        return Lineage(self.table.name, self.source.settings.branch, self.table.metadata)

    def refresh(self) -> None:
        """Read the newest version of the table, unless that was done less than a monitor interval ago.

        Raises TableNotFoundError when the table was dropped, StorageError when it cannot be read.
        """
        interval = self.source.settings.monitor_interval_seconds
        if self._asked_at is None or clock.monotonic() - self._asked_at >= interval:
            self.table.refresh()
            self._asked_at = clock.monotonic()

    def refresh_for(self, snapshot_id: int | None) -> None:
        """Read the newest version of the table if the one at hand lacks a snapshot."""
        if snapshot_id is not None and self.table.metadata.snapshot(snapshot_id) is None:
            self.table.refresh()
            self._asked_at = clock.monotonic()

    def planning(self, schema_id: int | None = None) -> SplitPlanning:
        """What planning depends on from now on. `schema_id` None: the table's current schema.

        Raises InvalidOptionError when the options do not fit the table.
        """
        settings, metadata = self.source.settings, self.table.metadata
        schema = metadata.schema if schema_id is None else metadata.schema_by_id(schema_id)
        column = (
            None if settings.watermark_column is None else self._ordering(schema, settings.watermark_column)
        )
        return SplitPlanning(
            filter_digest=self.source.filter_digest,
            schema_id=schema.schema_id,
            split_size=settings.split_size or self._size("read.split.target-size", least=1),
            split_lookback=settings.split_lookback or self._size("read.split.planning-lookback", least=1),
            split_file_open_cost=(
                self._size("read.split.open-file-cost", least=0)
                if settings.split_file_open_cost is None
                else settings.split_file_open_cost
            ),
            order_by=None if column is None else column.field_id,
            read_mode=settings.read_mode,
            pairing=self._pairing(schema) if settings.read_mode == "changes" else Pairing(),
        )

    def ask_at_once(self) -> None:
        """Let the next `refresh` ask the table, however short ago that was done. For any thread."""
        self._asked_at = None

    def schema(self, planning: SplitPlanning) -> Schema:
        """The schema that a micro-batch is read with: its columns, with the types that they have by now."""
        metadata = self.table.metadata
        schema = metadata.schema_by_id(planning.schema_id)
        return (
            schema
            if schema.schema_id == metadata.schema.schema_id
            else with_types_of(schema, metadata.schema)
        )

    def selected(self, planning: SplitPlanning) -> Schema:
        """The columns of a micro-batch. Raises InvalidOptionError for a column that there is not."""
        schema = self.schema(planning)
        return select_columns(schema, self.source.columns_for(schema)).output

    def rows(self, planning: SplitPlanning) -> Schema:
        """The columns of a micro-batch, with those that its rows have beside the table's own."""
        rows = self.split_scan(planning).arrow_schema
        return rows_schema(self.schema(planning), self.selected(planning), rows)

    def filter(self, planning: SplitPlanning) -> Expression:
        """The filter, bound to the schema of a micro-batch. Raises InvalidOptionError where it does not
        fit.
        """
        schema = self.schema(planning)
        return bind(self.source.filter_for(schema), schema)

    def split_scan(self, planning: SplitPlanning) -> TaskScan:
        """What reads the splits of a micro-batch. Raises InvalidOptionError for a column that there is
        not.
        """
        metadata, io, schema = self.table.metadata, self.table.io, self.schema(planning)
        if planning.read_mode == "changes":
            return ChangeSplitScan.of_table(metadata, io, schema, self.change_columns(planning))
        return SplitScan.of_table(metadata, io, schema, self.source.columns_for(schema))

    def change_columns(self, planning: SplitPlanning) -> ChangeColumns:
        """The columns of a micro-batch of changes.

        Raises InvalidOptionError for a column that there is not, or that cannot be a key.
        """
        schema, pairing = self.schema(planning), planning.pairing
        if any(part not in schema.names_by_id for part in pairing.key_ids):
            raise InvalidOptionError(
                f"table {self.table.name}: a column that identified rows when the micro-batch was planned is "
                "not among those that it is read with now; read it with the columns of then, or start with a "
                "new checkpoint directory"
            )
        return ChangeColumns.of(
            schema,
            self.source.columns_for(schema),
            [schema.names_by_id[part] for part in pairing.key_ids],
            has_row_ids=pairing.has_row_ids,
            has_updates=pairing.has_updates,
        )

    def ordering(self, planning: SplitPlanning) -> NestedField | None:
        """The column that files are ordered by."""
        if planning.order_by is None:
            return None
        # The column may have been dropped since a snapshot was begun with it.
        newest_first = sorted(self.table.metadata.schemas, key=lambda each: -each.schema_id)
        found = (schema.field(planning.order_by) for schema in newest_first)
        return next((field for field in found if field is not None), None)

    def _pairing(self, schema: Schema) -> Pairing:
        settings = self.source.settings
        key_ids = schema.identifier_field_ids
        if settings.identifier_columns is not None:
            key_ids = tuple(self._key(schema, name) for name in settings.identifier_columns)
        return Pairing(key_ids, self._has_row_ids, settings.computes_updates, settings.net_changes)

    def _key(self, schema: Schema, name: str) -> int:
        found = schema.find(self.source.name_in(schema, name))
        if found is None:
            raise unknown_column("identifier-columns", name, schema)
        return found.field_id

    def _ordering(self, schema: Schema, name: str) -> NestedField:
        found = schema.find(self.source.name_in(schema, name))
        if found is None:
            raise unknown_column("watermark-column", name, schema)
        if not isinstance(found.type, _ORDERED) or schema.parents.get(found.field_id) is not None:
            raise InvalidOptionError(
                f"watermark-column {name!r} of table {self.table.name} is {found.type}; files are ordered "
                f"by a "
                "top-level column that is a date, a timestamp, an int or a long"
            )
        return found

    def _size(self, key: str, *, least: int) -> int:
        return int_property(self.table.properties, key, _DEFAULTS[key], minimum=least)
