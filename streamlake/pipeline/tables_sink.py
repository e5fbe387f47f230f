"""IcebergTables: one query of a KafkaSource into as many tables as there are topics, each committed by its own token.

Place in the flow: beside IcebergSink, of which it holds one per table. Topics are met when their first offsets come; their
tables are opened, or created from the template. Invariant: a micro-batch is done when every table that had records in it is;
what one has committed already is not written again by a replay.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake import clock
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.offset_summary import source_offsets
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.options import suggestion
from streamlake.pipeline.checkpoint_file import CheckpointFile
from streamlake.pipeline.direct_offsets import DirectOffsets
from streamlake.pipeline.direct_query import DirectQuery, direct_stream
from streamlake.pipeline.direct_tables import DirectTable, write_direct
from streamlake.pipeline.interruption import short_interruptions
from streamlake.pipeline.parallel import Ending, in_parallel
from streamlake.pipeline.quarantine import (
    QUARANTINE_PATH,
    Quarantined,
    quarantine_from_text,
    quarantine_to_bytes,
    quarantined,
)
from streamlake.pipeline.query_identity import checkpoint_identity, query_run
from streamlake.pipeline.sink import RECEIPTS_KEPT, IcebergSink
from streamlake.pipeline.start import start_query
from streamlake.pipeline.table_names import TableNames, is_template
from streamlake.pipeline.task_errors import FINAL_ERRORS
from streamlake.pipeline.upsert_options import unknown_value
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, PartitionOffsets

_LOG = logging.getLogger(__name__)

FAIL = "fail"
QUARANTINE = "quarantine"


class IcebergTables:
    """Writes the topics of one KafkaSource to one table each (or several to one, where their names say so).

    `table` is a template, see TableNames; `catalog`, `mode` and `settings` are those of IcebergSink for every table, with
    `create=True` unless said otherwise, and `tables` changes them for single ones: {"lake.orders": {"key": ["id"]}}. Where
    no key is given, an upsert takes the table's identifier fields, else what the envelope's messages say. `on_commit` gets
    each table's receipts, which name it.

    `on_table_failure`: what happens when the records of a table cannot be written. "fail" ends the query, after the other
    tables have committed; "quarantine" sets the table aside and goes on with the others, and the next start reads again
    what was passed over. Raises InvalidOptionError for arguments that contradict each other.
    """

    def __init__(
        self,
        table: str,
        catalog: str | Mapping[str, str] | None = None,
        mode: str = "append",
        *,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        on_table_failure: str = FAIL,
        on_commit: Callable[[CommitReceipt], None] | None = None,
        **settings: Any,
    ) -> None:
        if not is_template(table):
            raise InvalidOptionError(
                f"the table '{table}' has no placeholder, so that all topics would go into it: write one, as in 'lake.{{topic}}', "
                "or use IcebergSink"
            )
        if on_table_failure not in (FAIL, QUARANTINE):
            raise unknown_value("on_table_failure", on_table_failure, (FAIL, QUARANTINE))
        self.table = table
        self._quarantines = on_table_failure == QUARANTINE
        self._catalog = catalog
        self._mode = mode
        self._settings = {"create": True, **settings}
        self._own_settings = {name: dict(own) for name, own in (tables or {}).items()}
        self._on_commit = on_commit
        self._members: dict[str, _Member] = {}
        self._names: TableNames | None = None
        self._is_first = True
        self._aside: _Quarantine | None = None
        self.receipts: deque[CommitReceipt] = deque(maxlen=RECEIPTS_KEPT)
        self.error: BaseException | None = None
        for name in (table, *self._own_settings):
            self._sink(name)

    @property
    def sinks(self) -> dict[str, IcebergSink]:
        """The sinks of the tables that the query has met, by the tables' names."""
        return {name: member.sink for name, member in self._members.items()}

    def start(
        self,
        source: KafkaSource,
        *,
        checkpoint_location: str,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
    ) -> DirectQuery:
        """Start the query and return it (the StreamingQuery interface); see IcebergSink.start."""
        if not isinstance(source, KafkaSource):
            raise InvalidOptionError(
                "many tables are written from a KafkaSource; a DataFrame goes into one table: use IcebergSink"
            )
        self.error = None
        self._names = TableNames(self.table, source.topic_pattern)
        self._members = {}
        self._is_first = True
        self._aside = None
        if source.topics is not None:
            self._require_own_tables_used(tuple(source.topics))
        stream = direct_stream(SparkSession.builder.getOrCreate(), source, str(checkpoint_location), trigger)
        query = start_query(
            lambda frame, at: self._write(source, stream.offsets, frame, at),
            stream.frame,
            checkpoint_location=checkpoint_location,
            trigger=stream.trigger,
            query_name=query_name,
            output_mode="append",
            sink=self,
        )
        return DirectQuery(query, stream.offsets)

    def interrupt(self, job_id: str) -> None:
        """See SinkState."""
        for member in list(self._members.values()):
            member.sink.interrupt(job_id)

    def finish(self, job_id: str) -> BaseException | None:
        """See SinkState."""
        errors = [member.sink.finish(job_id) for member in list(self._members.values())]
        first = next((error for error in errors if error is not None), None)
        self.error = first or self.error
        return first

    @property
    def quarantine(self) -> Mapping[str, Quarantined]:
        """The tables that are set aside, by name."""
        return {} if self._aside is None else dict(self._aside.entries)

    def _write(
        self, source: KafkaSource, offsets: DirectOffsets, frame: DataFrame, checkpoint_id: int
    ) -> None:
        try:
            with short_interruptions():
                offsets.plan(frame, checkpoint_id)
                identity = checkpoint_identity(frame, checkpoint_id)
                step = _Step.of(identity)
                aside = self._aside = self._aside or _Quarantine.of(frame, identity)
                names = self._due(step, aside)
                members = self._met(source, names)
                due = [member for member in members if not isinstance(member, StreamlakeError)]
                missed = aside.missed(frame, due, identity, step)
                tables = [member.table for member in due]
                written = iter(write_direct(tables, frame, identity, offsets, missed))
            endings = [member if isinstance(member, StreamlakeError) else next(written) for member in members]
            self._is_first = False
            self._deliver(names, endings, identity, step)
        except StreamlakeError as error:
            self.error = error
            raise

    def _deliver(
        self,
        names: Mapping[str, tuple[str, ...]],
        endings: Sequence[Ending],
        identity: CheckpointIdentity,
        step: _Step,
    ) -> None:
        assert self._aside is not None
        errors = {}
        aside = dict(self._aside.entries)
        for (name, topics), ending in zip(names.items(), endings, strict=True):
            if not isinstance(ending, StreamlakeError):
                aside.pop(name, None)
                if ending is not None:
                    self._delivered(replace(ending, table=name))
            elif self._quarantines and isinstance(ending, FINAL_ERRORS):
                entry = quarantined(identity.checkpoint_id, step.begin, topics, ending, clock.now_ms())
                aside[name] = replace(aside.get(name, entry), error=entry.error, retried_at=None)
                _LOG.error("table %s is set aside from %s on: %s", name, identity, ending)
            else:
                errors[name] = ending
        self._aside.keep(aside)
        if errors:
            _raise_first(errors, len(names))

    def _delivered(self, receipt: CommitReceipt) -> None:
        self.receipts.append(receipt)
        if self._on_commit is not None:
            self._on_commit(receipt)

    def _due(self, step: _Step, aside: _Quarantine) -> dict[str, tuple[str, ...]]:
        """The tables that have records in this checkpoint, with all their topics; at first all tables, because one may
        have something staged. Those in quarantine are tried then, and not after."""
        assert self._names is not None
        topics: dict[str, set[str]] = {}
        moved = set()
        for (topic, partition), offset in step.end.items():
            name = self._names.of(topic)
            topics.setdefault(name, set()).add(topic)
            if self._is_first or step.begin.get((topic, partition)) != offset:
                moved.add(name)
        if not self._is_first:
            moved -= aside.entries.keys()
            aside.pass_over(step, topics)
        return {name: tuple(sorted(of)) for name, of in topics.items() if name in moved}

    def _met(
        self, source: KafkaSource, names: Mapping[str, tuple[str, ...]]
    ) -> list[_Member | StreamlakeError]:
        """The members for these tables, made at first sight."""

        def met(part: tuple[str, tuple[str, ...]]) -> _Member:
            name, topics = part
            known = self._members.get(name)
            if known is not None and known.topics == topics:
                return known
            sink = self._sink(name) if known is None else known.sink
            own = sink.prepared(replace(source, topics=topics, topic_pattern=None))
            return _Member(name, sink, topics, DirectTable(sink, own, topics))

        members = in_parallel(list(names.items()), met)
        for name, member in zip(names, members, strict=True):
            if not isinstance(member, StreamlakeError):
                self._members[name] = member
        return members

    def _sink(self, name: str) -> IcebergSink:
        own = {"mode": self._mode, **self._settings, **self._own_settings.get(name, {})}
        return IcebergSink(name, self._catalog, own.pop("mode"), **own)

    def _require_own_tables_used(self, topics: Sequence[str]) -> None:
        """Where all topics are known, so are all tables: one that is described but never written is a slip of the pen."""
        assert self._names is not None
        known = [self._names.of(topic) for topic in topics]
        for name in self._own_settings:
            if name not in known:
                near = suggestion(name, known)
                hint = f"did you mean '{near}'?" if near else f"the tables are {', '.join(known)}"
                raise InvalidOptionError(f"tables has '{name}', which is the table of no topic; {hint}")


