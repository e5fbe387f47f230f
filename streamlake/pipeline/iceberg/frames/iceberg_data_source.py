r"""The format "streamlake": an Iceberg table as a DataFrame, in a batch or as a stream.

    df = spark.readStream.format("streamlake").option("starting-strategy", "table-scan-then-incremental") \
        .load("/lake/orders")
    df = spark.read.format("streamlake").option("tag", "eod").option("catalog.uri", "...").load("db.orders")

Options are those of IcebergSource, and `catalog`, `catalog.*`, `columns`, `filter`, `limit` and
`metadata-table`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType as SparkStruct

from streamlake.pipeline.iceberg.frames.frame_batch import TableBatchReader
from streamlake.pipeline.iceberg.frames.frame_options import FrameOptions, frame_options
from streamlake.pipeline.iceberg.frames.frame_stream import TableStreamReader
from streamlake.pipeline.iceberg.frames.metadata_frame import MetadataReader, metadata_frame
from streamlake.pipeline.iceberg.frames.table_frame import TableFrame, source_table, table_frame
from streamlake.pipeline.spark.admission_control import TABLE_FORMAT
from streamlake.table.table import Table


def register(spark: SparkSession) -> None:
    """Register the format "streamlake" with the session; registering it again is harmless.

    Only needed where streamlake is not installed as a package (see `iceberg_lookup`).
    """
    spark.dataSource.register(IcebergDataSource)


class IcebergDataSource(DataSource):
    """The data source that Spark finds itself, or that `register` adds, made from the options of `load()`.

    Spark keeps the one that it has asked for the schema, and makes all readers from it.
    """

    _frame: TableFrame | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return TABLE_FORMAT

    def schema(self) -> SparkStruct:
        """The columns. Raises FeatureUnsupportedError for a type that Spark lacks."""
        options = frame_options(self.options)
        self._frame = _frame(options, source_table(options))
        return self._frame.spark_schema

    def reader(self, schema: SparkStruct) -> DataSourceReader:
        """The reader of a batch. Raises InvalidOptionError for options of streams."""
        options, frame, table = self._opened(schema)
        if options.metadata_table is not None:
            return MetadataReader(options, frame, table)
        return TableBatchReader(options, frame, table)

    def streamReader(self, schema: SparkStruct) -> TableStreamReader:  # noqa: N802
        """The reader of a stream. Raises InvalidOptionError for options of batches."""
        return TableStreamReader(*self._opened(schema))

    def _opened(self, schema: SparkStruct) -> tuple[FrameOptions, TableFrame, Table]:
        options = frame_options(self.options)
        table = source_table(options)
        if self._frame is None:
            self._frame = _frame(options, table)
        self._frame.check(schema)
        return options, self._frame, table


def _frame(options: FrameOptions, table: Table) -> TableFrame:
    return table_frame(options, table) if options.metadata_table is None else metadata_frame(options, table)
