"""Writer tasks that are killed half-way and run again: only the files of the attempts that won are in the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from tests.crash import stream
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.spark import run_driver

pytestmark = pytest.mark.crash
DRIVER = Path(__file__).with_name("attempts_driver.py")
FILES = 2


def test_files_of_killed_attempts_are_not_in_the_table(tmp_path: Path) -> None:
    stream.land(tmp_path, files=FILES)
    run_driver(DRIVER, tmp_path, home=tmp_path / "driver")
    location = tmp_path / "table"
    ids = load_table(str(location)).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(FILES * stream.ROWS_PER_FILE))
    table = open_table(str(location))
    assert len(table.snapshots) == FILES
    check_table(table, files_exist=True)
    live = {Path(file.file_path).name for file in live_data_files(table)}
    written = {path.name for path in location.glob("data/**/*.parquet")}
    assert live < written, "the killed attempts had written files, which nobody could remove"