class _Member:
    """One table of the query: its sink, the topics that feed it, and how they are read."""

    def __init__(self, name: str, sink: IcebergSink, topics: tuple[str, ...], table: DirectTable) -> None:
        self.name = name
        self.sink = sink
        self.topics = topics
        self.table = table


@dataclass(frozen=True)
class _Step:
    """Where a checkpoint begins and ends; `first` are the beginnings that the checkpoint before does not know."""

    begin: PartitionOffsets
    first: PartitionOffsets
    end: PartitionOffsets

    @staticmethod
    def of(identity: CheckpointIdentity) -> _Step:
        end = source_offsets(identity.end_offsets)
        if end is None:
            raise InvalidOptionError(
                "the checkpoint was written by another kind of query; use another checkpoint location"
            )
        start = source_offsets(identity.start_offsets)
        return _Step({**({} if start is None else start.positions), **end.first}, end.first, end.positions)


class _Quarantine:
    """The tables that are set aside, in memory and in the checkpoint directory."""

    def __init__(self, file: CheckpointFile, entries: Mapping[str, Quarantined]) -> None:
        self._file = file
        self.entries = entries

    @staticmethod
    def of(frame: DataFrame, identity: CheckpointIdentity) -> _Quarantine:
        checkpoint = query_run(frame, identity.job_id).checkpoint
        file = CheckpointFile(frame.sparkSession, checkpoint, QUARANTINE_PATH)
        text = file.read()
        where = f"{checkpoint.toString()}/{QUARANTINE_PATH}"
        return _Quarantine(file, {} if text is None else quarantine_from_text(text, where))

    def missed(
        self, frame: DataFrame, members: Sequence[_Member], identity: CheckpointIdentity, step: _Step
    ) -> list[OffsetRange]:
        """What the members in quarantine lack of earlier checkpoints."""
        entries = dict(self.entries)
        missed: list[OffsetRange] = []
        for member in members:
            entry = entries.get(member.name)
            if entry is None or self._has_all(member, entry, frame, identity):
                entries.pop(member.name, None)
                continue
            entries[member.name] = replace(entry, retried_at=identity.checkpoint_id)
            missed += entry.missed(step.begin)
        self.keep(entries)
        return missed

    def pass_over(self, step: _Step, topics: Mapping[str, Iterable[str]]) -> None:
        """The checkpoint goes on without the tables that are set aside; `topics` are those of each table."""
        self.keep(
            {
                name: entry.knowing(step.begin, step.first, topics.get(name, entry.offsets))
                for name, entry in self.entries.items()
            }
        )

    def keep(self, entries: Mapping[str, Quarantined]) -> None:
        if dict(entries) != dict(self.entries):
            self._file.write(quarantine_to_bytes(entries))
            self.entries = entries

    def _has_all(
        self, member: _Member, entry: Quarantined, frame: DataFrame, identity: CheckpointIdentity
    ) -> bool:
        """Whether a crash came between the commit of what was missed and taking the entry out."""
        if entry.retried_at is None or entry.retried_at >= identity.checkpoint_id:
            return False
        run, own = member.sink.opened(frame, identity, member.table.schema)
        marker = run.patience.through(lambda: run.committer.marker(own))
        return marker is not None and marker.checkpoint_id >= entry.retried_at


def _raise_first(errors: Mapping[str, StreamlakeError], tables: int) -> None:
    """Raise what one table met, with how many others there were."""
    name, error = next(iter(errors.items()))
    if tables == 1:
        raise error
    others = tables - len(errors)
    also = f", as did {len(errors) - 1} more" if len(errors) > 1 else ""
    raise type(error)(
        f"the table '{name}' stopped the query{also}; {others} other tables are committed up to here, and the next start writes "
        f"only what is missing: {error}"
    ) from error
