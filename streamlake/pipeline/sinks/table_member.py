"""One of the tables of a query: its sink, the topics that feed it, and how they are read."""

from __future__ import annotations

from streamlake.pipeline.runs.direct_tables import DirectTable
from streamlake.pipeline.sinks.sink import IcebergSink


class TableMember:
    """`name` is what the query calls the table."""

    def __init__(self, name: str, sink: IcebergSink, topics: tuple[str, ...], table: DirectTable) -> None:
        self.name = name
        self.sink = sink
        self.topics = topics
        self.table = table
