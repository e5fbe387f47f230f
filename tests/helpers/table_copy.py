"""A table on its way into another one: what the tests of tables as sources under Spark share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamlake import IcebergSink, IcebergSource, create_table, load_table
from streamlake.errors import TableNotFoundError
from streamlake.tables import LoadedTable
from tests.helpers.batch_write import append
from tests.helpers.processes import wait_until

DDL = "id long, name string, at timestamp"
AVAILABLE_NOW = {"availableNow": True}
CONTINUOUSLY = {"processingTime": "0 seconds"}
RUN_SECONDS = 60
_SECOND = 1_000_000


class TableCopy:
    """A source table, a checkpoint and the copy below `home`; `run` streams what is there into the copy."""

    def __init__(self, home: Path, schema: Any = DDL, **created: Any) -> None:
        self.source_table: LoadedTable = create_table(str(home / "source"), schema, **created)
        self.checkpoint = str(home / "checkpoint")
        self.location = str(home / "copy")

    def append(self, ids: Iterable[int]) -> int:
        """One snapshot with one row for each of `ids`; returns its id."""
        numbers = list(ids)
        self.source_table.refresh()
        schema = self.source_table.schema
        columns: dict[str, Any] = {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([f"n{number}" for number in numbers]),
            "at": pa.array([number * _SECOND for number in numbers], pa.timestamp("us", tz="UTC")),
        }
        rows = pa.table({name: column for name, column in columns.items() if schema.find(name)})
        snapshot = append(self.source_table.table, rows)
        self.source_table.refresh()
        return snapshot.snapshot_id

    def source(self, **options: object) -> IcebergSource:
        """Options by their names with underscores; `filter` and `columns` are arguments of the source."""
        arguments: dict[str, Any] = {
            name: options.pop(name) for name in ("filter", "columns") if name in options
        }
        given = {
            "monitor-interval": "0 s",
            **{key.replace("_", "-"): value for key, value in options.items()},
        }
        return IcebergSource(self.source_table.location, options=given, **arguments)

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink(self.location, **{"create": True, **options})

    def start(
        self, trigger: dict[str, Any], sink: IcebergSink | None = None, **options: object
    ) -> tuple[Any, IcebergSink]:
        sink = sink or self.sink()
        query = sink.start(self.source(**options), checkpoint_location=self.checkpoint, trigger=trigger)
        return query, sink

    def run(self, sink: IcebergSink | None = None, **options: object) -> IcebergSink:
        """Everything that is there now. Fails when the query does not end by itself."""
        query, sink = self.start(AVAILABLE_NOW, sink, **options)
        try:
            assert query.awaitTermination(RUN_SECONDS), f"still running; last progress: {query.lastProgress}"
        finally:
            query.stop()
        return sink

    def ids(self) -> list[int]:
        """The ids in the copy, in order; none when there is no table yet."""
        try:
            return sorted(load_table(self.location).scan(columns=["id"]).to_arrow()["id"].to_pylist())
        except TableNotFoundError:
            return []

    def is_equal(self) -> bool:
        """Whether the copy has the rows of the source, in whatever order."""
        both = (self.source_table.refresh(), load_table(self.location))
        one, other = (sorted(table.scan().to_arrow().to_pylist(), key=lambda row: str(row)) for table in both)
        return one == other

    def wait_for_ids(self, ids: Iterable[int], query: Any, timeout_seconds: float = 30) -> None:
        """Until the running query has brought at least as many rows as `ids`, which must then be those."""
        expected = sorted(ids)

        def arrived() -> bool:
            if not query.isActive:
                query.awaitTermination(1)
                raise AssertionError("the query has ended")
            return len(self.ids()) >= len(expected)

        wait_until(arrived, timeout_seconds, f"{len(expected)} rows; there are {len(self.ids())}")
        assert self.ids() == expected
