"""The way out where the checkpoint directory of a query of many tables is lost, one or several topics each.

Each table goes on where its own last commit ends: no other table takes records of its topics, so the union
of these offsets is where the query goes on. Tables that rows name share topics, and have no such offsets.

    offsets    of each table's topics, from its own last commit
    no table   a topic whose records have not made a table yet is read from its first record
    directory  written as if one checkpoint had read everything up to there, and bound to the template
    adopt      each table takes it as its continuation

It runs without Spark. Invariants: those of `resuming`; the new directory is bound to the template before a
table is bound to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamlake.checkpoint.new_directory import require_new, write_directory
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.commit.lineage import Way
from streamlake.errors import InvalidOptionError
from streamlake.operate.recover.recovery_plan import Plan, Step
from streamlake.operate.recover.resuming import (
    TOPICS_CREATED_AGAIN,
    WITHOUT_NAME,
    ResumedTable,
    shown_offsets,
)
from streamlake.pipeline.sinks.bound_tables import BoundTables, bind_tables
from streamlake.source.offsets import Partition, SourceOffsets
from streamlake.storage.file_io import FileIO
from streamlake.wording import counted


def resuming_tables(
    tables: Mapping[str, ResumedTable | None],
    bound: BoundTables,
    location: str,
    io: FileIO,
) -> Plan:
    """The plan that makes a new directory at `location` and binds all tables to it.

    `tables` has the table of each topic (one may be that of several), None for one that no record has
    created yet. Raises InvalidOptionError where there is a directory already, a table was not written from
    Kafka, or the tables' commits name topics that `tables` does not have.
    """
    require_new(location, io)
    resumed = list({id(each): each for each in tables.values() if each is not None}.values())
    if not resumed:
        raise InvalidOptionError(
            f"none of the tables of {', '.join(sorted(tables))} exists: there is nothing to go on from. "
            "Start the stream with a new directory"
        )
    _require_all_topics(tables, resumed)
    positions = _own_positions(tables)
    text = SourceOffsets(positions).to_text()

    def write() -> None:
        for each in resumed:
            each.require_same()
        bind_tables(write_directory(location, io, text), bound)

    steps = [step for each in resumed for step in each.settling()]
    steps.append(
        Step(
            f"write a new checkpoint directory at {location}, whose query goes on {shown_offsets(positions)}"
            f": each topic where the last commit of its table ends; and bind it to {bound}",
            write,
        )
    )
    steps += [_adopting(each, location, io) for each in resumed]
    warnings = [TOPICS_CREATED_AGAIN]
    if any(each.name is None for each in resumed):
        warnings.append(WITHOUT_NAME)
    without = sorted(topic for topic, each in tables.items() if each is None)
    if without:
        warnings.append(
            f"{', '.join(without)} {'has' if len(without) == 1 else 'have'} no table yet, and will be read "
            "from the first record on, whatever starting-offsets says"
        )
    return Plan(tuple(steps), tuple(warnings))


def _adopting(resumed: ResumedTable, location: str, io: FileIO) -> Step:
    ended = resumed.last.marker
    text = (
        f"commit an empty snapshot to branch '{resumed.branch}' of {resumed.noted} that makes the directory "
        f"the continuation of its last commit, checkpoint {ended.checkpoint_id} of job {ended.job_id}"
    )
    return Step(text, lambda: resumed.adopt(SparkDirectory(location, io)))


def _require_all_topics(tables: Mapping[str, object], resumed: Sequence[ResumedTable]) -> None:
    """A topic that is left out would be read again from its beginning, which its table would refuse later."""
    read = {topic for each in resumed for topic, _ in _ends(each)}
    missing = sorted(read - tables.keys())
    if missing:
        raise InvalidOptionError(
            f"the stream has read {counted(len(missing), 'topic')} that --topics lacks: {', '.join(missing)}"
            f"; name all of them, those without a table included, for {Way.RESUME.value} to find each one's "
            "offsets"
        )


def _ends(resumed: ResumedTable) -> Mapping[Partition, int]:
    end = resumed.last.end
    if not isinstance(end, SourceOffsets):
        raise InvalidOptionError(
            f"{resumed.noted} was written from another Iceberg table, not from a topic: it is no table of a "
            "query of many tables. Name it alone"
        )
    return end.positions


def _own_positions(tables: Mapping[str, ResumedTable | None]) -> dict[Partition, int]:
    """Where the topics go on whose tables have commits."""
    return {
        part: offset
        for topic, resumed in tables.items()
        if resumed is not None
        for part, offset in _ends(resumed).items()
        if part[0] == topic
    }
