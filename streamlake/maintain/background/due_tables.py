"""The tables of a stream, and which of them is due for which actions: a state that knows no threads.

Place in the flow: `maintenance_worker` asks it, and reports how a run ended. Times are seconds of the
monotonic clock. Invariant: a failure never stops the maintenance for good; the wait doubles, up to an hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streamlake import clock
from streamlake.catalog.open import CatalogOption
from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.maintain.background.commit_counts import CommitCounts, counts_at_first
from streamlake.maintain.background.maintenance_settings import MaintenanceSettings
from streamlake.maintain.background.run_values import RunReport, RunRequest
from streamlake.maintain.upkeep import ACTIONS
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata

_FIRST_WAIT_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 3600.0


@dataclass(frozen=True)
class MaintainedTable:
    """A table of a stream, as it is opened, and how it is maintained. `holder` names the stream in the
    lease.
    """

    table: str
    catalog: CatalogOption
    branch: str
    holder: str
    settings: MaintenanceSettings


@dataclass
class _Known:
    table: MaintainedTable
    counts: dict[str, CommitCounts]
    next_at: float
    failures: int = 0
    shown: TableUpkeep = field(default_factory=lambda: TableUpkeep(""))


class DueTables:
    """The state of all tables. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._lag_seconds = 0.0
        self._lag_at = 0.0

    def committed(
        self,
        table: MaintainedTable,
        metadata: TableMetadata,
        snapshot: Snapshot | None,
        lag_seconds: float,
        now: float,
    ) -> None:
        """Count a commit of the stream: `metadata` has it, as `snapshot`."""
        self._lag_seconds, self._lag_at = lag_seconds, now
        known = self._known.get(table.table)
        if known is None:
            first = counts_at_first(metadata, table.branch, now)
            counts = dict.fromkeys(table.settings.schedules, first)
            known = _Known(table, counts, now, shown=TableUpkeep(table.table))
            self._known[table.table] = known
        elif snapshot is not None:
            known.table = table
            known.counts = {action: counts.plus(snapshot) for action, counts in known.counts.items()}

    def request(self, now: float) -> RunRequest | None:
        """The run that is to begin now; None while there is none. The table that has waited longest is
        first.
        """
        waiting = sorted(self._known.values(), key=lambda known: known.next_at)
        for known in waiting:
            table = known.table
            due = self._due(known, now)
            if not due or now < known.next_at or self._lags(table.settings, now):
                continue
            settings = table.settings
            return RunRequest(
                table.table,
                table.catalog,
                table.branch,
                due,
                table.holder,
                settings.lease_seconds,
                settings.compact,
                settings.max_bytes,
            )
        return None

    def ended(self, request: RunRequest, report: RunReport, now: float) -> None:
        """A run has ended: what went well is counted anew."""
        known = self._known[request.table]
        settled = {each.action for each in report.endings if each.error is None}
        known.counts = {
            action: CommitCounts(now) if action in settled else counts
            for action, counts in known.counts.items()
        }
        wait = float(known.table.settings.rate_limit_seconds)
        error = report.first_error
        if report.held is not None:
            left = (report.held.until_ms - clock.now_ms()) / 1000
            known.next_at = now + max(wait, min(left, float(request.lease_seconds)))
            known.shown = replace(known.shown, waits_for=f"{report.held.holder}, which maintains it")
            return
        known.failures = 0 if error is None else known.failures + 1
        if known.failures:
            wait = max(wait, min(_FIRST_WAIT_SECONDS * 2 ** (known.failures - 1), _LONGEST_WAIT_SECONDS))
        known.next_at = now + wait
        known.shown = TableUpkeep(
            request.table, clock.now_ms(), report.done, report.in_words, waits_for=None, error=error
        )

    def shown(self, now: float) -> tuple[TableUpkeep, ...]:
        """The state of each table."""
        found = []
        for known in self._known.values():
            due = self._due(known, now)
            waits_for = known.shown.waits_for
            if due and self._lags(known.table.settings, now):
                waits_for = "the stream, which is behind"
            elif due and now < known.next_at and waits_for is None:
                waits_for = f"another {known.next_at - now:,.0f} s"
            found.append(replace(known.shown, due=due, waits_for=waits_for if due else None))
        return tuple(found)

    def _due(self, known: _Known, now: float) -> tuple[str, ...]:
        schedules = known.table.settings.schedules
        return tuple(
            action
            for action in ACTIONS
            if action in schedules and known.counts[action].is_due(schedules[action], now)
        )

    def _lags(self, settings: MaintenanceSettings, now: float) -> bool:
        """Whether the stream is behind. One that has not committed for so long has nothing to do."""
        most = settings.max_lag_seconds
        return self._lag_seconds > most and now - self._lag_at <= self._lag_seconds + most
