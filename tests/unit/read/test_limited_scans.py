"""Scans that end early, scans as pandas frames, and what scans, sinks and receipts show of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import IcebergSink, IcebergTables, create_table
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.spark.start import SinkQuery
from streamlake.read import scan as scans
from tests.helpers.batch_write import append


@pytest.fixture
def table(tmp_path: Path) -> Any:
    table = create_table(tmp_path / "t", "id long, v string")
    for start in (0, 20, 40):
        append(table.table, pa.table({"id": list(range(start, start + 20)), "v": ["x"] * 20}))
    return table.refresh()


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (20, 20), (33, 33), (60, 60), (99, 60)])
def test_a_limit(table: Any, limit: int, count: int) -> None:
    for scan in (table.scan().limit(limit), table.scan(limit=limit), table.scan().limit(99).limit(limit)):
        assert (scan.to_arrow().num_rows, scan.count(), scan.to_reader().read_all().num_rows) == (count,) * 3
    filtered = table.scan("id >= 5", columns=["id"]).limit(limit)
    assert filtered.to_arrow().num_rows == filtered.count() == min(limit, 55)
    assert table.scan_incremental().limit(limit).to_arrow().num_rows == count


def test_a_limit_leaves_the_scan_itself_alone(table: Any) -> None:
    scan = table.scan()
    scan.limit(3)
    assert scan.to_arrow().num_rows == scan.count() == 60


def test_files_after_the_limit_are_not_opened(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    read = scans.FileRows.read

    def counted(self: Any, task: Any) -> Any:
        opened.append(task)
        return read(self, task)

    monkeypatch.setattr(scans.FileRows, "read", counted)
    monkeypatch.setattr(scans, "readers", lambda io: 1)
    assert table.scan().limit(5).to_arrow().num_rows == 5
    assert len(opened) == 1


@pytest.mark.parametrize("limit", [-1, True, "5", 1.5])
def test_what_is_no_limit(table: Any, limit: Any) -> None:
    with pytest.raises(InvalidOptionError, match="limit is a number of rows, 0 or more"):
        table.scan().limit(limit)


def test_pandas(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table.scan("id < 3").to_pandas()
    assert sorted(frame["id"]) == [0, 1, 2]
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(InvalidOptionError, match="needs the package pandas"):
        table.scan().to_pandas()


def test_what_a_scan_shows(table: Any) -> None:
    snapshot = table.current_snapshot.snapshot_id
    assert (
        repr(table.scan("id < 3", columns=["v"]).limit(2))
        == f"TableScan({table.name!r}, snapshot={snapshot}, filter='id < 3', columns=['v'], limit=2)"
    )
    assert repr(table.scan_incremental()) == f"IncrementalAppendScan({table.name!r}, columns=['id', 'v'])"


def test_what_a_sink_shows() -> None:
    sink = IcebergSink("/lake/t", mode="upsert", key=["id"], pipeline="orders")
    assert repr(sink) == "IcebergSink('/lake/t', mode='upsert', key=['id'], pipeline='orders')"
    sink.receipts.append(CommitReceipt("j", 3, Outcome.COMMITTED, 7, rows=1))
    sink._runs.error = InvalidOptionError("x")
    assert repr(sink).endswith("last=checkpoint 3, committed, error=InvalidOptionError)")
    assert repr(IcebergTables("lake.{topic}")) == "IcebergTables('lake.{topic}')"

    class Query:
        name, id, isActive = "orders", "1", True

    shown = repr(SinkQuery(Query(), IcebergSink("/lake/t")))
    assert shown == "SinkQuery('orders', running, IcebergSink('/lake/t'))"


def test_what_a_receipt_shows() -> None:
    receipt = CommitReceipt(
        "job", 3, Outcome.COMMITTED, 7, rows=1, data_files=2, write_ms=12, counters={"late": 2, "deletes": 0}
    )
    assert repr(receipt) == (
        "CommitReceipt(checkpoint 3: committed, 1 row, 2 data files, late 2, snapshot 7, write 12 ms)"
    )
    assert repr(CommitReceipt("job", 4, Outcome.EMPTY, None)) == "CommitReceipt(checkpoint 4: empty)"
