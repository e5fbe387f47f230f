"""A scan of the changes between two snapshots, in one process.

    plan_changes() -> SnapshotChanges per snapshot -> a split each -> ChangeSplitScan -> record batches

A snapshot that only adds rows, or only removes some, is streamed. The rows of any other are in memory until
they are paired; with `net_changes` those of the whole range. Where they are too many, files are read several
times, for a part of the keys each time. Invariant: changes come in the order of the snapshots, and applied in
that order to the rows at the beginning they give the rows at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from streamlake.errors import InvalidOptionError
from streamlake.read.changes.change_columns import ChangeColumns
from streamlake.read.changes.change_planning import ChangePlanner
from streamlake.read.changes.change_range import UNCHANGED, snapshots_between
from streamlake.read.changes.change_split_scan import ChangeSplitScan
from streamlake.read.changes.change_splits import ChangeSplit, netted_pieces, pieces_of
from streamlake.read.changes.change_tasks import ChangedSnapshot, SnapshotChanges
from streamlake.read.changes.changed_rows import ChangeReading
from streamlake.read.planning import FileScanTask
from streamlake.read.scan import DEFAULT_BATCH_SIZE, Filter, Scan, readers
from streamlake.read.snapshot_points import SnapshotPoint
from streamlake.table.table import Table

_ROWS_IN_MEMORY = 4_000_000


class ChangeScan(Scan):
    """The rows that each snapshot after one up to another added and removed.

    The range is `from_snapshot_id` (exclusive; None: since the table's beginning) to `to_snapshot_id`
    (inclusive; None: the current snapshot). Both take an id, the name of a branch or tag, or a time, as those
    of `IncrementalAppendScan`. Rows have the selected columns of the schema `schema_id` (None:
    the current one), and

    - `_row_kind`: `+I` for a row that was added, `-D` for one that was removed, `-U` and `+U` for the old and
      the new values of an updated row, which follow each other;
    - `_snapshot_id`, `_sequence_number`: the snapshot that made the change;
    - `_ordinal`: its number in the range, from 0, where snapshots that change no rows are not counted;
    - `_row_id` on tables of version 3, or as `has_row_ids` says; null for rows that have none.

    Deletion vectors, position deletes, equality deletes, overwrites and removed files are all read. Old and
    new rows of one snapshot are paired by `keys` (None: the table's identifier fields), or without any by
    `_row_id`. Rows with equal values in the selected columns cancel out, so rows that a copy-on-write carried
    over are no change, and neither is a row that is added and deleted in one snapshot. Snapshots that only
    rewrite files (`replace`) change nothing. Where several rows share a key, equal ones cancel out first and
    the others are paired in order.

    `filter` applies to old and new values alike: a row that an update moves into the filter is `+I`, one that
    it moves out is `-D`. With `net_changes` the whole range is netted: one change per key (or row), of the
    values before all and after all of them, with the snapshot that changed the row last.

    Raises InvalidOptionError for a snapshot that is unknown, has expired, or is not in the range's lineage.
    """

    def __init__(  # noqa: PLR0913
        self,
        table: Table,
        from_snapshot_id: SnapshotPoint | None = None,
        to_snapshot_id: SnapshotPoint | None = None,
        filter: Filter = None,
        columns: Iterable[str] | None = None,
        *,
        keys: Iterable[str] | None = None,
        schema_id: int | None = None,
        net_changes: bool = False,
        has_row_ids: bool | None = None,
    ) -> None:
        if schema_id is not None and schema_id not in table.schemas:
            raise InvalidOptionError(
                f"table {table.name} has no schema {schema_id}; there are the schemas "
                f"{', '.join(map(str, sorted(table.schemas)))}"
            )
        schema = table.schema if schema_id is None else table.schemas[schema_id]
        names = columns if columns is None or isinstance(columns, str) else list(columns)
        super().__init__(table, schema, filter, names)
        if has_row_ids is None:
            has_row_ids = table.format_version >= 3
        self.columns = ChangeColumns.of(schema, names, keys, has_row_ids=has_row_ids)
        self.net_changes = net_changes
        path = snapshots_between(table, from_snapshot_id, to_snapshot_id)
        changing = [each for each in path if each.operation not in UNCHANGED]
        self.snapshots = tuple(
            ChangedSnapshot(each.snapshot_id, each.sequence_number, at) for at, each in enumerate(changing)
        )

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the changes."""
        return self.columns.arrow_schema

    def plan_changes(self) -> Iterator[SnapshotChanges]:
        """What each snapshot changed, oldest first, planned from manifests while it is taken."""
        planner = ChangePlanner(self.table.io, self.table.specs, self._schema, self._bound)
        return planner.changes(
            self.snapshots, lambda each: self.table.manifests(self.table.metadata.snapshot(each.snapshot_id))
        )

    def reading(self, batch_size: int = DEFAULT_BATCH_SIZE) -> ChangeReading:
        """What a task needs to read rows of the plan; it pickles."""
        schemas = tuple(self._read_schemas())
        return ChangeReading(self.table.io, self.columns.read, schemas, self._name_mapping(), batch_size)

    def plan_files(self) -> Iterator[FileScanTask]:
        """The data files to read for the changes; a file may come several times."""
        return (task.rows for changes in self.plan_changes() for task in changes.tasks)

    def to_batches(self, batch_size: int = DEFAULT_BATCH_SIZE) -> Iterator[pa.RecordBatch]:
        """The changes as record batches of at most `batch_size` rows, in the order of the snapshots."""
        if batch_size < 1:
            raise InvalidOptionError(f"batch_size is at least 1, not {batch_size}")
        scan = ChangeSplitScan(self.columns, self.reading(batch_size), readers(self.table.io))
        for split in self._splits():
            yield from scan.read(split)

    def count(self) -> int:
        """The number of changes, which are read for it."""
        return sum(batch.num_rows for batch in self.to_batches())

    def _splits(self) -> Iterator[ChangeSplit]:
        """The changes of each snapshot, or of all of them together."""
        rows_in_memory = _ROWS_IN_MEMORY if self.columns.parted_by else None
        plan = self.plan_changes()
        if self.net_changes and len(self.snapshots) > 1:
            yield ChangeSplit(tuple(netted_pieces(list(plan), rows_in_memory)))
            return
        for changes in plan:
            yield ChangeSplit(tuple(pieces_of(changes, rows_in_memory)))
