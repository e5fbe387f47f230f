"""`streamlake demo`, as someone sees it who has never heard of streamlake."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from streamlake import create_table
from streamlake.catalog.open import open_table
from streamlake.cli.commands import demo
from streamlake.cli.views.demo_view import DemoView
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.demo.demo_check import Differences, ReaderCost, compare
from streamlake.demo.demo_orders import CHANGE_SCHEMA, SCHEMA, checkpoints_of, order_stream, write_changes
from streamlake.demo.demo_process import DriverProcess, DriverSettings
from streamlake.errors import InvalidOptionError, StreamlakeError
from tests.helpers.batch_write import append
from tests.helpers.command_line import command, environment, streamlake
from tests.helpers.invariants import check_table
from tests.helpers.readers import DuckDbReader


@pytest.mark.spark
@pytest.mark.crash
def test_json(tmp_path: Path, duckdb_reader: DuckDbReader) -> None:
    changes = 20_000
    done = streamlake("demo", "--json", "--rows", changes, "--warehouse", "lake", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    stream = order_stream(changes)
    rows = stream.final.num_rows
    location = tmp_path / "lake" / "orders"
    assert result["ok"] is True
    assert result["problems"] == []
    assert [result[key] for key in ("missing", "extra", "different")] == [0, 0, 0]
    assert result["table"] == str(location)
    assert result["rows"] == result["expected_rows"] == rows
    assert result["changes"] == changes == result["inserts"] + result["updates"] + result["deletes"]
    assert (result["checkpoints"], result["snapshots"], result["restarts"]) == (8, 8, 2)
    assert result["stopped_checkpoint"] == 2
    assert result["replayed_checkpoints"][0] == 2, "the checkpoint that was stopped after its snapshot"
    assert result["killed_checkpoint"] >= 5
    assert len(set(result["snapshot_ids"])) == 8
    assert result["rows_per_partition"] == {
        entry["values"]: entry["counts"] for entry in pc.value_counts(stream.final["region"]).to_pylist()
    }
    if result["replayed_checkpoints"] == [2]:
        assert result["late_ignored"] == stream.late > 0
    assert [read["checkpoint"] for read in result["reads"]] == list(range(8))
    last = result["reads"][-1]
    assert (last["live_rows"], last["data_files"]) == (rows, result["data_files"])
    assert last["delete_files"] == result["delete_files"] > 0
    assert last["deleted_rows"] == result["deleted_rows"] > 0
    assert [read["equality_deletes"] for read in result["reads"]] == [0] * 8
    table = open_table(str(location))
    assert table.format_version == 3
    check_table(table, files_exist=True)
    answer = duckdb_reader.sql(
        f"select count(*), count(distinct order_id), sum(order_id), sum(amount) "
        f"from {duckdb_reader.relation(location)}"
    )
    ids = pc.sum(stream.final["order_id"]).as_py()
    assert [int(answer.column(at)[0].as_py()) for at in range(3)] == [rows, rows, ids]
    assert answer.column(3)[0].as_py() == Decimal(result["amount_sum"])
    assert result["amount_sum"] == str(pc.sum(stream.final["amount"]).as_py())


@pytest.mark.spark
def test_picture_beside_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / demo.DEFAULT_WAREHOUSE / "orders").mkdir(parents=True)
    (tmp_path / "temporary").mkdir()
    done = streamlake("demo", "--rows", 2, cwd=tmp_path, extra={"TMPDIR": str(tmp_path / "temporary")})
    assert (done.returncode, done.stderr) == (0, "")
    location = str(tmp_path / demo.DEFAULT_WAREHOUSE / "orders-2")
    for expected in (
        "checkpoint  0        1 new        0 updated",
        "✗ stopped: checkpoint 0 is in the table",
        "checkpoint  0  replayed: in the table already",
        "✓ all 1 orders are what the changes lead to",
        "what a reader pays",
        "orders per partition",
        f"T={location}",
        'streamlake index status "$T"',
    ):
        assert expected in done.stdout
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {demo.DEFAULT_WAREHOUSE, "temporary"}, "nothing else is left behind"
    assert list((tmp_path / "temporary").iterdir()) == []


def test_without_java(tmp_path: Path) -> None:
    extra = {"JAVA_HOME": str(tmp_path / "no-java")}
    done = streamlake("demo", "--json", "--rows", 10, cwd=tmp_path, extra=extra)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: JAVA_HOME is")
    assert (
        "Java 17+ is needed: install e.g. `apt install openjdk-17-jre-headless` or set JAVA_HOME"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / demo.DEFAULT_WAREHOUSE).iterdir()) == []


def test_interrupted_while_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        command("demo", "--rows", 1000),
        cwd=tmp_path,
        env=environment({"TMPDIR": str(tmp_path / "temporary")}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A suite that runs in the background may be told to ignore interrupts, and its children with it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (drivers := _children(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "error: interrupted\n")
    assert drivers
    assert not any(Path("/proc", driver).exists() for driver in drivers)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert list((tmp_path / demo.DEFAULT_WAREHOUSE).iterdir()) == []


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_driver_tells_what_it_failed_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DriverSettings("landing", "checkpoint", "table", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    with (
        DriverProcess(settings, tmp_path / "log") as driver,
        pytest.raises(InvalidOptionError, match="JAVA_HOME is"),
    ):
        list(driver.events())
    with DriverProcess(settings, tmp_path / "log") as driver:
        os.killpg(driver._process.pid, signal.SIGKILL)
        with pytest.raises(StreamlakeError, match="could not start, exit code -9"):
            demo._await_ready(driver.events(), driver)


def test_a_driver_ends_with_its_parent(tmp_path: Path) -> None:
    settings = DriverSettings("landing", "checkpoint", "table", str(tmp_path))
    with DriverProcess(settings, tmp_path / "log") as driver:
        assert driver._process.stdin is not None
        driver._process.stdin.close()
        assert driver._process.wait(60) == 1


@pytest.fixture
def orders() -> pa.Table:
    return order_stream(500).final


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    stream = order_stream(500)
    table = create_table(str(tmp_path / "t"), SCHEMA, partition_by=["region"])
    append(table.table, stream.final)
    result = demo.DemoResult(table=str(tmp_path / "t"))
    demo.check(result, stream)
    assert result.ok
    assert result.rows == result.expected_rows == stream.final.num_rows
    append(table.table, stream.final.slice(7, 1))
    result = demo.DemoResult(table=str(tmp_path / "t"))
    demo.check(result, stream)
    assert not result.ok
    assert result.problems == ["1 rows are extra"]


def test_rows_are_compared(orders: pa.Table) -> None:
    rows = orders.num_rows
    mixed = orders.take(pa.array(range(rows - 1, -1, -1)))
    assert not compare(mixed, orders, "order_id")
    assert compare(orders.slice(3), orders, "order_id") == Differences(missing=3)
    assert compare(orders.slice(0, 0), orders, "order_id") == Differences(missing=rows)
    assert compare(orders, orders.slice(0, rows - 2), "order_id") == Differences(extra=2)
    twice = pa.concat_tables([orders, orders.slice(5, 4)])
    assert compare(twice, orders, "order_id") == Differences(extra=4)
    empty = orders.slice(0, 0)
    assert compare(empty, empty, "order_id") == Differences()


@pytest.mark.parametrize("column", [name for name in SCHEMA.names if name != "order_id"])
def test_content_is_compared(orders: pa.Table, column: str) -> None:
    at = orders.column_names.index(column)
    values = orders.column(column)
    shifted = pa.chunked_array([*values.slice(1).chunks, *values.slice(0, 1).chunks])
    differing = sum(a != b for a, b in zip(values.to_pylist(), shifted.to_pylist(), strict=True))
    assert differing
    wrong = orders.set_column(at, column, shifted)
    assert compare(wrong, orders, "order_id") == Differences(different=differing)
    nulls = orders.set_column(at, column, pa.nulls(orders.num_rows, values.type))
    assert compare(nulls, orders, "order_id") == Differences(different=orders.num_rows)
    assert compare(nulls, nulls, "order_id") == Differences()


def test_what_a_killed_driver_left_is_told() -> None:
    console = Console(file=io.StringIO(), width=118, highlight=False)
    view = DemoView(console=console)
    counters = {"changes": 1200, "inserts": 1000, "updates": 150, "deletes": 40, "late": 10}
    with view.starting(2000), view.streaming(2000, "/lake/orders"):
        view.checkpoint(CommitReceipt("job", 0, Outcome.COMMITTED, 7, data_files=4, counters=counters))
        view.killed(1, 1)
        view.checkpoint(CommitReceipt("job", 1, Outcome.RECOVERED, 8))
    result = demo.DemoResult(
        table="/lake/orders",
        rows=900,
        checkpoints=2,
        killed_checkpoint=1,
        recovered_checkpoints=[1],
        orphan_files=3,
        restart_seconds=7.5,
        problems=["3 rows are missing"],
        missing=3,
        reads=[ReaderCost(0, 4, 0, 0, 0, 1000, 0.05), ReaderCost(1, 8, 4, 140, 0, 900, 0.1)],
        rows_per_partition={"eu": 500, "us": 400},
    )
    view.finish(asdict(result))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for expected in (
        "checkpoint  0    1,000 new      150 updated      40 deleted     10 late    4 files",
        "✗ kill -9: the driver dies while it writes checkpoint 1, 1 file begun",
        "checkpoint  1  recovered: staged before, committed now, as snapshot 8",
        "✗ 3 rows are missing",
        "1 staged by the killed driver and committed by the next",
        "; orphans of the killed driver: 3",
        "7.5 s once more",
        "0 1,000 0 4 0 ████████████ 0.050 s",
        "1 900 140 8 4 ████████████████████████ 0.100 s",
        "eu ████████████████████████ 500",
    ):
        assert " ".join(expected.split()) in " ".join(shown.split())


def test_a_wrong_table_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = demo.DemoResult(table="t", problems=["1 rows are missing"])
    monkeypatch.setattr(demo, "_demo", lambda *_: wrong)
    assert demo.run(as_json=True, warehouse=str(tmp_path), rows=1) == 1
    monkeypatch.setattr(demo, "_demo", lambda *_: replace(wrong, ok=True))
    assert demo.run(as_json=True, warehouse=str(tmp_path), rows=1) == 0


@pytest.mark.parametrize("changes", [1, 2, 3, 17, 3000])
def test_the_final_orders_are_those_of_a_model(changes: int) -> None:
    stream = order_stream(changes)
    assert stream.changes.schema == CHANGE_SCHEMA
    assert stream.changes.num_rows == changes
    model: dict[int, dict[str, object]] = {}
    regions: dict[int, list[object]] = {}
    happened = sorted(stream.changes.to_pylist(), key=lambda row: (row["order_id"], row["version"]))
    kinds = {"c": 0, "u": 0, "d": 0}
    moved = 0
    for row in happened:
        kind = row.pop("op")
        key = row["order_id"]
        kinds[kind] += 1
        assert (kind == "c") == (key not in model)
        assert row["version"] == len(regions.setdefault(key, [])) + 1
        moved += bool(regions[key]) and regions[key][-1] != row["region"]
        regions[key].append(row["region"])
        if kind == "d":
            del model[key]
        else:
            model[key] = row
    assert stream.final.to_pylist() == [model[key] for key in sorted(model)]
    assert stream.kinds == kinds
    assert stream.moved == moved
    if changes == 3000:
        assert moved
        assert stream.late


def test_late_changes_are_counted(tmp_path: Path) -> None:
    stream = order_stream(3000)
    write_changes(tmp_path / "landing", stream.changes)
    newest: dict[int, int] = {}
    late = 0
    files = sorted((tmp_path / "landing").iterdir())
    assert len(files) == 2 * checkpoints_of(3000) == 16
    for at in range(0, 16, 2):
        rows = pa.concat_tables([pq.read_table(files[at]), pq.read_table(files[at + 1])])
        latest = rows.group_by("order_id").aggregate([("version", "max")]).to_pylist()
        late += sum(row["version_max"] < newest.get(row["order_id"], 0) for row in latest)
        for row in latest:
            newest[row["order_id"]] = max(newest.get(row["order_id"], 0), row["version_max"])
    assert stream.late == late


def test_changes_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_changes(tmp_path / name, order_stream(1000).changes)
    first, second = sorted((tmp_path / "a").iterdir()), sorted((tmp_path / "b").iterdir())
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert pa.concat_tables(map(pq.read_table, first)) == order_stream(1000).changes


@pytest.mark.parametrize(
    ("checkpoints", "stop_after", "kill_in"), [(1, 0, None), (2, 0, 1), (3, 0, 2), (4, 1, 2), (8, 2, 5)]
)
def test_plan(checkpoints: int, stop_after: int, kill_in: int | None) -> None:
    assert demo.Plan.of(checkpoints) == demo.Plan(stop_after, kill_in)
