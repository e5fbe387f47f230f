"""The page on administration: its examples run, and what it lists is what there is."""

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


def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    location = tmp_path / "orders"
    append(create_table(location, "id long, amount double").table, pa.table({"id": [1], "amount": [None]}))
    catalogs, changes, rows = (
        each.text.replace("//lake/", f"/{tmp_path}/").replace("/lake/orders", str(location))
        for each in blocks(PAGE, "python")
    )
    exec(catalogs, {})
    assert capsys.readouterr().out.startswith("['shop'] ['shop.sales']\n")
    known: dict[str, object] = {}
    exec(changes, known)
    table = load_table(location)
    assert table.schema.column_names == ["id", "total", "note"]
    assert [part.name for part in table.spec.fields] == ["id_bucket_16"]
    assert len(table.sort_order.fields) == 1
    assert table.properties["write.target-file-size-bytes"] == "268435456"
    assert sorted(table.refs) == ["audit", "end-of-year", "main"]
    assert capsys.readouterr().out.endswith("\n1\n")
    exec(rows, known)
    assert capsys.readouterr().out.startswith("1 1 0 ")
    assert load_table(location).scan().count() == 0


def test_the_calls_are_those_that_there_are() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    names = ["UpdateSchema", "UpdatePartitionSpec", "ReplaceSortOrder", "UpdateProperties", "ManageRefs"]
    assert [name for name, _ in listed] == names
    for name, calls in listed:
        public = {each for each in vars(getattr(streamlake, name)) if not each.startswith("_")}
        assert set(re.findall(r"`(\w+)`", calls)) == public - {"apply", "commit"}
