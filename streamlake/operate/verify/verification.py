"""Verifies that a table holds what its source says, key by key.

It finds missing, extra, different and duplicate rows. The source is a Kafka topic, replayed through the
pipeline's decoder; a table of a PostgreSQL database; or rows from anywhere else, as a DataFrame, a path or
another table. Nothing is written. No Iceberg jar is needed: streamlake's own reader reads the table in Spark
tasks.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from streamlake.catalog.open import CatalogOption, open_table
from streamlake.decode.cdc.row_kinds import with_row_kind
from streamlake.errors import InvalidOptionError
from streamlake.operate.verify.compared_rows import (
    SIDE_SCHEMA,
    FrameRows,
    Reader,
    RecordRows,
    RowForm,
    TableRows,
    row_form,
)
from streamlake.operate.verify.comparison import (
    DIFFERENT,
    DUPLICATE,
    EXTRA,
    MISSING,
    UNREADABLE,
    Example,
    compare,
)
from streamlake.operate.verify.postgres_rows import PostgresRows, renderings
from streamlake.operate.verify.postgres_table import PostgresState, PostgresTable
from streamlake.operate.verify.rejected_places import NO_REJECTS, RejectedPlaces, rejected_places
from streamlake.operate.verify.table_extent import table_extent
from streamlake.operate.verify.topic_extent import COMMITTED, TopicExtent, topic_extent
from streamlake.pipeline.runs.source_notes import sources_of
from streamlake.pipeline.runs.upsert_options import identifier_columns, unknown_value
from streamlake.pipeline.spark.column_names import quoted
from streamlake.pipeline.spark.file_parts import file_parts
from streamlake.read.planning import FileScanTask, ScanPlanner
from streamlake.records import ROW_KIND
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import split
from streamlake.spec.expressions.expressions import TRUE
from streamlake.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from streamlake.table.table import Table
from streamlake.tables import LoadedTable
from streamlake.write.upsert.upsert_target import CHANGELOG, UPSERT

APPEND = "append"
MODES = (APPEND, UPSERT, CHANGELOG)
_PARTS_PER_CORE = 4
_MAX_PART_ROWS = 2_000_000
_PARTS = "number int, part binary"
_RANGES = "topic string, partition int, start bigint, until bigint"
_LATE = (
    "changes are compared in the order of their offsets; where the table keeps the one with the newest "
    "position in the database, late changes (older source position) show as differences"
)


@dataclass(frozen=True)
class Verification:
    """The result of a comparison.

    Counts are of rows: `missing` are in the source and not in the table, `extra` the other way round,
    `different` share only their key, `duplicates` are in the table more often than in the source. Of a topic,
    `rejected` records are in the table's rejects, and not compared; `unreadable` ones cannot become rows and
    are not among the rejects.
    `differing_columns`: column -> rows that differ there. `examples`: problem -> a few of them, as mappings
    with the key's values (or the row's), and for `different` each column's two values. `notes` say what was
    not compared.
    """

    table: str
    source: str
    snapshot_id: int | None
    mode: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    source_rows: int
    table_rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    duplicates: int = 0
    rejected: int = 0
    unreadable: int = 0
    source_duplicates: int = 0
    differing_columns: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether there are no missing, extra, different or duplicate rows, and no unreadable records."""
        return not (self.missing or self.extra or self.different or self.duplicates or self.unreadable)


