"""A table as a DataFrame: its schema, fixed when it is loaded, and how rows come into it.

Place in the flow: Spark makes a data source per `load()`, asks it for the schema, and keeps it; readers are
made from it later, and again for each action. What `load()` has found stays as it was then.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import StructType as SparkStruct

from streamlake.catalog.open import open_table
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.pipeline.iceberg.batch_plan import BatchPoint, batch_point
from streamlake.pipeline.iceberg.frames.frame_options import FrameOptions
from streamlake.pipeline.iceberg.frames.frame_rows import FrameRows
from streamlake.pipeline.iceberg.source_table import SourceTable, has_row_ids_now
from streamlake.pipeline.spark.admission_control import TABLE_FORMAT
from streamlake.pipeline.spark.spark_types import FrameTypes, frame_schema
from streamlake.read.column_selection import select_columns
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.spec.expressions.binding import bind
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table

TYPES = FrameTypes(
    TABLE_FORMAT,
    "leave it out by naming the other ones in the option columns, or read it with load_table(...).scan()",
    fixed_as_binary=True,
)


@dataclass(frozen=True)
class TableFrame:
    """What `load()` has found: the schema that rows are read with, and for batches which rows these are.

    `point` None: this can only be a stream. `has_row_ids`: changes have row ids.
    """

    stored: Schema
    shown: Schema
    schema_id: int
    point: BatchPoint | None
    has_row_ids: bool = False

    @property
    def spark_schema(self) -> SparkStruct:
        """The schema of the DataFrame."""
        return frame_schema(self.shown, prefer_timestamp_ntz=True)

    @property
    def rows(self) -> FrameRows:
        """What makes rows of the DataFrame."""
        return FrameRows(self.stored, schema_to_arrow(self.shown, field_ids=False))

    def check(self, given: SparkStruct) -> None:
        """Raises InvalidOptionError when Spark planned with other columns, those of `.schema(...)`."""
        found = self.spark_schema
        columns = [[(each.name, each.dataType) for each in schema.fields] for schema in (given, found)]
        if columns[0] != columns[1]:
            raise InvalidOptionError(
                f"{TABLE_FORMAT}: the schema that was given is not that of the table, "
                f"{found.simpleString()}; leave .schema(...) out, and choose columns by the option columns"
            )


def source_table(options: FrameOptions) -> Table:
    """The table that the options name. Raises TableNotFoundError, DataInvalidError, StorageError."""
    source = options.source
    return open_table(str(source.location), source.catalog)


def table_frame(options: FrameOptions, table: Table) -> TableFrame:
    """The frame of the table as it was last read.

    Raises InvalidOptionError for what the table does not have, FeatureUnsupportedError for a column of a type
    that Spark lacks.
    """
    source = options.source
    point = _point(table, source)
    schema = table.schema if point is None else table.metadata.schema_by_id(point.schema_id)
    bind(source.filter_for(schema), schema)
    stored = select_columns(schema, source.columns_for(schema)).output
    if source.settings.read_mode == "changes":
        read = SourceTable(table, source)
        stored = read.rows(read.planning(schema.schema_id))
    shown = Schema(TYPES.fields(stored))
    return TableFrame(stored, shown, schema.schema_id, point, has_row_ids_now(table))


def _point(table: Table, source: IcebergSource) -> BatchPoint | None:
    """Which rows a batch would read; None where only the reader can tell.

    Spark does not say yet whether it is a batch, and a stream may begin where a batch may not.
    """
    if not _may_be_batch(source):
        return None
    try:
        return batch_point(table, source)
    except (InvalidOptionError, FeatureUnsupportedError):
        settings = source.settings
        if settings.has_start or settings.has_end or settings.read_mode == "changes":
            return None
        raise


def _may_be_batch(source: IcebergSource) -> bool:
    try:
        source.as_batch()
    except InvalidOptionError:
        return False
    return True
