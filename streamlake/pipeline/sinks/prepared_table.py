"""An IcebergSource prepared for one table: the columns of its rows, and the key and order of its changes.

Place in the flow: once per query, before the first micro-batch. Invariant: what the user gave is never
replaced by what the source table says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamlake.commit.committer import OVERWRITES
from streamlake.errors import InvalidOptionError, TableNotFoundError
from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.pipeline.iceberg.table_offsets import KeptColumns, kept_columns, opened_source
from streamlake.pipeline.runs.evolution import EvolutionOptions
from streamlake.pipeline.runs.rejects import REJECT
from streamlake.pipeline.runs.split.fitted_columns import FittedColumns
from streamlake.pipeline.runs.split.split_job import SplitTable
from streamlake.pipeline.runs.upsert_options import identifier_columns
from streamlake.pipeline.sinks.sink_settings import ChangeSettings, SinkSettings, require_row_kind
from streamlake.pipeline.sinks.table_stream import TableStream
from streamlake.source.iceberg.iceberg_options import Strategy
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.spec.types.data_types import TimestampNsType, TimestamptzNsType
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.tasks.watermarks import is_time, require_watermark_column
from streamlake.write.upsert.upsert_target import UPSERT

CHANGE_KIND = "_row_kind"
CHANGE_ORDER = "_ordinal"
CHANGE_COLUMNS = frozenset({CHANGE_KIND, "_snapshot_id", "_sequence_number", CHANGE_ORDER, "_row_id"})
"""The columns that rows have beside the table's own with read-mode=changes."""
_SINCE_V3 = (TimestampNsType, TimestamptzNsType)


@dataclass(frozen=True)
class PreparedTable:
    """A source's table, opened, and the table that its rows go into. `kept`: the columns that rows are read
    with where the target does not follow the source's.
    """

    table: Table
    target: SplitTable
    kept: KeptColumns


def prepared_table(
    stream: TableStream, source: IcebergSource, known: TableOffset | None = None
) -> PreparedTable:
    """The source as a stream into a table; `known` is the last offset of its log.

    Raises InvalidOptionError for options that do not fit the source's table or the mode, TableNotFoundError
    where there is no source table.
    """
    settings = stream.settings
    if settings.errors.on_error == REJECT:
        raise InvalidOptionError(
            f"on_error='{REJECT}' keeps records of a KafkaSource; the rows of a table are rows already: "
            "leave it out"
        )
    _require_carried_out(settings.changes, source)
    table = opened_source(source.as_stream(can_hold=True))
    target = _target(settings)
    require_another(table, source, target, settings.branch)
    given = settings.evolution
    properties = settings.properties if target is None else target.properties
    evolution = EvolutionOptions.of(given.schema_evolution, given.rename_columns, properties)
    kept = KeptColumns() if evolution.is_on else kept_columns(table, source, known)
    rows = SnapshotEnumerator(table, source, schema_id=kept.schema_id, has_row_ids=kept.has_row_ids).columns()
    changes = resolved_changes(settings.changes, source, rows, target)
    if changes.is_keyed and changes.row_kind == CHANGE_KIND:
        _require_free(target)
    if known is None:
        _require_order(table, source, changes)
    hidden = CHANGE_COLUMNS if source.settings.read_mode == "changes" and changes.is_keyed else frozenset()
    shown = tuple(part for part in rows.fields if part.name not in hidden or part.name == changes.row_kind)
    created = _for_new(replace(settings, changes=changes), rows)
    return PreparedTable(
        table,
        SplitTable(
            stream.resolved(created),
            replace(rows, fields=shown),
            FittedColumns(table.name, hidden),
            _watermark_column(source, rows),
            CHANGE_ORDER if hidden and not changes.sequence_by and changes.row_kind == CHANGE_KIND else None,
            replaces=changes.row_kind == CHANGE_KIND and changes.mode == UPSERT,
        ),
        kept,
    )


