"""Schema updates: adds, widens, renames, moves, deletes columns or makes them optional, in one new schema.

No data file changes, because readers match fields by id. The steps are kept and applied to the newest
metadata on each attempt. Invariants: an id is never given twice; a table that already has the resulting
schema is left as it is, so an update whose response was lost is recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.data_types import IcebergType, NestedField
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.type_text import columns_text
from streamlake.table.schema.null_check import require_no_nulls
from streamlake.table.schema.schema_edit import SchemaEdit
from streamlake.table.schema.schema_union import UnionRules, unite
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import require_writable, with_schema
from streamlake.table.updates.metadata_update import commit_metadata

Step = Callable[[SchemaEdit], None]


class UpdateSchema:
    """Collects changes of a table's schema; `commit()` makes them one new schema without a snapshot.

    Columns are dotted names; `element`, `key` and `value` are the parts of lists and maps. Each change
    sees the result of those before it. Types are Iceberg types or DDL texts such as "decimal(12, 2)".
    `apply()` and `commit()` check whether a change is allowed: they raise InvalidOptionError for a column
    that does not exist (or already does), and SchemaMismatchError for a change that would break rows,
    files or other parts of the table.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._steps: list[Step] = []
        self._added: Schema | None = None

    def add_column(
        self,
        name: str,
        type_: IcebergType | str,
        *,
        parent: str | None = None,
        required: bool = False,
        doc: str | None = None,
        default: Any = None,
    ) -> UpdateSchema:
        """Add a column `name`, or a field of the struct (in the list or map) `parent`.

        `default` (format version 3; a value as in `spec.types`) is the value of older rows, and of later rows
        that lack the column. A required column needs one.
        """
        part = NestedField(0, name, _type(type_), required, doc, default, default)
        return self._then(lambda edit: _add(edit, parent, part))

    def widen(self, column: str, type_: IcebergType | str) -> UpdateSchema:
        """Give a column a wider type: int -> long, float -> double, a decimal with more digits.

        In format version 3 also date -> timestamp or timestamp_ns, unknown -> any.
        """
        wanted = _type(type_)
        return self._then(lambda edit: edit.promote(edit.need(column), wanted))

    def make_optional(self, column: str) -> UpdateSchema:
        """Make a required column optional."""
        return self._then(lambda edit: edit.make_optional(edit.need(column)))

    def make_required(self, column: str) -> UpdateSchema:
        """Make an optional column required.

        The commit is refused unless the metrics of every file of every branch say that no row has a null in
        it. Stop writers that may add nulls first: Iceberg does not check what they have under way.
        """
        return self._then(lambda edit: edit.make_required(edit.need(column)))

    def rename(self, column: str, name: str) -> UpdateSchema:
        """Give a column another name in its struct; files need no change."""
        return self._then(lambda edit: edit.rename(edit.need(column), name))

    def describe(self, column: str, doc: str | None) -> UpdateSchema:
        """Set the doc of a column; None removes it."""
        return self._then(lambda edit: edit.describe(edit.need(column), doc))

    def set_default(self, column: str, value: Any) -> UpdateSchema:
        """Set the value of later rows that lack the column; None: null."""
        return self._then(lambda edit: edit.set_write_default(edit.need(column), value))

    def delete(self, column: str) -> UpdateSchema:
        """Delete a column. Older snapshots keep it."""
        return self._then(lambda edit: edit.delete(edit.need(column)))

    def move_first(self, column: str) -> UpdateSchema:
        """Move a column to the start of its struct."""
        return self._then(lambda edit: edit.move(edit.need(column), None, after=False))

    def move_before(self, column: str, other: str) -> UpdateSchema:
        """Move a column before another of the same struct."""
        return self._then(lambda edit: edit.move(edit.need(column), edit.need(other), after=False))

    def move_after(self, column: str, other: str) -> UpdateSchema:
        """Move a column after another of the same struct."""
        return self._then(lambda edit: edit.move(edit.need(column), edit.need(other), after=True))

    def set_identifier_fields(self, columns: Iterable[str]) -> UpdateSchema:
        """Set the columns that identify rows. None of them may be optional or floating point."""
        names = tuple(columns)
        return self._then(lambda edit: edit.identify_by([edit.need(name) for name in names]))

    def union_by_name(self, schema: Schema, rules: UnionRules | None = None) -> UpdateSchema:
        """Add optional columns, widen types and make columns optional, so that rows of `schema` fit.

        Narrower types in `schema` change nothing; its ids and its order do not matter.
        `rules` None: all default rules.
        """
        chosen = UnionRules() if rules is None else rules
        return self._then(lambda edit: self._unite(edit, schema, chosen))

    def apply(self) -> tuple[Schema, list[str]]:
        """The schema that a commit would make from the metadata as last read, and the changes as text."""
        edit = self._edited(self._table.metadata)
        return edit.result(), edit.steps

    def commit(self) -> TableMetadata:
        """Commit the change on the newest metadata; returns it (unchanged when there was nothing to do)."""
        self._table.refresh()
        return commit_metadata(self._table, self._changed)

    def _then(self, step: Step) -> UpdateSchema:
        self._steps.append(step)
        return self

    def _unite(self, edit: SchemaEdit, schema: Schema, rules: UnionRules) -> None:
        before = edit.result()
        problems = unite(edit, schema, rules)
        if problems:
            raise SchemaMismatchError(
                f"{self._table.location}: the table cannot take rows of the other schema: "
                f"{'; '.join(problems)}. The table has {columns_text(before)}; the other schema has "
                f"{columns_text(schema)}"
            )

    def _edited(self, base: TableMetadata) -> SchemaEdit:
        edit = SchemaEdit(base)
        for step in self._steps:
            step(edit)
        return edit

    def _changed(self, base: TableMetadata) -> TableMetadata:
        if self._added is not None and self._added in base.schemas:
            return base  # an earlier attempt of this same update, whose response was lost
        edit = self._edited(base)
        new = with_schema(base, edit.result(), edit.last_column_id)
        require_no_nulls(self._table, base, {each.field.field_id: each.path for each in edit.made_required})
        if new is not base:
            require_writable(base, self._table.name)
            self._added = new.schema if new.schemas is not base.schemas else None
        return new


def _type(type_: IcebergType | str) -> IcebergType:
    return type_ if isinstance(type_, IcebergType) else parse_ddl(f"c {type_}").fields[0].type


def _add(edit: SchemaEdit, parent: str | None, part: NestedField) -> None:
    if not part.name:
        raise InvalidOptionError("a column needs a name")
    edit.add(None if parent is None else edit.need(parent), part)
