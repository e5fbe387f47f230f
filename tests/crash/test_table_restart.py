"""SIGKILL of a driver that streams a table: in the middle of the first scan, and in the middle of a snapshot that came later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlake import failpoints, load_table
from streamlake.catalog.open import open_table
from streamlake.source.iceberg.table_offset import TableOffset
from tests.helpers.invariants import check_table
from tests.helpers.spark import run_driver
from tests.helpers.table_copy import TableCopy

DRIVER = Path(__file__).with_name("table_driver.py")


def drive(copy: TableCopy, name: str, armed: str = "") -> int:
    home = Path(copy.location).parent
    environment = {failpoints.VARIABLE: armed}
    log = home / name
    return run_driver(DRIVER, home, home=log, environment=environment, check=not armed).returncode


def last_offset(copy: TableCopy) -> TableOffset:
    log = Path(copy.checkpoint, "streamlake", "offsets")
    newest = max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return TableOffset.from_json(json.loads(newest.read_text().splitlines()[1]))


@pytest.mark.crash
@pytest.mark.timeout(900)
def test_the_copy_is_whole_after_kills_in_the_middle_of_snapshots(tmp_path: Path) -> None:
    copy = TableCopy(tmp_path, properties={"write.parquet.row-group-size-bytes": "1"})
    copy.append(range(60))
    copy.append(range(60, 100))
    assert drive(copy, "first", "splits-planned=kill,nth=2") != 0
    position = last_offset(copy).position
    assert position.is_scan
    assert position.within is not None, "it died in the middle of the first scan"
    assert 0 < len(copy.ids()) < 100
    assert drive(copy, "second") == 0
    assert copy.is_equal()
    added = copy.append(range(100, 180))
    assert drive(copy, "third", "offsets-logged=kill") != 0
    position = last_offset(copy).position
    assert (position.snapshot_id, position.is_scan) == (added, False)
    assert position.within is not None, "it died in the middle of a snapshot"
    assert drive(copy, "fourth") == 0
    assert copy.is_equal()
    assert copy.ids() == list(range(180))
    check_table(open_table(copy.location), files_exist=True)
    summaries = [each.summary for each in load_table(copy.location).snapshots]
    times = [int(each["streamlake.watermark-ms"]) for each in summaries if "streamlake.watermark-ms" in each]
    assert len(times) == len(summaries)
    assert max(times) == 179_000
