"""Checks whether a pipeline could write its table: catalog, table or its creation, mode, key, columns.

It decides with the code of the first micro-batch, and creates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.catalog.open import (
    CatalogOption,
    is_catalog_name,
    open_catalog,
    open_table,
    service_of,
)
from streamlake.errors import InvalidOptionError, StreamlakeError, TableNotFoundError
from streamlake.operate.check.check_points import Points
from streamlake.operate.check.column_fit import KEY, check_columns, columns_text, warn_of_null_keys
from streamlake.operate.check.definition_check import check_layout, check_properties, require_place
from streamlake.pipeline.key_index.key_lineage import require_same_key
from streamlake.pipeline.runs.commit_queue import queue_limit
from streamlake.pipeline.runs.evolution import EvolutionOptions
from streamlake.pipeline.runs.upsert_options import UpsertOptions, key_schema
from streamlake.pipeline.sinks.arguments.default_sequence import named_sequence
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.partitioning.sort_order import parse_sort_by
from streamlake.spec.types.schema import Schema
from streamlake.storage.write_access import require_writable
from streamlake.table.table import Table
from streamlake.write.target.job_options import JobOptions
from streamlake.write.target.options import WriteOptions
from streamlake.write.upsert.upsert_target import CHANGELOG, POSITION, UPSERT

CATALOG = "catalog"
TABLE = "table"
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
    max_pending_checkpoints: int | None = None

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
    service = service_of(plan.catalog)
    try:
        if service is not None:
            open_catalog(service)
    except StreamlakeError as error:
        points.error(CATALOG, str(error))
        return None, False
    try:
        table = open_table(plan.table, plan.catalog)
    except TableNotFoundError as error:
        if service is not None:
            points.right(CATALOG, "the catalog answers")
        elif is_catalog_name(plan.table):
            points.error(TABLE, str(error))
            return None, False
        if not plan.create:
            points.error(TABLE, f"{error}; set sink.create: true to have it created")
        return None, True
    except StreamlakeError as error:
        points.error(TABLE, str(error))
        return None, False
    if service is not None:
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
        mode = plan.delete_mode if plan.is_keyed else None
        queue_limit(plan.max_pending_checkpoints, table.properties, mode)
        require_writable(table.locations.metadata_directory, table.properties)
        require_writable(table.locations.data_directory, table.properties)
    check_properties(plan.properties or {}, table.properties, points)
    check_layout(plan, table, points)
    if plan.branch != MAIN_BRANCH and plan.branch not in table.refs:
        points.warning(TABLE, f"there is no branch '{plan.branch}' yet; it will begin where main is")
    if plan.is_keyed:
        _check_key(plan, table, points)
    if stream is not None:
        check_columns(table, stream, plan.row_kind, plan.schema_evolution, plan.on_error, points)


def check_creation(plan: SinkPlan, stream: Schema, points: Points) -> None:
    """Check that the table could be created for a stream with these columns."""
    try:
        schema = planned_schema(plan, stream)
        properties = dict(plan.properties or {})
        WriteOptions.from_properties(properties)
        JobOptions.of(plan.write_options, plan.write_parallelism).check(properties)
        spec = parse_partition_by(plan.partition_by, schema)
        order = parse_sort_by(plan.sort_by, schema)
        version = plan.format_version
        if version is None and plan.is_keyed and plan.delete_mode == POSITION:
            version = 3
        metadata = initial_metadata(TableDefinition(schema, spec, order, version, properties), plan.table)
        require_place(plan.table, plan.catalog, properties)
    except StreamlakeError as error:
        points.error(TABLE, f"{plan.table} cannot be created: {error}")
        return
    points.right(
        TABLE,
        f"{plan.table} is not there yet and can be created: format version {metadata.format_version}, "
        f"{columns_text(schema)}",
    )
    check_properties(properties, {}, points)


def check_unknown_creation(plan: SinkPlan, points: Points) -> None:
    """Check what can be checked of a table that is to be created for columns that only Spark knows."""
    with points.errors(TABLE):
        JobOptions.of(plan.write_options, plan.write_parallelism).check(plan.properties or {})
        require_place(plan.table, plan.catalog, plan.properties or {})
    check_properties(plan.properties or {}, {}, points)


def planned_schema(plan: SinkPlan, stream: Schema) -> Schema:
    """The schema of the table that would be created for a stream. Raises what `key_schema` raises."""
    return key_schema(stream, plan.key, plan.row_kind, plan.table) if plan.is_keyed else stream


def follows_stream(plan: SinkPlan, table: Table | None) -> bool:
    """Whether the table's schema would change with the stream's."""
    properties = (plan.properties or {}) if table is None else table.properties
    try:
        return EvolutionOptions.of(plan.schema_evolution, None, properties).is_on
    except InvalidOptionError:
        return False  # which is an error of its own


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
    warn_of_null_keys(table.location, options.key.codec.fields, points)
    names = [table.schema.name_of(field_id) for field_id in options.key.key_ids]
    points.right(
        KEY, f"{', '.join(map(str, names))}; mode '{plan.mode}' by {plan.delete_mode} fits the table"
    )
