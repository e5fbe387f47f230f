"""`streamlake index`: shows the key index of a table, checks it, and rebuilds it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from streamlake.cli.arguments import parse_catalog
from streamlake.cli.views.index_views import check_view, check_words, status_view
from streamlake.cli.views.rendering import json_text, show
from streamlake.errors import IndexDamagedError, InvalidOptionError
from streamlake.index.bucketing import Bucketing
from streamlake.operate.doctor.index_check import IndexCheck, check_index
from streamlake.operate.doctor.index_rebuild import rebuild_index
from streamlake.operate.doctor.index_status import IndexStatus, index_key, index_status
from streamlake.options import int_property
from streamlake.pipeline.key_index.indexed_rows import needs_spark
from streamlake.pipeline.runs.upsert_options import BUCKETS
from streamlake.pipeline.spark.session import SparkSession, spark_session
from streamlake.read.metadata_tables import Row
from streamlake.read.natural_values import instant
from streamlake.table.table import Table
from streamlake.tables import load_table


def run(
    what: str,
    location: str,
    as_json: bool,
    catalog: str | None,
    branch: str,
    key: str | None,
    sequence_by: str | None,
) -> int:
    """Do one of status, check and rebuild; returns the exit code.

    Raises InvalidOptionError, TableNotFoundError, SchemaMismatchError for a key column that does not exist,
    and from check IndexDamagedError.
    """
    table = load_table(location, catalog=parse_catalog(catalog)).table
    ref = table.refs.get(branch)
    if ref is None and branch != "main":
        known = ", ".join(name for name, each in table.refs.items() if each.type == "branch")
        raise InvalidOptionError(f"{table.location} has no branch '{branch}'; it has {known or 'none yet'}")
    found = index_status(table, branch, index_key(table, branch, _columns(key), _columns(sequence_by)))
    return _COMMANDS[what](table, branch, found, as_json)


def status_content(table: Table, branch: str, status: IndexStatus) -> Row:
    """The index at a glance, ready for JSON."""
    state, named = status.state, status.named
    return {
        "location": table.location,
        "branch": branch,
        "head_snapshot_id": None if status.head is None else status.head.snapshot_id,
        "state": None if named is None else named.path,
        "problem": status.problem,
        "snapshot_id": None if named is None else named.snapshot.snapshot_id,
        "committed_at": None if named is None else instant(named.snapshot.timestamp_ms),
        "is_rebuilt": named is not None and named.is_rebuilt,
        "key": list(status.key.columns),
        "sequence_by": list(status.key.sequence_by),
        "buckets": None if state is None else state.buckets,
        "runs": None if state is None else len(state.runs),
        "entries": None if state is None else sum(run.entries for run in state.runs),
        "tombstones": None if state is None else sum(run.tombstones for run in state.runs),
        "bytes": None if state is None else sum(run.bytes for run in state.runs),
        "missing_runs": list(status.missing),
        "snapshots_above": status.snapshots_above,
        "data_files_above": len(status.files_above),
        "rows_above": sum(task.data_file.record_count for task in status.files_above),
    }


def check_content(status: Row, check: IndexCheck) -> Row:
    """The result of a check, ready for JSON."""
    return {
        **status,
        "is_good": check.is_good,
        "live_rows": check.rows,
        "missing_rows": check.missing,
        "rows_at_wrong_positions": check.misplaced,
        "dead_places": check.dead,
        "examples": check.examples,
    }


def _status(table: Table, branch: str, status: IndexStatus, as_json: bool) -> int:
    content = status_content(table, branch, status)
    if as_json:
        sys.stdout.write(json_text(content) + "\n")
    else:
        show(status_view(content))
    return 0


def _check(table: Table, branch: str, status: IndexStatus, as_json: bool) -> int:
    if status.state is None:
        if status.problem is not None:
            raise IndexDamagedError(status.problem)
        raise InvalidOptionError(
            f"{table.location}: branch '{branch}' has no key index over {', '.join(status.key.columns)} that "
            "could be checked; the next checkpoint builds it, or `streamlake index rebuild`"
        )
    check = check_index(table, status)
    content = check_content(status_content(table, branch, status), check)
    if as_json:
        sys.stdout.write(json_text(content) + "\n")
    else:
        show(check_view(content))
    if check.is_good:
        return 0
    sys.stderr.write(
        f"error: {check_words(content)}; `streamlake index rebuild {table.location}` rebuilds it\n"
    )
    return 1


def _rebuild(table: Table, branch: str, status: IndexStatus, as_json: bool) -> int:
    tasks = (*status.files_below, *status.files_above)
    session: SparkSession | None = None
    if needs_spark(tasks):
        session = spark_session(f"streamlake index rebuild {table.location}")
    try:
        bucketing = status.state.bucketing if status.state is not None else Bucketing(_buckets(table))
        rebuild_index(table, branch, status.key, bucketing, session)
    finally:
        if session is not None:
            session.stop()
    return _status(table, branch, index_status(table, branch, status.key), as_json)


def _buckets(table: Table) -> int:
    return int_property(table.properties, BUCKETS, os.cpu_count() or 1, minimum=1)


def _columns(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


_COMMANDS: dict[str, Callable[[Table, str, IndexStatus, bool], int]] = {
    "status": _status,
    "check": _check,
    "rebuild": _rebuild,
}
