"""`streamlake doctor` on the checkpoint directory of a stream from table to table: whole offsets, of one table, forwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamlake.operate.doctor.diagnosis import diagnose
from streamlake.tables import create_table
from tests.helpers.table_pipelines import TablePipeline
from tests.unit.pipeline.iceberg.table_streams import add


@pytest.fixture
def pipeline(tmp_path: Path) -> TablePipeline:
    source = create_table(str(tmp_path / "bronze"), "id long, category string")
    pipeline = TablePipeline(tmp_path, source)
    sink = create_table(str(pipeline.table), "id long, category string")
    for number in range(3):
        add(source, number)
        pipeline.step()
        pipeline.commit(number, [{"id": number}], sink)
    return pipeline


def found(pipeline: TablePipeline) -> dict[str, str]:
    diagnosis = diagnose(str(pipeline.table), checkpoint=str(pipeline.checkpoint))
    return {each.check: each.what for each in diagnosis.findings if "checkpoint" in each.check}


def change(pipeline: TablePipeline, number: int, **values: Any) -> None:
    entry = pipeline.checkpoint / "streamlake" / "offsets" / str(number)
    value = {**json.loads(entry.read_text().split("\n")[1]), **values}
    entry.write_text(f"v1\n{json.dumps({name: each for name, each in value.items() if each is not None})}\n")


def test_a_healthy_one(pipeline: TablePipeline) -> None:
    assert found(pipeline) == {}


def test_an_entry_of_no_source(pipeline: TablePipeline) -> None:
    change(pipeline, 1, planning=None)
    assert "not of an Iceberg table" in found(pipeline)["checkpoint-torn"]


def test_an_entry_of_another_table(pipeline: TablePipeline) -> None:
    change(pipeline, 2, **{"table-uuid": "other"})
    assert "checkpoint 2 has read the table with uuid other" in found(pipeline)["checkpoint-offsets"]


def test_an_entry_that_goes_back(pipeline: TablePipeline) -> None:
    change(pipeline, 2, step=0, position=[0, 0])
    assert "checkpoint 2 ends before the one before it" in found(pipeline)["checkpoint-offsets"]


def test_a_first_entry_without_a_beginning(pipeline: TablePipeline) -> None:
    change(pipeline, 0, start=None)
    assert "checkpoint-offsets" not in found(pipeline), "it is done, and is not read again"
    for number in range(3):
        (pipeline.checkpoint / "commits" / str(number)).unlink()
    assert "does not say where the stream begins" in found(pipeline)["checkpoint-offsets"]
