"""Reads a PostgreSQL table in Spark tasks for a comparison: COPY -> CSV -> Arrow -> SIDE_SCHEMA.

Each task reads its parts from the one snapshot that the driver holds open. Nothing is sorted and nothing is
kept: rows come in blocks of some megabytes, whatever the table's size.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO

import pyarrow as pa
import pyarrow.csv as pv

from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import SchemaMismatchError
from streamlake.operate.verify.compared_rows import RowForm, sent
from streamlake.operate.verify.postgres_table import PostgresPart, PostgresState, connected, quoted_name
from streamlake.operate.verify.postgres_values import Rendering, rendering
from streamlake.tasks.worker_paths import keep_archive_directories

Batches = Iterator[pa.RecordBatch]

_BLOCK_BYTES = 8 * 1024 * 1024
_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
}
"""The session settings that the texts of values depend on."""


@dataclass(frozen=True)
class PostgresRows:
    """A `mapInArrow` function over pickled parts of `state`; it reads columns that `renderings` knows."""

    form: RowForm
    state: PostgresState

    def __call__(self, batches: Batches) -> Batches:
        """The rows of the parts in `batches`, as SIDE_SCHEMA."""
        keep_archive_directories()
        for batch in batches:
            for part in batch.column(0):
                yield from self._read(pickle.loads(part.as_py()))

    def _read(self, part: PostgresPart) -> Batches:
        columns = renderings(self.form, self.state)
        with connected(self.state.dsn) as connection:
            if self.state.snapshot is not None:
                connection.execute(f"set transaction snapshot '{self.state.snapshot}'")
            for name, value in _SETTINGS.items():
                connection.execute("select set_config(%s, %s, true)", (name, value))
            with connection.cursor().copy(_copy(columns, part)) as rows:
                for block in _blocks(rows):
                    yield from sent(self.form.of_source(self._table(block, columns)))

    def _table(self, data: bytes, columns: dict[str, Rendering]) -> pa.Table:
        names = list(columns)
        texts = pv.read_csv(
            BytesIO(data),
            pv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            pv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),  # a row of one null
            pv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
        made = {}
        for name, column in columns.items():
            text = texts.column(name).combine_chunks()
            text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
            try:
                made[name] = column.arrow(text)
            except (pa.ArrowInvalid, NotBulkError) as error:
                raise SchemaMismatchError(
                    f"{self.state.name}: values of the column '{name}' cannot be values of the column in "
                    f"{self.form.table}: {error or 'their form is another'}. Leave it out with `columns`"
                ) from error
        return pa.table(made)


def renderings(form: RowForm, state: PostgresState) -> dict[str, Rendering]:
    """How the compared columns are read, by name, without those that cannot be read."""
    found = {}
    for part in form.fields:
        column = state.column(part.name)
        made = None if column is None else rendering(column, part.type)
        if made is not None:
            found[part.name] = made
    return found


def _copy(columns: dict[str, Rendering], part: PostgresPart) -> str:
    chosen = ", ".join(column.sql.replace("$", f"t.{quoted_name(name)}") for name, column in columns.items())
    where = []
    if part.start:
        where.append(f"t.ctid >= '({part.start},0)'::tid")
    if part.until is not None:
        where.append(f"t.ctid < '({part.until},0)'::tid")
    condition = f" where {' and '.join(where)}" if where else ""
    return (
        f"copy (select {chosen} from {part.relation} as t{condition}) to stdout (format csv, force_quote *)"
    )


def _blocks(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Rows in blocks of about _BLOCK_BYTES."""
    waiting: list[bytes] = []
    size = 0
    for row in rows:
        waiting.append(bytes(row))
        size += len(row)
        if size >= _BLOCK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
