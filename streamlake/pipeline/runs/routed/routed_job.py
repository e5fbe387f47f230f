"""The routed topics of one micro-batch in Spark's jobs: intakes for the tasks, and the tasks' reports.

Place in the flow: in `table_writes`, beside the tables that topics alone name. Invariant: tables of routed
topics are written only where every record of these topics could be read and named; else nothing of any of
them is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamlake.errors import NewSchemaError, NewSourceError, NewTablesError, StreamlakeError
from streamlake.pipeline.runs.column_check import check_columns
from streamlake.pipeline.runs.evolution import MAX_CHANGES
from streamlake.pipeline.runs.requests import Errors, Handler, Requests
from streamlake.pipeline.runs.routed.row_families import FamilyWrite, RowFamily, RowPart
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.source_notes import asked_sources
from streamlake.tasks.direct_reader import RangeReader
from streamlake.tasks.intake import KeyRoute
from streamlake.tasks.record_screen import RejectRules
from streamlake.tasks.routed_intake import Branch, RoutedIntake
from streamlake.tasks.table_fit import TableFit
from streamlake.tasks.table_tasks import rejects_of
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.upsert.upsert_target import UpsertTarget

Outcomes = Mapping[int, tuple[list[WriteResult], list[StreamlakeError]]]
"""The results and errors, by the numbers of tables, of their rejects tables, and of routed topics."""


@dataclass(frozen=True)
class _AskedTopics:
    """The routed topics that tasks ask about, and the runs of the tables that are written with them."""

    family: RowFamily
    runs: tuple[SinkRun, ...]


def _sources_kept(asked: _AskedTopics, errors: Errors) -> bool:
    asked.family.keep_sources(asked_sources(errors), asked.runs)
    return True


def _columns_learnt(asked: _AskedTopics, errors: Errors) -> bool:
    return asked.family.answer(errors, asked.runs)


_TOPIC_HANDLERS: tuple[Handler[_AskedTopics], ...] = (
    Handler(NewSourceError, any, _sources_kept),
    Handler(NewSchemaError, all, _columns_learnt, most=MAX_CHANGES),
)


class RoutedTable(Protocol):
    """The part of a table's write that is needed here; without a `part` no routed topics feed it."""

    @property
    def run(self) -> SinkRun:
        """The table's run."""
        ...

    @property
    def part(self) -> RowPart | None:
        """The table's part in its routed topics; None where topics alone name the table."""
        ...


