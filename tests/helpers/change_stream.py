"""A folder of changes that a file stream reads, the table that they are upserted into, and what it must then hold."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from streamlake import IcebergSink, load_table
from streamlake.catalog.open import open_table
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from tests.helpers.flink_tables import values_table
from tests.helpers.invariants import check_table, live_entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]
REMOVES = ("-U", "-D")


class ChangeStream:
    """Changes of rows with `columns` (a DDL), told apart by `key`, as files that a query reads one by one.

    `land` takes rows whose first value is the row kind (+I, -U, +U, -D), in the column `op`; the model follows with
    what they make of the table when they come one after the other.
    """

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        columns: str = "id bigint, part string, v string",
        key: Sequence[str] = ("id",),
    ) -> None:
        self.spark = spark
        self.columns = columns
        self.key = tuple(key)
        self.schema = parse_ddl(f"op string, {columns}")
        self.names = [part.name for part in parse_ddl(columns).fields]
        self.folder = home / "changes"
        self.folder.mkdir()
        self.checkpoint = str(home / "checkpoint")
        self.location = home / "table"
        self.model: dict[Row, Row] = {}
        self.files = 0
        self._started = time.time() - 3_600

    def land(self, changes: Iterable[Row], model: bool = True) -> None:
        """Put one more file into the folder. Without `model` the test keeps the model itself."""
        changes = list(changes)
        names = ["op", *self.names]
        rows = values_table(self.schema, (dict(zip(names, row, strict=True)) for row in changes))
        path = self.folder / f"{self.files:04d}.parquet"
        pq.write_table(rows, path.with_suffix(".tmp"))
        # A query takes files in the order of their times.
        os.utime(path.with_suffix(".tmp"), times=(0, self._started + self.files))
        path.with_suffix(".tmp").rename(path)
        self.files += 1
        if model:
            self.apply(changes)

    def apply(self, changes: Iterable[Row]) -> None:
        """What the changes make of the model, one after the other."""
        at = [self.names.index(name) for name in self.key]
        for kind, *values in changes:
            key = tuple(values[place] for place in at)
            if kind in REMOVES:
                self.model.pop(key, None)
            else:
                self.model[key] = tuple(values)

    def frame(self, files: int = 1, kinds: bool = True) -> DataFrame:
        """The stream, `files` files a checkpoint; without `kinds` it has no column `op`."""
        reader = self.spark.readStream.schema(f"op string, {self.columns}").option(
            "maxFilesPerTrigger", files
        )
        frame = reader.option("pathGlobFilter", "*.parquet").parquet(str(self.folder))
        return frame if kinds else frame.drop("op")

    def sink(self, **options: Any) -> IcebergSink:
        """A sink that upserts by the key and reads row kinds from `op`, and makes the table."""
        given = {"mode": "upsert", "create": True, "key": self.key, "row_kind": "op", **options}
        return IcebergSink(str(self.location), **given)

    def run(self, sink: IcebergSink | None = None, frame: DataFrame | None = None) -> IcebergSink:
        """Everything that has landed and is not in the table yet."""
        sink = sink or self.sink()
        query = sink.start(
            self.frame() if frame is None else frame,
            checkpoint_location=self.checkpoint,
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        return sink

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return open_table(str(self.location))

    def rows(self, ref: str | None = None) -> list[Row]:
        """The table's rows, ordered by the key."""
        return self._ordered(load_table(str(self.location)).scan(columns=self.names, ref=ref).to_arrow())

    def check(self) -> None:
        """The table is the model, and its metadata are in order."""
        assert self.rows() == self.expected()
        check_table(self.table, files_exist=True)

    def expected(self) -> list[Row]:
        """The model's rows, ordered by the key."""
        return sorted(self.model.values(), key=self._sortable)

    def deletes(self) -> list[DataFile]:
        """The live delete files and deletion vectors."""
        return [entry.data_file for entry in live_entries(self.table) if not entry.data_file.is_data]

    def _ordered(self, table: Any) -> list[Row]:
        columns = [table.column(name).to_pylist() for name in self.names]
        return sorted(zip(*columns, strict=True), key=self._sortable)

    def _sortable(self, row: Row) -> list[tuple[bool, Any]]:
        values = [row[self.names.index(name)] for name in self.key]
        return [(value is not None, value if value is not None else 0) for value in values]