def resolved_changes(
    changes: ChangeSettings, source: IcebergSource, rows: Schema, target: Table | None
) -> ChangeSettings:
    """The settings of changes with what the source says: the key is that of its identifier fields, unless
    the target has a key; with read-mode=changes the row kind is that of each row.

    Raises InvalidOptionError where rows have no key and a mode needs one, and for deletes in a mode that
    cannot carry them out.
    """
    if not changes.is_keyed:
        return changes
    require_row_kind(changes, source)
    kind = changes.row_kind
    if kind is None and source.settings.read_mode == "changes":
        kind = CHANGE_KIND
    key = changes.key
    if not key and (target is None or not identifier_columns(target)):
        key = tuple(rows.identifier_names)
        if not key:
            raise InvalidOptionError(
                f"IcebergSource: {source.location} has no identifier fields among the columns that are read, "
                f"and mode '{changes.mode}' needs a key: name its columns in key=[...]"
            )
    return replace(changes, key=key, row_kind=kind)


def _require_carried_out(changes: ChangeSettings, source: IcebergSource) -> None:
    """Raises InvalidOptionError for changes in a mode that replaces the table by those of one micro-batch."""
    if source.settings.read_mode == "changes" and changes.mode in OVERWRITES:
        raise InvalidOptionError(
            f"read-mode=changes brings updates and deletes, which mode '{changes.mode}' cannot carry out; "
            "use mode 'upsert', or 'append' to keep each change as a row"
        )


def _target(settings: SinkSettings) -> Table | None:
    try:
        return settings.opened_table()
    except TableNotFoundError:
        return None


def require_another(table: Table, source: IcebergSource, target: Table | None, branch: str) -> None:
    """Raise InvalidOptionError where a stream would read from `table` what it writes to `target`."""
    if target is not None and target.uuid == table.uuid and branch == source.settings.branch:
        raise InvalidOptionError(
            f"the stream reads branch {branch} of {table.name} and writes it too: each of its "
            "commits would be read again, without end; write another table, or another branch"
        )


def _require_order(table: Table, source: IcebergSource, changes: ChangeSettings) -> None:
    """Raises InvalidOptionError where the first scan may have several rows of a key: the files of a snapshot
    are in no order that says which of them is the newest.
    """
    is_scan = source.settings.strategy is Strategy.TABLE_SCAN and bool(table.snapshots)
    if not (changes.is_keyed and is_scan) or changes.sequence_given is not None:
        return
    unique = set(table.schema.identifier_names)
    if not unique or not unique <= set(changes.key or unique):
        raise InvalidOptionError(
            f"{table.name}: the first scan reads all rows of the table, in no order, and mode "
            f"'{changes.mode}' keeps the last row of a key. Name columns that order rows in sequence_by; or "
            f"read the snapshots one after the other with starting-strategy={Strategy.EARLIEST.value}; or, "
            "where each key is there "
            "once, say sequence_by='none'"
        )


def _require_free(target: Table | None) -> None:
    """Raises InvalidOptionError where the target has a column of the name that row kinds have."""
    if target is not None and CHANGE_KIND in target.schema.column_names:
        raise InvalidOptionError(
            f"{target.location} has a column '{CHANGE_KIND}', which the modes upsert and changelog cannot "
            "keep: rename it, or keep all changes with mode 'append'"
        )


def _for_new(settings: SinkSettings, rows: Schema) -> SinkSettings:
    """The settings with the format version that the types of a table's columns need, where it is created."""
    new = settings.new_table
    if new is None or new.format_version is not None or "format-version" in new.properties:
        return settings
    if not any(isinstance(part.type, _SINCE_V3) for part in rows.fields_by_id.values()):
        return settings
    return replace(settings, new_table=replace(new, format_version=3))


def _watermark_column(source: IcebergSource, rows: Schema) -> str | None:
    name = source.settings.watermark_column
    if name is None:
        return None
    found = rows.find(source.name_in(rows, name))
    if found is not None and not is_time(found.type):
        return None  # it only orders files
    require_watermark_column(name if found is None else found.name, rows)
    return None if found is None else found.name
