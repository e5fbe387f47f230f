"""The page on administration: its example runs, and what it lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import streamlake
from streamlake import create_table, load_table
from tests.helpers.batch_write import append
from tests.helpers.docs import DOCS, blocks

PAGE = DOCS / "operating" / "administration.md"


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    location = tmp_path / "orders"
    append(create_table(location, "id long, amount double").table, pa.table({"id": [1], "amount": [2.0]}))
    [example] = blocks(PAGE, "python")
    exec(example.text.replace("/lake/orders", str(location)), {})
    table = load_table(location)
    assert table.schema.column_names == ["id", "total", "note"]
    assert table.properties["write.target-file-size-bytes"] == "268435456"
    assert sorted(table.refs) == ["audit", "end-of-year", "main"]
    assert capsys.readouterr().out.endswith("\n1\n")


def test_the_calls_are_those_that_there_are() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [name for name, _ in listed] == ["UpdateSchema", "UpdateProperties", "ManageRefs"]
    for name, calls in listed:
        public = {each for each in vars(getattr(streamlake, name)) if not each.startswith("_")}
        assert set(re.findall(r"`(\w+)`", calls)) == public - {"apply", "commit"}
