"""What Spark does with a Python data source, without Spark: pickled from process to process, as Spark pickles it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from streamlake.pipeline.iceberg.frames.iceberg_data_source import IcebergDataSource
from streamlake.tables import LoadedTable

_PICKLE = CloudPickleSerializer()


def sent(value: Any) -> Any:
    """The value as another process gets it."""
    return _PICKLE.loads(_PICKLE.dumps(value))


class Frame:
    """What `load()` makes of options; underscores in their names stand for hyphens."""

    def __init__(self, table: LoadedTable | str, options: Mapping[str, Any]) -> None:
        location = table if isinstance(table, str) else table.location
        named = {key.replace("_", "-"): str(value) for key, value in options.items()}
        made = IcebergDataSource(CaseInsensitiveDict({**named, "path": location}))
        self.schema = made.schema()
        self.source = sent(made)

    def rows(self, reader: Any, partitions: list[Any]) -> pa.Table:
        """The rows of partitions, each read by a task of its own; their types are checked as the JVM would."""
        wanted = to_arrow_schema(self.schema)
        found = []
        for partition in partitions:
            task = sent(reader)
            rows = records_to_arrow_batches(task.read(sent(partition)), 10_000, self.schema, self.source)
            for batch in rows:
                assert [each.type for each in batch.schema] == [each.type for each in wanted]
                found.append(pa.RecordBatch.from_arrays(batch.columns, schema=wanted))
        return pa.Table.from_batches(found, wanted)


class Batch(Frame):
    """`spark.read`."""

    def __init__(self, table: LoadedTable | str, **options: Any) -> None:
        super().__init__(table, options)
        self.partitions = 0
        self.left: list[Any] = []

    def collect(self, *filters: Any) -> pa.Table:
        """The rows of one action. `filters` are pushed down; those that Spark has to check are in `left`."""
        reader = sent(self.source).reader(self.schema)
        if filters:
            self.left = list(reader.pushFilters(list(filters)))
        task = sent(reader)
        partitions = reader.partitions()
        self.partitions = len(partitions)
        return self.rows(task, partitions or [None])

    def ids(self, *filters: Any) -> list[int]:
        """The ids of the rows, sorted."""
        return sorted(self.collect(*filters)["id"].to_pylist())


class Query(Frame):
    """`spark.readStream` before Spark 4.2: a checkpoint is all that outlives a restart."""

    def __init__(self, table: LoadedTable | str, **options: Any) -> None:
        self.log: list[str] = []
        self.done = 0
        self.batches: list[list[int]] = []
        self.load(table, **options)

    def load(self, table: LoadedTable | str, **options: Any) -> None:
        """A new driver with a new frame, on the same checkpoint."""
        super().__init__(table, {"monitor-interval": "0 ms", **options})
        self.restart()

    def restart(self) -> None:
        """A new driver with the same frame."""
        self.reader = sent(self.source).streamReader(self.schema)
        self.task = sent(sent(self.source).streamReader(self.schema))
        if self.log:
            last = json.loads(self.log[-1])
            assert self.reader.partitions(last, last) == []

    def trigger(self) -> list[int] | None:
        """The ids of one more micro-batch, or of the one that was not done; None when there is nothing new."""
        if self.done == len(self.log):
            text = json.dumps(self.latest())
            if text == (self.log[-1] if self.log else "{}"):
                return None
            self.log.append(text)
        return self.run()

    def latest(self) -> dict[str, Any]:
        return self.reader.latestOffset()

    def run(self) -> list[int]:
        """The ids of the last micro-batch of the log, which is done then."""
        found = self.collected()["id"].to_pylist()
        self.done = len(self.log)
        self.batches.append(found)
        return sorted(found)

    def collected(self) -> pa.Table:
        start = self.reader.initialOffset() if len(self.log) == 1 else json.loads(self.log[-2])
        return self.rows(self.task, self.reader.partitions(start, json.loads(self.log[-1])))