def verify(  # noqa: PLR0913
    table: str | Table | LoadedTable,
    source: DataFrame | KafkaSource | IcebergSource | Table | LoadedTable | PostgresTable,
    *,
    catalog: CatalogOption = None,
    key: Sequence[str] | None = None,
    mode: str = APPEND,
    sequence_by: Sequence[str] = (),
    row_kind: str | None = None,
    columns: Sequence[str] | None = None,
    branch: str = MAIN_BRANCH,
    until: str = COMMITTED,
    examples: int = 5,
    name: str | None = None,
) -> Verification:
    """Compare `table` (a location, a name in `catalog`, or a loaded table) with `source`.

    `mode` is how the source's rows got into the table. In `append` each is a row of the table. In `upsert`
    and `changelog` they are changes, and the last one of each key says what the table has to hold. Their
    order is that of `sequence_by`, then of Kafka's offsets; their kind is in the column `row_kind`, or in the
    envelope of a topic that has one.

    `key` defaults to the identifier fields of the schema; an empty one compares whole rows, each as often as
    it is there. `columns` (default: all) are compared beside the key. `until` says up to which offsets a
    topic is compared: `committed` (those in the table's newest snapshot) or `latest`. Records that are in the
    table's rejects are left out; `catalog` says where these are, also beside a loaded table.

    An IcebergSource is what a stream of it has read, up to the snapshot that the table's newest commit says:
    rows that appends added, or with read-mode=changes the rows that the source's table had there.

    A PostgresTable is what the database holds at this moment (mode `append`, its primary key where the table
    has no identifier fields). Changes that are still on their way into the table are differences.

    Uses the active Spark session. Raises InvalidOptionError, SchemaMismatchError for a value of the source
    that the table's type cannot hold, TableNotFoundError, SourceError, DecodeError.
    """
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    opened = _opened(table, catalog)
    if mode not in MODES:
        raise unknown_value("mode", mode, MODES)
    if isinstance(source, KafkaSource) and source.has_row_kinds:
        row_kind = ROW_KIND
    is_state = isinstance(source, IcebergSource) and source.settings.read_mode == "changes"
    if is_state and mode == APPEND:
        raise InvalidOptionError(
            "a table that keeps every change as a row of its own (read-mode=changes, mode 'append') has "
            "nothing to be compared with: the source's table has the outcome of the changes only"
        )
    if is_state:
        sequence_by, row_kind = (), None
    with contextlib.ExitStack() as held:
        if isinstance(source, PostgresTable):
            source = held.enter_context(source.opened())
        if key is None:
            key = identifier_columns(opened) or (source.key if isinstance(source, PostgresState) else ())
        key = tuple(key)
        _check(opened, APPEND if is_state else mode, key, sequence_by, row_kind, source)
        whole = columns is None
        if columns is None and isinstance(source, PostgresState):
            columns = _shared_columns(opened, source)
        form = row_form(
            opened,
            key=key,
            sequence_by=sequence_by,
            row_kind=row_kind,
            keeps_before=mode == CHANGELOG and not is_state,
            columns=columns,
        )
        if isinstance(source, PostgresState):
            asked = renderings(form, source)
            form = replace(
                form,
                numbers=frozenset(name for name, one in asked.items() if one.is_number),
                singles=frozenset(name for name, one in asked.items() if one.is_single),
            )
        snapshot = opened.snapshot_by(ref=branch)
        rejected = NO_REJECTS
        if isinstance(source, KafkaSource):
            rejected = rejected_places(table if isinstance(table, str) else opened, catalog)
        side, described, notes, left_out = _source_side(
            session, opened, snapshot, source, form, until, rejected, whole=whole
        )
        table_side = _table_side(session, opened, snapshot, form)
        compared = compare(side, table_side, form, changes=mode != APPEND and not is_state, examples=examples)
    rows = compared.found.rows
    if _may_be_late(source, mode, sequence_by) and rows[DIFFERENT] + rows[MISSING] + rows[EXTRA]:
        notes = [*notes, _LATE]
    return Verification(
        table=opened.location,
        source=name or described,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        mode=mode,
        key=form.key,
        columns=tuple(part.name for part in form.fields),
        source_rows=compared.source_rows,
        table_rows=compared.table_rows,
        missing=rows[MISSING],
        extra=rows[EXTRA],
        different=rows[DIFFERENT],
        duplicates=rows[DUPLICATE],
        rejected=left_out,
        unreadable=rows[UNREADABLE],
        source_duplicates=compared.source_duplicates,
        differing_columns=dict(compared.found.columns.most_common()),
        examples=compared.found.examples,
        notes=tuple(notes),
    )


