"""The status of a table's key index: which one it is, how large, and how many snapshots it lags behind.

`streamlake index` uses it beside or between runs of a stream. Invariant: nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamlake.errors import IndexDamagedError, InvalidOptionError, MissingFileError
from streamlake.index.state import IndexState
from streamlake.pipeline.key_index.covered import live_tasks
from streamlake.pipeline.key_index.index_files import load_state
from streamlake.pipeline.key_index.index_states import NamedState, named_columns, named_states
from streamlake.pipeline.runs.upsert_options import identifier_columns
from streamlake.read.planning import FileScanTask
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head
from streamlake.write.upsert.upsert_key import SEQUENCE_FIELD, UpsertKey

Ids = tuple[int, ...]


@dataclass(frozen=True)
class IndexStatus:
    """The key index of one branch, over the columns of `key`.

    `named` and `state` are None where there is no index yet. Where there is one that cannot be read, `state`
    is None and `problem` says why. `snapshots_above` counts the snapshots that were committed after its own.
    `files_above` are live data files that it does not cover: other writers' work, which the next checkpoint
    indexes. `files_below` are the live data files that it covers. `missing` are runs and position maps
    that do not exist, or are incomplete.
    """

    key: UpsertKey
    head: Snapshot | None
    named: NamedState | None
    state: IndexState | None
    snapshots_above: int = 0
    files_above: tuple[FileScanTask, ...] = ()
    files_below: tuple[FileScanTask, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str | None = None


def index_key(table: Table, branch: str, key: Sequence[str], sequence_by: Sequence[str]) -> UpsertKey:
    """The key of a branch's index: the given columns, else the newest index's, else the identifier fields.

    Raises InvalidOptionError where none of these gives a key, or a column no longer exists.
    """
    schema = table.schema
    given = UpsertKey.of(schema, key, sequence_by, table.location) if key else None
    for named in named_states(table.metadata, branch):
        key_ids, sequence_ids = _columns_of(table, named)
        if not key_ids:
            continue
        if given is not None and (key_ids != given.key_ids or sequence_by):
            continue
        return UpsertKey.of(
            schema,
            _names(table, key_ids),
            tuple(sequence_by) or _names(table, sequence_ids),
            table.location,
        )
    if given is not None:
        return given
    identifiers = identifier_columns(table)
    if not identifiers:
        raise InvalidOptionError(
            f"{table.location}: branch '{branch}' has no key index, and the schema no identifier fields: "
            "name the key's columns with --key"
        )
    return UpsertKey.of(schema, identifiers, sequence_by, table.location)


def index_status(table: Table, branch: str, key: UpsertKey) -> IndexStatus:
    """The status of the branch's index over these columns."""
    head = branch_head(table.metadata, branch)
    tasks = live_tasks(table, head)
    named = found_state(table, branch, key)
    if named is None or head is None:
        return IndexStatus(key, head, None, None, files_above=tuple(tasks.values()))
    try:
        state = load_state(table, named.path)
    except (IndexDamagedError, MissingFileError) as error:
        return IndexStatus(key, head, named, None, files_above=tuple(tasks.values()), problem=str(error))
    known = tasks if named.snapshot == head else live_tasks(table, named.snapshot)
    above = 0
    for snapshot in table.metadata.ancestors(head.snapshot_id):
        if snapshot.snapshot_id == named.snapshot.snapshot_id:
            break
        above += 1
    return IndexStatus(
        key,
        head,
        named,
        state,
        snapshots_above=above,
        files_above=tuple(task for path, task in tasks.items() if path not in known),
        files_below=tuple(task for path, task in tasks.items() if path in known),
        missing=tuple(_missing(table, state)),
    )


def found_state(table: Table, branch: str, key: UpsertKey) -> NamedState | None:
    """The newest state of the branch's index over these columns; None where there is none."""
    wanted = (key.key_ids, key.sequence_ids)
    for named in named_states(table.metadata, branch):
        if _columns_of(table, named) == wanted:
            return named
    return None


def _missing(table: Table, state: IndexState) -> Iterable[str]:
    for file in state.files:
        try:
            if table.io.size(file.path) != file.bytes:
                yield file.path
        except MissingFileError:
            yield file.path


def _columns_of(table: Table, named: NamedState) -> tuple[Ids, Ids]:
    recorded = named_columns(named)
    if recorded is not None:
        return recorded
    try:
        state = load_state(table, named.path)
    except (IndexDamagedError, MissingFileError):
        return (), ()
    return state.key_ids, state.sequence_ids


def _names(table: Table, field_ids: Ids) -> tuple[str, ...]:
    by_id = {part.field_id: part.name for part in (*table.schema.fields, SEQUENCE_FIELD)}
    for field_id in field_ids:
        if field_id not in by_id:
            raise InvalidOptionError(
                f"{table.location}: the newest key index is over the column with field id {field_id}, which "
                "the table no longer has: name the key's columns with --key"
            )
    return tuple(by_id[field_id] for field_id in field_ids)
