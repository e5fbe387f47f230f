"""One run of maintenance on one table: the lease, then the actions that are due, one after the other.

Place in the flow: in a process of its own (`run_process`), beside a stream. Invariant: an error of one action
does not keep the others from running, and every one of them is in the report.
"""

from __future__ import annotations

from streamlake import clock
from streamlake.catalog.open import open_table
from streamlake.errors import StreamlakeError
from streamlake.failpoints import failpoint
from streamlake.maintain.background.lease import take_lease
from streamlake.maintain.background.run_values import ActionEnding, RunReport, RunRequest
from streamlake.maintain.care import figures
from streamlake.maintain.compact.compact_options import CompactSettings
from streamlake.maintain.retention import MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, agrees_to_expire
from streamlake.maintain.upkeep import EXPIRE, UpkeepSettings, maintain
from streamlake.table.table import Table

_LONGEST_ERROR = 2_000
NOT_AGREED = f"the table has neither {MAX_SNAPSHOT_AGE} nor {MIN_SNAPSHOTS}"


def run_maintenance(request: RunRequest) -> RunReport:
    """Do what is asked for. Errors are in the report."""
    try:
        table = open_table(request.table, request.catalog)
        held = take_lease(table, request.holder, request.lease_seconds)
        if held is not None:
            return RunReport(held=held)
        failpoint("maintenance-begun")
        before = figures(table)
        endings = tuple(_ending(table, request, action) for action in request.actions)
        return RunReport(endings, before, figures(table.refresh()))
    except (StreamlakeError, OSError) as error:
        return RunReport(error=_text(error))


def _ending(table: Table, request: RunRequest, action: str) -> ActionEnding:
    if action == EXPIRE and not agrees_to_expire(table.refresh().properties):
        return ActionEnding(action, left_out=NOT_AGREED)
    started = clock.monotonic()
    error = None
    try:
        maintain(table, UpkeepSettings(only=(action,), branch=request.branch, compact=_compact(request)))
    except (StreamlakeError, OSError) as raised:
        error = _text(raised)
    return ActionEnding(action, round(clock.monotonic() - started, 3), error)


def _compact(request: RunRequest) -> CompactSettings:
    """Groups of the most small files first, one at a time, and within the budget."""
    budget = {} if request.max_bytes is None else {"max-file-group-size-bytes": request.max_bytes}
    options = {
        "rewrite-job-order": "files-desc",
        "max-concurrent-file-group-rewrites": 1,
        **budget,
        **request.compact,
    }
    return CompactSettings(options=options, in_tiers=True, max_bytes=request.max_bytes)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_ERROR]
