"""Checks whether a pipeline could write its table: catalog, table or its creation, mode, key, columns.

It decides with the code of the first micro-batch, and creates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.catalog.open import CatalogOption, open_catalog, open_table
from streamlake.errors import InvalidOptionError, StreamlakeError, TableNotFoundError
from streamlake.operate.check.check_points import Points
from streamlake.pipeline.key_index.key_lineage import require_same_key
from streamlake.pipeline.runs.evolution import EvolutionOptions
from streamlake.pipeline.runs.upsert_options import UpsertOptions, key_schema
from streamlake.pipeline.sinks.default_sequence import named_sequence
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.schema import Schema
from streamlake.storage.locations import table_location
from streamlake.storage.write_access import require_writable
from streamlake.table.table import Table
from streamlake.write.rows.conversion import is_convertible
from streamlake.write.target.job_options import JobOptions
from streamlake.write.target.options import WriteOptions
from streamlake.write.upsert.upsert_target import CHANGELOG, POSITION, UPSERT

CATALOG = "catalog"
TABLE = "table"
KEY = "key"
COLUMNS = "columns"
SCHEMA = "schema"
_UPSERTS = (UPSERT, CHANGELOG)


@dataclass(frozen=True)
class SinkPlan:
    """A table that a pipeline is to write, in the terms of IcebergSink.

    `row_kind` is the stream's column with row kinds, whether from the rows or from the envelope.
    """

    table: str
    catalog: CatalogOption = None
    mode: str = "append"
    create: bool = False
    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    format_version: int | None = None
    properties: Mapping[str, str] | None = None
    key: Sequence[str] = ()
    sequence_by: Sequence[str] = ()
    row_kind: str | None = None
    delete_mode: str = POSITION
    branch: str = MAIN_BRANCH
    pipeline: str | None = None
    schema_evolution: str | None = None
    on_error: str = "fail"
    write_options: Mapping[str, str] | None = None
    write_parallelism: int | None = None

    @staticmethod
    def of(table: str, arguments: Mapping[str, Any], pipeline: str | None) -> SinkPlan:
        """The plan from the arguments of an IcebergSink, without those that no check needs."""
        known = {each.name for each in fields(SinkPlan)}
        given = {name: value for name, value in arguments.items() if name in known}
        given["sequence_by"] = named_sequence(given.get("sequence_by")) or ()
        return SinkPlan(**{**given, "table": table, "pipeline": pipeline})

    @property
    def is_keyed(self) -> bool:
        """Whether the mode replaces rows by key."""
        return self.mode in _UPSERTS


def found_table(plan: SinkPlan, points: Points) -> tuple[Table | None, bool]:
    """The table (None: there is none), and whether it could be looked for at all."""
    try:
        if plan.catalog is not None:
            open_catalog(plan.catalog)
    except StreamlakeError as error:
        points.error(CATALOG, str(error))
        return None, False
    try:
        table = open_table(plan.table, plan.catalog)
    except TableNotFoundError as error:
        if plan.catalog is not None:
            points.right(CATALOG, "the catalog answers")
        if not plan.create:
            points.error(TABLE, f"{error}; set sink.create: true to have it created")
        return None, True
    except StreamlakeError as error:
        points.error(TABLE, str(error))
        return None, False
    if plan.catalog is not None:
        points.right(CATALOG, "the catalog answers")
    return table, True


def check_table(plan: SinkPlan, table: Table, stream: Schema | None, points: Points) -> None:
    """Check that an existing table can take the stream, whose columns are `stream` (None: the table's)."""
    points.right(
        TABLE,
        f"{table.location} is there: format version {table.format_version}, {len(table.schema.fields)} "
        f"columns, {len(table.snapshots)} snapshots",
    )
    with points.errors(TABLE):
        WriteOptions.from_properties(table.properties)
        JobOptions.of(plan.write_options, plan.write_parallelism).check(table.properties)
        require_writable(table.locations.metadata_directory, table.properties)
    if plan.branch != MAIN_BRANCH and plan.branch not in table.refs:
        points.warning(TABLE, f"there is no branch '{plan.branch}' yet; it will begin where main is")
    if plan.is_keyed:
        _check_key(plan, table, points)
    if stream is not None:
        _check_columns(plan, table, stream, points)


def check_creation(plan: SinkPlan, stream: Schema, points: Points) -> None:
    """Check that the table could be created for a stream with these columns."""
    try:
        schema = key_schema(stream, plan.key, plan.row_kind, plan.table) if plan.is_keyed else stream
        properties = dict(plan.properties or {})
        WriteOptions.from_properties(properties)
        JobOptions.of(plan.write_options, plan.write_parallelism).check(properties)
        spec = parse_partition_by(plan.partition_by, schema)
        order = parse_sort_by(plan.sort_by, schema)
        version = plan.format_version
        if version is None and plan.is_keyed and plan.delete_mode == POSITION:
            version = 3
        metadata = initial_metadata(TableDefinition(schema, spec, order, version, properties), plan.table)
        if plan.catalog is None:
            require_writable(table_location(plan.table), properties)
    except StreamlakeError as error:
        points.error(TABLE, f"{plan.table} cannot be created: {error}")
        return
    points.right(
        TABLE,
        f"{plan.table} is not there yet and can be created: format version {metadata.format_version}, "
        f"{_columns_text(schema)}",
    )


def _check_key(plan: SinkPlan, table: Table, points: Points) -> None:
    try:
        options = UpsertOptions.of(
            table,
            key=plan.key,
            sequence_by=plan.sequence_by,
            row_kind=plan.row_kind,
            delete_mode=plan.delete_mode,
            parallelism=1,
        )
        options.equality_spec(table)
        if plan.pipeline is not None:
            require_same_key(table, plan.branch, plan.pipeline, options.key)
    except StreamlakeError as error:
        points.error(KEY, str(error))
        return
    names = [table.schema.name_of(field_id) for field_id in options.key.key_ids]
    points.right(
        KEY, f"{', '.join(map(str, names))}; mode '{plan.mode}' by {plan.delete_mode} fits the table"
    )


def _check_columns(plan: SinkPlan, table: Table, stream: Schema, points: Points) -> None:
    """Check that the stream's columns fit the table's."""
    try:
        follows = EvolutionOptions.of(plan.schema_evolution, None, table.properties).is_on
    except InvalidOptionError as error:
        points.error(COLUMNS, str(error))
        return
    given = {part.name: part for part in stream.fields if part.name != plan.row_kind}
    known = {part.name: part for part in table.schema.fields}
    new = [name for name in given if name not in known]
    absent = [name for name, part in known.items() if part.required and name not in given]
    odd = [
        f"{name} is {part.type} in the stream and {known[name].type} in the table"
        for name, part in given.items()
        if name in known and not _fits(part.type, known[name].type)
    ]
    problems = [f"the table has no column {name}" for name in new if not follows]
    problems += [f"the table requires {name}, which the stream does not have" for name in absent]
    problems += [] if follows else odd
    if problems:
        points.error(
            COLUMNS,
            f"the stream does not fit {table.location}: {'; '.join(problems)}. The table's columns are "
            f"{_columns_text(table.schema)}",
        )
    elif new or odd:
        points.right(COLUMNS, f"the table will follow the stream: {'; '.join([*map(_added, new), *odd])}")
    else:
        points.right(COLUMNS, f"the stream's {len(given)} columns are the table's")


def _fits(source: Any, type_: Any) -> bool:
    """Whether values of one type may fit the other; nested types are left to the first rows."""
    if not (source.is_primitive and type_.is_primitive):
        return bool(source.is_primitive == type_.is_primitive)
    return is_convertible(source, type_)


def _added(name: str) -> str:
    return f"{name} is added"


def _columns_text(schema: Schema) -> str:
    return ", ".join(f"{part.name} {part.type}" for part in schema.fields)
