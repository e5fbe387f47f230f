"""Four processes append 50 times each to one table at once: 200 snapshots, no row lost, none twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.catalog.open import create, open_table
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.processes import kill_group
from tests.helpers.readers import DuckDbReader

WRITERS, APPENDS = 4, 50


@pytest.mark.parametrize("version", [2, 3])
def test_no_append_is_lost(version: int, tmp_path: Path, duckdb_reader: DuckDbReader) -> None:
    location = tmp_path / "table"
    create(str(location), parse_ddl("writer int, turn int"), format_version=version)
    writers = [
        subprocess.Popen(
            [sys.executable, __file__, str(location), str(number), str(APPENDS)],
            start_new_session=True,
            stderr=subprocess.PIPE,
        )
        for number in range(WRITERS)
    ]
    try:
        for writer in writers:
            _, errors = writer.communicate(timeout=200)
            assert writer.returncode == 0, errors.decode()[-2000:]
    finally:
        for writer in writers:
            kill_group(writer)

    table = open_table(str(location))
    check_table(table, files_exist=True)
    assert len(table.snapshots) == WRITERS * APPENDS
    parents = [snapshot.parent_snapshot_id for snapshot in table.snapshots]
    assert parents == [None, *(snapshot.snapshot_id for snapshot in table.snapshots)][:-1]
    rows = duckdb_reader.sql(f"select writer, turn from {duckdb_reader.relation(location)}").to_pylist()
    expected = [(writer, turn) for writer in range(WRITERS) for turn in range(APPENDS)]
    assert sorted((row["writer"], row["turn"]) for row in rows) == expected
    _check_files(location, table.metadata.last_sequence_number)
    live = Counter(file.file_path for file in live_data_files(table))
    assert set(live.values()) == {1}
    assert len(live) == WRITERS * APPENDS


def _check_files(location: Path, last_sequence_number: int) -> None:
    """No manifest list of a lost attempt is left over, and no temporary file."""
    lists = [path.name for path in (location / "metadata").glob("snap-*.avro")]
    assert len(lists) == WRITERS * APPENDS == last_sequence_number
    names = {path.name for path in location.rglob("*") if path.is_file()}
    assert not [name for name in names if name.endswith(".tmp") or name.startswith("tmp")]


def _write(location: str, writer: int, appends: int) -> None:
    schema = pa.schema([("writer", pa.int32()), ("turn", pa.int32())])
    table = open_table(location)
    for turn in range(appends):
        append(table, pa.table([[writer], [turn]], schema=schema))


if __name__ == "__main__":
    _write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