def _opened(table: str | Table | LoadedTable, catalog: CatalogOption) -> Table:
    if isinstance(table, LoadedTable):
        return table.table
    return table if isinstance(table, Table) else open_table(str(table), catalog)


def _check(
    table: Table,
    mode: str,
    key: Sequence[str],
    sequence_by: Sequence[str],
    row_kind: str | None,
    source: object,
) -> None:
    if mode == APPEND:
        if sequence_by or row_kind:
            raise InvalidOptionError("sequence_by and row_kind belong to the modes upsert and changelog")
        return
    if not key:
        raise InvalidOptionError(
            f"{table.location}: mode '{mode}' needs to know the key: name its columns, or set the schema's "
            "identifier fields"
        )
    if mode == CHANGELOG and row_kind is None:
        raise InvalidOptionError("mode 'changelog' needs the column with the row kinds in row_kind")
    if not sequence_by and not isinstance(source, KafkaSource):
        raise InvalidOptionError(
            f"mode '{mode}' compares the last change of each key, and only a topic has an order of its own: "
            "name the columns that give the order in sequence_by, or compare with rows that are the state "
            "already (mode 'append')"
        )


def _may_be_late(source: object, mode: str, sequence_by: Sequence[str]) -> bool:
    """Whether the table may have been written by source positions, which are not compared."""
    has_positions = isinstance(source, KafkaSource) and source.format.startswith("debezium-")
    return has_positions and mode == UPSERT and not sequence_by


def _source_side(
    session: SparkSession,
    table: Table,
    snapshot: Snapshot | None,
    source: DataFrame | KafkaSource | IcebergSource | Table | LoadedTable | PostgresState,
    form: RowForm,
    until: str,
    rejected: RejectedPlaces,
    *,
    whole: bool,
) -> tuple[DataFrame, str, list[str], int]:
    """The rows of the source, its name for messages, notes about it, and how many records were rejected."""
    if isinstance(source, KafkaSource):
        if source.schema is None:
            source = source.with_schema(with_row_kind(table.schema, form.row_kind))
        notes = _column_notes(source.table_schema.column_names, form, whole=whole)
        extent = topic_extent(source, table.metadata, snapshot, until)
        return (
            _record_side(session, extent, RecordRows(form, source, sources_of(table), rejected)),
            extent.name,
            [*notes, *extent.notes],
            rejected.within(extent.ranges),
        )
    if isinstance(source, IcebergSource):
        read = table_extent(source, table.metadata, snapshot, until)
        notes = _column_notes(read.columns, form, whole=whole)
        reader = TableRows.of(read.table, form, is_source=True, chosen=read.columns)
        return _by_tasks(session, read.tasks, reader), read.name, [*notes, *read.notes], 0
    if isinstance(source, PostgresState):
        return *_postgres_side(session, table, source, form, whole=whole), 0
    if isinstance(source, (Table, LoadedTable)):
        other = _opened(source, None)
        notes = _column_notes(other.schema.column_names, form, whole=whole)
        tasks = _tasks(other, other.current_snapshot)
        reader = TableRows.of(other, form, is_source=True)
        return _by_tasks(session, tasks, reader), other.location, notes, 0
    notes = _column_notes(source.columns, form, whole=whole)
    wanted = dict.fromkeys((*form.columns, *(() if form.row_kind is None else (form.row_kind,))))
    frame = source.select(*(F.col(quoted(name)) for name in wanted if name in source.columns))
    return frame.mapInArrow(FrameRows(form), SIDE_SCHEMA), "a DataFrame", notes, 0


def _shared_columns(table: Table, source: PostgresState) -> list[str]:
    """The columns that both have; one dropped from the database stays in the table, and is not compared."""
    names = [column.name for column in source.columns]
    return [name for name in table.schema.column_names if name in names]


