"""Live rows from a snapshot's totals: exact where they follow, else a bound; and what commands print of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.cli.commands import inspect
from streamlake.cli.commands.status import view
from streamlake.cli.views.rendering import human_rows, show
from streamlake.operate.status.status import PipelineStatus
from streamlake.operate.status.table_status import StatusTarget, table_status
from streamlake.read.row_counts import RowCounts, row_counts
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table


def summary(**totals: int) -> dict[str, str]:
    return {f"total-{name.replace('_', '-')}": str(value) for name, value in totals.items()}


@pytest.mark.parametrize(
    ("totals", "counts", "text"),
    [
        (summary(records=1797, position_deletes=903, equality_deletes=0), RowCounts(1797, 903, 894, 894), "894"),
        (summary(records=10, position_deletes=0, equality_deletes=0), RowCounts(10, 0, 10, 10), "10"),
        (summary(records=10, delete_files=0), RowCounts(10, 0, 10, 10), "10"),
        (summary(records=1797, position_deletes=3, equality_deletes=5), RowCounts(1797, 3, None, 1794), "at most 1,794"),
        (summary(records=1797, position_deletes=3), RowCounts(1797, 3, None, 1794), "at most 1,794"),
        (summary(records=1797), RowCounts(1797, None, None, 1797), "at most 1,797"),
        (summary(records=3, position_deletes=5, equality_deletes=0), RowCounts(3, 5, None, 3), "at most 3"),
        (summary(position_deletes=5, equality_deletes=0), RowCounts(None, 5, None, None), ""),
        ({"total-records": "many"}, RowCounts(None, None, None, None), ""),
        ({}, RowCounts(None, None, None, None), ""),
    ],
)  # fmt: skip
def test_counts_of_a_summary(totals: dict[str, str], counts: RowCounts, text: str) -> None:
    assert row_counts(totals) == counts
    assert human_rows(counts.live, counts.at_most) == text


def upserted(home: Path, delete_mode: str, format_version: int) -> str:
    """A thousand keys, of which the second checkpoint writes 900 anew."""
    location = str(home / "t")
    make_table(home / "t", "id long, v long", format_version=format_version)
    stream = LocalUpserts(location, key=["id"], delete_mode=delete_mode)
    for version, keys in enumerate((1_000, 900)):
        stream.checkpoint(pa.table({"id": list(range(keys)), "v": [version] * keys}))
    return location


def printed(location: str, what: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert inspect.run(location, what, as_json=False) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("format_version", [2, 3])
def test_rows_that_deletes_name_are_not_counted(
    format_version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = upserted(tmp_path, "position", format_version)
    assert load_table(location).scan().to_arrow().num_rows == 1_000
    found = table_status(StatusTarget(location))
    assert (found.records, found.live_rows, found.live_rows_at_most, found.deleted_rows) == (
        1_900,
        1_000,
        1_000,
        900,
    )
    show(view(PipelineStatus("p", (found,))))
    shown = " ".join(capsys.readouterr().out.split())
    # A long path folds the headings: the words of both then stand line by line.
    assert "live rows deleted rows" in shown or "live deleted" in shown
    assert "1,000 900" in shown
    assert "1,900" not in shown
    assert "live rows 1,000 deleted rows 900" in printed(location, "table", capsys)
    assert "900 2 1,000 900" in printed(location, "snapshots", capsys).partition("overwrite")[2]
    assert "1,000" in printed(location, "partitions", capsys)
    assert inspect.run(location, "snapshots", as_json=True) == 0
    last = json.loads(capsys.readouterr().out)[-1]
    assert (last["summary"]["total-records"], last["live_rows"], last["deleted_rows"]) == ("1900", 1_000, 900)


def test_with_equality_deletes_there_is_only_a_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    location = upserted(tmp_path, "equality", 2)
    assert open_table(location).current_snapshot is not None
    found = table_status(StatusTarget(location))
    assert (found.records, found.live_rows, found.live_rows_at_most) == (1_900, None, 1_900)
    show(view(PipelineStatus("p", (found,))))
    assert "at most 1,900" in capsys.readouterr().out
    for what in ("table", "snapshots", "partitions"):
        assert "at most 1,900" in printed(location, what, capsys)
    assert "deleted rows unknown" in printed(location, "table", capsys)
