"""`streamlake inspect` on a table that was written without Spark."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import create_table
from streamlake.cli.commands import inspect
from streamlake.errors import InvalidOptionError
from tests.helpers.batch_write import append

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("category", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("score", pa.float64()),
    ]
)


@pytest.fixture
def location(tmp_path: Path) -> str:
    loaded = create_table(
        str(tmp_path / "t"), SCHEMA, partition_by=["day(ts)", "category"], sort_by=["id desc"],
        properties={"owner": "me"},
    )  # fmt: skip
    for start in (0, 4):
        append(loaded.table, _rows(range(start, start + 4)))
    return str(tmp_path / "t")


def _rows(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "ts": [datetime(2024, 1, 1 + at % 2, 12, tzinfo=timezone.utc) for at in ids],
            "category": ["a" if at % 4 < 2 else None for at in ids],
            "amount": [Decimal(at) / 100 for at in ids],
            "score": [float("nan") if at == 1 else float(at) for at in ids],
        },
        schema=SCHEMA,
    )


def as_json(location: str, what: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert inspect.run(location, what, as_json=True) == 0
    return json.loads(capsys.readouterr().out)


def as_text(location: str, what: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert inspect.run(location, what, as_json=False) == 0
    return capsys.readouterr().out


def test_table(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = as_json(location, "table", capsys)
    assert content["location"] == location
    assert content["format_version"] == 2
    assert content["snapshots"] == 2
    assert content["summary"]["total-records"] == "8"
    assert content["properties"]["owner"] == "me"
    text = as_text(location, "table", capsys)
    assert "day(ts), category" in text
    assert "id desc" in text
    assert "property owner" in text


def test_snapshots(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = as_json(location, "snapshots", capsys)
    assert first["parent_id"] is None
    assert second["parent_id"] == first["snapshot_id"]
    assert [row["operation"] for row in (first, second)] == ["append", "append"]
    assert second["summary"]["added-records"] == "4"
    assert "operation" not in second["summary"]
    assert datetime.fromisoformat(first["committed_at"]).tzinfo is not None
    text = as_text(location, "snapshots", capsys)
    assert str(second["snapshot_id"]) in text
    assert "2 snapshots" in text


def test_history(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_json(location, "history", capsys)
    assert [row["is_current_ancestor"] for row in rows] == [True, True]
    assert rows[1]["parent_id"] == rows[0]["snapshot_id"]
    assert "yes" in as_text(location, "history", capsys)


def test_files(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_json(location, "files", capsys)
    assert len(rows) == 8
    assert {row["record_count"] for row in rows} == {1}
    assert all(Path(row["file_path"]).stat().st_size == row["file_size_in_bytes"] for row in rows)
    row = next(row for row in rows if row["readable_metrics"]["id"]["lower_bound"] == 1)
    assert row["partition"] == {"ts_day": "2024-01-02", "category": "a"}
    assert row["content"] == 0
    assert row["file_format"] == "PARQUET"
    metrics = row["readable_metrics"]
    assert metrics["amount"]["upper_bound"] == "0.01"
    assert metrics["ts"]["lower_bound"] == "2024-01-02T12:00:00+00:00"
    assert metrics["score"]["nan_value_count"] == 1
    assert metrics["score"]["lower_bound"] is None
    nulls = next(row for row in rows if row["partition"]["category"] is None)
    assert nulls["readable_metrics"]["category"]["null_value_count"] == 1
    text = as_text(location, "files", capsys)
    assert "ts_day=2024-01-01 category=null" in text
    assert "amount: 0.07 … 0.07" in text


def test_manifests(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_json(location, "manifests", capsys)
    assert sum(row["added_data_files_count"] + row["existing_data_files_count"] for row in rows) == 8
    assert rows[0]["partition_summaries"] == [
        {
            "contains_null": False, "contains_nan": False, "lower_bound": "2024-01-01", "upper_bound": "2024-01-02",
        },
        {"contains_null": True, "contains_nan": False, "lower_bound": "a", "upper_bound": "a"},
    ]  # fmt: skip
    assert all(Path(row["path"]).stat().st_size == row["length"] for row in rows)
    assert "2024-01-01 … 2024-01-02" in as_text(location, "manifests", capsys)


def test_partitions(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = as_json(location, "partitions", capsys)
    current = as_json(location, "table", capsys)["current_snapshot_id"]
    assert len(rows) == 4
    assert {(row["record_count"], row["file_count"]) for row in rows} == {(2, 2)}
    assert {row["last_updated_snapshot_id"] for row in rows} == {current}
    files = as_json(location, "files", capsys)
    assert sum(row["total_data_file_size_in_bytes"] for row in rows) == sum(
        file["file_size_in_bytes"] for file in files
    )
    assert "4 partitions" in as_text(location, "partitions", capsys)


def test_refs(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = as_json(location, "refs", capsys)
    assert (row["name"], row["type"]) == ("main", "BRANCH")
    assert "branch" in as_text(location, "refs", capsys)


def test_schema(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = as_json(location, "schema", capsys)
    (schema,) = content["schemas"]
    assert [part["name"] for part in schema["fields"]] == SCHEMA.names
    assert content["partition_specs"][0]["fields"][0]["transform"] == "day"
    assert len(content["sort_orders"]) >= 1
    assert "decimal(10, 2)" in as_text(location, "schema", capsys).replace("decimal(10,2)", "decimal(10, 2)")


def test_an_earlier_snapshot(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = as_json(location, "snapshots", capsys)[0]["snapshot_id"]
    assert inspect.run(location, "files", as_json=True, snapshot_id=first) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4
    assert inspect.run(location, "files", as_json=True, ref="main") == 0
    assert len(json.loads(capsys.readouterr().out)) == 8
    with pytest.raises(InvalidOptionError, match="has no snapshot 7"):
        inspect.run(location, "files", as_json=True, snapshot_id=7)


@pytest.mark.parametrize("what", sorted(inspect.ROWS))
def test_an_empty_table(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_table(str(tmp_path / "e"), SCHEMA)
    content = as_json(str(tmp_path / "e"), what, capsys)
    assert isinstance(content, dict) or content == []
    assert as_text(str(tmp_path / "e"), what, capsys)


def test_every_view_has_rows() -> None:
    assert set(inspect.ROWS) == set(inspect.VIEWS)


def test_a_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = {"type": "hadoop", "warehouse": str(tmp_path)}
    create_table("db.t", SCHEMA, catalog=catalog)
    assert inspect.parse_catalog("prod") == "prod"
    assert inspect.parse_catalog(None) is None
    text = f"type=hadoop, warehouse={tmp_path}"
    assert inspect.parse_catalog(text) == catalog
    assert inspect.run("db.t", "table", as_json=True, catalog=text) == 0
    assert json.loads(capsys.readouterr().out)["location"].endswith("db/t")


def test_partitions_are_shown_as_people_write_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "u")
    parts = ["year(ts)", "month(ts)", "hour(ts)", "bucket(4, id)"]
    append(create_table(place, SCHEMA, partition_by=parts).table, _rows(range(1)))
    text = "".join(as_text(place, "partitions", capsys).split())
    assert "ts_year=2024ts_month=2024-01ts_hour=2024-01-01-12id_bucket=0" in text
    assert "2024-01" in as_text(place, "files", capsys)
    [row] = as_json(place, "partitions", capsys)
    assert row["partition"] == {"ts_year": 54, "ts_month": 648, "ts_hour": 473364, "id_bucket": 0}
