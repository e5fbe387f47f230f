"""A scan of one snapshot: filter and columns are checked when it is made, files are read on demand.

    scan -> plan_files() -> FileScanTask per data file -> FileRows -> to_batches / to_arrow / count

Invariant: a scan reads the snapshot that it was made for, whatever is committed meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from copy import copy
from datetime import date, datetime, time, timezone
from importlib import import_module
from typing import Any, TypeVar

import pyarrow as pa

from streamlake.ahead import in_order
from streamlake.errors import InvalidOptionError
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY, NameMapping
from streamlake.read.column_selection import ColumnSelection, select_columns
from streamlake.read.deletes import DeleteReader
from streamlake.read.file_rows import FileRows
from streamlake.read.metadata_columns import LINEAGE
from streamlake.read.planning import FileScanTask, ScanPlanner
from streamlake.spec.expressions.binding import bind
from streamlake.spec.expressions.expressions import TRUE, Expression
from streamlake.spec.metadata.manifest import ManifestContent
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.types.schema import Schema
from streamlake.spec.types.values import parse_timestamp
from streamlake.storage.file_io import FileIO
from streamlake.storage.local import LocalFileIO
from streamlake.table.table import Table

DEFAULT_BATCH_SIZE = 65_536
_REMOTE_READERS = 4

Filter = str | Expression | None
ScanKind = TypeVar("ScanKind", bound="Scan")


class Scan:
    """Base of table scans and incremental scans: a selection, a filter, and files to read."""

    def __init__(self, table: Table, schema: Schema, filter: Filter, columns: Iterable[str] | None) -> None:
        self.table = table
        self._schema = schema
        self._bound = bind(filter, schema)
        self._filter = filter
        self._limit: int | None = None
        self._selection = select_columns(schema, columns)
        if not self._selection.output.fields and columns is not None:
            raise InvalidOptionError(
                "columns is empty; name at least one column, or leave it out for all of them"
            )
        if table.format_version < 3 and any(part in LINEAGE for part in self._selection.metadata_columns):
            raise InvalidOptionError(
                f"table {table.name}: row lineage columns (_row_id, _last_updated_sequence_number) need "
                f"format version 3; this table has {table.format_version}"
            )

    def limit(self: ScanKind, rows: int) -> ScanKind:
        """The same scan, ending after `rows` rows: the first ones in the order of the files.

        No file is opened that is not needed for them. Raises InvalidOptionError for a negative number.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise InvalidOptionError(f"limit is a number of rows, 0 or more, not {rows!r}")
        copied = copy(self)
        copied._limit = (  # noqa: SLF001
            rows if self._limit is None else min(rows, self._limit)
        )
        return copied

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._shown())})"

    def _shown(self) -> list[str]:
        """The parts of the repr."""
        parts = [repr(self.table.name)]
        if self._filter is not None:
            parts.append(f"filter={str(self._filter)!r}")
        parts.append(f"columns={self.arrow_schema.names}")
        if self._limit is not None:
            parts.append(f"limit={self._limit}")
        return parts

    @property
    def schema(self) -> Schema:
        """The schema of the scanned data, before columns are selected."""
        return self._schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows that the scan returns."""
        return self._selection.arrow_schema

    @property
    def filter(self) -> Expression:
        """The bound filter."""
        return self._bound

    def plan_files(self) -> Iterator[FileScanTask]:
        """The files to read, in table order, planned while they are taken."""
        raise NotImplementedError

    def to_batches(self, batch_size: int = DEFAULT_BATCH_SIZE) -> Iterator[pa.RecordBatch]:
        """The matching rows as record batches of at most `batch_size` rows, in the order of the files.

        Streams: a few files are read ahead, a few batches each, and no more is held in memory. Closing the
        iterator early ends the reading.
        """
        if batch_size < 1:
            raise InvalidOptionError(f"batch_size is at least 1, not {batch_size}")
        if self._limit is not None:
            batch_size = max(1, min(batch_size, self._limit))
        rows = self._rows(self._selection, batch_size)
        workers = readers(self.table.io)
        found = in_order(self.plan_files(), rows.read, workers=workers)
        return found if self._limit is None else limited(found, self._limit)

    def to_arrow(self) -> pa.Table:
        """The matching rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.arrow_schema)

    def to_reader(self, batch_size: int = DEFAULT_BATCH_SIZE) -> pa.RecordBatchReader:
        """The matching rows as an Arrow stream, which other libraries (DuckDB, polars) accept."""
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self.to_batches(batch_size))

    def to_pandas(self) -> Any:
        """The matching rows as a `pandas.DataFrame`.

        Raises InvalidOptionError when pandas is not installed.
        """
        _library("pandas", "to_pandas()", "pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The matching rows as a `polars.DataFrame`.

        Raises InvalidOptionError when polars is not installed.
        """
        return _library("polars", "to_polars()", "streamlake[fast]").from_arrow(self.to_arrow())

    def to_duckdb(self, connection: Any = None) -> Any:
        """The matching rows as a DuckDB relation of `connection`, or of DuckDB's default connection.

        Raises InvalidOptionError when duckdb is not installed.
        """
        duckdb = _library("duckdb", "to_duckdb()", "duckdb")
        return (duckdb if connection is None else connection).from_arrow(self.to_arrow())

    def count(self) -> int:
        """The number of matching rows.

        It comes from metadata wherever that is exact: for files without deletes, and for files with a
        deletion vector, whose cardinality the manifest records. Position delete files are read without their
        data files. Columns are read only for filters and equality deletes, and only those that they need.
        """
        rows = self._rows(select_columns(self._schema, []), DEFAULT_BATCH_SIZE)
        known = 0

        def unsure() -> Iterator[FileScanTask]:
            nonlocal known
            for task in self.plan_files():
                if task.known_count is None:
                    yield task
                else:
                    known += task.known_count

        read = sum(in_order(unsure(), lambda task: [rows.count(task)], workers=readers(self.table.io)))
        return known + read if self._limit is None else min(known + read, self._limit)

    def _rows(self, selection: ColumnSelection, batch_size: int) -> FileRows:
        mapping = self._name_mapping()
        deletes = DeleteReader(self.table.io, self._read_schemas(), mapping)
        return FileRows(self.table.io, selection, deletes, mapping, batch_size)

    def _name_mapping(self) -> NameMapping | None:
        text = self.table.properties.get(NAME_MAPPING_PROPERTY)
        return None if text is None else NameMapping.from_json(text)

    def _read_schemas(self) -> list[Schema]:
        """The scan's schema, and all others, in which columns that are gone are found."""
        return [self._schema, *sorted(self.table.schemas.values(), key=lambda each: -each.schema_id)]


class TableScan(Scan):
    """The rows of one snapshot.

    `filter`: text in the filter language or an expression; `columns`: names in output order, nested ones
    dotted, metadata columns (`_file`, `_pos`, `_spec_id`, and `_row_id`, `_last_updated_sequence_number` of
    v3 tables) by name. The snapshot is chosen by at most one of `snapshot_id`, `as_of` (epoch milliseconds, a
    datetime or ISO text, UTC unless it says otherwise; by the snapshot log) and `ref` (branch or tag);
    without any, the current one. Time travel by id, time or tag reads with the schema of that snapshot, a
    branch with the table's schema, unless `schema_id` says which. Raises InvalidOptionError for whatever does
    not exist or does not parse.
    """

    def __init__(
        self,
        table: Table,
        filter: Filter = None,
        columns: Iterable[str] | None = None,
        snapshot_id: int | None = None,
        as_of: int | str | datetime | date | None = None,
        ref: str | None = None,
        schema_id: int | None = None,
    ) -> None:
        as_of_ms = None if as_of is None else epoch_ms(as_of)
        self.snapshot = table.snapshot_by(snapshot_id=snapshot_id, ref=ref, as_of_ms=as_of_ms)
        if schema_id is None:
            schema = _schema_for(table, self.snapshot, ref, snapshot_id, as_of_ms)
        else:
            schema = table.metadata.schema_by_id(schema_id)
        super().__init__(table, schema, filter, columns)

    def plan_files(self) -> Iterator[FileScanTask]:
        """The files of the snapshot to read, in table order."""
        planner = ScanPlanner(self.table.io, self.table.specs, self._bound)
        return planner.tasks(self.table.manifests(self.snapshot))

    def count(self) -> int:
        """The number of matching rows.

        Without a filter and without delete files it comes from the manifest list alone.
        """
        if self._bound == TRUE:
            manifests = [each for each in self.table.manifests(self.snapshot) if each.may_have_live_files]
            counts = [(each.added_rows_count, each.existing_rows_count) for each in manifests]
            only_data = all(each.content == ManifestContent.DATA for each in manifests)
            if only_data and all(None not in pair for pair in counts):
                found = sum((added or 0) + (existing or 0) for added, existing in counts)
                return found if self._limit is None else min(found, self._limit)
        return super().count()

    def _shown(self) -> list[str]:
        name, *others = super()._shown()
        return [name, f"snapshot={None if self.snapshot is None else self.snapshot.snapshot_id}", *others]


def limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The batches up to `limit` rows; the rest is not read."""
    with closing(batches):  # type: ignore[type-var]
        while limit > 0:
            batch = next(batches, None)
            if batch is None:
                return
            yield batch.slice(0, limit)
            limit -= batch.num_rows


def readers(io: FileIO) -> int:
    """How many files of a scan are read at a time.

    Local ones keep the processors busy, others wait for a network.
    """
    return (
        min(_REMOTE_READERS, max(2, os.cpu_count() or 2)) if isinstance(io, LocalFileIO) else _REMOTE_READERS
    )


def _library(name: str, wanted_by: str, requirement: str) -> Any:
    try:
        return import_module(name)
    except ImportError as cause:
        raise InvalidOptionError(
            f"{wanted_by} needs the package {name}, which cannot be imported ({cause}); `pip install "
            f"'{requirement}'`, or take to_arrow() or to_reader()"
        ) from cause


def _schema_for(
    table: Table, snapshot: Snapshot | None, ref: str | None, snapshot_id: int | None, as_of_ms: int | None
) -> Schema:
    """The schema of a scan.

    It is the snapshot's own for time travel by id, time or tag, and the table's for a branch and for the
    current snapshot.
    """
    if snapshot is None or snapshot.schema_id is None:
        return table.schema
    by_tag = ref is not None and ref in table.refs and table.refs[ref].type == "tag"
    if snapshot_id is not None or as_of_ms is not None or by_tag:
        return table.metadata.schema_by_id(snapshot.schema_id)
    return table.schema


def epoch_ms(moment: int | str | datetime | date) -> int:
    """A time as milliseconds since 1970-01-01 UTC. Raises InvalidOptionError."""
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    if isinstance(moment, datetime):
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).isoformat()
    if isinstance(moment, str):
        text = moment.strip()
        if text.isdigit() and len(text) > 8:
            return int(text)
        try:
            return parse_timestamp(f"{text}T00:00:00" if len(text) == 10 else text) // 1000
        except (ValueError, OverflowError):
            pass
    raise InvalidOptionError(
        f"as_of {moment!r} is not a time; give epoch milliseconds, a datetime, or text such as "
        "'2024-01-31T10:00:00Z'"
    )
