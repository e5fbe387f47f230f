"""Schema evolution: a table's schema follows that of a stream, as far as the options allow, in one commit.

Place in the flow: on the driver, before the files of a checkpoint are written, so that they have the new
schema. Invariant: evolving is idempotent, because it brings the table up to the stream and no further. A
driver that dies right after it changes nothing a second time, and of two drivers the second finds it done.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streamlake.decode.values.new_fields import Watch
from streamlake.errors import InvalidOptionError, NewSchemaError
from streamlake.options import Property, suggestion
from streamlake.spec.types.schema import Schema, relaxed
from streamlake.spec.types.type_json import schema_from_json
from streamlake.spec.types.type_text import columns_text
from streamlake.table.schema.schema_union import UnionRules
from streamlake.table.schema.update_schema import UpdateSchema
from streamlake.table.table import Table
from streamlake.table.updates.column_types import check_writable
from streamlake.write.rows.conversion import is_convertible

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

PROPERTY = "streamlake.schema-evolution"
NONE, ADD, FULL = "none", "add", "full"
LEVELS = (NONE, ADD, FULL)
PROPERTIES = (
    Property(
        PROPERTY,
        NONE,
        "How far the table's schema follows the stream's, where the sink does not say: `none`, `add`, "
        "`full`.",
    ),
)
MAX_CHANGES = 20
"""How often the tasks of one micro-batch may ask for another schema, each time for something that is new to
them."""


@dataclass(frozen=True)
class EvolutionOptions:
    """How far a table's schema follows a stream.

    `level`: "none" (columns that the table lacks are an error, or ignored where a format leaves that open),
    "add" (they become optional columns of the table), "full" (types are widened too, and required columns
    become optional where the stream lacks them or has nulls). `renames` maps a column of the table to its new
    name; each is done once.
    """

    level: str = NONE
    renames: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(
        level: str | None, renames: Mapping[str, str] | None, properties: Mapping[str, str]
    ) -> EvolutionOptions:
        """The sink's options, else those of the table's property. Raises InvalidOptionError."""
        where = "schema_evolution" if level is not None else f"table property {PROPERTY}"
        chosen = properties.get(PROPERTY, NONE) if level is None else level
        if chosen not in LEVELS:
            near = suggestion(chosen, LEVELS)
            hint = f". Did you mean '{near}'?" if near else ""
            raise InvalidOptionError(f"{where} is '{chosen}'; it can be {', '.join(LEVELS)}{hint}")
        if renames and chosen == NONE:
            raise InvalidOptionError(
                "rename_columns changes the table's schema, and schema_evolution is 'none': set it to 'add' "
                "or 'full'"
            )
        return EvolutionOptions(chosen, dict(renames or {}))

    @property
    def is_on(self) -> bool:
        """Whether the table's schema may change at all."""
        return self.level != NONE


def renamed(table: Table, options: EvolutionOptions) -> None:
    """Rename the columns of `renames` that still have their old name, where no column has the new one."""
    update = UpdateSchema(table)
    due = False
    for old, new in options.renames.items():
        parent, dot, _ = old.rpartition(".")
        if table.schema.find(old) is not None and table.schema.find(f"{parent}{dot}{new}") is None:
            update.rename(old, new)
            due = True
    if due:
        _commit(table, update)


def evolved(
    table: Table,
    wanted: Schema,
    options: EvolutionOptions,
    *,
    is_whole: bool,
    settle: Callable[[], None] = lambda: None,
    defaults: bool = False,
) -> Schema:
    """The table's schema once it accepts rows of `wanted`; committed where it had to change.

    `is_whole`: `wanted` has all columns of the rows, but says nothing about nulls, like a DataFrame's schema,
    where nearly every column is nullable; otherwise an optional column in it is meant to be optional.
    `settle` is called before a commit. `defaults`: columns that are added have the defaults that they have in
    `wanted`. Raises SchemaMismatchError with both schemas where that is impossible,
    and the errors of a commit.
    """
    if not options.is_on:
        return table.schema
    full = options.level == FULL
    rules = UnionRules(
        widen=full,
        relax=full and not is_whole,
        relax_absent=full and is_whole,
        docs=False,
        dates=False,
        fits=is_convertible,
        plain=True,
        defaults=defaults,
    )
    update = UpdateSchema(table).union_by_name(wanted, rules)
    schema, steps = update.apply()
    if steps:
        check_writable(schema, table.format_version)
        settle()
        _commit(table, update)
    return table.schema


class SchemaFollower:
    """Keeps one run's table up to date with its stream.

    `settle` waits until the run has no commit under way, so that nothing else moves the table; it may raise
    the error of such a commit.
    """

    def __init__(self, table: Table, options: EvolutionOptions, settle: Callable[[], None]) -> None:
        self._table = table
        self._options = options
        self._settle = settle
        self._seen: tuple[str, int] | None = None

    @property
    def is_on(self) -> bool:
        """Whether the table's schema may change at all."""
        return self._options.is_on

    @property
    def watch(self) -> Watch | None:
        """What decoders look for in records beyond the known columns; None: nothing."""
        return Watch(widen=self._options.level == FULL) if self._options.is_on else None

    def lenient(self, schema: Schema) -> Schema:
        """The table's schema for reading and screening rows: with level "full" all but the identifier fields
        are optional, so that nulls reach the writers, which ask for another schema.
        """
        if self._options.level != FULL:
            return schema
        kept = set(schema.identifier_field_ids)
        return relaxed(schema, (field_id for field_id in schema.fields_by_id if field_id not in kept))

    def follow(self, described: str, columns: Callable[[], Schema], *, defaults: bool = False) -> None:
        """Evolve the table for rows of a schema that `described` identifies; cheap while neither that schema
        nor the table's changes. `defaults`: see `evolved`.
        """
        if not self._options.is_on or self._seen == (described, self._table.schema.schema_id):
            return
        self._evolved(columns(), is_whole=True, defaults=defaults)
        self._seen = (described, self._table.schema.schema_id)

    def follow_declared(self, columns: Callable[[], Schema]) -> None:
        """Evolve the table for the schema that a source was given, when the run begins. Not later: it may
        have been the table's own schema, and columns that somebody has dropped since must not come back by
        that.
        """
        if self._seen is None:
            self.follow("declared", columns)

    def writing(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns. It is run again whenever the table has been changed as its tasks asked."""
        for _ in range(MAX_CHANGES):
            try:
                return attempt()
            except NewSchemaError as error:
                if not self.answer(error):
                    raise
        return attempt()

    def answer(self, error: NewSchemaError) -> bool:
        """Whether the table was changed as a task asked, so that the rows are worth another attempt.

        Raises SchemaMismatchError where the change is impossible.
        """
        if not self._options.is_on or not error.wanted:
            return False
        before = self._table.schema
        self._evolved(schema_from_json(json.loads(error.wanted)), is_whole=False)
        return self._table.schema != before

    def _evolved(self, wanted: Schema, *, is_whole: bool, defaults: bool = False) -> None:
        evolved(
            self._table,
            wanted,
            self._options,
            is_whole=is_whole,
            settle=self._settle,
            defaults=defaults,
        )


def _commit(table: Table, update: UpdateSchema) -> None:
    before = table.schema
    update.commit()
    if table.schema != before:
        _LOG.info(
            "%s: the schema follows the stream: it was %s, and is %s now",
            table.location,
            columns_text(before),
            columns_text(table.schema),
        )
