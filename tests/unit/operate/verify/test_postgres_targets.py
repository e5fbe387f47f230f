"""Which table of a database each table of a pipeline is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.operate.verify import verified_source
from streamlake.operate.verify.postgres_table import PostgresTable
from streamlake.operate.verify.verified_source import postgres_tables
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.source.cluster import Topics

MANY = r"""
name: shop
source:
  kafka:
    bootstrap-servers: nowhere:1
    topic-pattern: 'shop\.(?P<schema>[^.]+)\.(?P<table>.+)'
    format: debezium-json
sink:
  table: {table}
  mode: upsert
  tables:
    /lake/public_orders: {{key: [region, number]}}
checkpoint: /lake/checkpoint
"""


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that the broker has."""
    names: list[str] = []

    class Cluster:
        def __init__(self, source: Any) -> None:
            pass

        def __enter__(self) -> Cluster:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def topics(self) -> Topics:
            return Topics(tuple((name, number) for name in names for number in range(2)), {})

    monkeypatch.setattr(verified_source, "KafkaCluster", Cluster)
    return names


def test_a_topic_ends_with_schema_and_table(topics: list[str]) -> None:
    topics += ["shop.public.orders", "shop.sales.people"]
    pipeline = parse_pipeline(MANY.format(table="/lake/{schema}_{table}"), "p.yaml")
    assert postgres_tables(pipeline, "p.yaml", "dbname=shop") == [
        (
            {"table": "/lake/public_orders", "key": ("region", "number")},
            PostgresTable("dbname=shop", "public.orders"),
        ),
        ({"table": "/lake/sales_people"}, PostgresTable("dbname=shop", "sales.people")),
    ]


def test_a_table_of_many_topics_is_no_table_of_a_database(topics: list[str]) -> None:
    topics += ["shop.public.orders", "shop.sales.orders"]
    pipeline = parse_pipeline(MANY.format(table="/lake/{table}"), "p.yaml")
    with pytest.raises(
        InvalidOptionError,
        match=r"p.yaml: /lake/orders is the table of the topics public.orders, sales.orders",
    ):
        postgres_tables(pipeline, "p.yaml", "dbname=shop")
