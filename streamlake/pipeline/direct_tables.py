"""One micro-batch of the direct path into its tables, each through its own sink.

Place in the flow: what Spark calls per micro-batch of a KafkaSource comes here with the tables that the source feeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import StreamlakeError
from streamlake.pipeline.direct_offsets import DirectOffsets
from streamlake.pipeline.direct_reader import range_reader
from streamlake.pipeline.micro_batch import run_micro_batches
from streamlake.pipeline.parallel import Ending, in_parallel
from streamlake.pipeline.row_families import FamilyWrite, RowPart
from streamlake.pipeline.sink_run import SinkRun
from streamlake.pipeline.table_writes import TableWrite, write_tables
from streamlake.pipeline.turns import turn
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.spec.schema import Schema


class TableSink(Protocol):
    """What a table's sink does for the direct path."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell rows apart; none: the table's own."""
        ...

    def opened(
        self, frame: DataFrame, identity: CheckpointIdentity, schema: Schema
    ) -> tuple[SinkRun, CheckpointIdentity]:
        """The table's run, opened where this is the first micro-batch, and the checkpoint's identity in the table."""
        ...


class DirectTable:
    """A table and the records that become its rows: those of `topics`, or all that no other table takes (None). With a `part`
    it takes of a family's records those that are its own.

    Raises InvalidOptionError (also for an option of the decoder), FeatureUnsupportedError.
    """

    def __init__(
        self,
        sink: TableSink,
        source: KafkaSource,
        topics: tuple[str, ...] | None = None,
        part: RowPart | None = None,
    ) -> None:
        self.sink = sink
        self.topics = topics
        self.part = part
        self.schema = source.table_schema
        self.reader = range_reader(source, sink.key)


def write_direct(
    tables: Sequence[DirectTable],
    frame: DataFrame,
    identity: CheckpointIdentity,
    offsets: DirectOffsets,
    missed: Sequence[OffsetRange] = (),
    families: Sequence[FamilyWrite] = (),
) -> list[Ending]:
    """Bring the records of a checkpoint into the tables, after those of `missed`; how that ended for each of them.

    `frame` is the micro-batch as Spark gives it, `identity` still without the pipeline's name. Kafka is asked for ranges
    only where something is to be written: a replay of what the tables have needs nothing of it, unless rows may be of tables
    that nobody knows yet (`families`, see write_tables).

    Raises what ends the micro-batch for all.
    """
    opened = in_parallel(tables, lambda each: each.sink.opened(frame, identity, each.schema))
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
