"""Checks the table that a pipeline reads: whether it is there, its columns, and what is read of it next.

Place in the flow: what topics are for the check of a Kafka source. It resolves the options with the stream's
own enumerator, which plans as little as a first micro-batch does, and reads no data file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamlake.catalog.open import open_table
from streamlake.errors import StreamlakeError
from streamlake.operate.check.check_points import Points
from streamlake.operate.check.column_fit import KEY
from streamlake.operate.check.directory_check import LoggedPosition
from streamlake.operate.check.sink_check import SCHEMA, SinkPlan
from streamlake.operate.read_position import NO_DELETES, lost_snapshots, place_in_words, read_position
from streamlake.pipeline.iceberg import source_findings
from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.pipeline.iceberg.stream_lag import StreamLag
from streamlake.pipeline.sinks.prepared_table import CHANGE_COLUMNS, require_another, resolved_changes
from streamlake.pipeline.sinks.sink_settings import ChangeSettings
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.wording import counted

SOURCE = "source"
OFFSETS = "offsets"
MODE = "mode"
APPEND = "append"


@dataclass
class TableSourceCheck:
    """The check of one table as a source.

    `table` is None where it could not be opened. `fits`: filter and columns are right, as far as is known.
    """

    source: IcebergSource
    table: Table | None
    points: Points
    fits: bool = True

    @staticmethod
    def opened(source: IcebergSource, points: Points) -> TableSourceCheck:
        """Open the table, and check that there is what the options name."""
        try:
            table = open_table(str(source.location), source.catalog)
        except StreamlakeError as error:
            points.error(SOURCE, str(error))
            return TableSourceCheck(source, None, points)
        head = table.metadata.head(source.settings.branch)
        upto = "and is empty" if head is None else f"up to snapshot {head.snapshot_id}"
        points.right(
            SOURCE,
            f"{table.location} is there: format version {table.format_version}, "
            f"{counted(len(table.snapshots), 'snapshot')} {upto}",
        )
        return TableSourceCheck(source, table, points)

    def columns(self, plan: SinkPlan, sink: Table | None) -> tuple[Schema | None, SinkPlan]:
        """The columns of the stream (None: they are not known), and the plan with what the source says of key
        and row kinds.
        """
        if self.table is None:
            return None, plan
        changes = self.source.settings.read_mode == "changes"
        if changes and plan.mode == APPEND:
            self.points.note(
                MODE,
                "read-mode=changes brings updates and deletes, and mode 'append' keeps each of them as a row "
                "of its own, with _row_kind; to carry them out set sink.mode: upsert",
            )
        elif changes and not plan.is_keyed:
            self.points.error(
                MODE,
                f"read-mode=changes brings updates and deletes, which mode '{plan.mode}' cannot carry out; "
                "set sink.mode: upsert",
            )
        try:
            rows = SnapshotEnumerator(self.table, self.source).columns()
        except StreamlakeError as error:
            self.points.error(SCHEMA, str(error))
            self.fits = False
            return None, plan
        with self.points.errors(KEY):
            given = ChangeSettings(mode=plan.mode, key=tuple(plan.key), row_kind=plan.row_kind)
            found = resolved_changes(given, self.source, rows, sink)
            plan = replace(plan, key=found.key, row_kind=found.row_kind)
        hidden = CHANGE_COLUMNS if changes and plan.is_keyed else frozenset()
        shown = (part for part in rows.fields if part.name not in hidden or part.name == plan.row_kind)
        return replace(rows, fields=tuple(shown)), plan

    def other_than(self, sink: Table | None, branch: str) -> None:
        """Check that the stream does not read what it writes."""
        if self.table is not None:
            with self.points.errors(SOURCE):
                require_another(self.table, self.source, sink, branch)

    def position(self, logged: LoggedPosition) -> None:
        """Check that there is a way from where the stream is, or begins, to the newest snapshot."""
        if self.table is None or not self.fits:
            return
        try:
            found = read_position(self.table, self.source, logged.end)
            if logged.is_due and logged.end is not None:
                found.enumerator.splits(logged.before, logged.end)
            known = found.offset
            stopping, lag = found.stopping(), found.enumerator.lag(known)
        except StreamlakeError as error:
            self.points.error(OFFSETS, str(error))
            return
        if found.lost:
            self.points.warning(OFFSETS, f"{lost_snapshots(found.lost)}, because fail-on-data-loss is false")
        begins = "a new stream begins" if logged.end is None else "the checkpoint directory goes on"
        self.points.right(
            OFFSETS, f"{begins} {place_in_words(known.position)}; {_shown(lag)} before the end of the table"
        )
        if self.source.settings.read_mode == "append":
            self._check_deletes(self.table, stopping)

    def _check_deletes(self, table: Table, met: Sequence[Snapshot]) -> None:
        """Check what a stream of appended rows meets that is no append."""
        if met and not self.source.settings.skips_deletes:
            self.points.error(OFFSETS, str(source_findings.undone(table.name, met[0])))
        elif met:
            added = sum(int(each.summary.get("added-records", "0")) for each in met)
            self.points.warning(
                OFFSETS,
                f"{counted(len(met), 'snapshot')} that delete or overwrite are passed over, with "
                f"{counted(added, 'row')} that they add, because on-delete is skip; "
                "read-mode=changes reads them",
            )
        elif not self.source.settings.skips_deletes:
            self._warn_of_history(table)

    def _warn_of_history(self, table: Table) -> None:
        head = table.metadata.head(self.source.settings.branch)
        history = table.metadata.ancestors(None if head is None else head.snapshot_id)
        last = next((each for each in history if each.operation not in NO_DELETES), None)
        if last is not None:
            self.points.warning(
                OFFSETS,
                f"the history of {table.location} has deletes (snapshot {last.snapshot_id} is the last that "
                f"is '{last.operation}'), and the stream stops at the next one: read them as changes "
                "(read-mode=changes, into sink.mode: upsert), or pass over such snapshots with all that they "
                "add (on-delete=skip)",
            )


def _shown(lag: StreamLag) -> str:
    return f"{counted(lag.snapshots, 'snapshot')} ({counted(lag.rows, 'row')})"
