"""What the texts of options show, and what they do not."""

from __future__ import annotations

from typing import Any

import pytest

from streamlake.commit.lineage import RecoverCommand, catalog_text
from streamlake.operate.verify.postgres_table import PostgresState, PostgresTable
from streamlake.options import shown
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.source.kafka_source import KafkaSource

PASSWORD = "s3cr3t-one"
OPTIONS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.username": "reader",
    "kafka.sasl.password": PASSWORD,
    "kafka.ssl.key.password": PASSWORD,
    "schema-registry.url": f"https://reader:{PASSWORD}@registry:8081",
    "schema-registry.basic-auth": f"reader:{PASSWORD}",
}
CATALOG = {"type": "rest", "uri": f"http://u:{PASSWORD}@c", "token": PASSWORD}
FILE = f"""
source: {{kafka: {{bootstrap-servers: 'b:1', topics: t, options: {{kafka.sasl.password: {PASSWORD}}}}}}}
sink: {{table: db.t, catalog: {{type: rest, uri: 'http://u:{PASSWORD}@c', token: {PASSWORD}, s3.secret-access-key: {PASSWORD}}}}}
checkpoint: /c
spark: {{config: {{spark.hadoop.fs.s3a.secret.key: {PASSWORD}, spark.ui.enabled: false}}}}
"""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (PostgresTable(f"postgresql://u:{PASSWORD}@db/shop", "public.orders"), "public.orders"),
        (PostgresTable(f"host=db password={PASSWORD}", "orders"), "orders"),
        (
            PostgresState(f"host=db password={PASSWORD}", "db:5432/shop orders", (), ("id",), (), None),
            "db:5432",
        ),
        (KafkaSource("b:1", "t", options=OPTIONS), "registry:8081"),
        (KafkaSource("b:1", "t", options=OPTIONS).settings, "SASL_SSL"),
        (parse_pipeline(FILE, "p.yaml", {}), "spark.ui.enabled"),
        (RecoverCommand("db.t", "p", catalog=CATALOG), "type"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_text_of_options_shows_a_password(value: Any, told: str) -> None:
    for text in (repr(value), str(value), f"{value}"):
        assert PASSWORD not in text
        assert told in text
        assert "***" in text


def test_a_command_to_be_pasted_shows_no_password() -> None:
    assert catalog_text({**CATALOG, "warehouse": f"http://u:{PASSWORD}@w"}) == (
        "type=rest,warehouse=http://***@w,uri=...,token=..."
    )


def test_what_is_no_secret_is_shown() -> None:
    options = {"kafka.sasl.username": "u", "url": "https://r:8081/a@b", "n": 1, "token": None, "on": True}
    assert shown(options) == options
