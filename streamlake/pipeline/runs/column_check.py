"""Checks the columns of a stream against a table's, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.errors import SchemaMismatchError
from streamlake.table.table import Table


def check_columns(columns: Sequence[str], table: Table, beside: Sequence[str] = ()) -> None:
    """Raises SchemaMismatchError for columns that do not fit the table; `beside` must be there too."""
    known = {*table.schema.column_names, *beside}
    unknown = [name for name in columns if name not in known]
    absent = [part.name for part in table.schema.fields if part.required and part.name not in columns]
    absent += [name for name in beside if name not in columns and name not in absent]
    if unknown or absent:
        problems = [f"the column '{name}' is not in the table" for name in unknown]
        problems += [f"the required column '{name}' is not in the stream" for name in absent]
        raise SchemaMismatchError(
            f"the stream does not fit {table.location}: {'; '.join(problems)}. The table's columns are "
            f"{', '.join(table.schema.column_names)}; select or rename in the stream, or let the table "
            "follow it (schema_evolution='add')"
        )
