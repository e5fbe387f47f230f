"""The columns of a source table that go into the target, decided anew for each micro-batch.

Where the target's schema follows the source's, new columns are added to it. Else columns that the source got
after the stream began are left out, with a warning. Invariant: a column that was there from the beginning is
never left out silently, and none changes its meaning by a new name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamlake.errors import SchemaMismatchError
from streamlake.pipeline.iceberg.source_columns import SourceColumns
from streamlake.pipeline.runs.column_check import check_columns
from streamlake.pipeline.runs.sink_run import SinkRun

_LOG = logging.getLogger(__name__)


@dataclass
class FittedColumns:
    """Decides for one query; `source` names its table in messages, `metadata` are the source's columns that
    are for the target only where it has them.
    """

    source: str
    metadata: frozenset[str] = frozenset()
    _warned: set[str] = field(default_factory=set)

    def follow(self, run: SinkRun, columns: SourceColumns) -> None:
        """Let the target's schema follow, as far as it may. Raises SchemaMismatchError for a type that does
        not fit and for a column that has another name in the target, with the column's name.
        """
        if not run.follower.is_on:
            self._warn(run, columns)
            return
        self._require_renamed(run, columns)
        defaults = self._defaults(run, columns)
        fields = (
            replace(part, initial_default=defaults.get(part.name), write_default=defaults.get(part.name))
            for part in columns.schema.fields
            if part.name not in self.metadata
        )
        followed = replace(columns.schema, fields=tuple(fields), identifier_field_ids=())
        run.follower.follow(str(followed), lambda: run.columns_for_table(followed), defaults=True)

    def of(self, run: SinkRun, columns: SourceColumns, beside: Sequence[str]) -> tuple[str, ...]:
        """The columns of the rows that are written; `beside` are needed too, whether the target has them or
        not. Raises SchemaMismatchError for what does not fit.
        """
        target = run.table.schema.column_names
        names = tuple(
            name
            for name in columns.schema.column_names
            if name not in self.metadata or name in target or name in beside
        )
        check_columns(names, run.table, beside=beside)
        return names

    def _warn(self, run: SinkRun, columns: SourceColumns) -> None:
        new = [name for name in columns.unread if name not in self._warned]
        if new:
            self._warned.update(new)
            _LOG.warning(
                "%s has got the columns %s since the stream into %s began; they are left out. Let the target "
                "follow with schema_evolution='add', or add them to it and name them in the source's columns",
                self.source,
                ", ".join(new),
                run.table.location,
            )

    def _defaults(self, run: SinkRun, columns: SourceColumns) -> Mapping[str, Any]:
        """The defaults of columns that the target gets: its older rows are those of the source, which have
        them.
        """
        if run.table.format_version >= 3:
            return columns.defaults
        known = run.table.schema.column_names
        for name, value in columns.defaults.items():
            if name not in known and name not in self._warned:
                self._warned.add(name)
                _LOG.warning(
                    "%s has got the column %s, which is %r in older rows; %s gets it without that, because "
                    "format version %d has no defaults: it is null in rows that are there. Upgrade the table "
                    "to version 3 before the stream brings such columns, or set the value in its older rows",
                    self.source,
                    name,
                    value,
                    run.table.location,
                    run.table.format_version,
                )
        return {}

    def _require_renamed(self, run: SinkRun, columns: SourceColumns) -> None:
        names = run.table.schema.column_names
        for old, new in columns.renamed.items():
            if old in names and new not in names:
                raise SchemaMismatchError(
                    f"{self.source}: the column '{old}' is called '{new}' now, and {run.table.location} "
                    f"still has it as '{old}'. Rename it there too: rename_columns={{'{old}': '{new}'}} on "
                    "the sink does it once, and the stream goes on"
                )
