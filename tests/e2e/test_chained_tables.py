"""The guide on chaining tables, as a reader runs it: its pipeline files, with a broker, stage by stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamlake import load_table
from streamlake.operate.check.pipeline_check import check_pipeline
from streamlake.operate.status.status import status_of
from streamlake.operate.verify.verification import verify
from streamlake.operate.verify.verified_source import pipeline_arguments, pipeline_source
from streamlake.pipeline.definition.pipeline_file import load_pipeline
from streamlake.pipeline.definition.running import PipelineRun, run_pipeline
from streamlake.pipeline.iceberg.snapshot_hold import HOLD_PREFIX
from tests.helpers.docs import DOCS, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.broker import KafkaBroker

STAGES = ("bronze", "silver", "gold")


def written(home: Path) -> dict[str, str]:
    """The guide's pipeline files, by the names of the stages."""
    texts = [block.text for block in blocks(DOCS / "guides" / "chaining-tables.md", "yaml")]
    paths = {}
    for stage, text in zip(STAGES, texts, strict=True):
        assert text.startswith(f"name: {stage}\n")
        path = home / f"{stage}.yaml"
        path.write_text(text)
        paths[stage] = str(path)
    return paths


def rows(home: Path, stage: str) -> list[dict[str, Any]]:
    return sorted(load_table(home / stage).scan().to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.kafka
def test_the_guide(
    spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_broker.create_topic("orders", 2)
    monkeypatch.setenv("KAFKA", kafka_broker.bootstrap_servers)
    monkeypatch.setenv("LAKE", str(tmp_path))
    files = written(tmp_path)
    at = 0

    def order(*pairs: tuple[int, float | None]) -> None:
        nonlocal at
        for number, amount in pairs:
            at += 1
            value = {"id": number, "customer": f"c{number}", "amount": amount, "updated_at": at}
            kafka_broker.produce("orders", [(str(number).encode(), json.dumps(value).encode())])

    def run() -> None:
        for stage in STAGES:
            checked = check_pipeline(files[stage], PipelineRun)
            assert checked.is_right, checked.found
            run_pipeline(load_pipeline(files[stage]), spark)

    order((1, 150.0), (2, 50.0), (3, 500.0), (4, None))
    run()
    assert len(rows(tmp_path, "bronze")) == 4
    assert [row["id"] for row in rows(tmp_path, "silver")] == [1, 2, 3]
    assert [(row["id"], row["amount"]) for row in rows(tmp_path, "gold")] == [(1, 150.0), (3, 500.0)]
    # One order grows above the limit, one falls below it, one changes.
    order((2, 250.0), (3, 5.0), (1, 160.0), (1, 170.0))
    run()
    assert len(rows(tmp_path, "bronze")) == 8
    assert [(row["id"], row["amount"]) for row in rows(tmp_path, "silver")] == [
        (1, 170.0),
        (2, 250.0),
        (3, 5.0),
    ]
    assert [(row["id"], row["amount"]) for row in rows(tmp_path, "gold")] == [(1, 170.0), (2, 250.0)]
    for stage in STAGES:
        pipeline = load_pipeline(files[stage])
        with status_of(pipeline) as reader:
            found = reader.read()
        assert (found.lag, found.problems) == (0, ()), stage
        arguments = pipeline_arguments(pipeline, files[stage])
        source = pipeline_source(pipeline, lambda: spark, files[stage])
        compared = verify(arguments.pop("table"), source, **arguments)
        assert compared.is_equal, (stage, compared)
    refs = load_table(tmp_path / "silver").metadata.refs
    assert len([name for name in refs if name.startswith(HOLD_PREFIX)]) == 1
