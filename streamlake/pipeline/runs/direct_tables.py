"""One micro-batch of the direct path, written into all of its tables, each through its own sink.

Place in the flow: Spark calls this per micro-batch of a KafkaSource, with the tables that the source feeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import StreamlakeError
from streamlake.pipeline.kafka.direct_offsets import DirectOffsets
from streamlake.pipeline.runs.micro_batch import run_micro_batches
from streamlake.pipeline.runs.parallel import Ending, in_parallel
from streamlake.pipeline.runs.routed.row_families import FamilyWrite, RowPart
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.table_writes import TableWrite, write_tables
from streamlake.pipeline.runs.turns import turn
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.types.schema import Schema
from streamlake.tasks.direct_reader import range_reader


class OpenedTable(Protocol):
    """The part of a sink's table that the direct path needs."""

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns; empty: those of the table."""
        ...

    def opened(
        self, frame: DataFrame, identity: CheckpointIdentity, schema: Schema
    ) -> tuple[SinkRun, CheckpointIdentity]:
        """The table's run, opened by the first micro-batch, and the checkpoint's identity in the table."""
        ...


class DirectTable:
    """A table and the records that become its rows: those of `topics`, or all that no other table takes
    (None). With a `part` it takes the records of its routed topics that name it.

    Raises InvalidOptionError (also for an option of the decoder) and FeatureUnsupportedError.
    """

    def __init__(
        self,
        stream: OpenedTable,
        source: KafkaSource,
        topics: tuple[str, ...] | None = None,
        part: RowPart | None = None,
    ) -> None:
        self.stream = stream
        self.topics = topics
        self.part = part
        self.schema = source.table_schema
        self.reader = range_reader(source, stream.key)


def write_direct(
    tables: Sequence[DirectTable],
    frame: DataFrame,
    identity: CheckpointIdentity,
    offsets: DirectOffsets,
    missed: Sequence[OffsetRange] = (),
    families: Sequence[FamilyWrite] = (),
) -> list[Ending]:
    """Write the records of a checkpoint into the tables, after those of `missed`; one ending per table.

    `frame` is the micro-batch as Spark gives it, `identity` does not have the pipeline's name yet. Kafka is
    asked for ranges only where something is to be written: a replay of what the tables have needs nothing
    from it, unless rows may belong to tables that are not discovered yet (`families`, see `write_tables`).

    Raises what ends the micro-batch for all tables.
    """
    opened = in_parallel(tables, lambda each: each.stream.opened(frame, identity, each.schema))
    endings: list[Ending] = [each if isinstance(each, StreamlakeError) else None for each in opened]
    writes = {
        at: TableWrite(*each, tables[at].reader, tables[at].topics, tables[at].part)
        for at, each in enumerate(opened)
        if not isinstance(each, StreamlakeError)
    }
    with ExitStack() as turns:
        for each in writes.values():
            turns.enter_context(turn(each.run, each.identity, frame))
        found = run_micro_batches(
            list(writes.values()),
            lambda due: write_tables(offsets.frame(frame.sparkSession, identity, missed), due, families),
            seeks_tables=bool(families),
        )
    for at, ending in zip(writes, found, strict=True):
        endings[at] = ending
    return endings
