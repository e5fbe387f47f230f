"""IcebergTables: one query of a KafkaSource into as many tables as there are topics, each committed by its own token.

Place in the flow: beside IcebergSink, of which it holds one per table. Topics are met when their first offsets come; their
tables are opened, or created from the template. Invariant: a micro-batch is done when every table that had records in it is;
what one has committed already is not written again by a replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.offset_summary import source_offsets
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.options import suggestion
from streamlake.pipeline.direct_query import DirectQuery, direct_stream
from streamlake.pipeline.direct_tables import DirectTable, write_direct
from streamlake.pipeline.interruption import short_interruptions
from streamlake.pipeline.parallel import Ending, in_parallel
from streamlake.pipeline.query_identity import checkpoint_identity
from streamlake.pipeline.sink import RECEIPTS_KEPT, IcebergSink
from streamlake.pipeline.start import start_query
from streamlake.pipeline.table_names import TableNames, is_template
from streamlake.source.kafka_source import KafkaSource


class IcebergTables:
    """Writes the topics of one KafkaSource to one table each (or several to one, where their names say so).

    `table` is a template, see TableNames; `catalog`, `mode` and `settings` are those of IcebergSink for every table, with
    `create=True` unless said otherwise, and `tables` changes them for single ones: {"lake.orders": {"key": ["id"]}}. Where
    no key is given, an upsert takes the table's identifier fields, else what the envelope's messages say. `on_commit` gets
    each table's receipts, which name it. Raises InvalidOptionError for arguments that contradict each other.
    """

    def __init__(
        self,
        table: str,
        catalog: str | Mapping[str, str] | None = None,
        mode: str = "append",
        *,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        on_commit: Callable[[CommitReceipt], None] | None = None,
        **settings: Any,
    ) -> None:
        if not is_template(table):
            raise InvalidOptionError(
                f"the table '{table}' has no placeholder, so that all topics would go into it: write one, as in 'lake.{{topic}}', "
                "or use IcebergSink"
            )
        self.table = table
        self._catalog = catalog
        self._mode = mode
        self._settings = {"create": True, **settings}
        self._own_settings = {name: dict(own) for name, own in (tables or {}).items()}
        self._on_commit = on_commit
        self._members: dict[str, _Member] = {}
        self._names: TableNames | None = None
        self._is_first = True
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
        if source.topics is not None:
            self._require_own_tables_used(tuple(source.topics))
        stream = direct_stream(SparkSession.builder.getOrCreate(), source, str(checkpoint_location), trigger)
        query = start_query(
            lambda frame, at: self._write(source, frame, at),
            stream.frame,
            checkpoint_location=checkpoint_location,
            trigger=stream.trigger,
            query_name=query_name,
            output_mode="append",
            sink=self,
        )
        return DirectQuery(query, stream.target)

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

    def _write(self, source: KafkaSource, frame: DataFrame, checkpoint_id: int) -> None:
        try:
            with short_interruptions():
                identity = checkpoint_identity(frame, checkpoint_id)
                names = self._due(identity)
                members = self._met(source, names)
                due = [member for member in members if not isinstance(member, StreamlakeError)]
                written = iter(write_direct([member.table for member in due], frame, identity))
            endings = [member if isinstance(member, StreamlakeError) else next(written) for member in members]
            self._is_first = False
            self._deliver(list(names), endings, identity)
        except StreamlakeError as error:
            self.error = error
            raise

    def _deliver(self, names: Sequence[str], endings: Sequence[Ending], identity: CheckpointIdentity) -> None:
        errors = {}
        for name, ending in zip(names, endings, strict=True):
            if isinstance(ending, StreamlakeError):
                errors[name] = ending
            elif ending is not None:
                self._delivered(replace(ending, table=name))
        if errors:
            _raise_first(errors, len(names))

    def _delivered(self, receipt: CommitReceipt) -> None:
        self.receipts.append(receipt)
        if self._on_commit is not None:
            self._on_commit(receipt)

    def _due(self, identity: CheckpointIdentity) -> dict[str, tuple[str, ...]]:
        """The tables that have records in this checkpoint, with all their topics; at first all tables, because one may
        have something staged."""
        end = source_offsets(identity.end_offsets)
        if end is None or self._names is None:
            raise InvalidOptionError(
                "the checkpoint was written by another kind of query; use another checkpoint location"
            )
        start = source_offsets(identity.start_offsets)
        before = {} if start is None or self._is_first else start.positions
        topics: dict[str, set[str]] = {}
        moved = set()
        for (topic, partition), offset in end.positions.items():
            name = self._names.of(topic)
            topics.setdefault(name, set()).add(topic)
            if before.get((topic, partition)) != offset:
                moved.add(name)
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
            return _Member(sink, topics, DirectTable(sink, own, topics))

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

    def __init__(self, sink: IcebergSink, topics: tuple[str, ...], table: DirectTable) -> None:
        self.sink = sink
        self.topics = topics
        self.table = table


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
