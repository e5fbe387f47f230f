"""The rejects table of another table: its name, and how it is opened and created.

It is beside the table, in the same catalog and namespace, or in the directory next to it; created when the
first record is rejected. Rows are partitioned by the day on which they were rejected, so that old ones can be
dropped file by file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from streamlake.catalog.open import CatalogOption, open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.decode.rejected_records import REJECTS
from streamlake.errors import SchemaMismatchError, TableAlreadyExistsError, TableNotFoundError
from streamlake.maintain.rejects_retention import RETENTION
from streamlake.table.table import Table
from streamlake.tables import create_table
from streamlake.tasks.table_names import REJECTS_ENDING

_PARTITION_BY = ("day(rejected_at)",)
_FORMAT_VERSION = 2


def rejects_name(table: str) -> str:
    """The name or location of a table's rejects table."""
    return f"{table.rstrip('/')}{REJECTS_ENDING}"


def own_identity(identity: CheckpointIdentity) -> CheckpointIdentity:
    """A checkpoint's identity in the rejects table: each checkpoint directory is a pipeline of its own."""
    return replace(identity, pipeline=f"{identity.pipeline}:{identity.job_id}")


def open_rejects(table: str, catalog: CatalogOption = None) -> Table | None:
    """The rejects table of a table, None where nothing was rejected yet.

    Raises SchemaMismatchError when another kind of table has its name.
    """
    try:
        found = open_table(rejects_name(table), catalog)
    except TableNotFoundError:
        return None
    lacking = [part.name for part in REJECTS.fields if part.name not in found.schema.column_names]
    if lacking:
        raise SchemaMismatchError(
            f"{found.name} has no column '{lacking[0]}', so it is no rejects table; rename it, because the "
            f"rejects of {table} are kept under this name"
        )
    return found


def require_rejects(
    table: str, catalog: CatalogOption = None, properties: Mapping[str, str] | None = None
) -> Table:
    """The rejects table, created where there is none; `properties` are for a new one. Raises
    SchemaMismatchError.
    """
    found = open_rejects(table, catalog)
    if found is not None:
        return found
    # Another job may create it in between; then both write to that one.
    with contextlib.suppress(TableAlreadyExistsError):
        create_table(
            rejects_name(table),
            REJECTS,
            catalog=catalog,
            partition_by=_PARTITION_BY,
            format_version=_FORMAT_VERSION,
            properties={**_agreed_age(table, catalog), **(properties or {})},
        )
    return open_table(rejects_name(table), catalog)


def _agreed_age(table: str, catalog: CatalogOption) -> dict[str, str]:
    """The property that says how old the rejects of a table become, where the table has it."""
    try:
        age = open_table(table, catalog).properties.get(RETENTION)
    except TableNotFoundError:
        age = None
    return {} if age is None else {RETENTION: age}
