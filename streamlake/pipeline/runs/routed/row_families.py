"""Groups of routed topics: topics whose rows are divided among several tables by what the rows say.

Place in the flow: on the driver, for one run of a query. A `RowFamily` is a group of topics whose tables'
names differ only in the part that rows fill. They are decoded alike, and any of their records may belong to
any of the tables. Invariant: records are decoded with all columns that one of the tables has, or has asked
for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamlake.decode.cdc.row_kinds import with_row_kind
from streamlake.decode.cdc.source_tables import PROPERTY, is_same_table, with_source
from streamlake.decode.values.new_fields import Watch
from streamlake.errors import InvalidOptionError, NewSchemaError, StreamlakeError
from streamlake.pipeline.runs.filtered_tables import FilteredTables
from streamlake.pipeline.runs.routed.family_schema import united
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.source_notes import sources_of
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import PartitionOffsets
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_json import schema_from_json
from streamlake.tasks.direct_reader import RangeReader, range_reader
from streamlake.tasks.row_names import RowRoute, route_columns

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unrouted:
    """Where rows without a table go, and records that cannot be decoded. With `keeps_rows` the table `table`
    takes the rows, with `rejects` its rejects take the records; else they stop the stream.
    """

    table: str
    keeps_rows: bool
    rejects: bool


class RowFamily:
    """A group of routed topics. `source` has its topics and the columns of new tables; `is_given` says that
    the user gave these columns. `key`: see `row_decoder`; `own_key` is the key of tables that are created.

    Raises InvalidOptionError for a route that does not fit the rows.
    """

    def __init__(
        self,
        source: KafkaSource,
        route: RowRoute,
        unrouted: Unrouted,
        *,
        key: Sequence[str] = (),
        own_key: tuple[str, ...] = (),
        is_given: bool = False,
        most: int = 1_000,
    ) -> None:
        self.source = source
        self.route = route
        self.unrouted = unrouted
        self.own_key = own_key
        self.is_given = is_given
        self.most = most
        route.check(source.table_schema)
        self._learnt: list[Schema] = []
        self.sources: dict[str, str] = {}
        self._filtered = FilteredTables()
        self._reader = range_reader(source, key, route_columns([route], source.schema) if key else ())

    @property
    def name(self) -> str:
        """The template, as far as topics fill it."""
        return self.route.template

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the group."""
        return tuple(self.source.topics or ())

    def reader(self, runs: Sequence[SinkRun]) -> RangeReader:
        """The reader of records for the tables of these runs.

        The source tables of topics are asked for only once there is a table to record them in; all tables of
        the group record the same, see `bind`.
        """
        for run in runs if self.source.is_envelope else ():
            for topic, name in sources_of(run.table).items():
                self.sources = with_source(self.sources, topic, name)
        sources = dict(self.sources) if runs and self.source.is_envelope else None
        return replace(self._reading(runs), sources=sources)

    def keep_sources(self, found: Mapping[str, str], runs: Sequence[SinkRun]) -> None:
        """Record the source tables that tasks have asked for in the tables of these runs. Raises what
        `SinkRun.keep_sources` raises.
        """
        for topic, name in found.items():
            self.sources = with_source(self.sources, topic, name)
        for run in runs:
            run.keep_sources(self.sources)

    def bind(self, run: SinkRun) -> None:
        """Record the known source tables of the topics in a table, before it gets rows of them: it may have
        been created after they were recorded elsewhere. Raises InvalidOptionError where the table says
        otherwise, and what `SinkRun.keep_sources` raises.
        """
        if not self.source.is_envelope:
            return
        kept = sources_of(run.table)
        known = {topic: name for topic, name in self.sources.items() if topic in self.topics}
        for topic, name in known.items():
            own = kept.get(topic)
            if name and own and not is_same_table(name, own):
                raise InvalidOptionError(
                    f"{run.table.location}: its table property {PROPERTY} says that the topic {topic} is of "
                    f"the table '{own}', and that of another table of '{self.name}' that it is of '{name}'; "
                    "the records are of one of them: correct the property that is wrong"
                )
        missing = {topic: name for topic, name in known.items() if with_source(kept, topic, name) != kept}
        if missing:
            run.keep_sources(missing)

    def pass_over(self, named: Mapping[str, int]) -> None:
        """Log how many records were skipped, given the source tables that the records name: the count belongs
        to no single table.
        """
        wanted = self.source.settings.source_tables
        count = self._filtered.see(wanted, named, self.sources.values(), self.name)
        if count:
            _LOG.info("%s: %d records of other source tables were passed over", self.name, count)

    def _reading(self, runs: Sequence[SinkRun]) -> RangeReader:
        following = [run for run in runs if run.follower.is_on]
        if not following and not self._learnt:
            return self._reader
        schemas = [run.follower.lenient(with_row_kind(run.table.schema, run.row_kind)) for run in runs]
        base: Schema = self.source.schema
        source = self.source.with_schema(united([*schemas, *self._learnt, base]))
        watches = [run.follower.watch for run in following]
        watch = Watch(widen=any(each is not None and each.widen for each in watches)) if following else None
        return replace(self._reader, source=source, watch=watch)

    def answer(self, errors: Sequence[StreamlakeError], runs: Sequence[SinkRun]) -> bool:
        """Whether records are read with other columns from now on, as tasks have asked; the tables follow
        where they get values for them.
        """
        before = self.reader(runs).source.schema
        for error in errors:
            if isinstance(error, NewSchemaError) and error.wanted:
                self._learnt.append(schema_from_json(json.loads(error.wanted)))
        return bool(self.reader(runs).source.schema != before)


@dataclass(frozen=True)
class RowPart:
    """A table's part in its routed topics: the name that rows carry for it, and the offsets from which it
    takes records that lie before the checkpoint.
    """

    family: RowFamily
    name: str
    floors: PartitionOffsets = field(default_factory=dict)


@dataclass
class FamilyWrite:
    """The part of routed topics in a micro-batch: `known` are all discovered names, `begin` is where it
    begins.

    The write fills in `met`, the names that were new, and `error`, which concerns all of the tables.
    """

    family: RowFamily
    known: frozenset[str]
    begin: PartitionOffsets
    met: set[str] = field(default_factory=set)
    error: StreamlakeError | None = None
