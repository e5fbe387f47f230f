"""What commands print on terminals of 80 and 120 columns: no number, id or command is cut or broken.

The texts are in `golden/`; STREAMLAKE_GOLDEN=write writes them anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Group
from rich.live import Live

from streamlake.cli.commands import check, demo, doctor, index, inspect, rejects_commands, status
from streamlake.cli.views.demo_view import DemoView, next_steps
from streamlake.cli.views.rendering import facts, show, terminal
from streamlake.commit.lineage import Finding as LineageFinding
from streamlake.commit.lineage import Kind, RecoverCommand, Way, WayOut, explained
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.decode.rejected_records import REJECTS
from streamlake.demo.demo_check import ReaderCost
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.maintain.reachable_files import Orphan
from streamlake.operate.check.check_points import Points
from streamlake.operate.doctor.diagnosis import Diagnosis
from streamlake.operate.doctor.finding import Finding, Severity
from streamlake.operate.replay.kept_rejects import KeptRejects
from streamlake.operate.status.driver_status import DriverStatus, RunState
from streamlake.operate.status.status import PartitionLag, PipelineStatus
from streamlake.operate.status.table_status import TableStatus
from tests.helpers.pseudo_terminal import pseudo_terminal
from tests.helpers.tables import make_table

GOLDEN = Path(__file__).parent / "golden"
NOW = datetime(2026, 3, 14, 22, 13, 20, 118000, timezone.utc)
NOW_MS = 1_773_526_400_118
LONG = "/srv/warehouse/of-the-shop/sales_by_region_and_product_and_day_and_channel_of_the_sale"
WHOLE = (
    "/srv/",
    "`streamlake ",
    "streamlake rejects ",
    "One of them: ",
    "With a corrected",
    "Once the cause",
    '"a-value',
)
IDS = [8_123_456_789_012_345_678 - 1_111_111_111_111_111_111 * at for at in range(3)]


def status_small(home: Path) -> None:
    table = TableStatus(
        "/lake/orders", "main", True, checkpoint_id=41, committed_ms=NOW_MS, seconds_since_commit=1.3,
        rows_per_second=48_123, records=4_000_700, live_rows=4_000_000, deleted_rows=700, data_files=12, delete_files=3, rejects=0,
    )  # fmt: skip
    driver = DriverStatus(RunState.RUNNING, "ingest-7.shop.internal", 4711, NOW_MS - 86_400_000, NOW_MS)
    partitions = [PartitionLag("orders", at, 1_204_518, 1_204_718, 200) for at in range(2)]
    status.show(
        status.view(
            PipelineStatus("orders", (table,), tuple(partitions), 400, driver=driver, seconds_left=8.3)
        )
    )


def status_wide(home: Path) -> None:
    table = TableStatus(
        LONG, "main", True, checkpoint_id=1_234_567, committed_ms=NOW_MS, seconds_since_commit=7_400,
        rows_per_second=1_048_123, records=104_000_000_000, live_rows_at_most=103_000_000_000, deleted_rows=1_000_000_000, data_files=1_204_000, delete_files=33_000, rejects=12_345,
        watermark_ms=NOW_MS, tombstones=1_000_001,
    )  # fmt: skip
    found = PipelineStatus(
        "sales",
        (table, replace(table, table="db.sales", branch="audit"), TableStatus("db.other", "main")),
        tuple(
            PartitionLag(
                "sales.of.all.regions.and.products", at, 91_204_518_123, 91_204_518_323 + at, 200 + at
            )
            for at in range(40)
        ),
        8_780,
        notes=(
            "checkpoint 41 is not in all tables that it has rows for: the lag is counted from checkpoint 40",
        ),
        problems=("sales-7: offsets 1204518 to 1204718 are no longer in Kafka and were never committed",),
        driver=DriverStatus(
            RunState.SILENT,
            "ingest-7.shop.internal",
            4711,
            NOW_MS - 86_400_000,
            NOW_MS,
            41,
            "SourceError: the brokers broker-1.shop.internal:9092 and broker-2.shop.internal:9092 did not answer",
            NOW_MS - 7_200_000,
        ),
    )
    status.show(status.view(found))


def inspect_snapshots(home: Path) -> None:
    rows = [
        {
            "committed_at": NOW + timedelta(minutes=at),
            "snapshot_id": IDS[at],
            "parent_id": IDS[at - 1] if at else None,
            "operation": "overwrite" if at else "append",
            "summary": {
                "added-records": "2000000",
                "added-data-files": "1204",
                "deleted-records": "1000" if at else "0",
                "streamlake.max-committed-checkpoint-id": str(40 + at),
            },
            "live_rows": 1_999_000 * (at + 1),
            "live_rows_at_most": 1_999_000 * (at + 1),
            "deleted_rows": 1_000 * (at + 1),
        }
        for at in range(3)
    ]
    inspect.show(inspect.VIEWS["snapshots"](make_table(home / "t", "id long"), rows))


def inspect_partitions(home: Path) -> None:
    row = {
        "record_count": 4_000_000, "file_count": 1_204, "total_data_file_size_in_bytes": 123_456_789,
        "position_delete_record_count": 1_000_000, "equality_delete_record_count": 0, "last_updated_at": NOW,
    }  # fmt: skip
    rows = [{**row, "partition": {"region": region}} for region in ("eu", "us")]
    inspect.show(inspect.VIEWS["partitions"](make_table(home / "t", "id long"), rows))


def inspect_history(home: Path) -> None:
    rows = [
        {
            "made_current_at": NOW + timedelta(minutes=at),
            "snapshot_id": IDS[at],
            "parent_id": IDS[at - 1] if at else None,
            "is_current_ancestor": at != 1,
        }
        for at in range(3)
    ]
    inspect.show(inspect.VIEWS["history"](make_table(home / "t", "id long"), rows))


def inspect_files(home: Path) -> None:
    table = make_table(home / "t", "id long")
    rows = [
        {
            "file_path": f"{table.location}/data/region=eu/00000-{at}-0f8fad5b-d9cb-469f-a165-70867728950e.parquet",
            "content": at,
            "record_count": 4_000_000 - at,
            "file_size_in_bytes": 123_456_789,
            "partition": {"region": "eu"},
            "readable_metrics": {
                "id": {"lower_bound": 1_000_000_007, "upper_bound": 9_000_000_007},
                "at": {"lower_bound": NOW, "upper_bound": NOW},
            },
        }
        for at in range(2)
    ]
    inspect.show(inspect.VIEWS["files"](table, rows))


def index_status(home: Path) -> None:
    index.show(index.status_view(_index_content()))


def index_check(home: Path) -> None:
    content = {
        **_index_content(),
        "is_good": False, "live_rows": 4_000_000, "missing_rows": 2, "rows_at_wrong_positions": 1, "dead_places": 7,
        "examples": [
            {
                "problem": "missing", "key": {"id": 1_000_000_007}, "position": 1_204_518, "index_says": [],
                "file": f"{LONG}/data/00000-1-0f8fad5b-d9cb-469f-a165-70867728950e.parquet",
            }
        ],
    }  # fmt: skip
    index.show(index.check_view(content))


def _index_content() -> dict[str, Any]:
    return {
        "location": LONG, "branch": "main", "key": ["id"], "sequence_by": ["version"], "snapshot_id": IDS[0],
        "committed_at": NOW, "is_rebuilt": True, "problem": None, "buckets": 16, "runs": 160,
        "state": f"{LONG}/metadata/streamlake/index/0f8fad5bd9cb469fa16570867728950e.state",
        "entries": 104_000_000_000, "tombstones": 1_234_567, "bytes": 12_345_678_901, "missing_runs": [],
        "snapshots_above": 3, "data_files_above": 1_204, "rows_above": 4_000_000,
    }  # fmt: skip


def doctor_findings(home: Path) -> None:
    path = f"{LONG}/data/00000-1-0f8fad5b-d9cb-469f-a165-70867728950e.parquet"
    finding = Finding(
        Severity.ERROR, "file-size", path, "has 1204518 bytes, and the manifest says 4000000",
        f"look where it came from with `streamlake inspect {LONG} snapshots`, and restore it",
    )  # fmt: skip
    found = Diagnosis(
        LONG, IDS[0], 1_204, 33_000, 4_000_000, 123_456_789_012, (finding,),
        tuple(Orphan(path, 123_456_789, NOW_MS, "data") for _ in range(2)),
    )  # fmt: skip
    doctor.show(doctor.view(found))


def demo_page(home: Path) -> None:
    view = DemoView()
    counters = {"changes": 120_000, "inserts": 100_000, "updates": 15_000, "deletes": 4_000, "late": 1_000}
    receipt = CommitReceipt("job", 0, Outcome.COMMITTED, IDS[0], data_files=4, counters=counters)
    view.checkpoint(replace(receipt, write_ms=1_204, commit_ms=55))
    view.killed(1, 1)
    view.checkpoint(CommitReceipt("job", 1, Outcome.RECOVERED, IDS[1]))
    result = demo.DemoResult(
        ok=True, table="/tmp/streamlake-demo-k3j2h1g0/warehouse/demo/orders", rows=1_204_518, changes=4_000_000,
        inserts=1_500_000, updates=2_000_000, deletes=500_000, moved=60_000, late_ignored=1_204, checkpoints=2,
        killed_checkpoint=1, recovered_checkpoints=[1], restart_seconds=7.5, start_seconds=6.5, stream_seconds=60.3,
        rows_per_second=66_335, data_files=64, delete_files=60, bytes=123_456_789, total_seconds=81.2, orphan_files=3,
        reads=[ReaderCost(0, 4, 0, 0, 0, 1_000_000, 0.05), ReaderCost(1, 8, 4, 140_000, 0, 1_204_518, 0.104)],
        rows_per_partition={"eu": 600_000, "us": 604_518},
    )  # fmt: skip
    view.finish(asdict(result))


def check_points(home: Path) -> None:
    points = Points()
    points.right("kafka", "broker-1.shop.internal:9092 answers; orders has 12 partitions")
    points.warning(
        "records",
        f"column 'amount' is a decimal(12,3) in the stream and a decimal(10,2) in {LONG}: 3 of 50 records",
    )
    finding = LineageFinding(
        Kind.ROLLED_BACK, f"{LONG} was rolled back", "leave out the rows in between",
        (WayOut(Way.REWIND, "writes them again", 5),), "restore the table",
    )  # fmt: skip
    points.error(
        "lineage", explained(finding, RecoverCommand(LONG, "sales", checkpoint_location=f"{LONG}/checkpoint"))
    )
    show(check.view(points))


def rejects_list(home: Path) -> None:
    moment = NOW.replace(tzinfo=None)
    rows = [
        {
            "topic": "sales.of.all.regions.and.products", "partition": 0, "offset": 91_204_518_123 + at, "timestamp": moment,
            "key": b"1", "value": b'{"amount": "a-value-that-is-a-single-word-and-does-not-fit-beside-anything-else-here"}',
            "error_class": "DecodeError", "error_message": f"sales-0 offset {at}: field 'amount' is no decimal(10,2)",
            "pipeline": "sales", "checkpoint_id": 7, "rejected_at": moment,
        }
        for at in range(3)
    ]  # fmt: skip
    schema = schema_to_arrow(REJECTS, field_ids=False)
    found = KeptRejects(LONG, None, pa.Table.from_pylist(rows, schema))
    parts = [*rejects_commands._causes(found, "pipelines/sales_by_region_and_product.yaml")]
    parts += [facts(rejects_commands._facts(record)) for record in found.records()[:1]]
    show(Group(*parts))


PAGES: dict[str, Callable[[Path], None]] = {
    "status": status_small,
    "status-wide": status_wide,
    "inspect-snapshots": inspect_snapshots,
    "inspect-history": inspect_history,
    "inspect-partitions": inspect_partitions,
    "inspect-files": inspect_files,
    "index-status": index_status,
    "index-check": index_check,
    "doctor": doctor_findings,
    "demo": demo_page,
    "check": check_points,
    "rejects": rejects_list,
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_on_a_terminal(
    page: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pseudo_terminal(width, monkeypatch) as screen:
        PAGES[page](tmp_path)
    golden = GOLDEN / f"{page}-{width}.txt"
    if os.environ.get("STREAMLAKE_GOLDEN") == "write":
        golden.write_text(screen.text)
    assert screen.text == golden.read_text()
    for line in screen.lines:
        whole = line.strip().removeprefix("(1) ")
        assert len(line) <= width or whole.startswith(WHOLE), "a path, a command or a value"


@pytest.mark.parametrize("page", PAGES)
def test_numbers_and_ids_are_the_same_at_every_width(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: set[str] = set()
    for width in (400, 120, 80, 60, 40):
        with pseudo_terminal(width, monkeypatch) as screen:
            PAGES[page](tmp_path / str(width))
        shown = set(re.findall(r"[\w,.]*\d[\w,.]*", screen.text))
        known = known or shown
        assert shown <= known, width


def test_the_demos_commands_fit_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "/tmp/streamlake-demo-k3j2h1g0/warehouse/demo/orders"
    assert all(len(line) <= 80 for line in next_steps(table))
    with pseudo_terminal(80, monkeypatch) as screen:
        demo_page(Path())
    assert screen.lines[-4:] == next_steps(table)


def test_watched_in_place_long_paths_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status --watch` repaints lines, so each has to fit."""
    found = PipelineStatus("p", (TableStatus(LONG, "main", True, records=4_000_000, live_rows=4_000_000),))
    with pseudo_terminal(80, monkeypatch) as screen, Live(console=terminal(), auto_refresh=False) as live:
        live.update(status.view(found), refresh=True)
    assert all(len(line) <= 80 for line in screen.lines)
    assert LONG in "".join(screen.text.split())
    assert "live rows  4,000,000" in screen.text
