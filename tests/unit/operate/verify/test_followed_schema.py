"""What a pipeline's source is compared by where its table has other columns than the file, or another order of changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.catalog.open import create
from streamlake.operate.verify.verification import _may_be_late
from streamlake.operate.verify.verified_source import following
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.definition.pipeline_source import kafka_source
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.types.ddl import parse_ddl

PIPELINE = """
name: orders
source:
  kafka: {{bootstrap-servers: "nowhere:1", topics: orders, format: {format}, schema: "{schema}"}}
sink: {{table: /lake/orders, mode: upsert, key: id, {more}}}
checkpoint: /lake/checkpoint
"""


@pytest.mark.parametrize(
    ("schema", "more", "follows"),
    [
        ("id long, v string", "schema-evolution: add", True),
        ("id long, v string", "delete-mode: position", False),
        ("id long, v string, added int", "schema-evolution: add", False),
        ("id long, gone int", "schema-evolution: add", False),
        ("id long, v string", "schema-evolution: full, rename-columns: {old: v}", False),
    ],
)
def test_the_tables_columns_are_compared_where_its_schema_has_followed_the_streams(
    tmp_path: Path, schema: str, more: str, follows: bool
) -> None:
    text = PIPELINE.format(format="debezium-json", schema=schema, more=more)
    pipeline = parse_pipeline(text, "p.yaml")
    source = kafka_source(pipeline.source)  # type: ignore[arg-type]
    table = create(str(tmp_path / "t"), parse_ddl("id long, v string, added int"))
    found = following(source, pipeline, table)
    assert isinstance(found, KafkaSource)
    assert (found.schema is None) == follows


def test_a_property_of_the_table_says_so_too(tmp_path: Path) -> None:
    pipeline = parse_pipeline(
        PIPELINE.format(format="json", schema="id long", more="create: true").replace(
            "upsert, key: id", "append"
        ),
        "p.yaml",
    )
    properties = {"streamlake.schema-evolution": "add"}
    table = create(str(tmp_path / "t"), parse_ddl("id long, v string"), properties=properties)
    found = following(kafka_source(pipeline.source), pipeline, table)  # type: ignore[arg-type]
    assert isinstance(found, KafkaSource)
    assert found.schema is None


def test_late_changes_are_told_of_where_the_table_may_be_ordered_by_source_positions() -> None:
    debezium = KafkaSource("nowhere:1", "t", format="debezium-json", schema="id long")
    assert _may_be_late(debezium, "upsert", ())
    assert not _may_be_late(debezium, "upsert", ("at",))
    assert not _may_be_late(KafkaSource("nowhere:1", "t", format="json", schema="id long"), "upsert", ())
