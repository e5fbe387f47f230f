"""`streamlake demo`, as someone sees it who has never heard of streamlake."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import create_table
from streamlake.catalog.open import open_table
from streamlake.cli import demo
from streamlake.cli.demo_events import SCHEMA, EventTruth, add_truths, make_events, truth_of, write_events
from tests.helpers.batch_write import append
from tests.helpers.command_line import streamlake
from tests.helpers.invariants import check_table
from tests.helpers.readers import DuckDbReader


@pytest.mark.spark
def test_json(tmp_path: Path, duckdb_reader: DuckDbReader) -> None:
    rows = 20_000
    done = streamlake("demo", "--json", "--rows", rows, "--warehouse", "lake", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    location = tmp_path / "lake" / "events"
    assert result["ok"] is True
    assert result["problems"] == []
    assert result["table"] == str(location)
    assert result["rows"] == result["expected_rows"] == rows
    assert (result["checkpoints"], result["snapshots"], result["restarts"]) == (8, 8, 1)
    assert result["replayed_checkpoints"] == [3], "the checkpoint that crashed after its snapshot"
    assert len(set(result["snapshot_ids"])) == 8
    assert sum(result["rows_per_partition"].values()) == rows
    assert len(result["rows_per_partition"]) == 16
    check_table(open_table(str(location)), files_exist=True)
    answer = duckdb_reader.sql(
        f"select count(*), count(distinct event_id), sum(event_id), sum(amount) "
        f"from {duckdb_reader.relation(location)}"
    )
    assert [int(answer.column(at)[0].as_py()) for at in range(3)] == [rows, rows, sum(range(rows))]
    assert answer.column(3)[0].as_py() == Decimal(result["amount_sum"])


@pytest.mark.spark
def test_picture_beside_an_earlier_run(tmp_path: Path) -> None:
    (tmp_path / demo.DEFAULT_WAREHOUSE / "events").mkdir(parents=True)
    done = streamlake("demo", "--rows", 3, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    location = str(tmp_path / demo.DEFAULT_WAREHOUSE / "events-2")
    for expected in (
        "checkpoint  0           2 rows",
        "✗ crash!",
        "checkpoint  0  replayed: in the table already",
        "checkpoint  1           1 rows",
        "✓ every one of 3 events is in the table exactly once",
        "rows per partition",
        f"streamlake inspect {location} snapshots",
    ):
        assert expected in done.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / demo.DEFAULT_WAREHOUSE], "nothing else is left behind"


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


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), SCHEMA, partition_by=demo.PARTITION_BY)
    events = make_events(0, 100, 100)
    append(table.table, events)
    truth = truth_of(events)
    result = demo.DemoResult(table=str(tmp_path / "t"))
    demo._check(result, truth)
    assert result.ok
    append(table.table, events.slice(7, 1))
    result = demo.DemoResult(table=str(tmp_path / "t"))
    demo._check(result, truth)
    assert not result.ok
    assert "rows is 101, but the events say 100" in result.problems
    assert any(problem.startswith("id_sum is 4957, but") for problem in result.problems)
    result = demo.DemoResult(table=str(tmp_path / "t"))
    demo._check(result, replace(truth_of(pa.concat_tables([events, events.slice(7, 1)])), amount=Decimal(1)))
    assert [problem.split()[0] for problem in result.problems] == ["amount"]


def test_a_wrong_table_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = demo.DemoResult(table="t", problems=["rows is 1, but the events say 2"])
    monkeypatch.setattr(demo, "_demo", lambda *_: wrong)
    assert demo.run(as_json=True, warehouse=str(tmp_path), rows=1) == 1
    monkeypatch.setattr(demo, "_demo", lambda *_: replace(wrong, ok=True))
    assert demo.run(as_json=True, warehouse=str(tmp_path), rows=1) == 0


def test_events_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = write_events(tmp_path / "a", 1000), write_events(tmp_path / "b", 1000)
    assert first == second
    assert first.rows == 1000
    assert first.id_sum == sum(range(1000))
    assert sum(first.rows_by_category.values()) == 1000
    assert len(list((tmp_path / "a").iterdir())) == 16
    for left, right in zip(
        sorted((tmp_path / "a").iterdir()), sorted((tmp_path / "b").iterdir()), strict=True
    ):
        assert left.read_bytes() == right.read_bytes()


def test_truths_add_up() -> None:
    events = make_events(0, 500, 500)
    parts = [truth_of(events.slice(at, 100)) for at in range(0, 500, 100)]
    whole = truth_of(events)
    assert add_truths(parts) == whole
    assert whole.amount == sum(events.column("amount").to_pylist())
    assert truth_of(events.slice(0, 0)) == EventTruth(0, 0, Decimal(0), {})
