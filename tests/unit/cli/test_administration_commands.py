"""`streamlake table`, `namespace`, `branch`, `tag`: what they do, ask and print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import create_table, load_table
from streamlake.cli.main import main
from tests.helpers.batch_write import append


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    return int(exit_.value.code or 0)


class Lake:
    """A SQL catalog and the commands on it."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.given = {
            "type": "sql",
            "uri": f"sqlite:///{home}/catalog.db",
            "warehouse": f"file://{home}/wh",
            "name": "lake",
        }
        self.catalog = ",".join(f"{key}={value}" for key, value in self.given.items())

    def text(self, *arguments: str, code: int = 0) -> str:
        assert run(*arguments, "--catalog", self.catalog) == code
        shown = self._capsys.readouterr()
        return shown.err if code else shown.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def append(self, table: str, *ids: int) -> int:
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        return append(load_table(table, self.given).table, rows).snapshot_id


@pytest.fixture
def lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Lake:
    return Lake(tmp_path, capsys)


def test_a_tables_life(lake: Lake, tmp_path: Path) -> None:
    assert "created namespace shop" in lake.text("namespace", "create", "shop", "--property", "owner=me")
    assert lake.json("namespace", "properties", "shop", "--set", "team=a", "--unset", "owner")["team"] == "a"
    ddl = tmp_path / "orders.ddl"
    ddl.write_text("id long not null, at timestamp, s struct<a: int>\n")
    made = lake.json(
        *("table", "create", "shop.orders", "--schema", f"@{ddl}", "--partition-by", "day(at)"),
        *("--partition-by", "bucket(4, id)", "--sort-by", "id desc", "--identifier-fields", "id"),
        *("--property", "mine=1", "--format-version", "2"),
    )
    assert made["format_version"] == 2
    table = load_table("shop.orders", lake.given)
    assert [table.schema.name_of(each) for each in table.schema.identifier_field_ids] == ["id"]
    assert lake.json("table", "list") == ["shop.orders"]
    assert lake.text("table", "list", "shop") == "shop.orders\n"
    assert lake.json("namespace", "list") == ["shop"]
    first, second = lake.append("shop.orders", 1, 2), lake.append("shop.orders", 3)

    assert lake.json("table", "properties", "shop.orders", "--set", "a=b=c", "--unset", "mine")["a"] == "b=c"
    lake.text("branch", "create", "shop.orders", "audit", "--min-snapshots", "2", "--max-age", "30d")
    tag = lake.json("tag", "create", "shop.orders", "v1", "--snapshot-id", str(first), "--max-age", "1s")
    assert (tag["snapshot-id"], tag["max-ref-age-ms"]) == (first, 1000)
    assert "would point" not in lake.text("tag", "set", "shop.orders", "v1", str(second), "--yes")
    lake.text("tag", "retain", "shop.orders", "v1")
    lake.text("branch", "retain", "shop.orders", "audit", "--max-snapshot-age", "2d")
    assert lake.json("branch", "expire", "shop.orders")["expired"] == []
    assert lake.json("tag", "expire", "shop.orders", "--dry-run")["expired"] == []
    plan = lake.text("table", "rollback", "shop.orders", "--to-snapshot", str(first))
    assert f"back from snapshot {second} to {first}" in plan
    assert "run this again with --yes" in plan
    assert load_table("shop.orders", lake.given).scan().count() == 3
    assert lake.json("table", "rollback", "shop.orders", "--to-snapshot", str(first), "--yes")["done"]
    assert load_table("shop.orders", lake.given).scan().count() == 2
    lake.text("branch", "fast-forward", "shop.orders", "main", "audit")
    assert load_table("shop.orders", lake.given).scan().count() == 3
    assert "will point branch main" in lake.text("branch", "set", "shop.orders", "main", str(first))
    lake.text("branch", "set", "shop.orders", "main", str(first), "--yes")
    lake.text("branch", "set", "shop.orders", "main", str(second), "--yes")
    assert "This will drop tag v1" in lake.text("tag", "drop", "shop.orders", "v1")
    lake.text("tag", "drop", "shop.orders", "v1", "--yes")
    lake.text("branch", "drop", "shop.orders", "audit", "--yes")
    assert sorted(load_table("shop.orders", lake.given).refs) == ["main"]

    assert "readers that do not know" in lake.text("table", "upgrade", "shop.orders")
    assert lake.json("table", "upgrade", "shop.orders", "--yes")["upgraded"]
    assert "already" in lake.text("table", "upgrade", "shop.orders")
    changed = lake.json(
        *("table", "schema", "shop.orders", "--add", "note string comment 'why'", "--add", "s.b long"),
        *("--add", "n int not null", "--default", "n=5", "--rename", "at=moment", "--widen", "s.a long"),
        *("--doc", "id=the key", "--first", "note", "--after", "moment=n", "--optional", "n"),
    )
    assert [part["name"] for part in changed["schema"]["fields"]] == ["note", "id", "s", "n", "moment"]
    assert len(changed["changes"]) == 9
    table = load_table("shop.orders", lake.given)
    assert table.scan(columns=["n"]).to_arrow()["n"].to_pylist() == [5, 5, 5]
    assert table.schema.find("id") is not None
    assert "note string" in lake.text("table", "schema", "shop.orders")
    lake.text(
        "table", "schema", "shop.orders", "--drop", "note", "--identifier-fields", "", "--default", "n=7"
    )
    assert load_table("shop.orders", lake.given).schema.identifier_field_ids == ()
    shown = lake.text(
        *("table", "partitions", "shop.orders", "--remove", "day(moment)", "--rename", "id_bucket=part"),
        *("--add", "month(moment)", "--add", "cut=truncate(2, n)"),
    )
    assert shown == "part: bucket(4, id)\nmoment_month: month(moment)\ncut: truncate(2, n)\n"
    assert lake.text("table", "sort-order", "shop.orders", "--by", "moment desc", "--by", "id") == (
        "moment desc nulls last\nid asc nulls first\n"
    )
    assert lake.text("table", "sort-order", "shop.orders", "--unsorted") == "unsorted\n"

    planned = lake.json("table", "delete", "shop.orders", "id = 1", "--dry-run")
    assert (planned["rows"], planned["snapshot_id"]) == (1, None)
    assert "run this again with --yes" in lake.text("table", "delete", "shop.orders", "id = 1")
    done = lake.text("table", "delete", "shop.orders", "id = 1", "--yes", "--mode", "merge-on-read")
    assert done.startswith("deleted 1 row: ")
    assert "none matches" in lake.text("table", "delete", "shop.orders", "id = 77", "--yes")
    assert load_table("shop.orders", lake.given).scan().count() == 2

    assert "renamed" in lake.text("table", "rename", "shop.orders", "shop.sales")
    path = load_table("shop.sales", lake.given).table.operations.metadata_path  # type: ignore[attr-defined]
    assert "its files stay" in lake.text("table", "drop", "shop.sales")
    lake.text("table", "drop", "shop.sales", "--yes")
    assert lake.json("table", "list") == []
    lake.text("table", "register", "shop.again", path)
    assert load_table("shop.again", lake.given).scan().count() == 2
    would = lake.json("table", "drop", "shop.again", "--purge", "--dry-run")
    assert would["files"] > 10
    assert not would["dropped"]
    gone = lake.json("table", "drop", "shop.again", "--purge", "--yes")
    assert gone["files"] == would["files"]
    assert [each for each in (tmp_path / "wh").rglob("*") if each.is_file()] == []
    assert "will drop the namespace" in lake.text("namespace", "drop", "shop")
    lake.text("namespace", "drop", "shop", "--yes")
    assert lake.json("namespace", "list") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "rollback", "db.t", "--yes"], "--to-snapshot ID or --to-time TIME"),
        (["table", "rollback", "db.t", "--to-time", "5y", "--yes"], "--to-time"),
        (["table", "rollback", "db.t", "--to-time", "2001-01-01", "--yes"], "no snapshot from before"),
        (["table", "rollback", "db.t", "--to-snapshot", "5", "--yes"], "no snapshot 5"),
        (["branch", "drop", "db.t", "main", "--yes"], "main branch cannot be removed"),
        (["branch", "drop", "db.t", "v1", "--yes"], "'v1' is a tag and no branch"),
        (["tag", "drop", "db.t", "none", "--yes"], "no tag 'none'"),
        (["tag", "create", "db.t", "v1"], "already has a tag 'v1'"),
        (["tag", "create", "db.t", "v2", "--max-age", "long"], "--max-age='long' is not an age"),
        (["table", "schema", "db.t", "--add", "x"], "has no type"),
        (["table", "schema", "db.t", "--drop", "nope"], "no column 'nope'"),
        (["table", "schema", "db.t", "--default", "id=1"], "format version 3"),
        (["table", "schema", "db.t", "--default", "id=x"], "is no long"),
        (["table", "schema", "db.t", "--rename", "id"], "not of the form name=value"),
        (["table", "delete", "db.t", "nope = 1", "--yes"], "nope"),
        (["table", "sort-order", "db.t", "--by", "id", "--unsorted"], "exclude each other"),
        (["table", "upgrade", "db.t", "--format-version", "1", "--yes"], "cannot go back"),
        (["table", "drop", "db.none", "--purge", "--yes"], "db.none"),
        (["table", "create", "db.t2", "--schema", "id long", "--identifier-fields", "id"], "not null"),
        (["table", "create", "db.t", "--schema", "id long"], "already"),
        (["table", "list", "none"], "none"),
        (["namespace", "drop", "db", "--yes"], "not empty"),
        (["namespace", "create", "db"], "already exists"),
    ],
)
def test_wrong_use_is_one_line_and_changes_nothing(lake: Lake, arguments: list[str], message: str) -> None:
    create_table("db.t", "id long", lake.given)
    lake.append("db.t", 1)
    lake.text("tag", "create", "db.t", "v1")
    before = load_table("db.t", lake.given).table.operations.metadata_path  # type: ignore[attr-defined]
    shown = lake.text(*arguments, code=1)
    assert shown.startswith("error: ")
    assert message in shown
    assert shown.count("\n") == 1
    after = load_table("db.t", lake.given).table.operations.metadata_path  # type: ignore[attr-defined]
    assert after == before


def test_a_directory_is_dropped_with_its_files_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_table(tmp_path / "t", "id long")
    assert run("table", "drop", str(tmp_path / "t"), "--yes") == 1
    assert "Drop it with --purge" in capsys.readouterr().err
    assert run("table", "drop", str(tmp_path / "t"), "--purge", "--yes") == 0
    assert not (tmp_path / "t").exists()