class RoutedJob:
    """The routed topics of a micro-batch. `writes`: its tables by number; `families`: numbered after them."""

    def __init__(self, writes: Sequence[RoutedTable], families: Sequence[FamilyWrite]) -> None:
        self._writes = writes
        self._families = {len(writes) + at: each for at, each in enumerate(families)}
        self._due = set(self._families)
        self._requests = {number: Requests(_TOPIC_HANDLERS) for number in self._families}
        number_of = {id(each.family): number for number, each in self._families.items()}
        self._family_of = {
            number: number_of[id(write.part.family)]
            for number, write in enumerate(writes)
            if write.part is not None
        }
        """A table's number -> the number of its routed topics."""
        self._branches: dict[int, Branch] = {}
        self._readers: dict[int, RangeReader] = {}

    @property
    def is_due(self) -> bool:
        """Whether routed topics are to be read whose tables are not known yet, to discover these."""
        return bool(self._due)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers under which tasks report about routed topics."""
        return tuple(self._families)

    def reported_by(self, number: int) -> int:
        """The number under which tasks report a table's watermarks: that of its routed topics, if any."""
        return self._family_of.get(number, number)

    def add(
        self,
        number: int,
        target: WriteTarget | UpsertTarget,
        route: KeyRoute | None,
        rules: RejectRules | None,
        rejects_slot: int | None,
        beside: Sequence[str],
    ) -> None:
        """Add a table to the next job. Raises SchemaMismatchError for columns that do not fit, and what
        `RowFamily.bind` raises.
        """
        family, write = self._family_of[number], self._writes[number]
        assert write.part is not None
        run, stream = write.run, self._families[family].family
        schema = target.table.schema if isinstance(target, UpsertTarget) else target.schema
        reader = self._reader(family)
        names = reader.schema.names
        stream.bind(run)
        is_strict = stream.is_given and not run.follower.is_on
        known = {*schema.column_names, *beside}
        check_columns([name for name in names if is_strict or name in known], run.table, beside)
        fit = TableFit(
            run.table.location, schema, reader.source.table_schema, run.row_kind, run.follower.watch
        )
        self._branches[number] = Branch(
            number,
            fit,
            route,
            rules,
            rejects_slot,
            None if rules is None else rejects_of(number),
            write.part.floors,
        )

    def appending(self) -> dict[str, RoutedIntake]:
        """By topic: the intakes for tables with appends, and for routed topics without any table yet."""
        found: dict[str, RoutedIntake] = {}
        for number in self._families:
            branches = self._of(number)
            plain = {name: each for name, each in branches.items() if each.route is None}
            if plain or (not branches and number in self._due):
                found.update(self._intake(number, plain, None))
        return found

    def upserting(self, slots: list[tuple[int, int]]) -> dict[str, RoutedIntake]:
        """By topic: the intakes for tables whose rows have slots; routed topics get slots of their own."""
        found: dict[str, RoutedIntake] = {}
        for number in self._families:
            keyed = {name: each for name, each in self._of(number).items() if each.route is not None}
            if keyed:
                slots.append((number, 0))
                found.update(self._intake(number, keyed, len(slots) - 1))
        return found

    def pass_over(self, named: Mapping[int, Mapping[str, int]]) -> None:
        """Note which source tables the records of routed topics name, by the numbers of the topics."""
        for number in self._families.keys() & named.keys():
            self._families[number].family.pass_over(named[number])

    def settled(self, outcomes: Outcomes, due: Mapping[int, object]) -> dict[int, StreamlakeError | None]:
        """Note what tasks report about the routed topics. Gives the tables among `due` whose topics were not
        read as a whole, with the error, or None where they are to be written again; their files are
        removed.
        """
        left: dict[int, StreamlakeError | None] = {}
        for number, family in self._families.items():
            raised = outcomes[number][1]
            family.met.update(
                name for each in raised if isinstance(each, NewTablesError) for name in each.names
            )
            errors = [error for error in raised if not isinstance(error, NewTablesError)]
            members = [at for at in due if self._family_of.get(at) == number]
            self._due.discard(number)
            if not errors:
                continue
            asked = _AskedTopics(family.family, tuple(self._writes[at].run for at in members))
            answer = self._requests[number].answer(asked, errors)
            ending = family.error = answer if isinstance(answer, StreamlakeError) else None
            if ending is None:
                self._due.add(number)
            for at in members:
                self._discard(at, outcomes)
                left[at] = ending
        self._branches = {}
        self._readers = {}
        return left

    def _discard(self, number: int, outcomes: Outcomes) -> None:
        run = self._writes[number].run
        results, _ = outcomes.get(number, ([], []))
        run.discard(path for result in results for path in result.paths)
        if run.rejects is not None:
            run.rejects.discard(outcomes.get(rejects_of(number), ([], []))[0])

    def _reader(self, family: int) -> RangeReader:
        known = self._readers.get(family)
        if known is None:
            runs = [self._writes[at].run for at, each in self._family_of.items() if each == family]
            known = self._readers[family] = self._families[family].family.reader(runs)
        return known

    def _intake(
        self, number: int, branches: Mapping[str, Branch], slot: int | None
    ) -> dict[str, RoutedIntake]:
        write = self._families[number]
        family = write.family
        intake = RoutedIntake(
            number,
            self._reader(number),
            family.route,
            branches,
            write.known - branches.keys(),
            family.unrouted.table,
            family.unrouted.keeps_rows,
            family.unrouted.rejects,
            family.most,
            write.begin,
            slot,
        )
        return dict.fromkeys(family.topics, intake)

    def _of(self, family: int) -> dict[str, Branch]:
        """The branches of routed topics, by the names of their tables."""
        found = {}
        for number, branch in self._branches.items():
            part = self._writes[number].part
            if part is not None and self._family_of[number] == family:
                found[part.name] = branch
        return found
