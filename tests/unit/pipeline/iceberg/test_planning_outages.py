"""A read of a manifest that fails while a stream is planned, and is tried again by the same driver."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamlake.errors import StorageError
from streamlake.pipeline.iceberg.snapshot_enumerator import SnapshotEnumerator
from streamlake.pipeline.iceberg.table_cursor import TableCursor
from streamlake.source.iceberg.table_offset import TableOffset
from streamlake.tables import LoadedTable, create_table
from tests.helpers.faulty_io import Fault, FaultyIO, faulty_table
from tests.unit.pipeline.iceberg.table_streams import add, source_of


@pytest.fixture
def table(tmp_path: Path) -> LoadedTable:
    table = create_table(tmp_path / "t", "id long, category string")
    for number in range(12):
        add(table, number)
    return table


def ids(enumerator: SnapshotEnumerator, start: TableOffset | None, end: TableOffset) -> list[int]:
    scan = enumerator.split_scan(end)
    return [
        number
        for split in enumerator.splits(start, end)
        for rows in scan.read(split)
        for number in rows.column("id").to_pylist()
    ]


def tried_again(call: Any) -> Any:
    """What a call gives once it does not fail any more."""
    for _ in range(5):
        try:
            return call()
        except StorageError:
            continue
    raise AssertionError("it still fails")


@pytest.mark.parametrize("options", [{}, {"read_mode": "changes", "identifier_columns": "id"}])
@pytest.mark.parametrize("limits", [{}, {"max_files_per_trigger": 5}, {"max_rows_per_trigger": 1}])
def test_a_manifest_that_cannot_be_read_once_loses_no_rows(
    table: LoadedTable, options: dict[str, Any], limits: dict[str, Any]
) -> None:
    for failing in itertools.count(1):
        fault = Fault("*", "*.avro", failing)
        io = FaultyIO(faults=[fault])
        enumerator = SnapshotEnumerator(
            faulty_table(table.location, io), source_of(table, **options, **limits)
        )
        cursor, known, found = TableCursor(enumerator), None, []
        while (end := tried_again(cursor.latest)) != known:
            found += tried_again(partial(ids, enumerator, known, end))
            known = end
        assert sorted(found) == list(range(12)), f"read {failing} failed"
        if sum(fault.concerns(*call) for call in io.calls) < failing:
            break
    assert failing > 5
