"""A stream over a table as a query runs it, without Spark; and histories of tables to run it over."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.pipeline.iceberg.table_cursor import TableCursor, offset_from_json, offset_to_json
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import LoadedTable, load_table
from tests.unit.read.written_tables import append, data_files

CHANGE_COLUMNS = ("_row_kind", "_snapshot_id", "_sequence_number", "_ordinal", "_row_id")


def source_of(table: LoadedTable, **arguments: Any) -> IcebergSource:
    """A source that asks the table for news every time; underscores in names of options stand for hyphens."""
    given = {key: arguments.pop(key) for key in ("filter", "columns") if key in arguments}
    options = {
        "monitor-interval": "0 ms",
        **{key.replace("_", "-"): value for key, value in arguments.items()},
    }
    return IcebergSource(table.location, options=options, **given)


def enumerator_of(table: LoadedTable, **arguments: Any) -> SnapshotEnumerator:
    """An enumerator with a table of its own, as a driver that was just started has it."""
    return SnapshotEnumerator(load_table(table.location).table, source_of(table, **arguments))


class Stream:
    """A query: its log of offsets is all that outlives a restart."""

    def __init__(self, table: LoadedTable, **arguments: Any) -> None:
        self.table = table
        self.arguments = arguments
        self.log: list[str] = []
        self.batches: list[list[Any]] = []
        self.restart()

    def restart(self, **arguments: Any) -> None:
        """A new driver, with other options if given."""
        self.arguments.update(arguments)
        self.enumerator = enumerator_of(self.table, **self.arguments)
        self.cursor = TableCursor(self.enumerator, known=self.offset(-1))

    def offset(self, at: int) -> TableOffset | None:
        """An offset of the log."""
        return offset_from_json(json.loads(self.log[at])) if -len(self.log) <= at < len(self.log) else None

    def step(self) -> list[Any] | None:
        """The ids that one more micro-batch reads; None when there is nothing new."""
        end = self.cursor.latest()
        text = json.dumps(offset_to_json(end))
        if self.log and text == self.log[-1]:
            return None
        self.log.append(text)
        found = self.read(len(self.log) - 1, self.enumerator)
        self.batches.append(found)
        return found

    def run(self) -> list[Any]:
        """The ids that all micro-batches read until there is nothing new."""
        found: list[Any] = []
        while (batch := self.step()) is not None:
            found += batch
        return found

    def read(self, batch: int, enumerator: SnapshotEnumerator) -> list[Any]:
        """The ids that a micro-batch reads, in order."""
        start, end = (None if batch == 0 else self.offset(batch - 1)), self.offset(batch)
        assert end is not None
        scan = enumerator.split_scan(end)
        return [
            row
            for split in enumerator.splits(start, end)
            for rows in scan.read(split)
            for row in self.values(rows)
        ]

    def values(self, rows: pa.RecordBatch) -> list[Any]:
        """What is kept of the rows that are read."""
        return rows.column(0).to_pylist()

    def all(self) -> list[Any]:
        """The ids that were read, sorted."""
        return sorted(each for batch in self.batches for each in batch)


class ChangeStream(Stream):
    """A query that reads changes; they are kept as dictionaries."""

    def __init__(self, table: LoadedTable, **arguments: Any) -> None:
        super().__init__(table, read_mode="changes", **arguments)

    def values(self, rows: pa.RecordBatch) -> list[Any]:
        assert rows.num_rows
        return rows.to_pylist()

    def found(self) -> list[dict[str, Any]]:
        """All changes that were read."""
        return [row for batch in self.batches for row in batch]

    def applied(self) -> Counter[str]:
        """The rows of a table that was empty before all the changes, which have to fit, in this order."""
        state: Counter[str] = Counter()
        for row in self.found():
            text = values_of(row)
            state[text] += 1 if row["_row_kind"] in ("+I", "+U") else -1
            if not state[text]:
                del state[text]
        assert all(count > 0 for count in state.values())
        return state

    def kinds(self) -> list[list[tuple[Any, ...]]]:
        """Row kind and id of the changes of each micro-batch."""
        return [[(row["_row_kind"], row["id"]) for row in batch] for batch in self.batches]


def values_of(row: dict[str, Any]) -> str:
    """The values of a row or a change, without what says where it comes from."""
    return repr(tuple(value for name, value in row.items() if name not in CHANGE_COLUMNS))


def add(table: LoadedTable, *ids: int, branch: str = "main", **properties: str) -> int:
    """Append rows with these ids as one file; returns the snapshot's id."""
    rows = [{"id": number, "category": "ab"[number % 2]} for number in ids]
    if branch == "main":
        return append(table, rows, **properties).snapshot_id
    operation = OverwriteFiles(table.table, branch)
    for file in data_files(table, rows, **properties):
        operation.add_file(file)
    snapshot = operation.commit()
    table.refresh()
    assert snapshot.operation == "append"
    return snapshot.snapshot_id


def overwrite(table: LoadedTable, row_filter: str, *ids: int) -> int:
    """Replace the files that a filter matches by one with these ids; returns the snapshot's id."""
    operation = OverwriteFiles(table.table).overwrite_by_filter(row_filter)
    for file in data_files(table, [{"id": number, "category": "ab"[number % 2]} for number in ids]):
        operation.add_file(file)
    snapshot = operation.commit()
    table.refresh()
    return snapshot.snapshot_id


class _Replace(OverwriteFiles):
    @property
    def operation(self) -> str:
        return "replace"


def compact(table: LoadedTable) -> int:
    """Rewrite all rows of main into one file; returns the snapshot's id."""
    rows = table.scan().to_arrow()
    operation = _Replace(table.table)
    for task in table.scan().plan_files():
        operation.delete_file(task.data_file)
    for file in data_files(table, rows):
        operation.add_file(file)
    snapshot = operation.commit()
    table.refresh()
    return snapshot.snapshot_id


def set_branch(table: LoadedTable, snapshot_id: int, branch: str = "main") -> None:
    """Point a branch at a snapshot."""
    ManageRefs(table.table).set_branch(branch, snapshot_id).commit()
    table.refresh()


def tag(table: LoadedTable, name: str, snapshot_id: int | None = None) -> None:
    """Create a tag."""
    ManageRefs(table.table).create_tag(name, snapshot_id).commit()
    table.refresh()


def expire(table: LoadedTable, *snapshot_ids: int) -> None:
    """Remove snapshots from the metadata."""
    base = table.metadata
    kept = tuple(each for each in base.snapshots if each.snapshot_id not in snapshot_ids)
    log = tuple(each for each in base.snapshot_log if each.snapshot_id not in snapshot_ids)
    table.table.operations.commit(base, replace(base, snapshots=kept, snapshot_log=log))
    table.refresh()
