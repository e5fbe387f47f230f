"""Old days of a rejects table are dropped where somebody has said how old they become, and nothing else is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import clock
from streamlake.decode.rejected_records import REJECTS
from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.maintain.rejects_retention import RETENTION, drop_old_rejects
from streamlake.pipeline.runs.rejected.rejects_table import require_rejects
from streamlake.table.table import Table
from streamlake.tables import create_table, load_table
from tests.helpers.batch_write import append
from tests.helpers.invariants import check_table, live_entries

DAY_MS = 86_400_000


def rejects_of(day: int, *offsets: int) -> pa.Table:
    """Records that were rejected so many days ago, at any time of that day."""
    now = datetime.fromtimestamp(clock.now_ms() // DAY_MS * 86_400, timezone.utc)
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": None,
            "key": None,
            "value": b"x",
            "headers": None,
            "error_class": "DecodeError",
            "error_message": "no",
            "pipeline": "p",
            "checkpoint_id": 1,
            "rejected_at": now - timedelta(days=day) + timedelta(seconds=each),
        }
        for each, offset in enumerate(offsets)
    ]
    return pa.Table.from_pylist(rows, schema=schema_to_arrow(REJECTS, field_ids=False))


def made(home: Path, properties: dict[str, str] | None = None) -> Table:
    create_table(home / "t", "id long", properties=properties)
    table = require_rejects(str(home / "t"))
    for day, offset in ((0, 1), (1, 2), (5, 3), (5, 4), (40, 5)):
        append(table, rejects_of(day, offset))
    return table


def offsets(table: Table) -> list[int]:
    return sorted(load_table(table.location).scan(columns=["offset"]).to_arrow()["offset"].to_pylist())


def test_without_an_age_nothing_is_dropped(tmp_path: Path) -> None:
    table = made(tmp_path)
    done = load_table(table.location).maintain()
    assert done.rejects is None
    assert offsets(table) == [1, 2, 3, 4, 5]
    with pytest.raises(InvalidOptionError, match="nothing says how old"):
        load_table(table.location).maintain(["rejects"])


def test_the_age_of_the_table_is_that_of_its_rejects(tmp_path: Path) -> None:
    table = made(tmp_path, {RETENTION: "30d"})
    assert table.properties[RETENTION] == "30d"
    planned = load_table(table.location).maintain(dry_run=True)
    assert planned.rejects is not None
    assert (planned.rejects.rows, planned.rejects.files, planned.rejects.snapshot_id) == (1, 1, None)
    assert offsets(table) == [1, 2, 3, 4, 5]
    done = load_table(table.location).maintain()
    assert done.rejects is not None
    assert (done.rejects.rows, done.rejects.files) == (1, 1)
    assert offsets(table) == [1, 2, 3, 4]
    again = load_table(table.location).maintain(["rejects"])
    assert again.rejects is not None
    assert (again.rejects.rows, again.rejects.snapshot_id) == (0, None)
    check_table(table, files_exist=True)


def test_whole_days_only(tmp_path: Path) -> None:
    """A day of which a moment is too young stays, also today where everything is too old."""
    table = made(tmp_path)
    midnight = clock.now_ms() // DAY_MS * DAY_MS
    paths = {entry.data_file.file_path for entry in live_entries(table.refresh())}
    assert drop_old_rejects(table, older_than_ms=midnight - 4 * DAY_MS - 1).rows == 1
    assert offsets(table) == [1, 2, 3, 4]
    assert drop_old_rejects(table, older_than_ms=midnight - 4 * DAY_MS).rows == 2
    assert offsets(table) == [1, 2]
    assert drop_old_rejects(table, older_than_ms=clock.now_ms() + 10 * DAY_MS).rows == 1
    assert offsets(table) == [1]
    assert {entry.data_file.file_path for entry in live_entries(table.refresh())} < paths, "none is rewritten"


def test_other_tables_and_other_partitions(tmp_path: Path) -> None:
    other = create_table(tmp_path / "other", "id long", properties={RETENTION: "1d"})
    assert other.maintain().rejects is None
    with pytest.raises(InvalidOptionError, match="is no rejects table"):
        other.maintain(["rejects"], rejects_older_than="1d")
    plain = create_table(tmp_path / "plain__rejects", REJECTS)
    append(plain.table, rejects_of(40, 1))
    with pytest.raises(InvalidOptionError, match=r"not partitioned by day\(rejected_at\)"):
        plain.maintain(rejects_older_than="1d")
    wrong = create_table(tmp_path / "wrong__rejects", REJECTS, properties={RETENTION: "a month"})
    with pytest.raises(InvalidOptionError, match=r"table property streamlake\.rejects-retention='a month'"):
        wrong.maintain()
