"""The settings of a sink: the arguments of IcebergSink, checked and grouped, which nothing changes later.

Place in the flow: made once, by the user's sink. A query that starts takes them over, resolved for its source
and for how it calls the table, as another value. Invariant: what the user gave is never replaced; `changes`
of a resolved value has what a sample of the source shows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamlake.catalog.open import CatalogOption, open_table, service_of
from streamlake.checkpoint.table_note import Calls
from streamlake.errors import InvalidOptionError
from streamlake.maintain.background.maintenance_settings import OFF, MaintenanceSettings
from streamlake.pipeline.runs.commit_queue import queue_limit
from streamlake.pipeline.runs.evolution import EvolutionOptions
from streamlake.pipeline.runs.rejects import FAIL, require_policy
from streamlake.pipeline.runs.upsert_options import key_schema, require_delete_mode, unknown_value
from streamlake.pipeline.sinks.arguments.default_sequence import named_sequence
from streamlake.pipeline.sinks.arguments.property_names import require_definition
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.types.schema import Schema
from streamlake.storage.arrow_fs import WITHOUT_COMMITS
from streamlake.storage.file_io import scheme_of
from streamlake.table.table import Table
from streamlake.tables import table_schema
from streamlake.write.target.job_options import AS_THE_TABLE, JobOptions
from streamlake.write.upsert.upsert_target import CHANGELOG, POSITION, UPSERT

MODES = ("append", "overwrite", "dynamic-overwrite", UPSERT, CHANGELOG)
UPSERT_MODES = (UPSERT, CHANGELOG)


@dataclass(frozen=True)
class NewTable:
    """The table that is created where there is none. `format_version` None: as the mode needs it."""

    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    format_version: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(
        partition_by: Sequence[str] | str,
        sort_by: Sequence[str] | str,
        format_version: int | None,
        properties: Mapping[str, str] | None,
        *,
        create: bool,
    ) -> NewTable | None:
        """The new table; None where none may be created. Raises InvalidOptionError where one is described
        nevertheless.
        """
        require_definition(properties, partition_by, sort_by, format_version, create=create)
        table = NewTable(_names(partition_by), _names(sort_by), format_version, dict(properties or {}))
        return table if create else None


@dataclass(frozen=True)
class ChangeSettings:
    """How a table applies changes. `sequence_given`: the columns that the user named, None where they are
    left to the source; `sequence_by`: those that order changes.
    """

    mode: str = "append"
    key: tuple[str, ...] = ()
    sequence_given: tuple[str, ...] | None = None
    sequence_by: tuple[str, ...] = ()
    row_kind: str | None = None
    delete_mode: str = POSITION

    @staticmethod
    def of(
        mode: str,
        key: Sequence[str] | str,
        sequence_by: Sequence[str] | str | None,
        row_kind: str | None,
        delete_mode: str | None,
    ) -> ChangeSettings:
        """The settings for these arguments of IcebergSink. Raises InvalidOptionError."""
        check_mode(mode, key=key, sequence_by=sequence_by, row_kind=row_kind, delete_mode=delete_mode)
        given = named_sequence(sequence_by)
        mode_of_deletes = require_delete_mode(delete_mode or POSITION)
        return ChangeSettings(mode, _names(key), given, given or (), row_kind, mode_of_deletes)

    @property
    def is_keyed(self) -> bool:
        """Whether the mode replaces rows by key."""
        return self.mode in UPSERT_MODES


@dataclass(frozen=True)
class ErrorSettings:
    """What happens to records that cannot become rows; see IcebergSink. Raises InvalidOptionError."""

    on_error: str = FAIL
    max_rejects: int | None = None

    def __post_init__(self) -> None:
        require_policy(self.on_error, self.max_rejects)


@dataclass(frozen=True)
class EvolutionSettings:
    """How far the table's schema follows the stream's; see IcebergSink. Raises InvalidOptionError."""

    schema_evolution: str | None = None
    rename_columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.schema_evolution is not None:
            EvolutionOptions.of(self.schema_evolution, self.rename_columns, {})


@dataclass(frozen=True)
class SinkSettings:
    """What IcebergSink was given. `new_table` None: a missing table is an error.

    `calls`: for which checkpoints of its query the table is called. `written` gives the last checkpoint that
    its query has written to a table and branch; None where the query logs no tables. Raises
    InvalidOptionError for values that do not go together.
    """

    table: str
    catalog: CatalogOption = None
    branch: str = MAIN_BRANCH
    pipeline: str | None = None
    new_table: NewTable | None = None
    changes: ChangeSettings = ChangeSettings()
    errors: ErrorSettings = ErrorSettings()
    evolution: EvolutionSettings = EvolutionSettings()
    max_continuous_empty_commits: int = 10
    max_pending_checkpoints: int | None = None
    job: JobOptions = AS_THE_TABLE
    maintenance: MaintenanceSettings = OFF
    calls: Calls = Calls.EVERY
    written: Callable[[str, str], int] | None = None

    def __post_init__(self) -> None:
        if self.max_continuous_empty_commits < 1:
            raise InvalidOptionError(
                f"max_continuous_empty_commits is {self.max_continuous_empty_commits}; it must be at least 1"
            )
        self.pending_limit({})
        if service_of(self.catalog) is None and scheme_of(self.table) in WITHOUT_COMMITS:
            scheme = scheme_of(self.table)
            raise InvalidOptionError(
                f"{self.table}: a table on {scheme}:// needs a catalog service, because {scheme}:// cannot "
                "decide between two commits: give catalog='...' (sink.catalog in a pipeline file), and the "
                "table's name in it"
            )

    def argument(self, name: str) -> Any:
        """The argument of IcebergSink of this name, as a query uses it. Raises AttributeError."""
        parts = (self.new_table or NewTable(), self.changes, self.errors, self.evolution, self)
        given: dict[str, Any] = {"create": self.create}
        for part in parts:
            given.update(vars(part))
        if name not in given:
            raise AttributeError(f"an IcebergSink has no attribute '{name}'")
        return given[name]

    @property
    def create(self) -> bool:
        """Whether a missing table is created."""
        return self.new_table is not None

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the table that is created; they say how often its opening is tried, too."""
        return {} if self.new_table is None else self.new_table.properties

    @property
    def created_format_version(self) -> int:
        """The format version of the table that is created."""
        given = None if self.new_table is None else self.new_table.format_version
        needs_vectors = self.changes.is_keyed and self.changes.delete_mode == POSITION
        return given or (3 if needs_vectors else 2)

    def created_schema(self, schema: Any) -> Schema:
        """The stream's schema for the table: the key as identifier fields, without the row kind."""
        columns, changes = table_schema(schema), self.changes
        return key_schema(columns, changes.key, changes.row_kind, self.table) if changes.is_keyed else columns

    def pending_limit(self, properties: Mapping[str, str]) -> int:
        """How many checkpoints may be staged before they are committed, into a table with `properties`."""
        changes = self.changes
        delete_mode = changes.delete_mode if changes.is_keyed else None
        return queue_limit(self.max_pending_checkpoints, properties, delete_mode)

    def opened_table(self) -> Table:
        """The table as it is, opened through an outage of its storage or catalog. Raises
        TableNotFoundError.
        """
        retry = OutageRetry(lambda: self.properties)
        return retry.through(lambda: open_table(self.table, self.catalog))


def check_mode(mode: str, **upserts: Any) -> None:
    """Raises InvalidOptionError for an unknown mode, and for arguments that belong to another mode."""
    if mode not in MODES:
        raise unknown_value("mode", mode, MODES)
    if mode in UPSERT_MODES:
        return
    given = [name for name, value in upserts.items() if value]
    if given:
        raise InvalidOptionError(
            f"{', '.join(given)} belongs to the modes upsert and changelog, not to '{mode}'"
        )


def require_row_kind(changes: ChangeSettings, source: object) -> None:
    """Raises InvalidOptionError where the mode needs row kinds, and neither a column that was named nor the
    rows of `source` have them.
    """
    if changes.mode != CHANGELOG or changes.row_kind is not None:
        return
    if isinstance(source, KafkaSource) and source.has_row_kinds:
        return
    if isinstance(source, IcebergSource) and source.settings.read_mode == "changes":
        return
    raise InvalidOptionError(
        "mode 'changelog' needs to know which changes delete: name the column in row_kind, or use "
        "mode 'upsert' for a stream of new versions of rows"
    )


def _names(given: Sequence[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
