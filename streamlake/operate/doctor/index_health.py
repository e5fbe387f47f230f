"""Checks the key indexes that a table names, for `streamlake doctor`: readable, complete, up to date.

Invariant: an index is never the source of truth, so nothing here is an error; the stream rebuilds what it
cannot use.
"""

from __future__ import annotations

import shlex

from streamlake.errors import (
    DataInvalidError,
    IndexDamagedError,
    InvalidOptionError,
    MissingFileError,
    SchemaMismatchError,
)
from streamlake.maintain.reachable_files import ReachableFiles
from streamlake.operate.doctor.finding import Findings
from streamlake.operate.doctor.index_status import IndexStatus, index_key, index_status
from streamlake.pipeline.key_index.index_files import load_state
from streamlake.pipeline.key_index.index_states import branches, named_states
from streamlake.table.table import Table
from streamlake.wording import counted


def check_indexes(table: Table, findings: Findings, reachable: ReachableFiles) -> None:
    """Add what is wrong with the newest index of each branch; all its files count as reachable."""
    listed = {_name(info.path) for info in table.io.list_prefix(table.locations.index_directory)}
    read: set[str] = set()
    for branch in branches(table.metadata):
        has_index = False
        for named in named_states(table.metadata, branch):
            has_index = True
            if named.path not in read and _name(named.path) in listed:
                read.add(named.path)
                _need(table, named.path, reachable)
        if has_index:
            _check_branch(table, branch, findings)


def _need(table: Table, path: str, reachable: ReachableFiles) -> None:
    reachable.need(path, None, "index state", "a snapshot", required=False)
    try:
        state = load_state(table, path)
        for run in state.runs:
            reachable.need(run.path, run.bytes, "index run", path, required=False)
        for moved in state.maps:
            reachable.need(moved.path, moved.bytes, "position map", path, required=False)
    except MissingFileError:
        return
    except IndexDamagedError:
        reachable.is_complete = False


def _check_branch(table: Table, branch: str, findings: Findings) -> None:
    where = f"the key index of branch '{branch}'"
    try:
        status = index_status(table, branch, index_key(table, branch, (), ()))
    except (InvalidOptionError, SchemaMismatchError) as error:
        findings.warning("index-key", where, str(error), "start the stream with a key that the table has")
        return
    except DataInvalidError as error:
        if not findings.has_errors:  # otherwise it is already reported
            findings.error("index-key", where, str(error), "put the table right first")
        return
    fix = _rebuild(table, branch, status)
    if status.problem is not None and status.named is not None:
        findings.warning("index-state", status.named.path, status.problem, fix)
    for path in status.missing:
        what = "a run of the newest key index is missing or cut short: the next checkpoint rebuilds the index"
        findings.warning("index-run", path, what, fix)
    if status.state is not None and status.files_above:
        rows = sum(task.data_file.record_count for task in status.files_above)
        findings.note(
            "index-behind",
            where,
            f"does not know {counted(len(status.files_above), 'data file')} with "
            f"{counted(rows, 'row')} yet, from {counted(status.snapshots_above, 'snapshot')} of other "
            "writers",
            "nothing: the next checkpoint reads them",
        )


def _rebuild(table: Table, branch: str, status: IndexStatus) -> str:
    words = ["streamlake", "index", "rebuild", table.location]
    words += [] if branch == "main" else ["--branch", branch]
    words += ["--key", ",".join(status.key.columns)]
    words += ["--sequence-by", ",".join(status.key.sequence_by)] if status.key.sequence_by else []
    return f"`{shlex.join(words)}`, or leave it to the next checkpoint"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
