"""The quarantine of a running query, in memory and in its checkpoint directory.

Place in the flow: on the driver, around the write of each micro-batch into many tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.pipeline.kafka.checkpoint_step import Step
from streamlake.pipeline.runs.direct_tables import DirectTable
from streamlake.pipeline.sinks.quarantine import (
    QUARANTINE_PATH,
    Quarantined,
    quarantine_from_text,
    quarantine_to_bytes,
)
from streamlake.pipeline.spark.checkpoint_file import CheckpointFile
from streamlake.pipeline.spark.query_identity import query_run


class QuarantinedMember(Protocol):
    """The part of a table of the query that is needed here."""

    @property
    def name(self) -> str:
        """What the query calls the table."""
        ...

    @property
    def table(self) -> DirectTable:
        """The table's sink and source, as a micro-batch writes it."""
        ...


class Quarantine:
    """The quarantine of one query; `entries` by the tables' names."""

    def __init__(self, file: CheckpointFile, entries: Mapping[str, Quarantined]) -> None:
        self._file = file
        self.entries = entries

    @staticmethod
    def of(frame: DataFrame, identity: CheckpointIdentity) -> Quarantine:
        """The quarantine that the checkpoint directory of the query records. Raises DataInvalidError."""
        checkpoint = query_run(frame, identity.job_id).checkpoint
        file = CheckpointFile(frame.sparkSession, checkpoint, QUARANTINE_PATH)
        text = file.read()
        where = f"{checkpoint.toString()}/{QUARANTINE_PATH}"
        return Quarantine(file, {} if text is None else quarantine_from_text(text, where))

    def retried(
        self, frame: DataFrame, members: Sequence[QuarantinedMember], identity: CheckpointIdentity
    ) -> dict[str, Quarantined]:
        """The entries of the members that are retried in this checkpoint, with all that they lack."""
        entries = dict(self.entries)
        found = {}
        for member in members:
            entry = entries.get(member.name)
            if entry is None or self._has_all(member, entry, frame, identity):
                entries.pop(member.name, None)
                continue
            entries[member.name] = found[member.name] = replace(entry, retried_at=identity.checkpoint_id)
        self.keep(entries)
        return found

    def pass_over(self, step: Step, topics: Mapping[str, Iterable[str]]) -> None:
        """Continue the checkpoint without the tables in quarantine; `topics` are those of each table."""
        self.keep(
            {
                name: entry.knowing(step.begin, step.first, topics.get(name, entry.offsets), step.topic_ids)
                for name, entry in self.entries.items()
            }
        )

    def keep(self, entries: Mapping[str, Quarantined]) -> None:
        """Set the entries; they are written where they differ."""
        if dict(entries) != dict(self.entries):
            self._file.write(quarantine_to_bytes(entries))
            self.entries = entries

    def _has_all(
        self, member: QuarantinedMember, entry: Quarantined, frame: DataFrame, identity: CheckpointIdentity
    ) -> bool:
        """Whether a crash came between the commit of the missed records and the removal of the entry."""
        if entry.retried_at is None or entry.retried_at >= identity.checkpoint_id:
            return False
        run, own = member.table.stream.opened(frame, identity, member.table.schema)
        marker = run.outage_retry.through(lambda: run.committer.marker(own))
        return marker is not None and marker.checkpoint_id >= entry.retried_at