def _postgres_side(
    session: SparkSession, table: Table, source: PostgresState, form: RowForm, *, whole: bool
) -> tuple[DataFrame, str, list[str]]:
    names = [
        column.name
        for column in source.columns
        if not (column.is_generated and table.schema.find(column.name) is None)
    ]
    notes = _column_notes(names, form, whole=whole)
    asked = renderings(form, source)
    for part in form.fields:
        column = source.column(part.name)
        if column is not None and part.name not in asked:
            raise InvalidOptionError(
                f"the column '{part.name}' is {column.type}{'[]' if column.is_array else ''} in "
                f"{source.name} and {part.type} in {table.location}: they cannot be compared. Name the "
                "columns to compare in `columns`"
            )
    if whole:
        notes += [
            f"the column '{name}' is not in PostgreSQL: left out"
            for name in table.schema.column_names
            if name not in names
        ]
    return _by_parts(session, source.parts, PostgresRows(form, source)), source.name, notes


def _by_parts(session: SparkSession, parts: Sequence[object], reader: Reader) -> DataFrame:
    """The rows of parts, each read by a Spark task of its own."""
    frame = session.createDataFrame(
        [(number, pickle.dumps(part)) for number, part in enumerate(parts)], _PARTS
    )
    if len(parts) > 1:
        frame = frame.repartitionByRange(len(parts), "number")
    return frame.select("part").mapInArrow(reader, SIDE_SCHEMA)


def _column_notes(names: Sequence[str], form: RowForm, *, whole: bool) -> list[str]:
    """Notes on columns that are compared as if they were null.

    Raises InvalidOptionError for any that cannot be compared.
    """
    needed = [part.name for part in (*form.key_fields, *form.sequence)]
    needed += [] if form.row_kind is None else [form.row_kind]
    absent = [name for name in needed if name not in names]
    unknown = [name for name in names if name not in form.columns and name != form.row_kind]
    if absent or (unknown and whole):
        problems = [f"lacks the column '{name}'" for name in absent]
        problems += [f"has the column '{name}', which {form.table} lacks" for name in unknown if whole]
        raise InvalidOptionError(
            f"the source {'; '.join(problems)}. Name the columns to compare in `columns`, and the column of "
            "row kinds in `row_kind`"
        )
    return [
        f"the source has no column '{name}': the table must hold its default, or null"
        for name in form.columns
        if name not in names
    ]


def _record_side(session: SparkSession, extent: TopicExtent, reader: RecordRows) -> DataFrame:
    pieces = split(list(extent.ranges), session.sparkContext.defaultParallelism)
    rows = [(piece.topic, piece.partition, piece.start, piece.until) for piece in pieces]
    frame = session.createDataFrame(rows, _RANGES)
    if len(rows) > 1:
        frame = frame.repartition(len(rows), F.col("topic"), F.col("partition"), F.col("start"))
    return frame.mapInArrow(reader, SIDE_SCHEMA)


def _table_side(session: SparkSession, table: Table, snapshot: Snapshot | None, form: RowForm) -> DataFrame:
    # Only a source of changes has sequence values.
    return _by_tasks(session, _tasks(table, snapshot), TableRows.of(table, replace(form, sequence=())))


def _tasks(table: Table, snapshot: Snapshot | None) -> list[FileScanTask]:
    return list(ScanPlanner(table.io, table.specs, TRUE).tasks(table.manifests(snapshot)))


def _by_tasks(session: SparkSession, tasks: Sequence[FileScanTask], reader: Reader) -> DataFrame:
    """The rows of data files, read by Spark tasks of about as many rows each."""
    rows = sum(task.data_file.record_count for task in tasks)
    cores = max(session.sparkContext.defaultParallelism, 1)
    size = max(1, min(_MAX_PART_ROWS, -(-rows // (cores * _PARTS_PER_CORE))))
    parts = file_parts(tasks, size)
    frame = session.createDataFrame([(pickle.dumps(part),) for part in parts], "part binary")
    if len(parts) > 1:
        frame = frame.repartition(min(len(parts), cores * _PARTS_PER_CORE))
    return frame.mapInArrow(reader, SIDE_SCHEMA)
