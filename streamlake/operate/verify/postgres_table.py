"""A table of a PostgreSQL database for `verify`: columns, key, and one state that many tasks can read.

    PostgresTable (names it) -> opened() -> PostgresState (columns, key, a snapshot that is held open)
    -> parts: ranges of the table's blocks -> postgres_rows reads each in a task of its own

Invariant: all parts of a state are read from the same snapshot of the database, whatever is written
meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from streamlake.errors import InvalidOptionError, SourceError
from streamlake.options import ShownFields

_LEAST_VERSION = 14
_PART_BYTES = 32 * 1024 * 1024
_COLUMNS = """
with recursive base(place, name, type, generated) as (
  select attnum, attname, atttypid, attgenerated <> '' from pg_attribute
  where attrelid = %(table)s and attnum > 0 and not attisdropped
  union all
  select base.place, base.name, typbasetype, base.generated
  from base join pg_type on oid = base.type and typtype = 'd'
)
select base.name, coalesce(element.typname, type.typname), element.oid is not null, base.generated
from base join pg_type type on type.oid = base.type and type.typtype <> 'd'
left join pg_type element on element.oid = type.typelem and type.typcategory = 'A'
order by base.place
"""
_KEY = """
select attname from pg_index, unnest(indkey) with ordinality as part(number, place), pg_attribute
where indrelid = %(table)s and attrelid = indrelid and attnum = part.number
  and (indisprimary or indisreplident)
order by indisprimary desc, indexrelid, part.place
"""
_PIECES = """
select leaf.oid::regclass::text, pg_relation_size(leaf.oid), current_setting('block_size')::int
from (select relid as oid from pg_partition_tree(%(table)s) where isleaf union select %(table)s) as leaf
join pg_class on pg_class.oid = leaf.oid and relkind in ('r', 'm')
order by 1
"""


@dataclass(frozen=True)
class PostgresColumn:
    """A column.

    `type` is PostgreSQL's own name (for an array, that of its elements), domains resolved: int4, bpchar.
    """

    name: str
    type: str
    is_array: bool = False
    is_generated: bool = False


@dataclass(frozen=True)
class PostgresPart:
    """What one task reads: the blocks from `start` up to, not including, `until` of `relation`.

    `relation` is a text for a FROM clause.
    """

    relation: str
    start: int = 0
    until: int | None = None


@dataclass(frozen=True, repr=False)
class PostgresTable(ShownFields):
    """Names a PostgreSQL table to compare with.

    `dsn` is a connection string or URI of libpq. `name` is `table` or `schema.table`, as in the database's
    catalog (no quotes, case matters).
    """

    dsn: str
    name: str

    @contextlib.contextmanager
    def opened(self) -> Iterator[PostgresState]:
        """Context manager: the table's state now, which tasks can read until the end of the `with`.

        Raises InvalidOptionError when there is no such table or psycopg is not installed, SourceError when
        the server cannot be reached.
        """
        schema, _, name = self.name.rpartition(".")
        with connected(self.dsn) as connection:
            version = connection.info.server_version // 10_000
            if version < _LEAST_VERSION:
                raise InvalidOptionError(
                    f"the server has PostgreSQL {version}; verify needs {_LEAST_VERSION} or newer"
                )
            found = connection.execute(
                "select to_regclass(format('%%I.%%I', %s::text, %s::text))::oid::bigint",
                (schema or "public", name),
            ).fetchone()
            if found is None or found[0] is None:
                raise InvalidOptionError(
                    f"there is no table {self.name} in the database {connection.info.dbname}; name it as "
                    "schema.table"
                )
            table = {"table": found[0]}
            columns = tuple(PostgresColumn(*row) for row in connection.execute(_COLUMNS, table))
            key = tuple(row[0] for row in connection.execute(_KEY, table))
            relation = f"{quoted_name(schema or 'public')}.{quoted_name(name)}"
            pieces = connection.execute(_PIECES, table).fetchall()
            standby = connection.execute("select pg_is_in_recovery()").fetchone()
            snapshot = None
            if not (standby and standby[0]):
                snapshot = str(connection.execute("select pg_export_snapshot()").fetchone()[0])
            described = f"{connection.info.host}:{connection.info.port}/{connection.info.dbname} {self.name}"
            # A standby cannot share a snapshot, so there one task reads everything. The same holds for a
            # view.
            whole = snapshot is None or not pieces
            parts = (PostgresPart(relation),) if whole else tuple(_split(pieces))
            yield PostgresState(self.dsn, described, columns, tuple(dict.fromkeys(key)), parts, snapshot)


@dataclass(frozen=True, repr=False)
class PostgresState(ShownFields):
    """A table at one moment.

    `name` is for messages; `key` is its primary key, or the index of its replica identity.
    """

    dsn: str
    name: str
    columns: tuple[PostgresColumn, ...]
    key: tuple[str, ...]
    parts: tuple[PostgresPart, ...]
    snapshot: str | None

    def column(self, name: str) -> PostgresColumn | None:
        """The column of this name; None where there is none."""
        return next((column for column in self.columns if column.name == name), None)


@contextlib.contextmanager
def connected(dsn: str) -> Iterator[Any]:
    """Context manager: a read-only connection, in one transaction that sees one state of the database.

    Raises InvalidOptionError without psycopg, and SourceError for what the database refuses.
    """
    try:
        psycopg: Any = import_module("psycopg")
    except ImportError:
        raise InvalidOptionError(
            "reading PostgreSQL needs psycopg: python -m pip install 'streamlake[postgres]'"
        ) from None
    try:
        with psycopg.connect(dsn, application_name="streamlake verify") as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield connection
            connection.rollback()
    except psycopg.Error as error:
        raise SourceError(f"PostgreSQL says: {str(error).strip()}") from error


def quoted_name(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _split(pieces: list[tuple[str, int, int]]) -> Iterator[PostgresPart]:
    for relation, size, block_bytes in pieces:
        step = max(1, _PART_BYTES // block_bytes)
        blocks = max(1, -(-size // block_bytes))
        for start in range(0, blocks, step):
            # The last part has no end: the table may grow before it is read, with rows that the snapshot does
            # not see.
            yield PostgresPart(f"only {relation}", start, None if start + step >= blocks else start + step)
