"""The tables that one query has set aside, in memory and in its checkpoint directory; see `quarantine`.

Place in the flow: on the driver, around the write of each micro-batch into many tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.pipeline.checkpoint_file import CheckpointFile
from streamlake.pipeline.checkpoint_step import Step
from streamlake.pipeline.direct_tables import DirectTable
from streamlake.pipeline.quarantine import (
    QUARANTINE_PATH,
    Quarantined,
    quarantine_from_text,
    quarantine_to_bytes,
)
from streamlake.pipeline.query_identity import query_run


class SetAsideTable(Protocol):
    """A table of the query."""

    @property
    def name(self) -> str: ...

    @property
    def table(self) -> DirectTable: ...


class SetAside:
    """`entries` by the tables' names."""

    def __init__(self, file: CheckpointFile, entries: Mapping[str, Quarantined]) -> None:
        self._file = file
        self.entries = entries

    @staticmethod
    def of(frame: DataFrame, identity: CheckpointIdentity) -> SetAside:
        """What the checkpoint directory of the query tells. Raises DataInvalidError."""
        checkpoint = query_run(frame, identity.job_id).checkpoint
        file = CheckpointFile(frame.sparkSession, checkpoint, QUARANTINE_PATH)
        text = file.read()
        where = f"{checkpoint.toString()}/{QUARANTINE_PATH}"
        return SetAside(file, {} if text is None else quarantine_from_text(text, where))

    def retried(
        self, frame: DataFrame, members: Sequence[SetAsideTable], identity: CheckpointIdentity
    ) -> dict[str, Quarantined]:
        """The entries of those of the members that are tried again in this checkpoint, with all that they lack."""
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
        """The checkpoint goes on without the tables that are set aside; `topics` are those of each table."""
        self.keep(
            {
                name: entry.knowing(step.begin, step.first, topics.get(name, entry.offsets), step.topic_ids)
                for name, entry in self.entries.items()
            }
        )

    def keep(self, entries: Mapping[str, Quarantined]) -> None:
        """The entries from now on; written where they differ."""
        if dict(entries) != dict(self.entries):
            self._file.write(quarantine_to_bytes(entries))
            self.entries = entries

    def _has_all(
        self, member: SetAsideTable, entry: Quarantined, frame: DataFrame, identity: CheckpointIdentity
    ) -> bool:
        """Whether a crash came between the commit of what was missed and taking the entry out."""
        if entry.retried_at is None or entry.retried_at >= identity.checkpoint_id:
            return False
        run, own = member.table.sink.opened(frame, identity, member.table.schema)
        marker = run.patience.through(lambda: run.committer.marker(own))
        return marker is not None and marker.checkpoint_id >= entry.retried_at
