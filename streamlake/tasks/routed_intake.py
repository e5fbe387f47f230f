"""The intake of routed topics: turns offset ranges into rows of several tables, where a row names its table.

It runs on the executors: it fetches, decodes once for all tables, splits the rows by name, then screens and
fits each part to its table. `intake` is for topics that feed one table. Invariant: every record becomes a row
of a table, or one of its rejects, or the error that stops the stream. Names of tables that are not discovered
yet are collected and their rows are skipped, because the driver then has the ranges read again for these
tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.values.decoded import Decoded
from streamlake.decode.values.envelope import Reject
from streamlake.errors import DecodeError, InvalidOptionError, NewTablesError, StreamlakeError
from streamlake.records import record_place
from streamlake.source.offsets import OffsetRange, PartitionOffsets
from streamlake.tasks.direct_reader import RangeReader
from streamlake.tasks.intake import KeyRoute
from streamlake.tasks.record_screen import RejectRules, RowScreen
from streamlake.tasks.row_names import RoutedRows, RowNames, RowRoute, left_nothing
from streamlake.tasks.table_fit import TableFit
from streamlake.tasks.table_names import ROUTE
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.tasks.watermarks import Watermarks

Array = Any  # numpy array

_SHOWN = 5


@dataclass(frozen=True)
class Branch:
    """One of the tables: its number, that of its rejects table, and how rows become its own; see Intake.

    `floors` are the offsets from which on it takes records of partitions, where they lie before the
    checkpoint's beginning.
    """

    table: int
    fit: TableFit
    route: KeyRoute | None = None
    rules: RejectRules | None = None
    rejects_slot: int | None = None
    rejects_table: int | None = None
    floors: PartitionOffsets = field(default_factory=dict)


@dataclass(frozen=True)
class RoutedIntake:
    """How the records of topics become rows of the tables in `branches`, by name.

    Outcomes that concern none of the tables are reported under the number `family`, and in `slot` where rows
    have slots. `passed` are other discovered tables, whose rows are not wanted now. `unrouted` is the table
    for records without one: with `keeps_unrouted` their rows go into it, with `rejects` the records go to its
    rejects. `most` limits the number of tables. `begin`: where the checkpoint begins.
    """

    family: int
    reader: RangeReader
    names: RowRoute
    branches: Mapping[str, Branch]
    passed: frozenset[str]
    unrouted: str
    keeps_unrouted: bool
    rejects: bool
    most: int
    begin: PartitionOffsets
    slot: int | None = None


@dataclass(frozen=True, eq=False)
class Part:
    """What one table gets of a batch: rows and rows of its rejects table, or the error why it gets none."""

    branch: Branch
    rows: pa.RecordBatch
    rejected: pa.RecordBatch | None = None
    error: StreamlakeError | None = None


class RowParting:
    """Reads ranges for one task; counts rejects and collects the names of undiscovered tables."""

    def __init__(self, intake: RoutedIntake) -> None:
        self._intake = intake
        self._names = RowNames(intake.names)
        self._screens: dict[int, RowScreen] = {}
        self._given_up: set[int] = set()
        self._keeps_records = intake.rejects or any(
            branch.rules is not None for branch in intake.branches.values()
        )
        self.times = Watermarks(intake.reader.watermark_column)
        self.met: set[str] = set()

    def parts(self, piece: OffsetRange) -> Iterator[Part]:
        """What the tables get of a range, in the order of the records for each of them.

        Raises SourceError, DataLossError, DecodeError, NewSchemaError, and InvalidOptionError when there are
        too many tables.
        """
        intake = self._intake
        see = partial(self.times.see, piece)
        begin = intake.begin.get((piece.topic, piece.partition), piece.start)
        is_own = piece.start >= begin
        branches = {name: each for name, each in intake.branches.items() if is_own or _takes(each, piece)}
        for decoded in intake.reader.decoded(
            piece,
            see,
            keep_rejects=intake.rejects,
            keep_records=self._keeps_records,
            written=partial(self._written, branches=branches),
        ):
            truncated = decoded.truncated()
            if truncated is not None:
                for branch in branches.values():
                    if branch.route is not None and branch.table not in self._given_up:
                        yield Part(branch, truncated)
            if decoded.rows.num_rows or decoded.rejects:
                yield from self._parted(decoded, branches, is_own=is_own)

    def new_tables(self) -> NewTablesError | None:
        """The report to the driver about tables that are not discovered yet; None where there are none."""
        if not self.met:
            return None
        return NewTablesError(
            f"rows belong to {len(self.met)} tables that were not met before: {_some(self.met)}",
            tuple(sorted(self.met)),
        )

    def _parted(self, decoded: Decoded, branches: Mapping[str, Branch], *, is_own: bool) -> Iterator[Part]:
        intake = self._intake
        found = self._names.of(decoded.rows)
        parts = self._places(found)
        rejects = list(decoded.rejects)
        unrouted = found.unknown()
        if not intake.keeps_unrouted:
            lost = found.without_table()
            unrouted = np.union1d(unrouted, lost[~left_nothing(decoded.rows, decoded.records)[lost]])
        if len(unrouted):
            rejects += self._unrouted(decoded, found, unrouted)
        if rejects:
            parts.setdefault(intake.unrouted, unrouted[:0])
        if is_own:
            self._meet(parts)
        wanted = [
            (branch, places, tuple(rejects) if name == intake.unrouted else ())
            for name, places in parts.items()
            if (branch := branches.get(name)) is not None and branch.table not in self._given_up
        ]
        chosen = _chosen(decoded.rows, [places for _, places, _ in wanted])
        for (branch, places, rejected), rows in zip(wanted, chosen, strict=True):
            part = self._fitted(branch, decoded, places, rows, rejected)
            if part is not None:
                yield part

    def _places(self, found: RoutedRows) -> dict[str, Array]:
        """The tables that rows go to, each with the ascending indexes of its rows."""
        parts = dict(found.places())
        lost = found.without_table()
        if len(lost) and self._intake.keeps_unrouted:
            mine = parts.get(self._intake.unrouted)
            parts[self._intake.unrouted] = lost if mine is None else np.union1d(mine, lost)
        return parts

    def _written(self, decoded: Decoded, branches: Mapping[str, Branch]) -> Array:
        """See WrittenRows: all rows but rejects of their table and rows for tables not written now."""
        written: Array = np.zeros(decoded.rows.num_rows, dtype=bool)
        for name, places in self._places(self._names.of(decoded.rows)).items():
            branch = branches.get(name)
            if branch is None or branch.table in self._given_up:
                continue
            written[places] = True
            if branch.rules is not None:
                # An error that ends the table is reported when its rows are written.
                with suppress(*FINAL_ERRORS):
                    mine = _of_branch(branch, decoded, places, decoded.rows.take(pa.array(places)))
                    written[places] = self._screen(branch, branch.rules).fitting_rows(mine)
        return written

    def _screen(self, branch: Branch, rules: RejectRules) -> RowScreen:
        known = self._screens.get(branch.table)
        if known is None:
            known = self._screens[branch.table] = RowScreen(rules)
        return known

    def give_up(self, branch: Branch) -> None:
        """Give nothing more to a table that failed."""
        self._given_up.add(branch.table)

    def _fitted(
        self,
        branch: Branch,
        decoded: Decoded,
        places: Array,
        rows: pa.RecordBatch,
        rejects: tuple[Reject, ...],
    ) -> Part | None:
        """What a table gets of the rows at these indexes of a batch; None for nothing."""
        try:
            mine = _of_branch(branch, decoded, places, rows, rejects)
            if branch.rules is None:
                return Part(branch, mine.rows)
            screen = self._screen(branch, branch.rules)
            screened = screen.screened(mine)
            rejected = screen.rejects_of(screened)
        except FINAL_ERRORS as error:
            self.give_up(branch)
            return Part(branch, rows.slice(0, 0), error=error)
        if not screened.rows.num_rows and rejected is None:
            return None
        return Part(branch, screened.rows, rejected)

    def _unrouted(self, decoded: Decoded, found: RoutedRows, lost: Array) -> list[Reject]:
        """The records of rows without a table, as rejects. Raises DecodeError where rejects are not kept."""
        first: dict[int, int] = {}
        for row in lost.tolist():
            first.setdefault(int(decoded.records[row]), row)
        if self._intake.rejects:
            return [
                Reject(record, f"{found.reason(row)}: no table is named", DecodeError.__name__)
                for record, row in first.items()
            ]
        record, row = next(iter(first.items()))
        if row in found.unknown():
            raise DecodeError(
                f"{record_place(decoded.raw, record)}: {found.reason(row)}, so that nothing says which "
                f"table of '{self._intake.names.template}' it belongs to. Have the field in every record, or "
                "let such records go to the rejects with on_error='reject'"
            )
        raise DecodeError(
            f"{record_place(decoded.raw, record)}: {found.reason(row)}, so that it belongs to no table of "
            f"'{self._intake.names.template}'. Name a table for such rows in default_table, or let their "
            f"records go to the rejects with on_error='reject'{self._hint()}"
        )

    def _hint(self) -> str:
        if not self._intake.reader.source.has_row_kinds or ROUTE in self._intake.names.template:
            return ""
        return (
            "; a delete has the field only where it is in the key, or where the database sends the whole row "
            "from before (PostgreSQL: REPLICA IDENTITY FULL)"
        )

    def _meet(self, names: Collection[str]) -> None:
        intake = self._intake
        new = [name for name in names if name not in intake.branches and name not in intake.passed]
        self.met.update(new)
        count = len(intake.branches) + len(intake.passed) + len(self.met)
        if new and count > intake.most:
            raise too_many_tables(intake.names.template, count, intake.most, self.met)


def too_many_tables(template: str, count: int, most: int, new: Collection[str]) -> InvalidOptionError:
    """The error for rows of more tables than `most`; `new` are those that were not discovered before."""
    return InvalidOptionError(
        f"the rows of '{template}' belong to {count} or more tables, and max_tables allows {most}; those "
        f"that would be new begin with {_some(new)}. Choose a field with fewer values, or raise max_tables"
    )


def _of_branch(
    branch: Branch, decoded: Decoded, places: Array, rows: pa.RecordBatch, rejects: tuple[Reject, ...] = ()
) -> Decoded:
    """The rows at these indexes of a batch, with the columns of the branch's table. Raises NewSchemaError."""
    fitted = branch.fit.of(rows)
    records = decoded.records[places]
    return replace(decoded, rows=fitted, records=records, moves=(), truncates=(), rejects=rejects)


def _takes(branch: Branch, piece: OffsetRange) -> bool:
    floor = branch.floors.get((piece.topic, piece.partition))
    return floor is not None and piece.start >= floor


def _chosen(rows: pa.RecordBatch, places: Sequence[Array]) -> Iterator[pa.RecordBatch]:
    """The rows at each of these indexes; one copy serves all of them."""
    if len(places) == 1 and len(places[0]) == rows.num_rows:
        yield rows
        return
    order: Array = np.concatenate([np.zeros(0, dtype=np.int64), *places])
    sorted_rows = rows.take(pa.array(order, pa.int64()))
    low = 0
    for each in places:
        yield sorted_rows.slice(low, len(each))
        low += len(each)


def _some(names: Collection[str]) -> str:
    shown = sorted(names)[:_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
