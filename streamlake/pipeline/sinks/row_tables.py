"""The tables of a query whose rows name their table: discovered with their first rows, written with others.

Place in the flow: `IcebergTables` uses it in a micro-batch where topics alone do not name the table. A first
job writes the tables that are known, and also reports the names of new ones. A second job reads the same
ranges for the new ones alone, after they were opened or created. Invariant: the next start finds whatever a
crash left undone, by the commit markers of the known tables, and by reading the checkpoint again for the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from streamlake.catalog.open import CatalogOption, open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import InvalidOptionError, SourceError, StreamlakeError, TableNotFoundError
from streamlake.pipeline.kafka.checkpoint_step import Step
from streamlake.pipeline.kafka.direct_offsets import DirectOffsets
from streamlake.pipeline.runs.direct_tables import DirectTable, write_direct
from streamlake.pipeline.runs.parallel import Ending, in_parallel
from streamlake.pipeline.runs.rejects import REJECT
from streamlake.pipeline.runs.routed.family_schema import united
from streamlake.pipeline.runs.routed.row_families import FamilyWrite, RowFamily, RowPart, Unrouted
from streamlake.pipeline.runs.upsert_options import identifier_columns
from streamlake.pipeline.sinks.prepared_source import prepared_source
from streamlake.pipeline.sinks.quarantine import missed_ranges
from streamlake.pipeline.sinks.sink_settings import SinkSettings
from streamlake.pipeline.sinks.table_discovery import DiscoveredTables
from streamlake.pipeline.sinks.table_quarantine import Quarantine
from streamlake.pipeline.sinks.table_stream import TableMember, TableStream
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, flatten
from streamlake.table.table import Table
from streamlake.tasks.routed_intake import too_many_tables
from streamlake.tasks.row_names import RowRoute, unrouted_name
from streamlake.tasks.table_names import TableNames

_PASSES = 5
"""The most passes over one checkpoint. A second read of the same records names no table that the first did
not, but a source that loses records may."""

_SHOWN = 5


@dataclass(frozen=True)
class RowTableOptions:
    """How rows find their tables. `names` and `default_table` are templates as far as topics fill them;
    `route` gives the part that rows fill; `most` is the largest number of tables.
    """

    names: TableNames
    route: Callable[[str], RowRoute]
    default_table: TableNames | None = None
    most: int = 1_000


@dataclass
class RowEndings:
    """How a micro-batch ended: for each table, with the topics that feed it, and for the routed topics that
    could not be read (`errors`, by template), about whose tables nothing is known.
    """

    topics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)
    errors: dict[str, StreamlakeError] = field(default_factory=dict)


class RowTables:
    """The tables of a query's run. `make` gives a table by its name; `members` are updated for the caller."""

    def __init__(
        self,
        source: KafkaSource,
        options: RowTableOptions,
        make: Callable[[str], TableStream],
        catalog: CatalogOption,
        members: dict[str, TableMember],
    ) -> None:
        self._source = source
        self._options = options
        self._make = make
        self._catalog = catalog
        self._members = members
        self._families: dict[str, RowFamily] = {}
        self._known: DiscoveredTables | None = None

    def write(
        self,
        frame: DataFrame,
        identity: CheckpointIdentity,
        offsets: DirectOffsets,
        step: Step,
        aside: Quarantine,
        *,
        is_first: bool,
    ) -> RowEndings:
        """Write the records of a checkpoint into their tables; gives how it ended for each.

        In the first micro-batch of a run all discovered tables are opened, because one may have something
        staged, and those in quarantine are retried. Later ones are written without those in quarantine.
        """
        known = self._known = self._known or DiscoveredTables.of(frame, identity)
        ended = RowEndings()
        families = self._due(step, ended, is_first=is_first)
        names = {
            name: family
            for family in families
            for name in sorted(known.of_family(family.name))
            if is_first or name not in aside.entries
        }
        if not is_first:
            topics = {name: self._topics(template) for name, template in known.families.items()}
            aside.pass_over(step, {name: of for name, of in topics.items() if of})
        due = self._met(names, ended)
        retried = aside.retried(frame, due, identity)
        for member in due:
            floors = flatten(retried[member.name].offsets) if member.name in retried else {}
            part = member.table.part
            assert part is not None
            member.table.part = replace(part, floors=floors)
        missed = missed_ranges(retried.values(), step.begin)
        for _ in range(_PASSES):
            if not families:
                break
            families, due = self._pass(frame, identity, offsets, step, families, due, missed, ended)
            missed = []
        for family in families:
            unwritten = [
                each.name for each in due if each.table.part is not None and each.table.part.family is family
            ]
            ended.errors[family.name] = SourceError(
                f"{family.name}: the records of checkpoint {identity.checkpoint_id} were read {_PASSES} "
                "times, and each time there were rows of tables that had not been met before, at last of "
                f"{', '.join(unwritten[:_SHOWN])}. Records must not change while they are read, and a route "
                "function has to say the same of a row each time; start again once they do"
            )
        for name, family in self._members_of(ended).items():
            if family.name in ended.errors:
                ended.endings.pop(name, None)
                ended.topics.pop(name, None)
        return ended

    def meet_again(
        self, frame: DataFrame, identity: CheckpointIdentity, read: Collection[str]
    ) -> list[StreamlakeError]:
        """Open the tables that rows of the topics `read` have gone into so far, before the first records of a
        run come: one may have something staged. The errors are returned; the first records run into them
        again.
        """
        known = self._known = self._known or DiscoveredTables.of(frame, identity)
        topics: dict[str, list[str]] = {}
        for topic in sorted(read):
            topics.setdefault(self._options.names.of(topic), []).append(topic)
        ended = RowEndings()
        fed = {template: tuple(of) for template, of in topics.items() if known.of_family(template)}
        families = self._families_of(fed, ended)
        self._met(
            {name: family for family in families for name in sorted(known.of_family(family.name))}, ended
        )
        found = (*ended.errors.values(), *ended.endings.values())
        return [each for each in found if isinstance(each, StreamlakeError)]

    def _pass(
        self,
        frame: DataFrame,
        identity: CheckpointIdentity,
        offsets: DirectOffsets,
        step: Step,
        families: list[RowFamily],
        due: list[TableMember],
        missed: list[OffsetRange],
        ended: RowEndings,
    ) -> tuple[list[RowFamily], list[TableMember]]:
        """Write the due tables; returns the routed topics that turned out to have more tables, and these."""
        assert self._known is not None
        writes = [FamilyWrite(family, self._known.of_family(family.name), step.begin) for family in families]
        found = write_direct([member.table for member in due], frame, identity, offsets, missed, writes)
        for member, ending in zip(due, found, strict=True):
            ended.endings[member.name] = ending
        more: dict[str, RowFamily] = {}
        for write in writes:
            template = write.family.name
            if write.error is not None:
                ended.errors[template] = write.error
            elif write.met:
                try:
                    self._keep(write)
                except StreamlakeError as error:
                    ended.errors[template] = error
                else:
                    more.update(dict.fromkeys(sorted(write.met), write.family))
        return list(dict.fromkeys(more.values())), self._met(more, ended)

    def _keep(self, write: FamilyWrite) -> None:
        """Record the names of new tables. Raises InvalidOptionError where there are too many, or one belongs
        to another template.
        """
        assert self._known is not None
        template, most = write.family.name, self._options.most
        count = len(self._known.families.keys() | write.met)
        if count > most:
            raise too_many_tables(template, count, most, write.met)
        self._known.add(dict.fromkeys(write.met, template))

    def _due(self, step: Step, ended: RowEndings, *, is_first: bool) -> list[RowFamily]:
        """The routed topics that have records in this checkpoint; in the first micro-batch all of them."""
        topics: dict[str, set[str]] = {}
        moved: dict[str, None] = {}
        for topic, partition in step.end:
            template = self._options.names.of(topic)
            topics.setdefault(template, set()).add(topic)
            if is_first or step.has_records(topic, partition):
                moved[template] = None

        return self._families_of({template: tuple(sorted(topics[template])) for template in moved}, ended)

    def _families_of(self, topics: Mapping[str, tuple[str, ...]], ended: RowEndings) -> list[RowFamily]:
        """The `RowFamily` of each of these templates, with all its topics."""

        def family(template: str) -> RowFamily:
            known = self._families.get(template)
            wanted = topics[template]
            return known if known is not None and known.topics == wanted else self._made(template, wanted)

        found = in_parallel(list(topics), family)
        for template, each in zip(topics, found, strict=True):
            if isinstance(each, StreamlakeError):
                ended.errors[template] = each
            else:
                self._families[template] = each
        return [each for each in found if not isinstance(each, StreamlakeError)]

    def _made(self, template: str, topics: tuple[str, ...]) -> RowFamily:
        """The `RowFamily` of these topics. Its columns are those that were given, else those of its tables,
        else a sample's.
        """
        assert self._known is not None
        options = self._options
        route = options.route(template)
        default = None if options.default_table is None else options.default_table.of(topics[0])
        unrouted = unrouted_name(template) if default is None else default
        settings = self._make(unrouted).settings
        source = replace(self._source, topics=topics, topic_pattern=None)
        is_given = source.schema is not None
        if source.has_row_kinds and not source.is_envelope:
            raise InvalidOptionError(
                f"null-value=delete: a record without a value names no table of '{template}'; leave it out, "
                "or route by topic"
            )
        tables = []
        key = settings.changes.key
        if not is_given or (source.has_row_kinds and not key):
            opened = in_parallel(sorted(self._known.of_family(template)), self._opened)
            for each in opened:
                if isinstance(each, StreamlakeError):
                    raise each
                tables += [] if each is None else [each]
        if tables and not is_given:
            source = source.with_schema(united(table.schema for table in tables))
        if source.has_row_kinds and not key:
            key = next(filter(None, map(identifier_columns, tables)), ())
        settings, source = prepared_source(_with_key(settings, key), source)
        key = settings.changes.key
        return RowFamily(
            source,
            route,
            Unrouted(unrouted, default is not None, settings.errors.on_error == REJECT),
            key=key if source.has_row_kinds else (),
            own_key=key,
            is_given=is_given,
            most=options.most,
        )

    def _opened(self, name: str) -> Table | None:
        try:
            return open_table(name, self._catalog)
        except TableNotFoundError:
            return None

    def _met(self, names: Mapping[str, RowFamily], ended: RowEndings) -> list[TableMember]:
        """The members for these tables, made at first sight, or the error as the table's ending."""

        def met(part: tuple[str, RowFamily]) -> TableMember:
            name, family = part
            known = self._members.get(name)
            if known is not None and known.table.part is not None and known.table.part.family is family:
                return known
            stream = self._make(name) if known is None else known.stream
            settings = stream.settings
            if not settings.changes.key and family.source.has_row_kinds:
                table = self._opened(name)
                if table is None or not identifier_columns(table):
                    settings = _with_key(settings, family.own_key)
            settings, own = prepared_source(settings, family.source)
            stream = stream.resolved(settings)
            return TableMember(
                name, stream, family.topics, DirectTable(stream, own, (), RowPart(family, name))
            )

        found = in_parallel(list(names.items()), met)
        members = []
        for (name, family), member in zip(names.items(), found, strict=True):
            ended.topics[name] = family.topics
            if isinstance(member, StreamlakeError):
                ended.endings[name] = member
            else:
                self._members[name] = member
                members.append(member)
        return members

    def _members_of(self, ended: RowEndings) -> dict[str, RowFamily]:
        assert self._known is not None
        by_template = self._known.families
        return {
            name: self._families[by_template[name]]
            for name in list(ended.endings)
            if by_template.get(name) in self._families
        }

    def _topics(self, template: str) -> tuple[str, ...]:
        family = self._families.get(template)
        return () if family is None else family.topics


def _with_key(settings: SinkSettings, key: tuple[str, ...]) -> SinkSettings:
    return replace(settings, changes=replace(settings.changes, key=key))
