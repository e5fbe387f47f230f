"""`streamlake replay-rejects`: tables and settings from the pipeline file, exit codes, what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamlake import load_table
from streamlake.operate.replay.replay_settings import replayed_tables
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_to_bytes
from tests.helpers.local_rejects import TOPIC, RejectingStream, rejected_rows_of
from tests.helpers.tables import make_table
from tests.unit.cli.test_main import call

FILE = """
name: p
source:
  kafka:
    bootstrap-servers: nowhere:1
    topics: {topics}
    schema: {schema}
sink: {{table: "{table}", on-error: reject}}
checkpoint: {checkpoint}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A pipeline file whose schema is mended, of a table with four rejects of which one cannot be helped."""
    location = tmp_path / TOPIC
    make_table(location, "id decimal(10,0), v string")
    values = [{"id": 0, "v": "a"}, {"id": "1", "v": "b"}, {"id": "2", "v": "c"}, "{", {"id": "4"}]
    RejectingStream(location, [values], "id long, v string").checkpoint(0)
    assert len(rejected_rows_of(location)) == 4
    return written(tmp_path)


def written(home: Path, **changes: Any) -> Path:
    given = {"topics": TOPIC, "schema": "id decimal(10,0), v string", "table": home / TOPIC, **changes}
    path = home / "pipeline.yaml"
    path.write_text(FILE.format(checkpoint=home / "checkpoint", **given))
    return path


def ids(location: Path) -> list[int]:
    return sorted(load_table(str(location)).scan().to_arrow()["id"].to_pylist())


def test_without_a_fix_nothing_changes(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(pipeline.parent, schema="id long, v string")
    assert call("replay-rejects", str(pipeline)) == 1
    out = capsys.readouterr().out
    assert "a whole number is needed" in out
    assert ids(pipeline.parent / TOPIC) == [0]
    assert len(rejected_rows_of(pipeline.parent / TOPIC)) == 4


def test_a_filter_a_limit_and_json(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    location = pipeline.parent / TOPIC
    assert call("replay-rejects", str(pipeline), "--where", "offset <> 3", "--limit", "2", "--json") == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["records"], found["failed"], found["left"]) == (2, 0, 2)
    assert ids(location) == [0, 1, 2]
    assert call("replay-rejects", str(pipeline)) == 1
    assert "1 record, 1 row" in capsys.readouterr().out
    assert ids(location) == [0, 1, 2, 4]
    assert [row["offset"] for row in rejected_rows_of(location)] == [3]


@pytest.mark.parametrize(
    ("changes", "arguments", "told"),
    [
        ({}, ["--table", "other"], "writes the table"),
        ({"table": "/e_{row.v}"}, [], "rows name the tables of '/e_{row.v}'; name one with --table"),
        ({"table": "/e_{row.v}"}, ["--table", "/e_unrouted"], "is not the checkpoint directory of a query"),
        ({"table": "/nowhere/{topic}"}, ["--table", "/nowhere/order"], "Did you mean '/nowhere/orders'?"),
        ({}, ["--where", "no such filter"], "filter"),
    ],
)
def test_what_does_not_go_together_is_refused(
    pipeline: Path,
    changes: dict[str, Any],
    arguments: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(pipeline.parent, **changes)
    assert call("replay-rejects", str(pipeline), *arguments) == 1
    assert told in capsys.readouterr().err


def test_one_table_of_many(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = pipeline.parent
    written(home, table=home / "{topic}", schema="id long, v string")
    assert call("replay-rejects", str(pipeline), "--table", str(home / TOPIC)) == 1
    assert "4 in the rejects" in capsys.readouterr().out


def test_rejects_without_a_table_are_for_all_tables_that_rows_have_named(tmp_path: Path) -> None:
    template = f"{tmp_path}/e_{{row.v}}"
    (tmp_path / "c" / "streamlake").mkdir(parents=True)
    (tmp_path / "c" / "metadata").write_text('{"id": "job"}')
    names = ("e_a", "e_b", "e_unrouted", "rest")
    named = {f"{tmp_path}/{name}": template for name in names}
    (tmp_path / "c" / TABLES_PATH).write_bytes(tables_to_bytes(named))
    text = f"""
source: {{kafka: {{bootstrap-servers: "b:1", topics: t, schema: "id long, v string"}}}}
sink: {{table: '{template}', default-table: {tmp_path}/rest, tables: {{{tmp_path}/e_b: {{mode: upsert, key: id}}}}}}
checkpoint: {tmp_path}/c
"""
    pipeline = parse_pipeline(text, "p.yaml", {})
    [alone] = replayed_tables(pipeline, "p.yaml", f"{tmp_path}/e_b")
    assert (alone.mode, alone.key, alone.rejects_of) == ("upsert", ("id",), None)
    for anchor in ("rest", "e_unrouted"):
        found = replayed_tables(pipeline, "p.yaml", f"{tmp_path}/{anchor}")
        assert [(Path(each.table).name, each.keeps_unrouted) for each in found] == [
            ("e_a", False),
            ("e_b", False),
            ("rest", True),
        ]
        assert {each.rejects_of for each in found} == {f"{tmp_path}/{anchor}"}
