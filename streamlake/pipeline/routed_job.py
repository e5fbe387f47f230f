"""The families of one micro-batch on their way through Spark's jobs: intakes for the tasks, and what these tell of them.

Place in the flow: beside the tables that topics alone tell, in `table_writes`. Invariant: a table of a family is written only
where every record of the family could be read and named; else nothing of any of them is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from streamlake.errors import NewSchemaError, NewTablesError, StreamlakeError
from streamlake.pipeline.direct_reader import RangeReader
from streamlake.pipeline.evolution import MAX_CHANGES
from streamlake.pipeline.intake import KeyRoute
from streamlake.pipeline.record_screen import RejectRules
from streamlake.pipeline.routed_intake import Branch, RoutedIntake
from streamlake.pipeline.row_families import FamilyWrite, RowPart
from streamlake.pipeline.sink_run import SinkRun, check_columns
from streamlake.pipeline.source_notes import asked_sources
from streamlake.pipeline.table_fit import TableFit
from streamlake.pipeline.table_tasks import rejects_of
from streamlake.pipeline.task_outcome import lasting_error
from streamlake.write.result import WriteResult
from streamlake.write.target import WriteTarget
from streamlake.write.upsert_target import UpsertTarget

Outcomes = Mapping[int, tuple[list[WriteResult], list[StreamlakeError]]]
"""By the numbers of tables, of their rejects tables, and of families."""


class RoutedTable(Protocol):
    """What is asked of a table's write; without a `part` it is in no family."""

    @property
    def run(self) -> SinkRun: ...

    @property
    def part(self) -> RowPart | None: ...


class RoutedJob:
    """`writes` are all tables of the micro-batch by number; families are numbered behind them."""

    def __init__(self, writes: Sequence[RoutedTable], families: Sequence[FamilyWrite]) -> None:
        self._writes = writes
        self._families = {len(writes) + at: each for at, each in enumerate(families)}
        self._due = set(self._families)
        number_of = {id(each.family): number for number, each in self._families.items()}
        self._family_of = {
            number: number_of[id(write.part.family)]
            for number, write in enumerate(writes)
            if write.part is not None
        }
        """Table's number -> its family's."""
        self._branches: dict[int, Branch] = {}
        self._readers: dict[int, RangeReader] = {}

    @property
    def is_due(self) -> bool:
        """Whether a family is to be read whose tables are not: to learn which these are."""
        return bool(self._due)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that tasks tell of families under."""
        return tuple(self._families)

    def told_by(self, number: int) -> int:
        """The number under which tasks tell of a table's times: its family's, if it is in one."""
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
        """A table takes part in the next job. Raises SchemaMismatchError for columns that cannot be its own, and what
        `RowFamily.bind` does."""
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
        """By topic: the intakes for tables that rows are added to, and for families that nothing is known of yet."""
        found: dict[str, RoutedIntake] = {}
        for number in self._families:
            branches = self._of(number)
            plain = {name: each for name, each in branches.items() if each.route is None}
            if plain or (not branches and number in self._due):
                found.update(self._intake(number, plain, None))
        return found

    def upserting(self, slots: list[tuple[int, int]]) -> dict[str, RoutedIntake]:
        """By topic: the intakes for tables whose rows have slots; the families get slots of their own."""
        found: dict[str, RoutedIntake] = {}
        for number in self._families:
            keyed = {name: each for name, each in self._of(number).items() if each.route is not None}
            if keyed:
                slots.append((number, 0))
                found.update(self._intake(number, keyed, len(slots) - 1))
        return found

    def pass_over(self, named: Mapping[int, Mapping[str, int]]) -> None:
        """Note which source tables the records of families name, by the families' numbers."""
        for number in self._families.keys() & named.keys():
            self._families[number].family.pass_over(named[number])

    def settled(self, outcomes: Outcomes, due: Mapping[int, object]) -> dict[int, StreamlakeError | None]:
        """What tasks tell of the families is noted. Of the tables among `due` whose family was not read as a whole: why, or None
        where they are to be written again; their files are removed."""
        left: dict[int, StreamlakeError | None] = {}
        for number, family in self._families.items():
            errors = [error for error in outcomes[number][1] if not isinstance(error, NewTablesError)]
            for error in outcomes[number][1]:
                family.met.update(error.names if isinstance(error, NewTablesError) else ())
            members = [at for at in due if self._family_of.get(at) == number]
            self._due.discard(number)
            if not errors:
                continue
            error = lasting_error(errors)
            if asked := asked_sources(errors):
                ending = self._kept(family, asked, members)
                family.error = ending
                self._due |= {number} if ending is None else set()
            elif isinstance(error, NewSchemaError) and self._is_answered(family, errors, members):
                self._due.add(number)
                ending = None
            else:
                family.error = ending = error
            for at in members:
                self._discard(at, outcomes)
                left[at] = ending
        self._branches = {}
        self._readers = {}
        return left

    def _kept(
        self, family: FamilyWrite, asked: Mapping[str, str], members: Sequence[int]
    ) -> StreamlakeError | None:
        """What tasks ask to keep of topics is kept with the tables; why not, where that is impossible."""
        try:
            family.family.keep_sources(asked, [self._writes[at].run for at in members])
        except StreamlakeError as error:
            return error
        return None

    def _is_answered(
        self, family: FamilyWrite, errors: Sequence[StreamlakeError], members: Sequence[int]
    ) -> bool:
        family.changes += 1
        runs = [self._writes[at].run for at in members]
        return family.changes <= MAX_CHANGES and family.family.answer(errors, runs)

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
        """The branches of a family, by the names of their tables."""
        found = {}
        for number, branch in self._branches.items():
            part = self._writes[number].part
            if part is not None and self._family_of[number] == family:
                found[part.name] = branch
        return found
